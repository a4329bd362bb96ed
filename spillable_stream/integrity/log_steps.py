"""What the logs of a damaged channel say, in order: frames, damage, exact images, and where files are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import pairwise
from typing import NamedTuple, Protocol

from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.inventory import Inventory
from spillable_stream.integrity.log_file import LogFile, opened
from spillable_stream.integrity.valid_checkpoints import ValidCheckpoint
from spillable_stream.log.append_check import TolerantAppendChecker
from spillable_stream.log.chain import named_end
from spillable_stream.log.frames import Damage, LocatedFrame, Readable, walk
from spillable_stream.log.wal import Position
from spillable_stream.progress import UNTOLD, Meter
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["ExactImage", "HiddenRecords", "LogSteps", "MissingFiles", "Step", "Steps", "VoidSlot", "frame_steps"]


_LAST_US = 1 << 63  # behind every time


class ExactImage(NamedTuple):
    """An image of the state, exact at a place of the disk tier's log.

    Args:
        image: the image, as it was read.
    """

    image: Mapping[str, object]


class MissingFiles(NamedTuple):
    """A place where log files are missing.

    Args:
        text: what to say of it; "" if that is said elsewhere.
        is_break: whether others may have given the IDs of what is missing to events before it.
    """

    text: str = ""
    is_break: bool = False


class HiddenRecords(NamedTuple):
    """The end of damage in the memory tier's log: what it hides may lie behind all images of the disk tier before this.

    Args:
        size_bytes: how many bytes are damaged.
    """

    size_bytes: int


class VoidSlot(NamedTuple):
    """A slot that counts for nobody: its writer found that slots before it were lost.

    Args:
        first_id: the ID of the first event in it: those before it were in use; 0 if it says none.
    """

    first_id: int


class Step(NamedTuple):
    """The next step in a log.

    Args:
        time_us: the time of the last append so far.
        file: the file that it is in.
        what: what it is.
        fault: why a frame is not in its place; None if it is, or if damage before it lets nobody tell.
    """

    time_us: int
    file: LogFile
    what: LocatedFrame | Damage | ExactImage | MissingFiles | HiddenRecords | VoidSlot
    fault: str | None = None


class Steps(Protocol):
    """What a damaged log says. `LogSteps` reads it from files, `spillable_stream.integrity.object_steps` from objects.

    Attributes:
        frames: how many frames were whole.
        read_bytes: how many bytes these have.
        walked: the numbers of the files that were walked as a whole.
    """

    frames: int
    read_bytes: int
    walked: set[int | str]

    @property
    def owned_groups(self) -> list[str]:
        """The groups that ever had an owner; some may have been dropped."""

    @property
    def last_id(self) -> int | None:
        """The last write-order ID that was in use, or a later one; None if nothing says it but the log."""

    def since(self, disk: Position, memory: Position | None = None) -> Iterator[Step]:
        """Yield the steps from a place of each log on, in the order of the appends."""

    def is_there(self, file: int | str) -> bool:
        """Tell whether a log file, by number, or a segment, by name, is there."""


class LogSteps:
    """Reads the logs of both tiers as one, past damage.

    Args:
        fs: the file system.
        inventory: what counts of the files.
        meter: counts the bytes that are read.

    Attributes:
        frames: how many frames were whole.
        read_bytes: how many bytes these have.
        walked: the numbers of the files that were walked as a whole, up to an end that is proven.
    """

    frames: int
    read_bytes: int

    def __init__(self, fs: FileSystem, inventory: Inventory, meter: Meter = UNTOLD) -> None:
        self.frames = self.read_bytes = 0
        self.walked: set[int | str] = set()
        self._fs = fs
        self._inventory = inventory
        self._meter = meter

    @property
    def owned_groups(self) -> list[str]:
        """The groups that ever had an owner; some may have been dropped."""
        return self._inventory.owned_groups

    @property
    def last_id(self) -> int | None:
        """The last write-order ID that the head published; None if there is no head."""
        known = self._inventory.known
        return None if known is None else known.last_id

    def is_there(self, file: int | str) -> bool:
        """Tell whether a log file, by number, or a segment, by name, is there."""
        return self._fs.exists(self._inventory.layout.file(file))

    def since(self, disk: Position, memory: Position | None = None) -> Iterator[Step]:
        """Yield the steps from a place of each log on, in the order of the appends.

        Args:
            disk: where to start in the data files.
            memory: where to start in the memory tier's files; None to leave them out.
        """
        logs = [self._disk_log(disk)]
        if memory is not None:
            logs.append(self._memory_log(memory))
        return merge(*logs, key=lambda step: step.time_us)

    def _disk_log(self, start: Position) -> Iterator[Step]:
        checkpoints = [c for c in self._inventory.checkpoints if c.position > start]
        before: LogFile | None = None
        time_us = 0
        for file in [f for f in self._inventory.disk if f.file_id >= start.file_id]:
            broken = before is not None and file.header is not None and named_end(file.header, before.file_id) is None
            while checkpoints and checkpoints[0].position.file_id < file.file_id:
                image = checkpoints.pop(0).image
                time_us = max(time_us, _behind(image))
                yield Step(time_us, file, ExactImage(image))
                broken = True
            if broken or (before is None and file.file_id > start.file_id):
                yield Step(time_us, file, MissingFiles())
            offset = start.offset if file.file_id == start.file_id else 0
            if offset == 0 and file.header is not None:
                time_us = max(time_us, _behind(file.header.state))
                yield Step(time_us, file, ExactImage(file.header.state))
            last: Step | None = None
            for step in self._file(file, offset, time_us):
                time_us = step.time_us
                begin = step.what.offset if isinstance(step.what, LocatedFrame | Damage) else 0
                yield from _images(checkpoints, Position(file.file_id, begin), last)
                last = step
                yield step
            if last is not None:
                yield from _images(checkpoints, Position(file.file_id, file.end), last)
            before = file
        if self._inventory.disk and (checkpoints or self._inventory.missing_end):
            last_file = self._inventory.disk[-1]
            yield Step(time_us, last_file, MissingFiles())
            for checkpoint in checkpoints:
                time_us = max(time_us, _behind(checkpoint.image))
                yield Step(time_us, last_file, ExactImage(checkpoint.image))
            if checkpoints:
                yield Step(time_us, last_file, MissingFiles())

    def _memory_log(self, start: Position) -> Iterator[Step]:
        time_us = 0
        hidden: HiddenRecords | MissingFiles | None = None
        files = [f for f in self._inventory.memory if f.file_id >= start.file_id]
        gaps = {b.file_id for a, b in pairwise(files) if a.file_id + 1 < b.file_id}
        for file in files:
            if file.file_id in gaps:
                hidden = MissingFiles()
                yield Step(time_us, file, hidden)
            for step in self._file(file, start.offset if file.file_id == start.file_id else 0, time_us):
                if hidden is not None and step.time_us > time_us:
                    yield Step(step.time_us, file, hidden)
                    hidden = None
                time_us = step.time_us
                yield step
                if isinstance(step.what, Damage):
                    hidden = hidden or HiddenRecords(step.what.size)
        if hidden is not None:
            yield Step(_LAST_US, files[-1], hidden)
        elif files and self._inventory.missing_memory_end:
            yield Step(_LAST_US, files[-1], MissingFiles())

    def _file(self, file: LogFile, offset: int, time_us: int) -> Iterator[Step]:
        """Yield the frames of a file, and its damage."""
        if offset == 0 and not file.may_be_cut:
            self.walked.add(file.file_id)
        with opened(self._fs, file.path) as f:
            for step in frame_steps(f, file, offset, time_us):
                if isinstance(step.what, LocatedFrame):
                    self.frames += 1
                    size_bytes = step.what.end - step.what.offset
                    self.read_bytes += size_bytes
                    self._meter.add(size_bytes)
                yield step


def frame_steps(source: Readable, file: LogFile, offset: int, time_us: int) -> Iterator[Step]:
    """Yield the frames of a log file, and its damage.

    Args:
        source: its bytes.
        file: the file.
        offset: where to begin: where an append begins, or 0.
        time_us: the time of the last append before that.
    """
    appends = TolerantAppendChecker(offset)
    for item in walk(source, file.seed, offset, file.end):
        checked = item
        if isinstance(item, LocatedFrame):
            time_us = item.header.time_us or time_us
        elif item.header is not None and item.header.type == FrameType.FILE_HEADER:
            checked = item._replace(header=None)  # which frames follow it is not known
        yield Step(time_us, file, item, appends.fault(checked))


def _behind(image: Mapping[str, object]) -> int:
    """Return a time behind all that an image holds, of either tier, and not behind the next append."""
    time_us = image.get("time")
    return time_us + 1 if isinstance(time_us, int) else 0


def _images(checkpoints: list[ValidCheckpoint], through: Position, last: Step | None) -> Iterator[Step]:
    """Yield the checkpoints up to a place; damage that reaches over one hides what comes after it too.

    Args:
        checkpoints: those that are yet to come; what is yielded is taken out.
        through: the place.
        last: the last step before it; None if there is none, and the checkpoints have nothing to correct.
    """
    while checkpoints and checkpoints[0].position <= through:
        checkpoint = checkpoints.pop(0)
        if last is None:
            continue
        yield Step(max(last.time_us, _behind(checkpoint.image)), last.file, ExactImage(checkpoint.image))
        if isinstance(last.what, Damage) and last.what.end > checkpoint.position.offset:
            yield last
