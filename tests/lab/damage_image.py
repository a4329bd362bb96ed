"""A channel that was created once, and is put back before every damage.

What the program did is known with the place in the log at which every commit ended, so that what a
log that was cut anywhere must hold is known too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.file_names import disk_segment, in_memory, memory_file_id
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.log.frames import FrameScanner, LocatedFrame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.tier_logs import Positions
from spillable_stream.log.wal import Position
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.lab.ledger import Outcome
from tests.lab.workload import CONFIGURATIONS, Program
from tests.support.damage import kill, memory_of

__all__ = ["HISTORY", "Changes", "Image", "Step", "Torn", "make_image"]

_NEVER_MS = 1 << 50
HISTORY = "history"  # a group that takes nothing, so that every event can be read

Changes = Mapping[str, bytes | None]
"""What becomes of some files, by name: what they hold then, or None where they are removed."""

Step = Callable[[Program], None]


class _Lines:
    """A ledger in memory that knows where in the log every commit ended."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Position]] = []
        self.where: Callable[[], Positions] = lambda: Positions(Position(0, 0))
        self._before = self.where()

    def write(self, *words: object) -> None:
        now, before = self.where(), self._before
        at = now.memory if now.memory != before.memory else now.disk
        self.lines.append((" ".join(map(str, words)), at))
        if words[0] == "ack":
            self.lines[-2] = (self.lines[-2][0], at)
        self._before = now


class Torn(NamedTuple):
    """A tail that a power cut may have torn.

    Args:
        at: where it begins; every transaction before it must be there, and none behind it.
        only: whether nothing else is damaged, so that nothing may be refused.
    """

    at: Position
    only: bool


class Commit(NamedTuple):
    """A COMMIT of a file: its bytes, and where its append began."""

    data: bytes
    start: int


class Image:
    """A channel with all its directories under one, and what its program knows.

    Args:
        base: the directory above the channel's.
        lines: the ledger's lines, each with the end of the log when its transaction was committed.
        history: the group whose events are read.
    """

    def __init__(self, base: Path, lines: list[tuple[str, Position]], history: str) -> None:
        self.base = base
        self.path = base / "channel"
        self.history = history
        self.outcome = Outcome.of([[line for line, _ in lines]])
        self._lines = lines
        self.files: dict[str, bytes] = {}
        self._directories: list[str] = []
        self._frames: dict[str, list[LocatedFrame]] = {}
        self._links: dict[str, str] = {}
        for directory, directories, names in os.walk(base):
            for name in directories + names:
                path = Path(directory, name)
                relative = str(path.relative_to(base))
                if path.is_symlink():
                    self._links[relative] = os.readlink(path)
                elif path.is_dir():
                    self._directories.append(relative)
                else:
                    self.files[relative] = path.read_bytes()
        self.layout = read_identity(FileSystem(), self.path)

    # ── putting it back ─────────────────────────────────────────────────────────────────────────

    def restore(self, changes: Changes | None = None) -> None:
        """Put every file back, but for some changes."""
        wanted: dict[str, bytes | None] = {**self.files, **(changes or {})}
        found = self.snapshot()
        for name in found.keys() - wanted.keys():
            (self.base / name).unlink()
        self._remove_strange_directories()
        for name in self._directories:
            if not os.path.isdir(self.base / name):
                (self.base / name).mkdir(parents=True, mode=0o700)
        for name, target in self._links.items():
            link = self.base / name
            if link.is_symlink() and os.readlink(link) != str(target):  # to a memory tier that was created since
                link.unlink()
            if not link.is_symlink():
                os.symlink(target, link)
        for name, data in wanted.items():
            if data is None:
                (self.base / name).unlink(missing_ok=True)
            elif found.get(name) != data:
                (self.base / name).write_bytes(data)

    def _remove_strange_directories(self) -> None:
        """Remove what was created under a name that a damaged identity says; it is empty by now."""
        known = {str(self.base / name) for name in [*self._directories, *self._links]}
        for directory, directories, _ in os.walk(self.base, topdown=False):
            for name in directories:
                if (path := os.path.join(directory, name)) not in known:
                    os.rmdir(path)

    def snapshot(self) -> dict[str, bytes]:
        """Return what the files hold now."""
        return _read_tree(str(self.base))

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.base, ignore_errors=True)

    # ── what is where ───────────────────────────────────────────────────────────────────────────

    def names(self, *beginnings: str) -> list[str]:
        """Return the files whose names, without their directories, begin so."""
        found = (n for n in self.files if n.rpartition("/")[2].startswith(beginnings))
        return sorted(found, key=lambda name: (name.rpartition("/")[2], name))

    @cached_property
    def newest(self) -> str:
        """The data file that was written last."""
        return self.names("log-")[-1]

    @cached_property
    def newest_id(self) -> int:
        """Its number."""
        return int(self.newest.rpartition("-")[2])

    def frames(self, name: str) -> list[LocatedFrame]:
        """Return the frames of a file."""
        if name not in self._frames:
            self._frames[name] = self._read_frames(name)
        return self._frames[name]

    def crc_seed(self, name: str) -> int:
        """Return what the checksums of a file's frames start from."""
        name = name.rpartition("/")[2]
        if name.startswith("checkpoint-"):
            return file_seed(self.layout.channel, "checkpoint")
        return file_seed(self.layout.channel, disk_segment(name) if "segment." in name else name)

    def _read_frames(self, name: str) -> list[LocatedFrame]:
        (spare := self.base / "frames").write_bytes(self.files[name])
        file = FileSystem().open(spare, readonly=True)
        try:
            return list(FrameScanner(file, self.crc_seed(name), 0))
        finally:
            file.close()
            spare.unlink()

    def _commits(self, name: str) -> list[Commit]:
        data = self.files[name]
        found = [f for f in self.frames(name) if f.header.type == FrameType.COMMIT]
        return [Commit(data[f.offset : f.end], CommitRecord.parse(f.payload or b"").start) for f in found]

    @cached_property
    def checkpoint(self) -> Position:
        """The place of the newest checkpoint."""
        places = [name.split("-")[1:] for name in self.names("checkpoint-")]
        return max((Position(int(file_id), int(offset)) for file_id, offset in places), default=Position(0, 0))

    # ── what must be there ──────────────────────────────────────────────────────────────────────

    def until(self, end: Position) -> Outcome:
        """Return what the program would know if nothing behind a place of a tier's log had ever been."""
        tier = in_memory(end.file_id)
        return Outcome.of([[line for line, at in self._lines if at <= end or in_memory(at.file_id) != tier]])

    def torn_at(self, changes: Changes) -> Torn | None:
        """Return where the log may be cut, without a head, or None if something proves that it was longer.

        Nothing does if no whole COMMIT is left behind the first damaged frame that began behind it, and no
        checkpoint was created behind it: the damage can't be told from an append that a power cut tore. What
        lies before a checkpoint is not looked at.
        """
        if self.newest in changes:
            return self._torn_at(self.newest, self.newest_id, changes)
        memory = self.names("memory-0")
        if memory and memory[-1] in changes:
            generation, number = map(int, memory[-1].split("-")[-2:])
            return self._torn_at(memory[-1], memory_file_id(generation, number), changes)
        return None

    def _torn_at(self, name: str, file_id: int, changes: Changes) -> Torn | None:
        before, after, frames = self.files[name], changes[name], self.frames(name)
        is_only = len(self.names("memory-0" if in_memory(file_id) else "log-")) == 1
        replayed = self.checkpoint.offset if file_id == self.checkpoint.file_id else 0
        if after is None:
            return None if file_id <= self.checkpoint.file_id or is_only else Torn(Position(file_id, 0), True)
        if len(after) < replayed or file_id < self.checkpoint.file_id:
            return None
        damaged = _first_difference(before, after, replayed)
        if damaged >= len(before):
            return None
        frame = max(f.offset for f in frames if f.offset <= damaged)
        if frame == 0 and is_only:
            return None
        if any(c.start > frame or frame == 0 for c in self._commits(name) if _holds(after, c.data, frame)):
            return None
        return Torn(Position(file_id, frame), _first_difference(before, after, 0) >= replayed)


def _first_difference(before: bytes, after: bytes, start: int) -> int:
    """Return where two files differ first, from a place on; the end of the shorter one if nowhere before it."""
    end = min(len(before), len(after))
    return next((i for i in range(start, end) if before[i] != after[i]), end)


def _holds(data: bytes, part: bytes, start: int) -> bool:
    at = data.find(part, start)
    while at % 8 and at >= 0:
        at = data.find(part, at + 1)
    return at >= 0


def _read_tree(directory: str, prefix: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            if entry.is_dir():
                found.update(_read_tree(entry.path, f"{prefix}{entry.name}/"))
            else:
                with open(entry.path, "rb") as file:
                    found[prefix + entry.name] = file.read()
    return found


def make_image(
    base: Path,
    configuration: str = "disk",
    rounds: int = 2,
    seed: int = 1,
    without: tuple[str, ...] = (),
    last: Step = Program.put_small,
    history: bool = True,
    **options: Any,
) -> Image:
    """Let the program work for a while and return what it leaves.

    Args:
        base: a directory of its own, which stays where it is.
        configuration: the program's.
        rounds: the program's.
        seed: the program's.
        without: steps that are left out, by name.
        last: what it does last.
        history: whether a group that takes nothing keeps every event.
        options: more options of the channel.
    """
    base.mkdir()
    lines = _Lines()
    with_memory = bool(CONFIGURATIONS[configuration]["memory_capacity"])
    if with_memory:
        (base / "shm").mkdir()
        options["memory_dir"] = str(base / "shm")
    options = {"checkpoint_interval": _NEVER_MS, **options}
    program = Program(base / "channel", lines, configuration, rounds, seed, **options)
    lines.where = lambda: program.channel.engine().positions if program.channel else Positions(Position(0, 0))
    open_, *steps = list(program.steps())[:-6]  # at its end the program takes everything
    open_()
    assert program.channel is not None
    if history:
        program.channel.consumer(HISTORY)
    for step in steps:
        if step.__name__ not in without:
            step()
    last(program)
    if with_memory:
        kill(program.channel)
        assert memory_of(base / "channel").parent == base / "shm"
    else:
        program.close()
    _trim(base / "channel")
    return Image(base, lines.lines, HISTORY if history else "consumers")


def _trim(path: Path) -> None:
    """Cut the preallocated rest of the newest data file, so that its end is the log's."""
    fs = FileSystem()
    layout = read_identity(fs, path)
    newest = layout.log_file(layout.log_files(fs)[-1])
    file: File = fs.open(newest)
    scanner = FrameScanner(file, file_seed(layout.channel, newest.name), 0)
    for _ in scanner:
        pass
    file.truncate(scanner.offset)
    file.close()
