"""The port of a channel in an object store: every verb in terms of its engine."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager

from spillable_stream.engine.commit_on_behalf import finish_takes, owner_since
from spillable_stream.engine.groups import create_group, existing_group, note_plan, starting_position
from spillable_stream.engine.object_engine import ObjectEngine
from spillable_stream.engine.object_owners import ObjectOwnership
from spillable_stream.engine.object_plans import ObjectReadPlan, ObjectStagePlan, query_of_group
from spillable_stream.engine.port import GroupOwner, ProducerClaim, Put, ReadPlan, StagePlan
from spillable_stream.engine.requests import Control
from spillable_stream.engine.timestamp_index import first_id_since
from spillable_stream.errors import GroupOwnedError, ProducerBusyError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import LostRecord
from spillable_stream.names import check_producer
from spillable_stream.objects.salvage import not_quarantined
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range

__all__ = ["ObjectPort", "OwnedProducer"]

_TASKS_AT_ONCE = 64  # Spark tells a source nothing of its cluster; with fewer cores tasks queue, which costs little
_PRODUCERS = "producer:"  # before a producer's ID among the groups that somebody owns; no group's name has a colon


class ObjectPort:
    """Answers for a channel in an object store. `ChannelPort` documents the verbs.

    Args:
        engine: the channel's engine, open.
    """

    def __init__(self, engine: ObjectEngine) -> None:
        self._engine = engine

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def place(self) -> str:
        return f"{self._engine.channel} {self._engine.path}"

    def snapshot(self) -> AbstractContextManager[ChannelState]:
        return self._engine.snapshot()

    def position(self) -> Hashable:
        return self._engine.log.position()

    def latest_position(self) -> Hashable:
        return self._engine.log.latest_position()

    def least_pause_seconds(self) -> float:
        return self._engine.log.poll_seconds[1]

    def require_open(self) -> None:
        self._engine.require_open()

    def first_id_since(self, time_us: int) -> int:
        return first_id_since(self._engine, time_us)

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def plan_read(self, parts: Iterable[Iterable[Range]]) -> list[ReadPlan]:
        log = self._engine.log
        with self._engine.follower.as_known as state:
            schemas = tuple(state.schemas)  # which all plans share
            extents = (tuple(extent for r in part for extent in state.blocks.extents(*r)) for part in parts)
            return [ObjectReadPlan(log.location, log.provider, log.channel, schemas, of_part) for of_part in extents]

    def tasks_at_once(self) -> int:
        return _TASKS_AT_ONCE

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return not_quarantined(self._engine.log.store, lost)

    def report_lost(self, first_id: int, last_id: int) -> None:
        value: LostRecord = {
            "lost": [(first_id, last_id)],
            "doubtful": [],
            "next": self._engine.follow().next_id,
            "groups": {},
            "kept": True,
        }
        self._engine.commit(Control(FrameType.LOST, value))

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def group(self, name: str) -> GroupState:
        with self.snapshot() as state:
            return existing_group(state, name, self._engine.path)

    def starting_position(self, starting: str) -> int:
        with self.snapshot() as state:
            return starting_position(starting, state, self._engine.path)

    def create_group(self, name: str, starting: str, *, automatic: bool = False, since: int | None = None) -> int:
        return create_group(self._engine, name, starting, automatic=automatic, since=since)

    def note_plan(self, group: str) -> None:
        note_plan(self._engine, group)

    def owner_of(self, group: str) -> GroupOwner:
        note = self._engine.owners.owner_of(group)
        return GroupOwner(note, owner_since(note))

    def let_owner_go_first(self, group: str, owner: str, timeout_seconds: float) -> None:
        pass  # nothing is in memory, so no handle matters for being the last

    def commit_through(self, group: str, through_id: int, owner: str | None) -> int:
        return finish_takes(self._engine, group, through_id, owner)

    def query_of(self, group: str) -> str | None:
        return query_of_group(self._engine.log.store, group)

    # ── staging and publishing ──────────────────────────────────────────────────────────────

    def plan_stage(self) -> StagePlan:
        state, log = self._engine.follow(), self._engine.log
        return ObjectStagePlan(
            location=log.location,
            provider=log.provider,
            channel=log.channel,
            schema=state.schemas[-1],
            schema_id=len(state.schemas) - 1,
            compression=state.options.compression,
            birth=log.tail.number,
        )

    def publish(self, put: Put, keep_alive_seconds: float) -> bool:
        return self._engine.commit(put, keep_alive_seconds).transaction_id != 0

    def discard(self, names: Iterable[str]) -> None:
        """Delete staged objects that no commit adopted; a commit whose outcome is not known is settled first."""
        engine = self._engine
        with engine.committing(), engine.follower.as_known as state:
            adopted = state.blocks.segments()
        for name in names:
            if name not in adopted:
                engine.log.store.delete(name)

    def end_staging(self, owner: str, batch_id: int) -> None:
        """Leave it to a collector: to look for what an owner staged would be a listing for each batch."""

    # ── housekeeping ────────────────────────────────────────────────────────────────────────

    def checkpoint_if_due(self) -> None:
        self._engine.checkpointing.make_if_due()

    def give_back_when_idle(self) -> None:
        self._engine.checkpointing.give_back_when_idle()

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

    def release(self) -> None:
        self._owned.close()

    def leave(self) -> None:
        self._owned.leave()
