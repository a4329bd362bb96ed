"""What the ports of all channels have in common: the verbs that need no more of a channel than its engine."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, NoReturn, TypeVar

import pyarrow as pa

from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.delayed_puts import Delayed
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import expired_events, now_us
from spillable_stream.engine.groups import create_group, existing_group, record_plan, starting_position
from spillable_stream.engine.known_state import KnownState
from spillable_stream.engine.owner_note import owner_since
from spillable_stream.engine.port import ChannelPort, GroupOwner, Put
from spillable_stream.engine.requests import UnreadableEvents
from spillable_stream.engine.timestamp_index import first_id_since
from spillable_stream.errors import ProducerBusyError
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range

__all__ = ["EnginePort", "claim_lost"]

EngineT = TypeVar("EngineT", bound=Engine)
_LEAST_TASK_BYTES = 4 << 20  # a task costs Spark as much as reading some MiB (spark.sql.files.openCostInBytes)


def claim_lost(producer_id: str, owner: str) -> ProducerBusyError:
    """Return the error of a producer whose ID another one may have had.

    Args:
        producer_id: the ID.
        owner: what its owner says of itself now; "" if there is none.
    """
    by = f"{owner} has it" if owner else "another one may have had it"
    return ProducerBusyError(
        f"this producer lost its ID {producer_id!r}: {by}, and used its next numbers for other events. Nothing was "
        "stored now; create another producer, which continues after the last number, and send what was not stored"
    )


class EnginePort(ChannelPort, Generic[EngineT]):
    """Answers for a channel, wherever it is stored, as far as that does not matter. `ChannelPort` documents the verbs.

    Args:
        engine: the channel's engine, open.
    """

    def __init__(self, engine: EngineT) -> None:
        self._engine = engine

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def schemas(self) -> list[pa.Schema]:
        return self._engine.schemas()

    def snapshot(self) -> AbstractContextManager[ChannelState]:
        return self._engine.snapshot()

    def position(self) -> Hashable:
        return self._engine.log.position()

    def latest_position(self) -> Hashable:
        return self._engine.log.latest_position()

    def require_open(self) -> None:
        self._engine.require_open()

    def known_state(self) -> KnownState | None:
        return None

    def first_id_since(self, time_us: int) -> int:
        return first_id_since(self._engine, time_us)

    def expired(self, ranges: Iterable[Range]) -> list[Range]:
        reader = self._engine.reader()
        try:
            return expired_events(self._engine, reader, ranges, now_us())
        finally:
            reader.close()

    def least_task_bytes(self) -> int:
        return _LEAST_TASK_BYTES

    def tasks_end_with_blocks(self) -> bool:
        return False

    def report_lost(self, file: int | str, first_id: int, last_id: int) -> None:
        self._engine.commit(UnreadableEvents(file, first_id, last_id))

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def group(self, name: str) -> GroupState:
        with self.snapshot() as state:
            return existing_group(state, name, self._engine.path)

    def starting_position(self, starting: str) -> int:
        with self.snapshot() as state:
            return starting_position(starting, state, self._engine.path)

    def create_group(self, name: str, starting: str, *, automatic: bool = False, since: int | None = None) -> int:
        return create_group(self._engine, name, starting, automatic=automatic, since=since)

    def record_plan(self, group: str) -> None:
        record_plan(self._engine, group)

    def owner_of(self, group: str) -> GroupOwner:
        note = self._engine.owners.owner_of(group)
        return GroupOwner(note, owner_since(note))

    def commit_through(self, group: str, through_id: int, owner: str | None) -> int:
        return finish_takes(self._engine, group, through_id, owner)

    # ── publishing ──────────────────────────────────────────────────────────────────────────

    def delay(self, chunks: Sequence[DelayedChunk]) -> Delayed | None:
        return self._engine.deliveries.delay(list(chunks)) if chunks else None

    def publish(self, put: Put, keep_alive_seconds: float) -> bool:
        return self._engine.commit(put, keep_alive_seconds).transaction_id != 0

    # ── housekeeping ────────────────────────────────────────────────────────────────────────

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        return self._engine.log.unasked()

    def refuse_to_write(self, what: str) -> NoReturn:
        self._engine.refuse_to_write(what)

    def deliver(self) -> None:
        self._engine.follow()  # others may have delayed events; far away the rest of Spark's call shares the look
        while self._engine.deliveries.deliver():
            pass

    def checkpoint_if_due(self) -> None:
        self._engine.checkpointing.create_if_due()

    def give_back_when_idle(self) -> None:
        self._engine.checkpointing.give_back_when_idle()
