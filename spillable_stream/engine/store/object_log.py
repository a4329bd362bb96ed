"""The log in an object store, one object per append. It implements `Log`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pyarrow as pa

from spillable_stream.engine import one_look
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.log_port import Followed, refuse_to_write
from spillable_stream.engine.store.channel_presence import ChannelPresence
from spillable_stream.engine.store.handle_lock import HandleLock
from spillable_stream.engine.store.known_slots import KnownSlots
from spillable_stream.engine.store.last_requests import LastRequests
from spillable_stream.engine.store.object_appends import ObjectAppends
from spillable_stream.engine.store.object_looks import ObjectLooks
from spillable_stream.engine.store.untold_loss import UntoldLoss
from spillable_stream.errors import ChannelClosedError, CorruptionError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.log.tier_logs import Positions
from spillable_stream.log.wal import Position
from spillable_stream.objects.appending import Appending, Tail
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint, Checkpoints
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.loading import load
from spillable_stream.objects.location import Location
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.pace import Pace
from spillable_stream.objects.slots import Slots
from spillable_stream.objects.staged_object import StagedObjectWriter
from spillable_stream.objects.store import Store
from spillable_stream.state.channel_state import ChannelState

__all__ = ["ObjectLog"]

_CACHE_BYTES = 64 << 20
_COMMIT_TIMEOUT_SECONDS = 30.0  # until the channel's own is known
_FIRST_POLL_SECONDS = 0.02
_MOMENT_SECONDS = 5.0


class ObjectLog:
    """The log of a channel in an object store, as one handle has it open. Thread-safe.

    What the handle knows of the log changes in one of two ways: by an append, or by a look that found slots of others.
    A look waits for the append that is under way, so a plan is made on a state that nobody changes::

        hold ── plan ── create slot n + 1 ── prove ── know it ── release
                                                          look: read n + 1 …, prove ── wait for `hold` ── know them

    Args:
        store: the store.
        location: what users call the channel.
        channel: its UUID.
        lock_timeout_seconds: how long to wait for other threads.
        readonly: whether the channel is only looked at: the handle refuses to append.
        disk_cache: where what is read is kept on this host; None: nowhere.
        known: a state of the channel to begin with, whatever came since; None: the store is asked.

    Attributes:
        slots: the channel's slots.
        checkpoints: its checkpoints.
        cache: objects that are at hand.
        delayed: the objects in which delayed events wait.
        pace: when the next append may begin.
        is_view: whether the channel is only looked at.
        closed: whether `close` was called.
        is_far: True: a look is a request or two.
        poll_seconds: how long to wait before another look at first, and at most.
        recovery: "": there are no recoveries.
        losses: returns how many losses and repairs this handle has met: after each, an ID may be another event's.
        last_requests: what a close asks of the store.
        is_held_here: tells whether this thread keeps others from appending, as an interrupt may have left it.
        untold_loss: what keeps a loss that no call could raise for the next one.
        checkpoint_number: the slot of the newest checkpoint that is known; 0 if none is.
    """

    def __init__(
        self,
        store: Store,
        location: Location,
        channel: str,
        lock_timeout_seconds: float,
        *,
        readonly: bool,
        disk_cache: DiskCache | None,
        known: Checkpoint | None,
    ) -> None:
        self.location = location
        self.is_view: bool = readonly
        self.channel = channel
        self.store = store
        self.lock_timeout_seconds = lock_timeout_seconds
        self.closed: bool = False
        self.is_far: bool = True
        self.poll_seconds: tuple[float, float] = (_FIRST_POLL_SECONDS, 1.0)
        self.recovery: str = ""
        self.last_requests: LastRequests = LastRequests()
        self.untold_loss: UntoldLoss = UntoldLoss(location)
        self.slots: Slots = Slots(store, channel)
        self.checkpoints: Checkpoints = Checkpoints(store, channel)
        self.cache: ObjectCache = ObjectCache(_CACHE_BYTES)
        self.delayed: DelayedObjects = DelayedObjects(store, channel, self.cache)
        self._disk_cache = disk_cache
        self._first = known
        self._presence = ChannelPresence(self.slots, location, is_proven=known is None)
        self.pace: Pace = Pace()
        self.checkpoint_number: int = 0
        self.writer: str = f"{os.uname().nodename} pid {os.getpid()}"
        self.losses: Callable[[], int] = lambda: self._known.losses
        self._lock = HandleLock(location, lock_timeout_seconds)
        self.is_held_here: Callable[[], bool] = lambda: self._lock.is_mine
        self._known = KnownSlots(self.slots, self.cache, self.pace)
        self._looks = ObjectLooks(self.slots, self._known, self._presence, self.checkpoints, self._lock)
        self._appending = Appending(self.slots, self.writer, Backoff(_COMMIT_TIMEOUT_SECONDS))
        self._appends = ObjectAppends(
            self.slots, self._known, self._looks, self._presence, self.pace, self._appending, self.checkpoints
        )
        self._is_extended = False

    @property
    def is_newest(self) -> bool:
        """Whether a listing has shown that the state was loaded from the newest checkpoint."""
        return self._known.unlisted is None

    @property
    def chain(self) -> Chain:
        """The slots that the state is built from."""
        return self._known.chain

    @property
    def path(self) -> Location:
        """What users call the channel."""
        return self.location

    @property
    def failed(self) -> str | None:
        """Why nothing can be committed through this handle any more: never here, the next append settles the last."""
        return None

    # ── position ────────────────────────────────────────────────────────────────────────────

    def position(self) -> CommitPoint:
        """Return where the log ends, after a look at the store that began after this was called.

        Raises:
            CorruptionError: a slot is damaged.
            NotAChannelError: the channel is no longer there.
            StoreError: the store refused or failed.
            UnsafeStoreError: the store overwrote a slot.
        """
        if not self._lock.is_mine:
            self._looks.look()
        return self._known.point

    def look_if_idle(self) -> None:
        """Look, unless the newest slot that is known was seen a moment ago, as by a commit.

        For what no commit has just proven: a handle whose bucket was put back must notice first, and leave nothing
        behind the slots that are lost.

        Raises what `position` raises.
        """
        if not self._presence.is_fresh(_MOMENT_SECONDS):
            self.position()

    def latest_position(self) -> CommitPoint:
        """Return where the log ended at the last look."""
        return self._known.point

    held_position = latest_position

    # ── follow ──────────────────────────────────────────────────────────────────────────────

    def load(self) -> tuple[ChannelState, Positions]:
        """Return the state at the log's end, and where that is.

        Raises:
            CorruptionError: the log is damaged.
            DataLossError: objects are missing.
            NotAChannelError: another channel is there than the one that is known.
            StoreError: the store refused or failed.
            UnsafeStoreError: slots are lost that were known. The next call continues with what is there.
        """
        first, self._first = self._first, None
        find_loss = self._known.expecting()  # first: other threads may append meanwhile
        loaded = first or self._found()
        if (lost := find_loss(loaded)) is not None:
            self._known.losses += 1  # before it is forgotten which slot is lost: an interrupt may come in between
        self._known.begin(loaded)
        self.checkpoint_number = loaded.base
        if lost is not None:
            raise lost
        return loaded.state, Positions.of(self._known.point)

    def _found(self) -> Checkpoint:
        self._presence.require()
        began = time.monotonic()
        try:
            found = load(self.slots, self.checkpoints, is_hinted=not self._known.must_list)
        except CorruptionError:
            self._presence.is_proven = False  # it may have been removed since
            self._presence.require()
            raise
        self._presence.saw(began)
        return found

    def follow(self, state: ChannelState, start: Positions, end: Positions) -> int:
        """Apply to a state the slots between two positions; returns and raises what `KnownSlots.apply` does."""
        return self._known.apply(state, start, end)

    def is_current(self) -> bool:
        """Tell whether what this handle follows is still the channel's log."""
        return True

    def renew(self) -> None:
        """Find the log of a view anew; there are none here."""

    def look_closely(self) -> None:
        """Have the state loaded anew if a later checkpoint is there than it was loaded from: a listing, once."""
        with self._lock.had():
            self._looks.find_later_checkpoint()

    # ── read ────────────────────────────────────────────────────────────────────────────────

    def reader(self, schema_of: Callable[[int], pa.Schema], end_of: Callable[[int | str], int | None]) -> ObjectReader:
        """Return a reader of events; `Log.reader` explains the arguments. Nothing is written on: no object grows."""
        return ObjectReader(
            self.store,
            self.channel,
            schema_of,
            self.cache,
            self._disk_cache,
            lambda: self.chain.known(),
        )

    def leave_read(self, file_id: int) -> None:
        """Do nothing: nothing is open."""

    leave_written = leave_read

    def require_in_place(self) -> None:
        """Do nothing: names say what an object is, and none is replaced."""

    # ── append ──────────────────────────────────────────────────────────────────────────────

    def hold(self, timeout_seconds: float, prepare: Callable[[], None] = lambda: None) -> AbstractContextManager[None]:
        """Keep the other threads of this handle from appending. Nothing keeps other handles away.

        Raises:
            LockTimeoutError: another thread held it for too long.
            ReadonlyChannelError: the channel is only looked at.
            TransactionStateError: this thread holds it.
        """
        if self.is_view:
            refuse_to_write(self.path, "a commit")

        def begin() -> None:
            if not self._presence.is_fresh():
                # Before a slot is created in what may be another channel by now, or in the hole that collected slots
                # left, where nobody could tell whether it counts.
                self._looks.find()
            if self._known.unlisted is not None:
                self._looks.find_later_checkpoint()
            prepare()

        return self._lock.held(timeout_seconds, begin)

    def heal(self, at: Followed) -> None:
        """Settle an append of this handle whose outcome is not known.

        Raises:
            StorageError: nobody answers, still; this commit was not sent.
        """
        self._appends.heal()

    def reserve(self, tier: Tier, size_bytes: int, at: Followed) -> Position:
        """Return where the next append goes: behind the header of the next slot."""
        return self._appends.begin()

    def append(self, plan: AppendPlan, start: Position, at: Followed) -> Position | None:
        """Append what was planned; returns and raises what `Log.append` does."""
        return self._appends.append(plan, start)

    def extend_format(self) -> None:
        """Record durably that the log has records from now on that earlier versions of this package can't read.

        Raises:
            CorruptionError: the identity that is there can't be read.
            NotAChannelError: the channel is no longer there; what is there stays as it is.
            StoreError: the store refused or failed.
        """
        if not self._is_extended:
            self._presence.extend()
            self._is_extended = True

    def obey(self, state: ChannelState) -> None:
        """Write as the channel's options say."""
        options = state.options
        self.pace.interval_seconds = options.commit_interval / 1000
        self._presence.keep_fresh_for(min(options.gc_delay, options.staging_ttl) / 4)
        self.poll_seconds = _FIRST_POLL_SECONDS, options.poll_interval / 1000
        self._appending.backoff.timeout_seconds = options.commit_timeout

    # ── stage ───────────────────────────────────────────────────────────────────────────────

    @property
    def tail(self) -> Tail:
        """The newest slot that is known."""
        return self._known.tail

    def stage(
        self, *, memory_bytes: int = 0, minimum_required_space: int | None = 0, waiting_bytes: int = 0
    ) -> StagedObjectWriter:
        """Return a new object for events that a later append adopts. No limit of a disk holds here.

        Raises:
            StoreError: the store refused or failed.
        """
        return StagedObjectWriter(self.store, self.channel, self.birth())

    def birth(self) -> int:
        """Return the newest slot that is known, for an object that a later append names.

        A handle that knows of nothing for long looks first: no append may name what was begun before a trim's
        ``births``.

        Raises:
            CorruptionError: a slot is damaged.
            StoreError: the store refused or failed.
        """
        if not self._presence.is_fresh():
            self.position()
        if self._known.must_load:
            return max(self.checkpoints.numbers(), default=self.tail.number)
        return self.tail.number

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def require_open(self) -> None:
        """Refuse a look after `close`. A loss that waits still does: a look may be for what nobody sees.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        if self.closed:
            raise ChannelClosedError(f"the channel {self.path} is closed; open it again")

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        """Return a block for work that no call asked for, or whose caller has succeeded (`UntoldLoss.block`)."""
        return self.untold_loss.block()

    def let_go(self) -> None:
        """Release what an interrupt has left to this thread (`ActiveCalls.let_go`)."""
        self._lock.let_go()
        self.untold_loss.let_go()
        one_look.let_go()

    def require_not_closed(self) -> None:
        """Refuse a call that stores or takes something after `close`, and raise a loss that waits to be told.

        Raises:
            ChannelClosedError: the channel was closed.
            UnsafeStoreError: slots are lost that were known. The next call continues with what is there.
        """
        if self.closed:
            self.require_open()
        if self.untold_loss.waiting is not None:
            self.untold_loss.tell()

    def require_there(self) -> None:
        """Ask the store whether the channel is still there; raises what `ChannelPresence.require` does."""
        self._presence.is_proven = False
        self._presence.require()

    def close(self, *, forked: bool = False) -> None:
        """Close the handle, when the append under way is done, or the store is away; nothing is written.

        Args:
            forked: in a forked child, where other threads do not exist: wait for nobody.
        """
        self.closed = True
        if not forked:
            self.last_requests.have_ended(self._lock.wait)
