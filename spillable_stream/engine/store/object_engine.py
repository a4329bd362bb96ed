"""The engine of a channel in an object store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.committer import Committer
from spillable_stream.engine.delayed_chunk import DelayedChunk
from spillable_stream.engine.deliveries import Deliveries
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.options_by_storage import refuse_unfit_options
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.retention import Retention
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing
from spillable_stream.engine.store.object_delays import ObjectStaging, StagedDelayObjects, write_delayed
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.engine.store.object_owners import ObjectOwners
from spillable_stream.engine.store.object_upkeep import ObjectUpkeep
from spillable_stream.engine.store.object_worker_statuses import ObjectWorkerStatuses
from spillable_stream.engine.telemetry import FileCounts
from spillable_stream.errors import StorageError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.objects.metered_store import StoreUsage
from spillable_stream.objects.staged_object import birth_of
from spillable_stream.option_names import named
from spillable_stream.options import CREATION, defaults
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.boot import boot_id

__all__ = ["ObjectEngine"]


class ObjectEngine(Engine):
    """A channel in an object store as one process uses it. Thread-safe.

    There is no memory tier, no lock and no disk whose space runs out; `Engine` documents the verbs.

    Args:
        log: the channel's log, whose state has not been loaded.
        usage: returns what was asked of the store since the handle was opened.
    """

    appender: Appender
    checkpointing: ObjectCheckpointing
    deliveries: Deliveries
    follower: Follower
    log: ObjectLog
    make_room: Callable[[], None]
    memory_put_bytes: Callable[[], int]
    owners: ObjectOwners
    prepare_put: Callable[[], None]
    store_usage: Callable[[], StoreUsage | None]
    upkeep: ObjectUpkeep
    wait_for: Callable[[Callable[[ChannelState], bool], float], bool]

    def __init__(self, log: ObjectLog, usage: Callable[[], StoreUsage]) -> None:
        super().__init__(log.location, log.channel)
        self.store_usage = usage
        self.log = log
        self.active_calls.let_go = log.let_go
        self.follower = follower = Follower(log, self.active_calls, self.readers.clear)
        self.appender = appender = Appender(log, follower, self.counters)
        self.checkpointing = ObjectCheckpointing(log, follower, appender, self.active_calls, self.counters)
        self.worker_statuses: ObjectWorkerStatuses = ObjectWorkerStatuses(
            log.store, log.channel, follower, log.last_requests
        )
        owners = ObjectOwners(log, follower, appender, self.worker_statuses.forget)
        committer = self._new_committer(owners)
        self._wire(owners, committer)
        self.deliveries = deliveries = self._new_deliveries()
        self.wait_for, committer.deliver = deliveries.wait_for, deliveries.deliver
        self.checkpointing.delay_merging.clock_ms = lambda: deliveries.clock_ms()
        self.upkeep = self._new_upkeep(owners)
        committer.when_full = self.upkeep.ensure
        self.prepare_put = self.make_room = lambda: None
        self.memory_put_bytes = lambda: 0

    def _new_committer(self, owners: ObjectOwners) -> Committer:
        log, none = self.log, _Nothing()
        committer = Committer(
            log,
            self.follower,
            self.appender,
            none,
            none,
            none,
            _Segments(log),
            owners,
            self.active_calls,
            self.counters,
        )
        committer.group_commit.pace = log.pace.wait
        committer.poll_seconds = log.poll_seconds[1] / 4
        return committer

    def _new_deliveries(self) -> Deliveries:
        return Deliveries(
            self.log,
            self.follower,
            self.appender,
            lambda: None,
            self.log.delayed,
            self._write_delayed,
            partial(ObjectStaging, self._write_delayed),
        )

    def _new_upkeep(self, owners: ObjectOwners) -> ObjectUpkeep:
        log, follower, appender = self.log, self.follower, self.appender
        retention = Retention(log, follower, appender, owners, lambda: boot_id().hex())
        groups = AutomaticGroups(log, follower, appender, owners)
        return ObjectUpkeep(log, follower, owners, retention, groups, self.checkpointing, self.active_calls)

    def _write_delayed(self, chunks: list[DelayedChunk]) -> StagedDelayObjects:
        """Write the delayed events of a put to one object, if that is not too large: each is a request."""
        return write_delayed(self.log.delayed, self.log.birth(), [chunks])

    def without_fixed(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options that can be changed; a channel in a store has none of those that are fixed."""
        refuse_unfit_options(given, in_store=True)
        return {name: value for name, value in given.items() if name not in defaults(CREATION)}

    def fixed_options(self) -> dict[str, object]:
        """Return none: all objects of a channel are under one root."""
        return {}

    def file_counts(self, state: ChannelState) -> FileCounts:
        """Return how many slots and segments hold what is in the channel, or may yet be collected."""
        slots = self.positions.disk.file_id - max(state.trimmed.through, 0)
        return FileCounts(data_files=slots, segments=len(state.segments()))

    def flush(self) -> int:
        """Return 0: nothing is in memory."""
        return 0

    # ── closing ─────────────────────────────────────────────────────────────────────────────

    def leave(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        """Create a checkpoint if one is worth it; `Engine` explains the arguments."""
        options = self.state.options
        if self.closed or self.log.is_view:
            return
        if options.checkpoint_on_close if checkpoint is None else checkpoint:
            self.checkpointing.create_if_worth_it()

    def park(self) -> None:
        """Do nothing: a handle keeps nobody away."""

    def resume(self) -> bool:
        """Tell whether the handle is open."""
        return not self.closed

    def close(self, *, forked: bool = False) -> None:
        """Close after the append under way; write nothing. `Engine` documents it."""
        self.upkeep.close(forked=forked)
        self.owners.close(forked=forked)
        self.log.close(forked=forked)
        self.readers.clear()


class _Nothing:
    """The tiers, the way between them and the free space of a channel that has no such thing."""

    def open(self) -> bool:
        return False

    is_ready = open

    def has_pages_for(self, size_bytes: int) -> bool:
        return False

    def reserve_ids(self, last_id: int) -> None:
        pass

    def free_taken(self) -> None:
        pass

    def refuse(self, cause: StorageError) -> None:
        pass

    def why_not(self) -> StorageError | None:
        return None

    def make_room(self, size_bytes: int) -> None:
        pass

    def make_within_a_commit(self) -> None:
        pass

    def after_a_commit(self) -> None:
        pass


class _Segments:
    """What puts were staged in. It implements `StagedPort`."""

    def __init__(self, log: ObjectLog) -> None:
        self._log = log

    def found(self, segment: SegmentRef) -> SegmentRef:
        return segment

    def prepare(self, request: Put, plan: AppendPlan, file_id: int, end: int) -> None:
        """Refuse a put whose objects a collector may have removed by now, or may remove before anybody reads them."""
        if not (request.segments or request.delayed) or request.done(plan):
            return
        held = request.delayed.runs if isinstance(request.delayed, StagedDelayObjects) else ()
        for name in [*(segment.name for segment in request.segments), *(run.name for run in held)]:
            birth = birth_of(name)
            if birth is None or birth < plan.state.trimmed.births:
                raise StorageError(
                    f"the staged object {self._log.store.root}/{name} is older than {named('stagingTtl')}, so it may "
                    "be gone; nothing was committed: do the write again"
                )
