"""Events that wait until they are due: which side files have them, and when the next one of each is due.

A side file has events that are due within one stretch of time; an object may also have all that a put delayed. The
state knows no event of it, only how many there are and up to where they have been delivered; when each is due the file
itself says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spillable_stream.format.commit_record import DelayedRun, DeliveredRun
from spillable_stream.format.file_names import delayed_name, seed_name
from spillable_stream.state.image import DelayedFileImage, DelaysImage

__all__ = ["NOTHING_DELIVERED", "DelayedFile", "Delays", "Place"]

Place = tuple[int, int, int]
"""Where an event is in the order of a side file: when it is due, the offset of its frame, and its row there."""

NOTHING_DELIVERED: Place = (0, 0, -1)
"""The place before all others."""


class DelayedFile(NamedTuple):
    """A side file with events that wait.

    Args:
        number: the file's number.
        begin_ms: from when on its events are due, in milliseconds since 1970.
        width_ms: for how long after that; 0 if its events are of no one stretch of time.
        end: up to where the file counts, in bytes.
        events: how many events wait in it.
        payload_bytes: the size of their payloads; of a file from which some were delivered, about that.
        next_ms: when the next one is due.
        delivered: the last event that was delivered, in the order of due times; all before it were, too.
        holes: stretches of the file whose events are lost, as first and last offset.
        name: the key of the object that it is in a store; "" on a disk.
    """

    number: int
    begin_ms: int
    width_ms: int
    end: int
    events: int
    payload_bytes: int
    next_ms: int
    delivered: Place = NOTHING_DELIVERED
    holes: tuple[tuple[int, int], ...] = ()
    name: str = ""

    @property
    def seed_name(self) -> str:
        """The name that its checksums start from: a staged file or an object keeps that of a segment."""
        return seed_name(self.name) if self.name else delayed_name(self.number)

    def fields(self) -> DelayedFileImage:
        """Return it as an image has it."""
        known = (*self[:7], self.delivered, self.holes)
        return (*known, self.name) if self.name else known


class Delays:
    """The events that wait, by side file.

    Args:
        next_number: the number of the next side file; no number is used twice.
        files: the files, as `image` has them.

    Attributes:
        next_number: the number of the next side file.
        files: the files in which events wait, by number, ascending.
        events: how many events wait.
        payload_bytes: the size of their payloads.
        next_ms: when the next one is due, in milliseconds since 1970; None if none waits.
    """

    def __init__(self, next_number: int = 1, files: Iterable[DelayedFileImage] = ()) -> None:
        self.next_number: int = next_number
        self.files: dict[int, DelayedFile] = {}
        for number, begin_ms, width_ms, end, events, size_bytes, next_ms, delivered, holes, *name in files:
            due_ms, offset, row = delivered
            parts = tuple((first, last) for first, last in holes)
            known = number, begin_ms, width_ms, end, events, size_bytes, next_ms
            self.files[number] = DelayedFile(*known, (due_ms, offset, row), parts, *name)
        self._count()

    def _count(self) -> None:
        self.events: int = sum([file.events for file in self.files.values()])
        self.payload_bytes: int = sum([file.payload_bytes for file in self.files.values()])
        self.next_ms: int | None = min([file.next_ms for file in self.files.values()], default=None)

    def image(self) -> DelaysImage:
        """Return the files as plain values; {} for a channel in which no event ever waited."""
        if self.next_number == 1:
            return {}
        return {"delays": (self.next_number, [file.fields() for file in self.files.values()])}

    def names(self) -> set[str]:
        """Return the keys of the objects in which events wait; none on a disk."""
        return {file.name for file in self.files.values() if file.name}

    def are_due(self, now_ms: int) -> bool:
        """Tell whether an event is due, by a clock in milliseconds since 1970."""
        return self.next_ms is not None and self.next_ms <= now_ms

    def apply(self, delayed: Sequence[DelayedRun], delivered: Sequence[DeliveredRun]) -> None:
        """Apply what a COMMIT says: events that wait from now on, and events that wait no more.

        What a state knows already changes nothing, and what is missing before it leaves a hole: a repair replays a log
        that is damaged.
        """
        for run in delayed:
            self._put(run)
        for taken in delivered:
            self._deliver(taken)
        self._count()

    def _put(self, run: DelayedRun) -> None:
        file = self.files.get(run.file)
        if file is None:
            if run.file < self.next_number:  # all of it was delivered
                return
            file = DelayedFile(run.file, run.begin_ms, run.width_ms, 0, 0, 0, run.first_ms, name=run.name)
        if run.start < file.end:
            return
        holes = file.holes if run.start == file.end else (*file.holes, (file.end, run.start))
        self.files[run.file] = file._replace(
            end=run.end,
            events=file.events + run.count,
            payload_bytes=file.payload_bytes + run.payload_bytes,
            next_ms=min(file.next_ms, run.first_ms),
            holes=holes,
        )
        self.next_number = max(self.next_number, run.file + 1)

    def _deliver(self, run: DeliveredRun) -> None:
        file = self.files.get(run.file)
        if file is None or (run.due_ms, run.offset, run.row) <= file.delivered:
            return
        if not run.next_ms:
            del self.files[run.file]
            return
        left = max(1, file.events - run.count)  # at least one waits, also where a repair does not know of all
        self.files[run.file] = file._replace(
            events=left,
            payload_bytes=file.payload_bytes * left // file.events,
            next_ms=run.next_ms,
            delivered=(run.due_ms, run.offset, run.row),
        )
