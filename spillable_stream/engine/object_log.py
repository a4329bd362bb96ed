"""The log in an object store, one object per append. It implements `Log`."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import get_ident

import pyarrow as pa

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.channel_presence import ChannelPresence
from spillable_stream.engine.log_port import Followed, refuse_to_write
from spillable_stream.errors import (
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    LockTimeoutError,
    NotAChannelError,
    StorageError,
    TransactionStateError,
)
from spillable_stream.format.file_names import Tier
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd
from spillable_stream.format.slot import NO_TOKEN, Slot, SlotFrame
from spillable_stream.log.commit_lock import do_nothing
from spillable_stream.log.tier_logs import Positions
from spillable_stream.log.wal import Position
from spillable_stream.objects.appending import Appending, Attempt, Tail
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.checkpoints import Checkpoint, Checkpoints
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.identity import extend_identity
from spillable_stream.objects.loading import (
    apply_frames,
    counting_frames,
    load,
)
from spillable_stream.objects.location import Location
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.pace import Pace
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.patience import Patience
from spillable_stream.objects.read_ahead import BehindError, ReadAhead, require_there
from spillable_stream.objects.slots import ForeignSlotError, Slots, slot_key
from spillable_stream.objects.staged_object import LOCAL_OWNER, StagedObjectWriter
from spillable_stream.objects.store import Store
from spillable_stream.state.channel_state import ChannelState

__all__ = ["ObjectLog"]

_CACHE_BYTES = 64 << 20
_COMMIT_TIMEOUT_SECONDS = 30.0  # until the channel's own is known
_FIRST_POLL_SECONDS = 0.02


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
        patience: how long to try requests again.
        provider: the provider of the store's credentials; "" for the environment's.
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
        chain: the slots that the state is built from.
        checkpoint_number: the slot of the newest checkpoint that is known; 0 if none is.
    """

    def __init__(
        self,
        store: Store,
        location: Location,
        channel: str,
        lock_timeout_seconds: float = 30.0,
        patience: Patience | None = None,
        *,
        provider: str = "",
        readonly: bool = False,
        disk_cache: DiskCache | None = None,
        known: Checkpoint | None = None,
    ) -> None:
        self.location = location
        self.provider = provider
        self.is_view: bool = readonly
        self.channel = channel
        self.store = store
        self.lock_timeout_seconds = lock_timeout_seconds
        self.closed: bool = False
        self.is_far: bool = True
        self.poll_seconds: tuple[float, float] = (_FIRST_POLL_SECONDS, 1.0)
        self.slots: Slots = Slots(store, channel)
        self.checkpoints: Checkpoints = Checkpoints(store, channel)
        self.cache: ObjectCache = ObjectCache(_CACHE_BYTES)
        self.delayed: DelayedObjects = DelayedObjects(store, channel, self.cache)
        self._disk_cache = disk_cache
        self._known = known
        self._presence = ChannelPresence(self.slots, location, is_proven=known is None)
        self.pace: Pace = Pace()
        self.chain: Chain = Chain(-1, NO_TOKEN)
        self.checkpoint_number: int = 0
        self.writer: str = f"{os.uname().nodename} pid {os.getpid()}"
        self._appending = Appending(self.slots, self.writer, patience or Patience(_COMMIT_TIMEOUT_SECONDS))
        self._hold = threading.Lock()
        self._holder = 0  # the thread that has it
        self._looking = threading.Lock()
        self._looks_begun = 0
        self._looks_ended = 0  # the number of the newest one that ended well
        self._unsettled: Attempt | None = None
        self._news: dict[int, list[SlotFrame]] = {}  # what was found and not applied, without events
        self._appended: Attempt | None = None  # the last one; it may not be applied yet
        self._must_load = False
        self._is_extended = False
        self._tail: Tail | None = None
        self._point = CommitPoint(NO_TIER, NO_TIER)

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
            StoreError: the store refused or failed.
        """
        if self._holder != get_ident():
            self._look()
        return self._point

    def latest_position(self) -> CommitPoint:
        """Return where the log ended at the last look."""
        return self._point

    held_position = latest_position

    def _look(self) -> None:
        """Find what others appended. Threads that come while one looks share the next look."""
        before = self._looks_begun
        with self._looking:
            if self._looks_ended > before:
                return
            self._looks_begun = number = self._looks_begun + 1
            self._find()
            self._looks_ended = number

    def _find(self) -> None:
        tail, is_end = self._tail, False
        assert tail is not None
        with ReadAhead(self.slots, tail) as ahead:
            while not is_end:
                began = time.monotonic()
                try:
                    found, is_end = ahead.chunk()
                except BehindError:
                    with self._knowing():
                        self._begin_anew()
                    return
                except CorruptionError:
                    self._presence.is_proven = False  # another channel's slots look damaged
                    self._presence.require()
                    raise
                self._presence.saw(began)
                if found:
                    with self._knowing():
                        self._know(found)

    @contextlib.contextmanager
    def _knowing(self) -> Iterator[None]:
        """Keep appends away while what is known changes; nothing to do for the thread that appends."""
        if self._holder == get_ident():
            yield
            return
        with self._held(self.lock_timeout_seconds):
            yield

    def _know(self, found: Sequence[Slot]) -> None:
        """Take note of slots that follow each other; an append of this handle may have come before, and be in them."""
        tail = self._tail
        assert tail is not None
        for slot in found:
            if slot.number == tail.number + 1:
                self.pace.saw_others()
                self._news[slot.number] = counting_frames(tail, slot)  # the cache has the events, as far as it can
                self.cache.put(slot_key(slot.number), slot.data)
                self.chain.add(slot.number, slot.header.token)
                tail = tail.then(slot)
        self._move_to(tail)

    def _move_to(self, tail: Tail) -> None:
        if tail is not self._tail:
            self._tail = tail
            self._publish()

    def _publish(self) -> None:
        tail = self._tail
        assert tail is not None
        state = HeadState.APPENDING if self._unsettled is not None else HeadState.CLEAN
        # The end of a log that must be loaded lies beyond all that was applied, wherever that is.
        number, end = (tail.number + 1, 0) if self._must_load else (tail.number, tail.end)
        self._point = CommitPoint(TierEnd(number, end, state), NO_TIER)

    def _begin_anew(self) -> None:
        """Have the state loaded: slots that this handle has not read were collected, or the channel was removed."""
        self._must_load, self._presence.is_proven = True, False
        self._unsettled = None  # its place was collected, too: nobody will ever know
        self._publish()

    # ── follow ──────────────────────────────────────────────────────────────────────────────

    def load(self) -> tuple[ChannelState, Positions]:
        """Return the state at the log's end, and where that is.

        Raises:
            CorruptionError: the log is damaged.
            DataLossError: objects are missing.
            NotAChannelError: another channel is there than the one that is known.
            StoreError: the store refused or failed.
        """
        known, self._known = self._known, None
        if known is None:
            self._presence.require()
            self._presence.saw(time.monotonic())
        loaded = known or load(self.slots, self.checkpoints)
        self._news.clear()
        self.cache.clear()  # there may be other slots of the same numbers now
        self._must_load = False
        self._tail, self.chain = loaded.tail, loaded.chain
        if known is None:
            self.checkpoint_number = max(self.checkpoint_number, loaded.base)
        self._publish()
        return loaded.state, self._positions()

    def _positions(self) -> Positions:
        return Positions.of(self._point)

    def follow(self, state: ChannelState, start: Positions, end: Positions) -> int:
        """Apply to a state the slots between two positions, and return how many there were.

        Raises:
            FileNotFoundError: they are not at hand: load the state.
            CorruptionError: a frame is invalid.
        """
        if self._must_load:
            raise FileNotFoundError(f"slots after {start.disk.file_id} were collected")
        for number in range(start.disk.file_id + 1, end.disk.file_id + 1):
            found = self._news.pop(number, None)
            if found is None:
                found = self._own(number)
            if found is None:
                raise FileNotFoundError(f"slot {number} is not at hand")
            apply_frames(self.slots, state, number, found)
        return end.disk.file_id - start.disk.file_id

    def _own(self, number: int) -> list[SlotFrame] | None:
        """Return the frames of a slot that this handle has just appended, for a thread that looks before they apply."""
        own = self._appended
        if own is None or own.number != number:
            return None
        return counting_frames(own.at, Slot.parse(self.channel, number, own.data))

    def is_current(self) -> bool:
        """Tell whether what this handle follows is still the channel's log."""
        return True

    def renew(self) -> None:
        """Find the log of a view anew; there are none here."""

    # ── read ────────────────────────────────────────────────────────────────────────────────

    def reader(
        self, schemas: Callable[[], Sequence[pa.Schema]], ends: Callable[[], Mapping[int | str, int]]
    ) -> ObjectReader:
        """Return a reader of events.

        Args:
            schemas: returns the channel's schemas.
            ends: unused: an object never grows.
        """
        return ObjectReader(
            self.store,
            self.channel,
            lambda schema_id: schemas()[schema_id],
            self.cache,
            self._disk_cache,
            lambda number: self.chain.identity_of(number),
        )

    def leave_read(self, file_id: int) -> None:
        """Do nothing: nothing is open."""

    leave_written = leave_read

    def require_in_place(self) -> None:
        """Do nothing: names say what an object is, and none is replaced."""

    # ── append ──────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def hold(self, timeout_seconds: float, prepare: Callable[[], None] = do_nothing) -> Iterator[None]:
        """Keep the other threads of this handle from appending. Nothing keeps other handles away.

        Raises:
            LockTimeoutError: another thread held it for too long.
            ReadonlyChannelError: the channel is only looked at.
            TransactionStateError: this thread holds it.
        """
        if self.is_view:
            refuse_to_write(self.path, "a commit")
        with self._held(timeout_seconds):
            if not self._presence.is_fresh():
                # Before a slot is made in what may be another channel by now, or in the hole that collected slots left,
                # where nobody could tell whether it counts.
                self._find()
            prepare()
            yield

    @contextlib.contextmanager
    def _held(self, timeout_seconds: float) -> Iterator[None]:
        if self._holder == get_ident():
            raise TransactionStateError(f"this thread commits to {self.path} already: no call may start inside another")
        had = list[bool]()
        try:
            had.extend(map(self._hold.acquire, (True,), (timeout_seconds,)))  # one call: no interrupt comes in between
            if not had[0]:
                raise LockTimeoutError(
                    f"another thread has been committing to {self.path} for more than {timeout_seconds:g} s; the store "
                    "may be slow, or not answer"
                )
            self._holder = get_ident()
            yield
        finally:
            if had and had[0]:
                self._holder = 0
                self._hold.release()

    def heal(self, at: Followed) -> None:
        """Settle an append of this handle whose outcome is not known.

        Raises:
            StorageError: nobody answers, still; this commit was not sent.
        """
        attempt = self._unsettled
        if attempt is not None:
            try:
                self._appending.settle(attempt)
            except CommitOutcomeUnknownError as e:
                self._find()  # its place may have been collected: then it is given up there
                if self._unsettled is not None:
                    raise StorageError(
                        f"{e}. That is an earlier commit of this handle, which has to be known first: nothing of this "
                        "one was committed; commit it again"
                    ) from e
            except StorageError:
                pass  # a fence is there now
            self._unsettled = None
        self._find()
        self._publish()

    def reserve(self, tier: Tier, size_bytes: int, at: Followed) -> Position:
        """Return where the next append goes: behind the header of the next slot."""
        tail = self._tail
        assert tail is not None
        return Position(tail.number + 1, self._appending.begin_bytes(tail))

    def append(self, plan: AppendPlan, start: Position, at: Followed) -> Position | None:
        """Append what was planned; returns and raises what `Log.append` does."""
        tail = self._tail
        assert tail is not None and tail.number + 1 == start.file_id
        attempt = self._appending.attempt(tail, plan.entries)
        self._unsettled = attempt  # first: an interrupt may come anywhere
        began = time.monotonic()
        try:
            lost = self._appending.append(attempt)
        except CommitOutcomeUnknownError as e:
            self._publish()  # the next append heals
            if e.is_lasting:
                self._require_there_after(attempt)
            raise
        except ForeignSlotError:
            self._unsettled = None
            self._require_there_after(attempt)
            raise
        except StorageError:
            self._unsettled = None
            raise
        except BaseException:
            self._publish()
            raise
        self._unsettled = None
        if lost is not None:
            self._learn(lost)
            return None
        self._presence.saw(began)
        self.pace.appended(time.monotonic() - began)
        self.cache.put(slot_key(attempt.number), attempt.parts)
        self.chain.add(attempt.number, attempt.token)
        self._appended = attempt
        self._move_to(attempt.won)
        return Position(attempt.number, attempt.size_bytes)

    def _require_there_after(self, attempt: Attempt) -> None:
        try:
            self._presence.require_after(attempt.number)
        except NotAChannelError:
            self._unsettled = None
            raise

    def extend_format(self) -> None:
        """Note durably that the log has records from now on that earlier versions of this package can't read.

        Raises:
            StoreError: the store refused or failed.
        """
        if not self._is_extended:
            extend_identity(self.store, self.channel)
            self._is_extended = True

    def _learn(self, lost: Slot) -> None:
        """Take note of the slot that took an append's place, and of what follows it.

        The proof and the look at the next slot are one wait: whoever just won may win again meanwhile.
        """
        tail = self._tail
        assert tail is not None
        looking = begin(partial(self.slots.read, lost.number + 1))
        try:
            require_there(self.slots, tail)
        except BehindError:
            self._begin_anew()
            return
        self.pace.saw_others()
        self._know([lost])
        if looking.result() is not None:
            self._find()

    def obey(self, state: ChannelState) -> None:
        """Write as the channel's options say."""
        options = state.options
        self.pace.interval_seconds = options.commit_interval / 1000
        self._presence.keep_fresh_for(min(options.gc_delay, options.staging_ttl) / 4)
        self.poll_seconds = _FIRST_POLL_SECONDS, options.poll_interval / 1000
        self._appending.patience.timeout_seconds = options.commit_timeout

    # ── stage ───────────────────────────────────────────────────────────────────────────────

    @property
    def tail(self) -> Tail:
        """The newest slot that is known."""
        assert self._tail is not None
        return self._tail

    def stage(
        self,
        owner: str = LOCAL_OWNER,
        batch_id: int = 0,
        *,
        memory_bytes: int = 0,
        minimum_required_space: int | None = 0,
    ) -> StagedObjectWriter:
        """Return a new object for events that a later append adopts; `Log.stage` explains the arguments.

        Raises:
            StoreError: the store refused or failed.
        """
        return StagedObjectWriter(self.store, self.channel, self.birth(), owner, batch_id)

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
        if self._must_load:
            return max(self.checkpoints.numbers(), default=self.tail.number)
        return self.tail.number

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def require_open(self) -> None:
        """Refuse any use after `close`.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        if self.closed:
            raise ChannelClosedError(f"the channel {self.path} is closed; open it again")

    require_not_closed = require_open

    def close(self, *, forked: bool = False) -> None:
        """Close the handle, when the append under way is done; nothing is written.

        Args:
            forked: in a forked child, where other threads do not exist: wait for nobody.
        """
        self.closed = True
        if not forked and self._holder != get_ident() and self._hold.acquire(timeout=self.lock_timeout_seconds):
            self._hold.release()
