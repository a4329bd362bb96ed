"""Merging of side objects: what many small puts delayed is written to few objects, one for a stretch of time.

A channel that delays one event a second for a day has 86,400 of them, each with a row of the state and a request to
read it. So objects that are not due soon are copied together: those of many puts into one for each stretch of time, and
several of one stretch into one::

    put ─ due 1 h, 3 d ─┐
    put ─ due 2 h       ├─▶ due 1 to 1.25 h, due 2 to 2.5 h, …  ── COMMIT "merge" {delayed: new, delivered: old}
    put ─ due 3 d ──────┘

When the time of a wide stretch comes near, its events are divided likewise, into the stretches that there are then.
Where they come to, objects of about their size or less are copied along, so a stretch has few of them however often
puts are copied. And of one stretch an object is copied with others that are as large together. So an event is copied
again when what waits with it has grown by half, from 64 KiB to 8 MiB: a few times. A state has some hundred rows, and
one for each 8 MiB.

The copy also has events that others deliver meanwhile. If these are all that are due before some time, the COMMIT says
so of the new objects; else nothing is committed, and the new objects are removed like others that nobody names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import attrgetter

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.delayed_chunk import FULL_BYTES, DelayedChunk, chunks_of
from spillable_stream.engine.deliveries import wall_clock_ms
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.requests import Request
from spillable_stream.engine.store.object_delays import StagedDelayObjects, write_delayed
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.engine.waiting_events import WaitingEvents
from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.commit_record import DeliveredRun
from spillable_stream.format.dues import stretch_of
from spillable_stream.log.delayed_index import DelayedIndex
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.staged_object import birth_of
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["DelayMerge", "DelayMerging"]

_log = log_of(__name__)

_SMALL_BYTES = FULL_BYTES // 2
_MANY_BYTES = FULL_BYTES // 4  # of puts, worth a copy: each delivery may find something in all of them
_TINY_BYTES = 64 << 10
_MOST_BYTES = 64 << 20  # of one merge
_MOST_EVENTS = 1 << 19
_MOST_BYTES_IN_MEMORY = 256 << 20  # where events compress well
_MANY_PUTS = 64  # objects of single puts are worth a copy,
_MANY_OF_A_STRETCH = 8  # and so many objects of one stretch of time
_SOON_MS = 60_000  # what is due so soon stays where it is, unless its object was there at an earlier look
_COMMIT_BYTES = 512
_RUN_BYTES = 64
_COARSE = 8  # times the width that a stretch would have
_LIKE_SIZE = 2  # times the size of what comes to its stretch: so large an object is copied along
_SEVERAL = (0, 0)  # stretches
_PAYLOAD_BYTES = attrgetter("payload_bytes")
_EVENTS = attrgetter("events")
_FOREVER_MS = (1 << 63) - 1

_Waiting = tuple[Place, int]  # where an event is, and in which file
_Stretch = tuple[int, int]  # its begin and its width, in milliseconds
_StretchOf = Callable[[int], _Stretch]  # by when an event is due


@dataclass(slots=True)
class DelayMerge(Request):
    """Delayed events wait in other objects from now on.

    Args:
        files: the objects in which they waited when they were copied.
        delivered: what a COMMIT says of them.
        staged: the objects in which they wait from now on, in the order of their events.
        dues: when each event that was copied is due, ascending.

    Attributes:
        done: set by the plan: whether it was written.
    """

    files: Sequence[DelayedFile]
    delivered: list[DeliveredRun]
    staged: StagedDelayObjects
    dues: array[int]
    done: bool = False

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks where the events are."""
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return _COMMIT_BYTES + self.staged.commit_bytes() + _RUN_BYTES * (len(self.delivered) + 1)

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write it if the events wait where they did, but for the first, and no collector may have removed the copy."""
        waiting = plan.state.delays.files
        now = [waiting[file.number] for file in self.files if file.number in waiting]
        left = self._left_first(now)
        self.done = left is not None and self.staged.is_younger_than(plan.state.trimmed.births)
        if left is None or not self.done:
            return CommitResult()
        tx, runs = plan.new_transaction(), list(self.staged.runs)
        before = left
        while before >= runs[0].count:  # all of it was delivered
            before -= runs.pop(0).count
        placed = StagedDelayObjects(runs).place(plan)
        delivered = [run._replace(count=file.events) for run, file in zip(self.delivered, now, strict=True)]
        if before:
            place = self.dues[left - 1], placed[0].end, 0  # behind all that are due then
            delivered.append(DeliveredRun(placed[0].file, *place, before, self.dues[left]))
        plan.commit("merge", 0, tx, delayed=placed, delivered=delivered)
        return CommitResult(tx)

    def _left_first(self, now: Sequence[DelayedFile]) -> int | None:
        """Return how many events were delivered since they were copied, all of them due before all others.

        Args:
            now: the objects that are still there.

        Returns:
            None if others were, or if an object is gone: its events were delivered, or are elsewhere.
        """
        if now == list(self.files):
            return 0
        next_ms = min([file.next_ms for file in now], default=0)
        if len(now) < len(self.files) or any([file.delivered[0] >= next_ms for file in now]):
            return None
        left = bisect_left(self.dues, next_ms)
        return left if left < len(self.dues) and self.dues[left] == next_ms else None


class DelayMerging:
    """Copies small side objects together. For one thread at a time.

    Attributes:
        clock_ms: returns the time in milliseconds since 1970.
    """

    def __init__(self, log: ObjectLog, follower: Follower, appender: Appender) -> None:
        self.clock_ms: Callable[[], int] = wall_clock_ms
        self._log = log
        self._follower = follower
        self._appender = appender
        self._objects = log.delayed
        self._left: set[str] = set()  # objects that can't be read, or are too large in memory
        self._looked_at = log.checkpoint_number  # the newest slot at the last look

    def merge(self) -> None:
        """Copy together what is worth it.

        Raises:
            StorageError: the store refused or failed.
        """
        with self._follower.as_known as state:
            files, compression = list(state.delays.files.values()), state.options.compression
        now_ms, tail = self.clock_ms(), self._log.tail.number
        groups, others = self._worth_merging(files, now_ms)
        self._looked_at = tail
        for group in groups:
            request = self._copied(group, now_ms, compression, others)
            if request is not None:
                self._appender.commit_alone(request)
                for file in request.files if request.done else ():
                    self._objects.remove(file)

    def _worth_merging(
        self, files: Sequence[DelayedFile], now_ms: int
    ) -> tuple[list[list[DelayedFile]], dict[_Stretch, list[DelayedFile]]]:
        """Return objects that are copied together: those of many puts, and those of each stretch that has many.

        And by stretch the objects of the other ones, which may be copied along.
        """
        groups: dict[_Stretch, list[DelayedFile]] = {}
        for file in files:
            stretch = _SEVERAL if _is_coarse(file, now_ms) else (file.begin_ms, file.width_ms)
            most_bytes = _MOST_BYTES if stretch == _SEVERAL else _SMALL_BYTES
            is_small = file.payload_bytes < most_bytes and file.events <= _MOST_EVENTS
            if is_small and file.name not in self._left and self._waits_on(file, now_ms):
                groups.setdefault(stretch, []).append(file)
        of_puts = _first(groups.pop(_SEVERAL, []))
        of_stretches = {stretch: _of_like_size(group) for stretch, group in groups.items()}
        many = {stretch: group for stretch, group in of_stretches.items() if len(group) >= _MANY_OF_A_STRETCH}
        found = list(many.values())
        if len(of_puts) >= _MANY_PUTS or _size_of(of_puts) >= _MANY_BYTES:
            found.append(of_puts)
        return found, {stretch: group for stretch, group in groups.items() if stretch not in many}

    def _waits_on(self, file: DelayedFile, now_ms: int) -> bool:
        """Tell whether a file waits for long: a large put may always have some events that are due soon."""
        if file.next_ms >= now_ms + _SOON_MS:
            return True
        was_there = (birth_of(file.name) or 0) < self._looked_at
        return _is_coarse(file, now_ms) and was_there and file.next_ms >= now_ms - _SOON_MS

    def _copied(
        self,
        files: Sequence[DelayedFile],
        now_ms: int,
        compression: str,
        others: Mapping[_Stretch, Sequence[DelayedFile]],
    ) -> DelayMerge | None:
        """Copy the events that wait in some objects; None if one can't be read, which is left where it is then."""
        events = WaitingEvents(self._objects, self._follower.schemas())
        stretch = _stretch_for(files, now_ms)
        copy = _Copy(self._objects)
        try:
            copy.add(files)
            if _is_coarse(files[0], now_ms):
                copy.add(_along(files, [place[0] for place, _ in copy.in_order()], stretch, others))
            files, places, puts = copy.files, copy.in_order(), copy.puts
            read = events.read_first(places, {file.number: file for file in files}, _MOST_BYTES_IN_MEMORY)
        except (CorruptionError, StorageError) as e:
            file = events.reading or copy.files[-1]
            if file.number in self._follower.follow().delays.files:  # else it was delivered, and deleted
                self._left.add(file.name)
                _log.warning("delayed events are not copied: %s", e, extra=fields(self._log.path))
            return None
        if read < len(places):
            return self._fewer_copied(files, now_ms, compression)
        chunks, start = list[DelayedChunk](), 0
        for kind, batch in events.in_order(places):
            part = places[start : start + batch.num_rows]
            dues, of_puts = array("q", [place[0] for place, _ in part]), array("q", [puts[p] for p in part])
            chunks += chunks_of(dues, batch, kind.schema_id, kind.ttl_us, compression, stretch, of_puts)
            start += batch.num_rows
        by_stretch: dict[_Stretch, list[DelayedChunk]] = {}
        for chunk in chunks:
            by_stretch.setdefault((chunk.begin_ms, chunk.width_ms), []).append(chunk)
        staged = write_delayed(self._objects, self._log.birth(), list(by_stretch.values()))
        return DelayMerge(files, copy.delivered, staged, array("q", [place[0] for place, _ in places]))

    def _fewer_copied(self, files: Sequence[DelayedFile], now_ms: int, compression: str) -> DelayMerge | None:
        """Copy the first half of objects whose events are too large in memory; None if that is none, or no use."""
        half = files[: len(files) // 2]
        if half and (len(half) > 1 or _is_coarse(half[0], now_ms)):
            return self._copied(half, now_ms, compression, {})
        self._left.update([file.name for file in files])
        return None


@dataclass(slots=True)
class _Copy:
    """The events that wait in some objects, and are copied.

    Args:
        objects: reads the objects.
        files: the objects.
        places: where each event is.
        puts: the number of its put.
        delivered: what a COMMIT says of the objects.
    """

    objects: DelayedObjects
    files: list[DelayedFile] = field(default_factory=list)
    places: list[_Waiting] = field(default_factory=list)
    puts: dict[_Waiting, int] = field(default_factory=dict)
    delivered: list[DeliveredRun] = field(default_factory=list)

    def add(self, files: Sequence[DelayedFile]) -> None:
        """Find the events of objects.

        Raises:
            StorageError: the store refused or failed. The last one of `files` can't be read.
            CorruptionError: it is damaged.
        """
        self.objects.expect(files, _FOREVER_MS)
        for file in files:
            self.files.append(file)
            index = DelayedIndex(self.objects)
            index.follow(file)
            found = index.due(_FOREVER_MS, len(index))
            if not found:
                raise self.objects.damaged(file, file.end)
            self.places += [(place, file.number) for place in found]
            self.puts.update([((place, file.number), index.put(place) or file.number) for place in found])
            self.delivered.append(DeliveredRun(file.number, *found[-1], len(found), 0))

    def in_order(self) -> list[_Waiting]:
        """Return where the events are, by their due times and, where these are the same, by their puts."""
        self.places.sort(key=lambda p: (p[0][0], self.puts[p], p))
        return self.places


def _along(
    files: Sequence[DelayedFile],
    dues: Sequence[int],
    stretch_of_due: _StretchOf,
    others: Mapping[_Stretch, Sequence[DelayedFile]],
) -> list[DelayedFile]:
    """Return what is copied along with objects: others of a stretch that are not much larger than what comes to it.

    Args:
        files: the objects.
        dues: when each of their events is due, ascending.
        stretch_of_due: returns the stretch to which an event comes.
        others: objects, by stretch.
    """
    event_bytes = _size_of(files) / len(dues)
    found: list[DelayedFile] = []
    for (begin_ms, width_ms), group in others.items():
        first, end = bisect_left(dues, begin_ms), bisect_left(dues, begin_ms + width_ms)
        if first < end and stretch_of_due(dues[first]) == (begin_ms, width_ms):
            found += _of_like_size(group, (end - first) * event_bytes)
    return _first([*files, *sorted(found, key=_PAYLOAD_BYTES)])[len(files) :]


def _is_coarse(file: DelayedFile, now_ms: int) -> bool:
    """Tell whether a file has events of several stretches of time, as wide as a put would make these now."""
    return not file.width_ms or file.width_ms > _COARSE * stretch_of(file.next_ms, now_ms)[1]


def _stretch_for(files: Sequence[DelayedFile], now_ms: int) -> _StretchOf:
    """Return what tells the stretch of events: the one that the objects have, or what there is for their due times."""
    first = files[0]
    if _is_coarse(first, now_ms):
        return partial(stretch_of, now_ms=now_ms)
    return lambda _: (first.begin_ms, first.width_ms)


def _size_of(files: Sequence[DelayedFile]) -> int:
    """Return the size of the payloads that wait, in bytes."""
    return sum([file.payload_bytes for file in files])


def _first(files: Sequence[DelayedFile]) -> list[DelayedFile]:
    """Return the first files, as many as one merge copies."""
    sizes = accumulate(map(_PAYLOAD_BYTES, files))
    counts = accumulate(map(_EVENTS, files))
    ends = zip(files, sizes, counts, strict=True)
    return [file for file, size_bytes, events in ends if size_bytes <= _MOST_BYTES and events <= _MOST_EVENTS]


def _of_like_size(files: Sequence[DelayedFile], coming_bytes: float = 0) -> list[DelayedFile]:
    """Return the smallest files, none of which is larger than those before it together, but for tiny ones.

    Args:
        files: the files.
        coming_bytes: how much comes to them from others: none of them is more than twice as large as that and those
            before it.
    """
    found: list[DelayedFile] = []
    size_bytes = coming_bytes
    for file in _first(sorted(files, key=_PAYLOAD_BYTES)):
        most_bytes = _LIKE_SIZE * size_bytes if coming_bytes else size_bytes
        if size_bytes and file.payload_bytes > max(_TINY_BYTES, most_bytes):
            break
        found.append(file)
        size_bytes += file.payload_bytes
    return found
