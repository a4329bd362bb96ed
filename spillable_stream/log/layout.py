"""Where the files of a channel are.

::

    DIR/channel.json                            identity: format version, UUID, directories, and the CRC32C of all that
    DIR/owner.json                              whose the directory is, and the lock of all who may write;
                                                every other directory has one too
    DIR/data/owner.json.lock                    kernel lock of whoever gives a directory its owner; removed then, and
                                                in nobody's way where a kill leaves it
    DIR/lock                                    kernel lock: one committer at a time; its 768 bytes say who
                                                waits for it, and mean nothing after that
    DIR/open.lock                               kernel lock: shared by every handle that is neither closed nor parked
    DIR/checkpoint.lock                         kernel lock: one process at a time creates a checkpoint
    DIR/upkeep.lock                             kernel lock: one process at a time lets events and groups go
    DIR/head                                    the published end of the log: a cache, rebuilt when it is missing
    DIR/groups/NAME.lock                        kernel lock of a group's owner; its contents are only a note;
                                                a worker's says what it had in hand
    DIR/groups/NAME.position                    what a group has taken, for the report of a loss
    DIR/groups/NAME.query                       the Spark query that reads as the group, noted by its tasks
    DIR/groups/NAME.worker                      what the group's worker says it does: JSON, for whoever looks
    DIR/producers/NAME.lock                     kernel lock of a live producer with a name of its own
    DIR/data/log-N                              data files: the write-ahead log
    DIR/data/spare-log-N                        files whose events were taken, to be used again
    DIR/data/segment.OWNER.BATCH.UUID           staged segments: big transactions, outputs of Spark tasks
    DIR/data/spare-segment-K                    segments whose events were taken, to be staged in again
    DIR/data/delayed-N                          side files: delayed events, until they are due
    DIR/checkpoint/checkpoint-F-O               checkpoints, named by file number and offset of the log
    DIR/memory                                  a link to the memory tier's directory, while there is one
    DIR/memory.json                             where that was created
    DIR/memory/memory-G-N                       its log: generation and number
    DIR/memory/spare-memory-G-N                 files whose events were taken, to be used again
    DIR/memory/memory-segment.OWNER.BATCH.UUID  segments that were staged there
    DIR/store                                   in a spool: what was known last of its channel in a store
    DIR/store.lock                              kernel lock: one process at a time writes that
    DIR/quarantine/TIME                         copies that a repair made of damaged and changed files; never read
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spillable_stream.errors import CorruptionError, OptionError
from spillable_stream.format import file_names
from spillable_stream.format.file_names import (
    MOST_SPARE_SEGMENTS,
    Tier,
    in_memory,
    is_spare_segment,
    log_name,
    memory_file_id,
    spare_segment_name,
)
from spillable_stream.format.record import FORMAT_VERSION
from spillable_stream.names import check_group, check_producer
from spillable_stream.shown_value import command, shown
from spillable_stream.storage.access import PRIVATE_MODE, Access
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["CHECKPOINT", "IDENTITY", "Layout", "require_name_of_lock"]

IDENTITY = "channel.json"
CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Layout:
    """A channel's identity and directories.

    Args:
        path: the channel's directory.
        channel: its UUID.
        data_dirs: the directories of data files and segments; data file N is in directory N % count.
        checkpoint_dir: the directory of checkpoints.
        backup_checkpoint_dir: the directory of copies of checkpoints, or None.
        owned: whether its directories have owner files; a channel of an early release gets them when it is opened.
        mode: the mode of new directories and, without the execute bits, of new files. It decides whether the members
            of the Unix group of the channel's directory may open the channel.
        format: the format version that its identity says.
    """

    path: Path
    channel: str
    data_dirs: tuple[Path, ...]
    checkpoint_dir: Path
    backup_checkpoint_dir: Path | None
    owned: bool = True
    mode: int = PRIVATE_MODE
    format: int = FORMAT_VERSION

    def grant(self, fs: FileSystem) -> None:
        """Make a file system create everything with the channel's mode and the group of its directory."""
        fs.access = Access(self.mode, fs.group_of(self.path) if self.mode != PRIVATE_MODE else None)

    @property
    def restore_it(self) -> str:
        """What to do about a file that is missing."""
        return f"restore it, or let '{command('repair', self.path)}' continue without its events"

    @property
    def restore_them(self) -> str:
        """What to do about several."""
        return f"restore them, or let '{command('repair', self.path)}' continue without their events"

    def directories(self) -> dict[str, Path]:
        """Return the directories that the channel needs besides its own, by their roles in owner files."""
        found: dict[str, Path] = {}
        for role, directory in [
            *((f"data-{i}", d) for i, d in enumerate(self.data_dirs)),
            (CHECKPOINT, self.checkpoint_dir),
        ]:
            if directory != self.path and directory not in found.values():  # one directory may have several roles
                found[role] = directory
        return found

    @property
    def head(self) -> Path:
        """The head file."""
        return self.path / "head"

    @property
    def lock(self) -> Path:
        """The committers' lock file."""
        return self.path / "lock"

    @property
    def open_lock(self) -> Path:
        """The lock file that every handle shares that is neither closed nor parked."""
        return self.path / "open.lock"

    @property
    def checkpoint_lock(self) -> Path:
        """The lock file for creating a checkpoint."""
        return self.path / "checkpoint.lock"

    @property
    def upkeep_lock(self) -> Path:
        """The lock of whoever lets kept events go by age and size, and groups that nobody reads."""
        return self.path / "upkeep.lock"

    def group_lock(self, group: str) -> Path:
        """The lock file of a group's owner."""
        return self._group_file(group, "lock")

    def producer_lock(self, producer: str) -> Path:
        """The lock file of a live producer that has a name of its own."""
        return self.path / "producers" / _file_name(check_producer(producer), "lock")

    @cached_property
    def memory(self) -> Path:
        """The link to the memory tier's directory."""
        return self.path / "memory"

    @property
    def memory_origin(self) -> Path:
        """The file that records where the memory tier was created."""
        return self.path / "memory.json"

    def spares(self, fs: FileSystem, tier: Tier) -> list[Path]:
        """Return the spare files of a tier, the one that was used last at the end."""
        directories = {self.memory} if tier is Tier.MEMORY else set(self.data_dirs)
        listed = [(d, name) for d in directories for name in fs.list_files(d)]
        spares = [(number, d, name) for d, name in listed if (number := file_names.parse_spare(name, tier))]
        return [d / name for _, d, name in sorted(spares)]

    def spare_segments(self, fs: FileSystem) -> list[Path]:
        """Return the spare segments that there are, in no order that means anything."""
        return [d / name for d in sorted(set(self.data_dirs)) for name in fs.list_files(d) if is_spare_segment(name)]

    def spare_segment_files(self, directory: Path) -> list[Path]:
        """Return the paths that spare segments of a directory may have, to be looked for without a listing."""
        return [directory / spare_segment_name(number + 1) for number in range(MOST_SPARE_SEGMENTS)]

    def spare_file(self, file_id: int) -> Path:
        """The path of a log file while it is a spare."""
        path = self.log_file(file_id)
        return path.with_name(file_names.spare_name(path.name))

    def group_position(self, group: str) -> Path:
        """The file that keeps a group's position."""
        return self._group_file(group, "position")

    def group_query(self, group: str) -> Path:
        """The file that names the Spark query that reads as a group."""
        return self._group_file(group, "query")

    def group_worker(self, group: str) -> Path:
        """The file in which a group's worker says what it does."""
        return self._group_file(group, "worker")

    @property
    def groups(self) -> Path:
        """The directory of what there is of groups beside the log."""
        return self.path / "groups"

    def group_of(self, name: str, kind: str) -> str | None:
        """Return the group that a file in ``groups`` is of, or None if the name is not one's.

        Args:
            name: the file's name, as this process lists it.
            kind: "lock", "position", "query" or "worker".
        """
        return file_names.group_of(os.fsencode(name).decode(errors="replace"), kind)

    def _group_file(self, group: str, kind: str) -> Path:
        return self.groups / _file_name(check_group(group), kind)

    def file(self, file: int | str) -> Path:
        """The path of a log file, by number, or of a segment, by name. Raises what `segment_file` raises."""
        return self.log_file(file) if isinstance(file, int) else self.segment_file(file)

    def log_file(self, file_id: int) -> Path:
        """The path of a log file of either tier."""
        if in_memory(file_id):
            return self.memory / log_name(file_id)
        return self.data_dirs[file_id % len(self.data_dirs)] / log_name(file_id)

    def log_files(self, fs: FileSystem, tier: Tier = Tier.DISK) -> list[int]:
        """Return the numbers of all log files of a tier, ascending."""
        if tier is Tier.MEMORY:
            found = (file_names.parse_memory_file(name) for name in fs.list_files(self.memory))
            return sorted(memory_file_id(*numbers) for numbers in found if numbers)
        numbers = [n for d in set(self.data_dirs) for name in fs.list_files(d) if (n := self._data_file(d, name))]
        return sorted(numbers)

    def _data_file(self, directory: Path, name: str) -> int | None:
        """Return the number of a data file, or None if no data file of this directory has the name."""
        number = file_names.parse_data_file(name)
        return number if number and self.log_file(number).parent == directory else None

    def delayed_file(self, number: int) -> Path:
        """The path of a side file."""
        return self.data_dirs[number % len(self.data_dirs)] / file_names.delayed_name(number)

    def delayed_files(self, fs: FileSystem) -> list[int]:
        """Return the numbers of all side files, ascending, whether they count or not."""
        return sorted([n for d in set(self.data_dirs) for name in fs.list_files(d) if (n := self._delayed(d, name))])

    def _delayed(self, directory: Path, name: str) -> int | None:
        """Return the number of a side file, or None if no side file of this directory has the name."""
        number = file_names.parse_delayed(name)
        return number if number and self.delayed_file(number).parent == directory else None

    def segment_file(self, name: str) -> Path:
        """The path of a segment; its directory follows from its name.

        Raises:
            CorruptionError: the name is not a segment's, so the log that names it is damaged.
        """
        if not file_names.segment_tier(name):
            raise CorruptionError(
                f"the log names the file {name!r}, which is not the name of a segment", str(self.path)
            )
        if in_memory(name):
            return self.memory / name
        return self.data_dirs[sum(name.encode()) % len(self.data_dirs)] / name

    def segments(self, fs: FileSystem) -> list[str]:
        """Return the names of all segments of both tiers, adopted or staged."""
        found = [n for d in set(self.data_dirs) for n in fs.list_files(d) if self._is_segment(d, n)]
        return found + [n for n in fs.list_files(self.memory) if self._is_segment(self.memory, n)]

    def _is_segment(self, directory: Path, name: str) -> bool:
        return file_names.segment_tier(name) != "" and self.segment_file(name).parent == directory

    def is_own(self, directory: Path, name: str) -> bool:
        """Tell whether a file of the channel could have this name in this directory, one of the channel's."""
        if name.removesuffix(".tmp") == file_names.OWNER_FILE or name == file_names.CLAIM_LOCK:
            return directory != self.groups
        if directory in self.data_dirs:
            return (
                self._is_segment(directory, name)
                or file_names.parse_spare(name, Tier.DISK) is not None
                or is_spare_segment(name)
                or self._data_file(directory, name.removesuffix(".tmp")) is not None
                or self._delayed(directory, name) is not None
            )
        if directory == self.memory:
            return (
                self._is_segment(directory, name)
                or file_names.parse_spare(name, Tier.MEMORY) is not None
                or file_names.parse_memory_file(name) is not None
            )
        if directory == self.groups:
            return any(self.group_of(name, kind) for kind in ("lock", "position", "query", "worker"))
        return file_names.parse_checkpoint(name.removesuffix(".tmp")) is not None


def require_name_of_lock(name: str) -> None:
    """Refuse to lock a file of a group or a producer in a process that may name it in other bytes than the others.

    Two processes would lock two files, and both would own the group. Not every encoding keeps all bytes of UTF-8.

    Args:
        name: the group's or the producer's name.

    Raises:
        OptionError: this process does not name files in UTF-8, and the name is not ASCII.
    """
    encoding = sys.getfilesystemencoding()
    if not name.isascii() and encoding != "utf-8":
        raise OptionError(
            f"the files of {shown(name)} are named in UTF-8, and this process names files in {encoding}: set "
            "PYTHONUTF8=1, or a locale with UTF-8, such as LC_ALL=C.UTF-8"
        )


def _file_name(name: str, kind: str) -> str:
    """Return the name of a file of a group or a producer, whose bytes are UTF-8 in every process."""
    return os.fsdecode(f"{name}.{kind}".encode())
