"""Merging of side objects: what many small puts delayed is written to few objects, one for a stretch of time.

A channel that delays one event a second for a day has 86,400 of them, each with a row of the state and a request to
read it. So objects that are not due soon are copied together: those of many puts into one for each stretch of time, and
several of one stretch into one::

    put ─ due 1 h, 3 d ─┐
    put ─ due 2 h       ├─▶ due 1 to 1.25 h, due 2 to 2.5 h, …  ── COMMIT "merge" {delayed: new, delivered: old}
    put ─ due 3 d ──────┘

Of one stretch an object is copied with others that are as large together, so an event is copied as often as what waits
with it doubles in size, from 64 KiB to 8 MiB: a few times. A state has some hundred rows, and one for each 8 MiB. If an
object has lost an event by the time of the commit, since that was delivered, nothing is committed, and the new objects
are removed like others that nobody names.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import attrgetter

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.delayed_puts import FULL_BYTES, DelayedChunk, chunks_of
from spillable_stream.engine.deliveries import wall_clock_ms
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.object_delays import HeldObjects, hold_back
from spillable_stream.engine.object_log import ObjectLog
from spillable_stream.engine.requests import Request
from spillable_stream.engine.waiting_events import WaitingEvents
from spillable_stream.errors import CorruptionError
from spillable_stream.format.commit_record import DeliveredRun
from spillable_stream.format.dues import stretch_of
from spillable_stream.log.delayed_index import DelayedIndex
from spillable_stream.log_records import fields
from spillable_stream.state.delays import DelayedFile, Place

__all__ = ["DelayMerge", "DelayMerging"]

_log = logging.getLogger(__name__)

_SMALL_BYTES = FULL_BYTES // 2
_TINY_BYTES = 64 << 10
_MOST_BYTES = 64 << 20  # of one merge
_MANY_PUTS = 64
_MANY_OF_A_STRETCH = 8
_SOON_MS = 60_000
_COMMIT_BYTES = 512
_RUN_BYTES = 64
_PAYLOAD_BYTES = attrgetter("payload_bytes")
_FOREVER_MS = (1 << 63) - 1

_Waiting = tuple[Place, int]  # where an event is, and in which file


@dataclass(slots=True)
class DelayMerge(Request):
    """Delayed events wait in other objects from now on.

    Args:
        files: the objects in which they waited when they were copied.
        delivered: what a COMMIT says of them.
        held: the objects in which they wait from now on.

    Attributes:
        done: set by the plan: whether it was written.
    """

    files: Sequence[DelayedFile]
    delivered: list[DeliveredRun]
    held: HeldObjects
    done: bool = False

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks where the events are."""
        return True

    def size_bytes(self) -> int:
        """Return an upper bound of its size in the log, in bytes."""
        return _COMMIT_BYTES + self.held.commit_bytes() + _RUN_BYTES * len(self.delivered)

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Write it if all events wait where they did, and a collector can't have removed what they were copied to."""
        waiting, births = plan.state.delays.files, plan.state.trimmed.births
        self.done = all([waiting.get(f.number) == f for f in self.files]) and self.held.is_younger_than(births)
        if not self.done:
            return CommitResult()
        tx = plan.new_transaction()
        plan.commit("merge", 0, tx, delayed=self.held.place(plan), delivered=self.delivered)
        return CommitResult(tx)


class DelayMerging:
    """Copies small side objects together. For one thread at a time.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.

    Attributes:
        clock_ms: returns the time in milliseconds since 1970.
        many_puts: so many objects of single puts are worth a copy.
        many_of_a_stretch: so many objects of one stretch of time are.
        soon_ms: what is due so soon is left where it is.
    """

    def __init__(self, log: ObjectLog, follower: Follower, appender: Appender) -> None:
        self.clock_ms: Callable[[], int] = wall_clock_ms
        self.many_puts: int = _MANY_PUTS
        self.many_of_a_stretch: int = _MANY_OF_A_STRETCH
        self.soon_ms: int = _SOON_MS
        self._log = log
        self._follower = follower
        self._appender = appender
        self._objects = log.delayed
        self._unreadable: set[str] = set()

    def merge(self) -> None:
        """Copy together what is worth it.

        Raises:
            StorageError: the store refused or failed.
        """
        with self._follower.as_known as state:
            files, compression = list(state.delays.files.values()), state.options.compression
        now_ms = self.clock_ms()
        for group in self._worth_merging(files, now_ms):
            request = self._copied(group, now_ms, compression)
            if request is not None:
                self._appender.commit_alone(request)
                for file in request.files if request.done else ():
                    self._objects.remove(file)

    def _worth_merging(self, files: Sequence[DelayedFile], now_ms: int) -> list[list[DelayedFile]]:
        """Return objects that are copied together: those of many puts, and those of each stretch that has many."""
        groups: dict[tuple[int, int], list[DelayedFile]] = {}
        for file in files:
            is_small = file.payload_bytes < _SMALL_BYTES and file.name not in self._unreadable
            if is_small and file.next_ms >= now_ms + self.soon_ms:
                stretch = (file.begin_ms, file.width_ms) if file.width_ms else (0, 0)
                groups.setdefault(stretch, []).append(file)
        of_puts = _first(groups.pop((0, 0), []))
        of_stretches = map(_of_like_size, groups.values())
        found = [group for group in of_stretches if len(group) >= self.many_of_a_stretch]
        if len(of_puts) >= self.many_puts or (len(of_puts) > 1 and _size_of(of_puts) >= FULL_BYTES):
            found.append(of_puts)
        return found

    def _copied(self, files: Sequence[DelayedFile], now_ms: int, compression: str) -> DelayMerge | None:
        """Copy the events that wait in some objects; None if one can't be read, which is left where it is then."""
        events = WaitingEvents(self._objects, self._follower.schemas())
        places, delivered = list[_Waiting](), list[DeliveredRun]()
        self._objects.expect(files)
        for file in files:
            try:
                index = DelayedIndex(self._objects)
                index.follow(file)
                found = index.due(_FOREVER_MS, len(index))
                if not found:
                    raise self._objects.damaged(file, file.end)
                events.read(file, found)
            except CorruptionError as e:
                if file.number in self._follower.follow().delays.files:  # else it was delivered, and deleted
                    self._unreadable.add(file.name)
                    _log.error("delayed events can't be copied: %s", e, extra=fields(self._log.path))
                return None
            places += [(place, file.number) for place in found]
            delivered.append(DeliveredRun(file.number, *found[-1], len(found), 0))
        places.sort(key=lambda p: (p[0][0], p[1], p[0]))
        chunks, start = list[DelayedChunk](), 0
        stretch = _stretch_for(files, now_ms)
        for kind, batch in events.in_order(places):
            dues = array("q", [place[0] for place, _ in places[start : start + batch.num_rows]])
            chunks += chunks_of(dues, batch, kind.schema_id, kind.ttl_us, compression, stretch)
            start += batch.num_rows
        by_stretch: dict[tuple[int, int], list[DelayedChunk]] = {}
        for chunk in chunks:
            by_stretch.setdefault((chunk.begin_ms, chunk.width_ms), []).append(chunk)
        held = hold_back(self._objects, self._log.tail.number, list(by_stretch.values()))
        return DelayMerge(files, delivered, held)


def _stretch_for(files: Sequence[DelayedFile], now_ms: int) -> Callable[[int], tuple[int, int]]:
    """Return what tells the stretch of events: the one that the objects have, or what there is for their due times."""
    first = files[0]
    if not first.width_ms:
        return partial(stretch_of, now_ms=now_ms)
    return lambda _: (first.begin_ms, first.width_ms)


def _size_of(files: Sequence[DelayedFile]) -> int:
    """Return the size of the payloads that wait, in bytes."""
    return sum([file.payload_bytes for file in files])


def _first(files: Sequence[DelayedFile]) -> list[DelayedFile]:
    """Return the first files, as many as one merge copies."""
    ends = accumulate(map(_PAYLOAD_BYTES, files))
    return [file for file, end in zip(files, ends, strict=True) if end <= _MOST_BYTES]


def _of_like_size(files: Sequence[DelayedFile]) -> list[DelayedFile]:
    """Return the smallest files, none of which is larger than those before it together, but for tiny ones."""
    found: list[DelayedFile] = []
    size_bytes = 0
    for file in _first(sorted(files, key=_PAYLOAD_BYTES)):
        if found and file.payload_bytes > max(_TINY_BYTES, size_bytes):
            break
        found.append(file)
        size_bytes += file.payload_bytes
    return found
