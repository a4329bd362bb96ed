"""What one append puts into side files, where delayed events wait: which events go to which file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spillable_stream.engine.delayed_chunk import FULL_BYTES, DelayedChunk
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.log.delayed_files import DelayedFiles, DelayedWrite
from spillable_stream.state.delays import DelayedFile, Delays

__all__ = ["DelayPlan"]


@dataclass(slots=True)
class DelayPlan:
    """What one append puts into side files.

    Args:
        files: the side files.
        delays: the events that wait, by the state that is appended to.

    Attributes:
        waiting_bytes: the size of the payloads that it puts there.
    """

    files: DelayedFiles
    delays: Delays
    waiting_bytes: int = 0
    _writes: list[DelayedWrite] = field(default_factory=list)
    _open: dict[tuple[int, int], DelayedWrite] = field(default_factory=dict)
    _next_number: int = 0

    def place(self, chunks: Sequence[DelayedChunk]) -> list[DelayedRun]:
        """Plan where the events of a transaction go, and return what its COMMIT says of that.

        Raises:
            StorageError: the file system refused.
        """
        runs: dict[int, DelayedRun] = {}
        for chunk in chunks:
            write = self._open.get(chunk[:2])
            if write is None or write.end >= FULL_BYTES or chunk.first_ms < write.least_ms:
                write = self._begin(chunk)
                self._writes.append(write)
                self._open[chunk[:2]] = write
                start = write.start
            else:
                start = write.end
            write.add(chunk.frames)
            put = chunk.frames[1]
            run = DelayedRun(write.number, *chunk[:2], start, write.end, put.count, len(put.payload), chunk.first_ms)
            self.waiting_bytes += run.payload_bytes
            before = runs.get(write.number)
            runs[write.number] = run if before is None else _joined(before, run)
        return list(runs.values())

    def adopt(self, runs: Sequence[DelayedRun]) -> list[DelayedRun]:
        """Return what a COMMIT says of side files that are written already; each gets a number."""
        self.waiting_bytes += sum([run.payload_bytes for run in runs])
        return [run._replace(file=self._new_number()) for run in runs]

    def mark(self) -> Callable[[], None]:
        """Return what takes back all that is placed from now on: a file may be named by its own COMMITs alone."""
        opened, number, waiting_bytes = dict(self._open), self._next_number, self.waiting_bytes
        ends = [(write, len(write.frames), write.end) for write in self._writes]

        def take_back() -> None:
            self._open, self._next_number, self._writes = opened, number, [placed for placed, _, _ in ends]
            self.waiting_bytes = waiting_bytes
            for placed, frames, end in ends:
                placed.end = end
                del placed.frames[frames:]

        return take_back

    def _begin(self, chunk: DelayedChunk) -> DelayedWrite:
        """Return an empty write to the newest file of a stretch, or to a new one if nothing may be added to that."""
        ours = (f for f in self.delays.files.values() if f[1:3] == chunk[:2])
        known = max(ours, key=lambda f: f.number, default=None)
        if known is not None and chunk[:2] not in self._open and self._is_open(known, chunk.first_ms):
            return DelayedWrite(known.number, known.end, known.delivered[0])
        write = DelayedWrite(self._new_number(), 0)
        write.add([self.files.header(write.number)])
        return write

    def _new_number(self) -> int:
        number = max(self._next_number, self.delays.next_number)
        # A crash may have left one, with a COMMIT that is found whole at the next one.
        while self.files.exists(number) or not self.files.has_room(number):
            number += 1
        self._next_number = number + 1
        return number

    def _is_open(self, file: DelayedFile, first_ms: int) -> bool:
        """Tell whether events may be added that are due from a time on: nothing is delivered that comes after them."""
        return not file.name and file.end < FULL_BYTES and first_ms >= file.delivered[0] and self._is_writable(file)

    def _is_writable(self, file: DelayedFile) -> bool:
        return self.files.is_whole(file) and self.files.has_room(file.number)

    def size_bytes(self) -> int:
        """Return how many bytes it writes."""
        return sum([write.end - write.start for write in self._writes])

    def write(self) -> None:
        """Write it all, durably, before the COMMITs that name it.

        Raises:
            StorageError: the file system refused.
        """
        self.files.write(self._writes)

    def take_back(self) -> None:
        """Take it back; the log has proven that no COMMIT names it, nor ever will."""
        self.files.take_back(self._writes)


def _joined(run: DelayedRun, following: DelayedRun) -> DelayedRun:
    """Return a run and the one right behind it as one."""
    return run._replace(
        end=following.end,
        count=run.count + following.count,
        payload_bytes=run.payload_bytes + following.payload_bytes,
        first_ms=min(run.first_ms, following.first_ms),
    )
