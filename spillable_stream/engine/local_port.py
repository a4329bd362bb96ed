"""The port of a channel on this host: every verb in terms of its engine."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager

from spillable_stream.engine.commit_on_behalf import finish_takes, owner_since
from spillable_stream.engine.groups import create_group, existing_group, note_plan, starting_position
from spillable_stream.engine.local_engine import LocalEngine
from spillable_stream.engine.local_plans import LocalReadPlan, LocalStagePlan, query_of_group
from spillable_stream.engine.port import GroupOwner, ProducerClaim, Put, ReadPlan, StagePlan
from spillable_stream.engine.requests import Control
from spillable_stream.engine.timestamp_index import first_id_since
from spillable_stream.errors import ProducerBusyError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import LostRecord
from spillable_stream.log.quarantine import not_quarantined
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range
from spillable_stream.storage.lock import FileLock, process_note

__all__ = ["LocalPort", "LockedProducer"]


class LocalPort:
    """Answers for a channel on this host. `ChannelPort` documents the verbs.

    Args:
        engine: the channel's engine, open.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def place(self) -> str:
        found = os.stat(self._engine.layout.path)
        return f"{self._engine.channel} {found.st_dev} {found.st_ino}"

    def snapshot(self) -> AbstractContextManager[ChannelState]:
        return self._engine.snapshot()

    def position(self) -> Hashable:
        return self._engine.log.position()

    def latest_position(self) -> Hashable:
        return self._engine.log.latest_position()

    def least_pause_seconds(self) -> float:
        return 0.0

    def require_open(self) -> None:
        self._engine.require_open()

    def first_id_since(self, time_us: int) -> int:
        return first_id_since(self._engine, time_us)

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def plan_read(self, parts: Iterable[Iterable[Range]]) -> list[ReadPlan]:
        layout, host = self._engine.layout, os.uname().nodename
        with self.snapshot() as state:
            schemas, ends = tuple(state.schemas), self._engine.ends()  # which all plans share
            extents = (tuple(extent for r in part for extent in state.blocks.extents(*r)) for part in parts)
            return [LocalReadPlan(layout, schemas, of_part, ends, host) for of_part in extents]

    def tasks_at_once(self) -> int:
        return os.cpu_count() or 1  # the channel is on this host, and so are its tasks, nearly always

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return not_quarantined(self._engine.fs, self._engine.layout.path, lost)

    def report_lost(self, first_id: int, last_id: int) -> None:
        next_id = self._engine.follow().next_id
        value: LostRecord = {
            "lost": [(first_id, last_id)],
            "doubtful": [],
            "next": next_id,
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
        if self._engine.memory.exists():
            self._engine.owners.wait_for_owner_to_go(group, owner, timeout_seconds)

    def commit_through(self, group: str, through_id: int, owner: str | None) -> int:
        return finish_takes(self._engine, group, through_id, owner)

    def query_of(self, group: str) -> str | None:
        return query_of_group(self._engine.fs, self._engine.layout, group)

    # ── staging and publishing ──────────────────────────────────────────────────────────────

    def plan_stage(self) -> StagePlan:
        engine = self._engine
        engine.make_room_if_short()  # tasks make none themselves
        engine.prepare_put()
        state = engine.follow()
        return LocalStagePlan(
            layout=engine.layout,
            schema=state.schemas[-1],
            schema_id=len(state.schemas) - 1,
            compression=state.options.compression,
            memory_bytes=engine.put_bytes(),
            minimum_required_space=state.options.minimum_required_space,
        )

    def publish(self, put: Put, keep_alive_seconds: float) -> bool:
        return self._engine.commit(put, keep_alive_seconds).transaction_id != 0

    def discard(self, names: Iterable[str]) -> None:
        self._engine.drained.discard(list(names))

    def end_staging(self, owner: str, batch_id: int) -> None:
        self._engine.drained.remove_staging(owner, batch_id)

    # ── housekeeping ────────────────────────────────────────────────────────────────────────

    def checkpoint_if_due(self) -> None:
        self._engine.checkpointing.make_if_due()

    def give_back_when_idle(self) -> None:
        self._engine.checkpointing.give_back_when_idle()

    # ── producers ───────────────────────────────────────────────────────────────────────────

    def claim_producer(self, producer_id: str) -> ProducerClaim:
        engine = self._engine
        path = engine.layout.producer_lock(producer_id)
        engine.fs.make_directory(path.parent)
        lock = FileLock.open(engine.fs, path)
        if not lock.try_acquire():
            holder = lock.read_holder()
            lock.close()
            raise ProducerBusyError(
                f"the producer {producer_id!r} of {engine.layout.path} is {holder or 'another process'}; two live ones "
                "would take each other's batches for their own. Stop it, or use another producer_id"
            )
        lock.write_holder(process_note())
        return LockedProducer(lock)


class LockedProducer:
    """A claim that the kernel frees when this process dies.

    Args:
        lock: the producer's lock, held.
    """

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def release(self) -> None:
        self.lock.release()  # also where a forked child has not closed its copy yet
        self.lock.close()

    def leave(self) -> None:
        self.lock.close()
