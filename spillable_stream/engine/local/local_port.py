"""The port of a channel on this host: every verb in terms of its engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from spillable_stream.engine.engine_port import EnginePort, claim_lost
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.engine.local.local_plans import LocalReadPlan, LocalStagePlan, read_query_note
from spillable_stream.engine.local.staged_delays import StagedDelayFiles
from spillable_stream.engine.port import ProducerClaim, ReadPlan, StagedDelayed, StagePlan
from spillable_stream.errors import ProducerBusyError
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.format.query_note import QueryNote
from spillable_stream.format.schema_history import SchemaHistory
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.layout import require_name_of_lock
from spillable_stream.log.quarantine import not_quarantined
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range
from spillable_stream.storage.lock import FileLock, process_note

__all__ = ["LocalPort", "LockedProducer"]


class LocalPort(EnginePort[LocalEngine]):
    """Answers for a channel on this host. `ChannelPort` documents the verbs.

    Args:
        engine: the channel's engine, open.
    """

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def place(self) -> str:
        found = os.stat(self._engine.layout.path)
        return f"{self._engine.channel} {found.st_dev} {found.st_ino}"

    def put_time_us(self, event_id: int) -> int:
        return 0  # a restore and a recovery have tokens

    def least_pause_seconds(self) -> float:
        return 0.0

    def commit_delay_seconds(self) -> float:
        return 0.0

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def plan_read(self, parts: Iterable[Iterable[Range]], cache: DiskCache | None = None) -> list[ReadPlan]:
        layout, host = self._engine.layout, os.uname().nodename
        with self.snapshot() as state:
            schemas = SchemaHistory.of(tuple(state.schemas))  # which all plans share, like the ends
            ends: dict[int | str, int] = dict(self._engine.follower.positions)
            extents = (tuple(extent for r in part for extent in state.blocks.extents(*r)) for part in parts)
            return [LocalReadPlan(layout, schemas, of_part, ends, host) for of_part in extents]

    def tasks_at_once(self) -> int:
        return os.cpu_count() or 1  # the channel is on this host, and so are its tasks, nearly always

    def not_quarantined(self, lost: Iterable[Range]) -> list[Range]:
        return not_quarantined(self._engine.fs, self._engine.layout.path, lost)

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def let_owner_go_first(self, group: str, owner: str, timeout_seconds: float) -> None:
        if self._engine.memory.exists():
            self._engine.owners.wait_for_owner_to_go(group, owner, timeout_seconds)

    def query_note(self, group: str) -> QueryNote | None:
        return read_query_note(self._engine.fs, self._engine.layout, group)

    # ── staging ─────────────────────────────────────────────────────────────────────────────

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
            memory_bytes=engine.memory_put_bytes(),
            minimum_required_space=state.options.minimum_required_space,
            waiting_bytes=state.delays.payload_bytes,
        )

    def adopt(self, runs: Sequence[DelayedRun]) -> StagedDelayed | None:
        engine = self._engine
        return StagedDelayFiles(runs, DelayedFiles(engine.fs, engine.layout)) if runs else None

    def discard(self, names: Iterable[str]) -> None:
        self._engine.drained.discard(list(names))

    def end_staging(self, owner: str, batch_id: int) -> None:
        self._engine.drained.remove_staging(owner, batch_id)

    # ── producers ───────────────────────────────────────────────────────────────────────────

    def claim_producer(self, producer_id: str) -> ProducerClaim:
        engine = self._engine
        path = engine.layout.producer_lock(producer_id)
        require_name_of_lock(producer_id)
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

    def require(self, state: ChannelState) -> None:
        if not self.lock.is_in_place():
            raise claim_lost(self.lock.path.stem, "")

    def release(self) -> None:
        self.lock.release()  # also where a forked child has not closed its copy yet
        self.lock.close()

    def leave(self) -> None:
        self.lock.close()
