"""The names of a channel's files: each kind has one strict pattern, and what has another name is not the channel's.

Directories of a channel may hold other things: copies made by hand, what an editor or a copying program leaves, the
files of other programs on the same disk. Nothing reads, counts or removes them.
"""

from __future__ import annotations

import re
from enum import Enum

from spillable_stream.names import is_name

__all__ = [
    "BACKUPS",
    "CLAIM_LOCK",
    "COPIES",
    "DISK",
    "GENERATION_BITS",
    "MEMORY",
    "MOST_SPARE_SEGMENTS",
    "OWNER_FILE",
    "Tier",
    "checkpoint_name",
    "data_file_name",
    "delayed_name",
    "disk_segment",
    "generation_of",
    "group_of",
    "in_memory",
    "is_copy",
    "is_manifest",
    "is_spare_segment",
    "log_name",
    "memory_file_id",
    "memory_file_name",
    "memory_segment",
    "parse_checkpoint",
    "parse_data_file",
    "parse_delayed",
    "parse_memory_file",
    "parse_spare",
    "seed_name",
    "segment_tier",
    "spare_name",
    "spare_segment_name",
]

BACKUPS = "backups/"
"""What the names of a backup's manifests begin with, which no channel has."""

COPIES = ("delays/", "events/", "states/")
"""What the names of a backup's other files begin with."""

OWNER_FILE = "owner.json"
"""What says whose a directory is."""

CLAIM_LOCK = f"{OWNER_FILE}.lock"
"""The lock of whoever writes that for the first time, and removes the lock then."""

GENERATION_BITS = 32
"""A memory tier's file has a number of so many bits, and its generation above them; a data file has none above."""

MOST_SPARE_SEGMENTS = 16
"""How many spare segments a directory has at most. They are found by their names: a directory may be long."""

_NUMBER = "([0-9]{6,10})"
_DATA_FILE = re.compile(rf"log-{_NUMBER}\Z")
_DELAYED_FILE = re.compile(rf"delayed-{_NUMBER}\Z")
_MEMORY_FILE = re.compile(rf"memory-{_NUMBER}-{_NUMBER}\Z")
_CHECKPOINT = re.compile(rf"checkpoint-{_NUMBER}-([0-9]{{12,19}})\Z")
_SEGMENT = re.compile(r"(memory-)?segment\.[A-Za-z0-9_-]{1,128}\.[0-9]{1,20}\.[0-9a-f]{32}\Z")
_MANIFEST = re.compile(rf"{BACKUPS}[0-9]{{20}}\.json\Z")
_COPY = re.compile(r"(delays/[0-9]{20}-[0-9]{20}|(events|states)/[0-9]{20})-[0-9a-f]{32}\Z")
_SPARE = "spare-"
_SPARE_SEGMENT = re.compile(r"spare-segment-([0-9]{2})\Z")
_MEMORY_SEGMENT = "memory-"


class Tier(Enum):
    """Where a log lives: on disk, synced at every commit, or in memory, never synced."""

    DISK = "disk"
    MEMORY = "memory"


# By themselves, for what every transaction does: in CPython 3.11 a name is found in a tenth of the time that an enum's
# attribute takes.
DISK, MEMORY = Tier


def data_file_name(number: int) -> str:
    """Return the name of a data file."""
    return f"log-{number:06d}"


def parse_data_file(name: str) -> int | None:
    """Return the number of a data file, or None if the name is not one's."""
    found = _DATA_FILE.match(name)
    number = int(found[1]) if found else 0
    return number if _is_number(number) and name == data_file_name(number) else None


def delayed_name(number: int) -> str:
    """Return the name of a side file, in which delayed events wait."""
    return f"delayed-{number:06d}"


def parse_delayed(name: str) -> int | None:
    """Return the number of a side file, or None if the name is not one's."""
    found = _DELAYED_FILE.match(name)
    number = int(found[1]) if found else 0
    return number if _is_number(number) and name == delayed_name(number) else None


def _is_number(number: int) -> bool:
    return 0 < number < 1 << GENERATION_BITS


def is_manifest(key: str) -> bool:
    """Tell whether the key of an object is that of a backup's manifest; others have directories of that name, too."""
    return _MANIFEST.match(key) is not None


def is_copy(key: str) -> bool:
    """Tell whether the key of an object is that of another file of a backup; others have such directories, too."""
    return _COPY.match(key) is not None


def memory_file_name(generation: int, number: int) -> str:
    """Return the name of a file of a memory tier's log."""
    return f"memory-{generation:06d}-{number:06d}"


def parse_memory_file(name: str) -> tuple[int, int] | None:
    """Return generation and number of a file of a memory tier's log, or None if the name is not one's."""
    found = _MEMORY_FILE.match(name)
    if found is None:
        return None
    generation, number = int(found[1]), int(found[2])
    is_canonical = name == memory_file_name(generation, number)
    return (generation, number) if is_canonical and _is_number(generation) and _is_number(number) else None


def spare_name(name: str) -> str:
    """Return the name that a log file has while it waits to be used again."""
    return f"{_SPARE}{name}"


def parse_spare(name: str, tier: Tier) -> int | None:
    """Return the number that a spare file of a tier had, or None if the name is not one's."""
    if not name.startswith(_SPARE):
        return None
    if tier is Tier.DISK:
        return parse_data_file(name.removeprefix(_SPARE))
    numbers = parse_memory_file(name.removeprefix(_SPARE))
    return memory_file_id(*numbers) if numbers else None


def spare_segment_name(number: int) -> str:
    """Return the name of a directory's spare segment, from 1 to `MOST_SPARE_SEGMENTS`."""
    return f"{_SPARE}segment-{number:02d}"


def is_spare_segment(name: str) -> bool:
    """Tell whether a name is a spare segment's."""
    found = _SPARE_SEGMENT.match(name)
    return found is not None and 1 <= int(found[1]) <= MOST_SPARE_SEGMENTS


def checkpoint_name(file_id: int, offset: int) -> str:
    """Return the name of the checkpoint of a position of the log."""
    return f"checkpoint-{file_id:06d}-{offset:012d}"


def parse_checkpoint(name: str) -> tuple[int, int] | None:
    """Return the position that a checkpoint's name says, or None if the name is not one's."""
    found = _CHECKPOINT.match(name)
    if found is None:
        return None
    file_id, offset = int(found[1]), int(found[2])
    return (file_id, offset) if name == checkpoint_name(file_id, offset) and _is_number(file_id) else None


def segment_tier(name: object) -> str:
    """Return "memory" or "disk" for the name of a segment of that tier, and "" for any other name."""
    found = _SEGMENT.match(name) if isinstance(name, str) else None
    return "" if found is None else "memory" if found[1] else "disk"


def group_of(name: str, kind: str) -> str | None:
    """Return the group that a file in ``groups`` is of, or None if the name is not one's.

    Args:
        name: the file's name.
        kind: "lock", "position", "query" or "worker".
    """
    group, _, ending = name.rpartition(".")
    return group if ending == kind and is_name(group) else None


# The files of the memory tier have numbers of their own, which say the generation: a tier that was
# lost or removed is followed by one of the next generation, so that no number is used twice.
def memory_file_id(generation: int, number: int) -> int:
    """Return the number of a memory tier's file: never one of a data file."""
    return generation << GENERATION_BITS | number


def generation_of(file_id: int) -> int:
    """Return the generation of the memory tier that a file belongs to, 0 for a data file."""
    return file_id >> GENERATION_BITS


def in_memory(file: int | str) -> bool:
    """Tell whether a log file's number or a segment's name is one of the memory tier."""
    return file.startswith(_MEMORY_SEGMENT) if isinstance(file, str) else file >> GENERATION_BITS > 0


def memory_segment(name: str) -> str:
    """Return the name of a segment while it is in the memory tier."""
    return _MEMORY_SEGMENT + name


def disk_segment(name: str) -> str:
    """Return the name that a segment of the memory tier has on disk."""
    return name.removeprefix(_MEMORY_SEGMENT)


def seed_name(file: int | str) -> str:
    """Return the name that a file's checksums start from: the same for a segment in either tier."""
    return log_name(file) if isinstance(file, int) else disk_segment(file)


def log_name(file_id: int) -> str:
    """Return the name of the log file with this number."""
    if generation := generation_of(file_id):
        return memory_file_name(generation, file_id & (1 << GENERATION_BITS) - 1)
    return data_file_name(file_id)
