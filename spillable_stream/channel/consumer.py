"""A group's owner: claims events for take transactions, in order, and reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from spillable_stream.channel.engine import Engine
from spillable_stream.channel.group_position import GroupPosition
from spillable_stream.channel.ranges import Range, RangeSet
from spillable_stream.channel.requests import Abandon, Control, Prepare, Take
from spillable_stream.channel.state import ChannelState, GroupState
from spillable_stream.errors import ChannelClosedError, DataLossError, GroupOwnedError, OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.log.layout import in_memory
from spillable_stream.log.reader import Extent, ReadBatch
from spillable_stream.storage.lock import FileLock, process_note

__all__ = ["Consumer", "drop_group", "starting_position"]


class Consumer:
    """The one owner of a group; any number of its take transactions may be open at once.

    It holds one file descriptor as long as it owns the group, that of the group's lock.

    Args:
        engine: the channel.
        group: the group's name; it is created if it is new.
        owner_timeout_seconds: how long to wait for a former owner to go.
        starting: where a new group starts: "earliest", "latest", or the ID of its first event.
        resume: keep the takes that a former owner prepared (`prepared`), for a reader that repeats its
            micro-batches; else they are rolled back.

    Attributes:
        group: the group's name.
        owner: what the group's lock file says of this owner, and of no other.

    Raises:
        GroupOwnedError: another live consumer owns the group.
    """

    def __init__(
        self,
        engine: Engine,
        group: str,
        owner_timeout_seconds: float = 10.0,
        starting: str = "earliest",
        resume: bool = False,
    ) -> None:
        self.group = group
        self.owner = f"{process_note()} since {datetime.now(UTC).isoformat()}"
        self._engine = engine
        self._closed = False
        self._held = RangeSet()
        self._mutex = threading.RLock()
        self._kept_position = GroupPosition(engine.fs, engine.layout, group, engine.position_files)
        self._lock = FileLock.open(engine.fs, engine.layout.group_lock(group))
        if not self._lock.acquire(owner_timeout_seconds):
            owner = self._lock.read_holder()
            self._lock.close()
            raise GroupOwnedError(
                f"the group {group!r} of {engine.layout.path} is owned by {owner or 'another process'}; "
                f"waited {owner_timeout_seconds:g} s. Stop it, or use another group"
            )
        try:
            self._lock.write_holder(self.owner)
            self._take_over(starting, resume)
        except BaseException:
            self.close()
            raise

    def _take_over(self, starting: str, resume: bool) -> None:
        """Create the group, or roll back what a former owner left in flight."""
        with self._engine.looking() as state:
            known, orphans = self.group in state.groups, state.open_takes(self.group)
            position = starting_position(starting, state)
        if not known:
            self._kept_position.forget()  # of a group of that name that was dropped
            self._engine.commit(Control(FrameType.GROUP, {"group": self.group, "position": position}))
        elif orphans and not resume:
            self._engine.commit(Abandon(orphans))
        elif orphans:
            with self._engine.committing():  # who finishes takes for the former owner is done with it, or sees this one
                pass

    def _state(self, state: ChannelState) -> GroupState:
        found = state.groups.get(self.group)
        if found is None:
            raise ChannelClosedError(f"the group {self.group!r} of {self._engine.layout.path} was dropped")
        return found

    def position(self) -> int:
        """Return the ID up to which the group has taken every event."""
        with self._engine.looking() as state:
            return self._state(state).position

    def lost(self) -> list[Range]:
        """Return the events that the group had yet to take when they were lost, until it takes a later one."""
        with self._engine.looking() as state:
            return list(self._state(state).lost)

    def prepared(self) -> dict[int, list[Range]]:
        """Return what take transactions are prepared and not committed: transaction ID to ranges, oldest first."""
        with self._engine.looking() as state:
            return state.taking(self.group)

    def untaken(self, first_id: int, last_id: int) -> list[Range]:
        """Return the ranges between two IDs that the group has yet to take."""
        with self._engine.looking() as state:
            group = self._state(state)
            return list(group.ahead.gaps(max(first_id, group.position + 1), last_id))

    def available(self) -> bool:
        """Tell whether there is an event to claim."""
        with self._mutex, self._engine.looking() as state:
            return next(self._free(state), None) is not None

    def _free(self, state: ChannelState) -> Iterator[Range]:
        group = self._state(state)
        busy = group.ahead.union(self._held) if len(self._held) else group.ahead
        return busy.gaps(group.position + 1, state.last_id)

    def claim(self, limit: int) -> list[Range]:
        """Take up to ``limit`` events out of the queue's head and return their IDs."""
        claimed: list[Range] = []
        with self._mutex, self._engine.looking() as state:
            for first, last in self._free(state):
                last = min(last, first + limit - 1)
                claimed.append((first, last))
                limit -= last - first + 1
                if limit <= 0:
                    break
            for first, last in claimed:
                self._held.add(first, last)
        return claimed

    def read(self, ranges: Iterable[Range]) -> Iterator[ReadBatch]:
        """Yield the claimed events, in order.

        Raises:
            CorruptionError: an event can't be read.
        """
        for first, last in ranges:
            while first <= last:
                with self._mutex:
                    for read in self._read(first, last):
                        yield read
                        first = read.last_id + 1

    def _read(self, first: int, last: int) -> Iterator[ReadBatch]:
        """Yield events from ``first`` on, at least one; fewer than all where a flush moves them meanwhile."""
        began = first
        with self._engine.looking() as state:
            extents = state.blocks.extents(first, last)
        reader = self._engine.readers.get(self.group, self._engine.reader)
        for extent in extents:
            if extent.first_id != first:
                break
            try:
                for read in reader.read(extent):
                    yield read
                    first = read.last_id + 1
            except DataLossError:
                if not in_memory(extent.file) or (first == began and not self._has_moved(extent)):
                    raise
                return
        if first <= last:
            raise DataLossError(
                f"the events {first} to {last} have left the channel",
                str(self._engine.layout.path),
            )

    def _has_moved(self, extent: Extent) -> bool:
        """Tell whether events are elsewhere by now: a flush moves them from memory to disk."""
        with self._engine.looking() as state:
            now = state.blocks.extents(extent.first_id, extent.first_id)
        return bool(now) and now[0].file != extent.file

    def prepare(self, ranges: list[Range]) -> int:
        """Write that the ranges are being taken and return the transaction's ID."""
        return self._engine.commit(Prepare(self.group, ranges)).transaction_id

    def commit(self, ranges: list[Range], prepared: int = 0) -> int:
        """Commit claimed ranges: they never come back. Returns the transaction's ID.

        Raises:
            ChannelClosedError: the consumer was closed, or its group dropped: the events are back in the queue.
        """
        if self._closed:
            raise ChannelClosedError(f"the group {self.group!r} was given up; the events are back in the queue")
        done = self._engine.commit(Take(self.group, ranges, prepared, self._kept_position))
        with self._mutex:
            for first, last in ranges:
                self._held.remove(first, last)
        return done.transaction_id

    def release(self, ranges: Iterable[Range], prepared: int = 0) -> None:
        """Give claimed ranges back to the head of the queue; needs no disk unless they were prepared."""
        with self._mutex:
            for first, last in ranges:
                self._held.remove(first, last)
        if prepared:
            self._engine.commit(Abandon([prepared]))

    def close(self) -> None:
        """Give the group up; what was claimed is back in the queue."""
        self._closed = True
        self._engine.readers.forget(self.group)
        self._kept_position.close()
        self._lock.close()


def starting_position(starting: str, state: ChannelState) -> int:
    """Return the position of a new group.

    Args:
        starting: "earliest", "latest", or the ID of its first event.
        state: the channel's state.

    Raises:
        DataLossError: that event has left the channel.
        OptionError: the ID is beyond the next event's.
    """
    beginning = state.beginning()
    if starting == "earliest":
        return beginning - 1
    if starting == "latest":
        return state.last_id
    wanted = int(starting)
    if 0 < wanted < beginning:
        raise DataLossError(f"the events {wanted} to {beginning - 1} have left the channel")
    if wanted > state.last_id + 1:
        raise OptionError(f"startingOffsets {wanted} is beyond the next event's ID, {state.last_id + 1}")
    return max(wanted, beginning) - 1


def drop_group(engine: Engine, group: str) -> None:
    """Forget a group, so that it holds back no event.

    Raises:
        GroupOwnedError: a live consumer owns it.
    """
    lock = FileLock.open(engine.fs, engine.layout.group_lock(group))
    try:
        if not lock.try_acquire():
            raise GroupOwnedError(f"the group {group!r} is owned by {lock.read_holder()}; stop it first")
        engine.commit(Control(FrameType.GROUP, {"group": group, "drop": True}))
    finally:
        lock.close()
