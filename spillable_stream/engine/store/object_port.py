"""The port of a channel in an object store: every verb in terms of its engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from spillable_stream.engine.engine_port import EnginePort, claim_lost
from spillable_stream.engine.known_state import KnownState
from spillable_stream.engine.port import PARALLELISM, ProducerClaim, ReadPlan, StagedDelayed, StagePlan
from spillable_stream.engine.store.last_known import known_state_of
from spillable_stream.engine.store.object_delays import StagedDelayObjects
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.engine.store.object_ownership import ObjectOwnership
from spillable_stream.engine.store.object_plans import ObjectReadPlan, ObjectStagePlan, read_query_note
from spillable_stream.errors import GroupOwnedError, ProducerBusyError
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.format.query_note import QueryNote
from spillable_stream.format.schema_history import SchemaHistory
from spillable_stream.names import check_producer
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.salvage import not_quarantined
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range

__all__ = ["ObjectPort", "OwnedProducer"]

_TASKS_AT_ONCE = 64  # where nothing says how many cores the cluster has; with fewer, tasks queue, which costs little
_LEAST_BYTES_OF_MANY = 16 << 20  # as large as a frame of an earlier version, which a task downloads whole
_COMMIT_DELAY_SECONDS = 1.0
_PRODUCERS = "producer:"  # before a producer's ID among the groups that somebody owns; no group's name has a colon


class ObjectPort(EnginePort[ObjectEngine]):
    """Answers for a channel in an object store. `ChannelPort` documents the verbs.

    Args:
        engine: the channel's engine, open.
    """

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def place(self) -> str:
        return f"{self._engine.channel} {self._engine.path}"

    def put_time_us(self, event_id: int) -> int:
        with self._engine.follower.as_known as state:
            (block, *_) = [*state.blocks.between(event_id, event_id), None]
            return block.time_us if block is not None and isinstance(block.file, int) else 0

    def least_pause_seconds(self) -> float:
        return self._engine.log.poll_seconds[1]

    def commit_delay_seconds(self) -> float:
        return _COMMIT_DELAY_SECONDS

    def known_state(self) -> KnownState | None:
        return known_state_of(self._engine)

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def plan_read(self, parts: Iterable[Iterable[Range]], cache: DiskCache | None = None) -> list[ReadPlan]:
        with self._engine.follower.as_known as state:
            schemas = SchemaHistory.of(tuple(state.schemas))  # which all plans share
            return [self._plan_part(state, schemas, list(part), cache) for part in parts]

    def _plan_part(
        self, state: ChannelState, schemas: SchemaHistory, part: list[Range], cache: DiskCache | None
    ) -> ObjectReadPlan:
        log, blocks = self._engine.log, [block for r in part for block in state.blocks.between(*r)]
        times = {block.file: block.time_us for block in blocks if isinstance(block.file, int)}
        extents = tuple([extent for r in part for extent in state.blocks.extents(*r)])
        return ObjectReadPlan(log.location, log.channel, schemas, extents, cache, log.chain.of(times), times)

    def tasks_at_once(self) -> int:
        return _told_tasks() or _TASKS_AT_ONCE

    def least_task_bytes(self) -> int:
        return super().least_task_bytes() if _told_tasks() else _LEAST_BYTES_OF_MANY

    def tasks_end_with_blocks(self) -> bool:
        """Tell whether nothing says how many tasks run at once; then those that wrote the segments are a good guess."""
        return not _told_tasks()

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return not_quarantined(self._engine.log.store, lost)

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def let_owner_go_first(self, group: str, owner: str, timeout_seconds: float) -> None:
        pass  # nothing is in memory, so no handle matters for being the last

    def query_note(self, group: str) -> QueryNote | None:
        return read_query_note(self._engine.log.store, self._engine.log.channel, group)

    # ── staging ─────────────────────────────────────────────────────────────────────────────

    def plan_stage(self) -> StagePlan:
        state, log = self._engine.follow(), self._engine.log
        return ObjectStagePlan(
            location=log.location,
            channel=log.channel,
            schema=state.schemas[-1],
            schema_id=len(state.schemas) - 1,
            compression=state.options.compression,
            birth=log.tail.number,
        )

    def adopt(self, runs: Sequence[DelayedRun]) -> StagedDelayed | None:
        return StagedDelayObjects(runs) if runs else None

    def discard(self, names: Iterable[str]) -> None:
        """Delete staged objects that no commit adopted; a commit whose outcome is not known is settled first."""
        engine = self._engine
        with engine.committing(), engine.follower.as_known as state:
            adopted = state.segments()
        for name in names:
            if name not in adopted:
                engine.log.store.delete(name)

    def end_staging(self, owner: str, batch_id: int) -> None:
        """Leave it to a collector: to look for what an owner staged would be a listing for each batch."""

    # ── producers ───────────────────────────────────────────────────────────────────────────

    def claim_producer(self, producer_id: str) -> ProducerClaim:
        check_producer(producer_id)
        try:
            return OwnedProducer(self._engine.owners.own(f"{_PRODUCERS}{producer_id}", 0, ""))
        except GroupOwnedError as e:
            raise ProducerBusyError(
                f"the producer {producer_id!r} of {self._engine.path} is {e.owner}; two live ones would take each "
                "other's batches for their own. Stop it, or use another producer_id"
            ) from None


class OwnedProducer:
    """A claim on a producer's ID, until it is given up or somebody else claims it and finds no answer.

    Args:
        owned: the ownership.
    """

    def __init__(self, owned: ObjectOwnership) -> None:
        self._owned = owned

    def require(self, state: ChannelState) -> None:
        owned = self._owned
        known = state.owners.get(owned.group)
        if known is None or known.epoch != owned.epoch:
            raise claim_lost(owned.group.removeprefix(_PRODUCERS), "" if known is None else known.note)

    def release(self) -> None:
        self._owned.close()

    def leave(self) -> None:
        self._owned.leave()


def _told_tasks() -> int:
    """Return how many tasks the cluster runs at once, as this process was told; 0 if it was not."""
    told = os.environ.get(PARALLELISM, "")
    return int(told) if told.isdecimal() else 0
