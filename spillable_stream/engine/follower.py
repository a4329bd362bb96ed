"""The channel's state as one process has it: loaded when the channel is opened, then kept up to date from the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from operator import attrgetter

import pyarrow as pa

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.one_look import has_looked, look_again, record_look
from spillable_stream.engine.telemetry import Samples
from spillable_stream.errors import CorruptionError
from spillable_stream.format.batch import EVENT_SCHEMA, FAR_FRAME_BYTES, FRAME_BYTES, decode_schema
from spillable_stream.format.file_names import DISK, MEMORY, Tier
from spillable_stream.format.frame import HEADER_SIZE_BYTES
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.log.tier_logs import Positions
from spillable_stream.log.wal import Entry, Position
from spillable_stream.state.channel_state import ChannelState

__all__ = ["AsKnown", "Follower", "Snapshot"]


class _Held:
    """A block in which a follower's state is held still, whoever else follows.

    Args:
        follower: whose state it is.
        mutex: what holds it still.

    Attributes:
        is_held: tells whether this thread has the mutex; a function in C.
    """

    # A function in C, found when the block begins: one in Python could be interrupted before it does anything.
    __exit__: Callable[..., None] = property(attrgetter("_release"))  # type: ignore[assignment]

    def __init__(self, follower: Follower, mutex: threading.RLock) -> None:
        self._follower = follower
        self._mutex = mutex
        self._release: Callable[..., None] = mutex.__exit__
        self.is_held: Callable[[], bool] = attrgetter("_is_owned")(mutex)


class Snapshot(_Held):
    """The state, up to date and held still while it is read more than once: ``with … as state``.

    It may be entered again inside, where the state is still held.
    """

    def is_mine(self) -> bool:
        """Tell whether this thread is inside of such a block, or of one of `AsKnown`."""
        return self.is_held() and not self._follower.advancing

    def __enter__(self) -> ChannelState:
        follower, is_inside = self._follower, self.is_mine()
        had: list[bool] = []
        if follower.is_far and not is_inside:  # a look may wait for a commit, which needs the mutex
            follower.look()
        try:
            had.extend(map(self._mutex.acquire, (True,)))  # one call from C: no interrupt comes in between
            return follower.state if is_inside and not follower.applying else follower.renewed(looked=follower.is_far)
        except BaseException:
            if had:
                self._mutex.release()
            raise


class AsKnown(_Held):
    """The state as this handle knows it, held still without a look at the log: ``with … as state``.

    For what follows a look of the same call, or a commit: with a log far away, each look is a request. It is held like
    a `Snapshot`, and either may be entered inside of the other. What the log has meanwhile, it may not show: whoever
    misses something takes a `Snapshot` and looks again.
    """

    def __enter__(self) -> ChannelState:
        follower = self._follower
        had: list[bool] = []
        try:
            had.extend(map(self._mutex.acquire, (True,)))  # as in `Snapshot`
            is_known = not follower.half_applied and not follower.applying
            return follower.state if is_known else follower.renewed(looked=follower.is_far)
        except BaseException:
            if had:
                self._mutex.release()
            raise


class Follower:
    """Follows a log. Thread-safe.

    There are two ways to be up to date: `follow` takes what is published; `catch_up` does the same under the commit
    lock, where nobody publishes meanwhile.

    Args:
        log: the channel's log.
        active_calls: the calls that are under way in this process.
        leave_files: closes what others keep open of files that the log has left.

    Attributes:
        state: the state. It changes under the commit lock, or inside of `snapshot`, or not at all.
        positions: where in the log it is.
        applied: the published position that it is at; None while that is not known.
        samples: the channel's recent past.
        disk_appends: how many appends to the disk tier it has applied, its own and others'.
        snapshot: holds the state still, up to date.
        as_known: holds it still without a look at the log.
        is_far: whether a look at the log is a request to another host, and may wait for a commit.
        frame_bytes: about how large the frames of a large batch get, in bytes.
        advancing: whether the thread that has the mutex is about to bring the state up to date, or does so.
        applying: whether the state is being changed, by the thread that has the mutex.
        half_applied: whether it is, or a change was interrupted: then it is loaded again before anybody has it.
    """

    positions: Positions
    state: ChannelState

    def __init__(self, log: Log, active_calls: ActiveCalls, leave_files: Callable[[], None]) -> None:
        self.advancing: bool = False
        self.applying: bool = False
        self.half_applied: bool = False
        self.samples: Samples = Samples()
        self.disk_appends: int = 0
        self.is_far: bool = log.is_far
        self.frame_bytes: int = FAR_FRAME_BYTES if log.is_far else FRAME_BYTES
        self._log = log
        self._is_view = log.is_view
        self._active_calls = active_calls
        self._leave_files = leave_files
        self._mutex = threading.RLock()
        self.applied: CommitPoint | None = None
        self._schemas: list[pa.Schema] = []
        self._waited_at: Positions | None = None  # where a wait ended in vain, and after which pause
        self._waited_seconds = 0.0
        self._typed: bool | None = None
        self.state, self.positions = log.load()
        if self.is_far:
            record_look(self)
        self._disk_file_id = self.positions.disk.file_id  # nothing is open of the files before it
        log.obey(self.state)
        self.samples.record(self.state)
        self.snapshot: Snapshot = Snapshot(self, self._mutex)
        self.as_known: AsKnown = AsKnown(self, self._mutex)

    # ── following ───────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Look at the log, and apply nothing yet; for a caller without a lock that is about to hold the state still.

        The look of a block of `one_look` is enough. Raises what `follow` raises.
        """
        self._log.require_open()
        if not has_looked(self):
            self._log.position()
            record_look(self)

    def follow(self, *, unchecked: bool = False, looked: bool = False) -> ChannelState:
        """Apply what other processes and threads committed, and return the state.

        Args:
            unchecked: leave out the look at whether the channel is still there; for a commit, which looks itself.
            looked: whether `look` was called just now.

        Raises:
            ChannelClosedError: the channel was closed, removed or replaced, or its log failed.
            CorruptionError: the log is damaged.
        """
        log = self._log
        if not unchecked:
            if self._is_view and not self.is_far:
                return self._follow_view()
            log.require_open()
        if self.is_far:
            if not self.snapshot.is_mine():
                if not looked:
                    self.look()
                self._advance(log.latest_position)
            return self.state
        applied = self.applied
        head = log.position()
        if (head is not applied or self.half_applied) and not self.snapshot.is_mine():
            self._advance(log.latest_position, head, applied)
        return self.state

    def renewed(self, *, looked: bool) -> ChannelState:
        """Do what `follow` does for a thread that has the mutex, and is about to hold the state still."""
        before, self.advancing = self.advancing, True
        try:
            return self.follow(looked=looked)
        finally:
            self.advancing = before

    def catch_up(self) -> CommitPoint:
        """Apply what was published under the commit lock, which is held, and return the published position."""
        head = self._log.held_position()
        if head is not self.applied or self.half_applied:
            self._advance(self._log.held_position)
            self._log.leave_written(self.positions.disk.file_id)
        return head

    def _advance(
        self, position: Callable[[], CommitPoint], seen: CommitPoint | None = None, applied: CommitPoint | None = None
    ) -> None:
        """Apply everything up to a published position.

        Args:
            position: returns it.
            seen: what it returned just now, if the caller asked.
            applied: the position that was applied before that; None if it was not known.
        """
        with self._mutex:
            before, self.advancing = self.advancing, True
            try:
                if self.applying:
                    self._active_calls.refuse("a look")
                # Where another thread applied something meanwhile, what was seen may be older than that.
                head = position() if seen is None or applied is None or self.applied is not applied else seen
                if head is self.applied and not self.half_applied:
                    return
                end = Positions.of(head)
                if end == self.positions and not self.half_applied:
                    self.applied = head
                    return
                if self.half_applied:
                    self._load()
                elif end.is_before(self.positions):  # read while it was written twice
                    return
                else:
                    try:
                        self._apply_until(end)
                    except (FileNotFoundError, CorruptionError):
                        # So far behind that files are gone, or used again; what is damaged shows when it is loaded.
                        self._load()
                self.applied = head if self.positions == end else None
                self._log.obey(self.state)
                if self.positions.disk.file_id != self._disk_file_id:
                    self._leave()
            finally:
                self.advancing = before

    def _leave(self) -> None:
        """Close what is open of files that the log has left: as long as it is, their disk space is not free."""
        self._disk_file_id = self.positions.disk.file_id
        self._log.leave_read(self._disk_file_id)
        self._leave_files()

    def _apply_until(self, end: Positions) -> None:
        self.samples.settle(self.state)
        self.half_applied = True  # and so it stays where Ctrl-C or a bad frame ends this between two positions
        self.applying = True
        try:
            self.disk_appends += self._log.follow(self.state, self.positions, end)
            self.positions = end
            self.half_applied = False
        finally:
            self.applying = False

    def _load(self) -> None:
        known = self.state.groups
        self.applying = True
        try:
            self.state, self.positions = self._log.load()
            self.half_applied = False
            for name in self.state.groups.keys() & known.keys():  # as the samples have it
                self.state.groups[name].missed = known[name].missed
        except CorruptionError as e:
            if not self._is_view:
                self._log.require_in_place()  # raises if the path leads elsewhere by now: that is why, then
            e.advise(self._log.path)
            raise
        finally:
            self.applying = False

    def _follow_view(self) -> ChannelState:
        """Do what `follow` does where the channel is only looked at: writers that come or leave make it another log."""
        self._log.require_not_closed()
        self._renew_if_stale()
        try:
            self._log.require_open()
            return self.follow(unchecked=True)
        except CorruptionError:  # what was read is gone, or the head is another one
            self._renew_if_stale(surely=True)
            self._log.require_open()
            return self.follow(unchecked=True)

    def _renew_if_stale(self, *, surely: bool = False) -> None:
        if self.snapshot.is_mine():
            return
        with self._mutex:
            before, self.advancing = self.advancing, True
            try:
                if self.applying:
                    self._active_calls.refuse("a look")
                if surely or not self._log.is_current():
                    self.half_applied, self.applied = True, None  # first: an interrupt may come before it is loaded
                    self._log.renew()
                    self._load()
                    self._disk_file_id = self.positions.disk.file_id
                    self._log.obey(self.state)
            finally:
                self.advancing = before

    def wait_for(self, ready: Callable[[ChannelState], bool], timeout_seconds: float) -> bool:
        """Follow until ``ready`` says so, at most ``timeout_seconds``, and tell whether it did."""
        deadline = time.monotonic() + timeout_seconds
        pause, longest = self._log.poll_seconds
        if self._waited_at == self.positions:  # nothing has come since the last wait: this one continues it
            pause = self._waited_seconds
        while not ready(self.follow()):
            if time.monotonic() >= deadline:
                self._waited_at, self._waited_seconds = self.positions, pause
                return False
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            look_again(self)
            pause = min(pause * 2, longest)
        return True

    # ── what it is at ───────────────────────────────────────────────────────────────────────

    def schemas(self) -> list[pa.Schema]:
        """Return the channel's schemas, oldest first."""
        if len(self._schemas) != len(self.state.schemas):
            with self._mutex:
                self._schemas = [decode_schema(s) for s in self.state.schemas]
        return self._schemas

    def schema_of(self, schema_id: int) -> pa.Schema:
        """Return a schema by its number.

        Raises:
            IndexError: there is none.
        """
        known = self._schemas  # those that are known never change
        return known[schema_id] if schema_id < len(known) else self.schemas()[schema_id]

    def is_typed(self) -> bool:
        """Tell whether this is a typed channel rather than an event channel."""
        if self._typed is None:  # it is one for life
            self._typed = not self.schemas()[0].equals(EVENT_SCHEMA)
        return self._typed

    def end_of(self, file: int | str) -> int | None:
        """Return up to where a file is written, if it still is; else None."""
        disk, memory = self.positions
        return disk.offset if file == disk.file_id else memory.offset if file == memory.file_id else None

    # ── appending; the commit lock is held ──────────────────────────────────────────────────

    def began_file(self, before: CommitPoint) -> None:
        """Move on to a file of the memory tier that this process began: there is nothing in it to apply.

        Args:
            before: what was published before.
        """
        with self._mutex:
            if self.applied is before and not self.half_applied:
                head = self._log.held_position()
                self.positions, self.applied = Positions.of(head), head

    def apply_own(self, tier: Tier, start: Position, end: Position, entries: list[Entry]) -> None:
        """Apply what this process appended, unless another of its threads has read it back already."""
        with self._mutex:
            before = self.positions.memory if tier is MEMORY else self.positions.disk
            is_next = start == before or (self._log.is_far and start.file_id == before.file_id + 1)
            if is_next and not self.half_applied:
                self.samples.settle(self.state)
                offset = start.offset
                self.half_applied = self.applying = True
                try:
                    for header, _, record in entries:
                        self.state.apply_record(start.file_id, offset, header, record)
                        offset += HEADER_SIZE_BYTES + (header.length + 7 & ~7)  # `frame_size`, inlined
                    disk, memory = self.positions
                    self.disk_appends += tier is DISK
                    self.positions = new_tuple(Positions, (disk, end) if tier is MEMORY else (end, memory))
                    self.applied = self._log.held_position()
                    self.half_applied = False
                finally:
                    self.applying = False
            self.samples.record(self.state)
