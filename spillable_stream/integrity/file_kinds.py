"""Refuses a channel where a directory, a link or a pipe has the name of one of its files.

No damage does that, no handle can use the channel then, and a repair would have to remove what it does not know. So the
error names all such paths, and nothing else is read. Names that the channel does not use yet, such as that of a later
log file, are passed over, as by every handle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from spillable_stream.errors import CorruptionError, NotAChannelError
from spillable_stream.format.file_names import parse_checkpoint, parse_data_file, parse_delayed
from spillable_stream.format.head_page import parse_head
from spillable_stream.integrity.identity_evidence import usual_layout
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import IDENTITY, Layout
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.shown_value import command
from spillable_stream.storage.filesystem import A_DIRECTORY, A_FILE, A_LINK, FileSystem

__all__ = ["require_kinds"]

_MOST_NAMED = 10


def require_kinds(fs: FileSystem, path: Path) -> None:
    """Refuse a channel with something of another kind at the name of one of its files and directories.

    A directory may be a link to one: its owner file proves whose it is.

    Raises:
        CorruptionError: there is such a name; the message says what to do.
        UnsupportedFormatError: a newer version wrote the channel.
    """
    layout = usual_layout(path)
    _refuse(path, _other_than_files(fs, _files(layout)))
    with contextlib.suppress(CorruptionError, NotAChannelError):
        layout = read_identity(fs, path)
    _refuse(path, _other_than_directories(fs, _directories(layout)))
    _refuse(path, _other_than_files(fs, [*_log_files(fs, layout), *_other_files(fs, layout)]))


def _directories(layout: Layout) -> list[Path]:
    """Return the directories that a channel needs; not that of backup checkpoints, which may be dead."""
    return sorted({*layout.data_dirs, layout.checkpoint_dir, layout.groups, layout.path / "producers", layout.memory})


def _files(layout: Layout) -> Iterator[Path]:
    """Yield the paths that files of every channel may have in its own directory."""
    yield from (layout.lock, layout.open_lock, layout.checkpoint_lock, layout.upkeep_lock, layout.head)
    yield from (layout.memory_origin, layout.path / "store", layout.path / "store.lock")
    yield from (layout.path / IDENTITY, layout.path / OWNER_FILE)


def _log_files(fs: FileSystem, layout: Layout) -> Iterator[Path]:
    """Yield what has the name of a log file of the disk tier in the data directories, up to the newest file."""
    newest = max([_published(fs, layout), *layout.log_files(fs)])
    for directory in set(layout.data_dirs):
        for name in fs.list(directory):
            number = parse_data_file(name)
            if number and number <= newest and layout.log_file(number) == directory / name:
                yield directory / name


def _other_files(fs: FileSystem, layout: Layout) -> Iterator[Path]:
    """Yield what has the name of another file of the channel's that is read in its directories."""
    yield from (directory / OWNER_FILE for directory in sorted({*layout.data_dirs, layout.checkpoint_dir}))
    for directory in sorted(set(layout.data_dirs)):
        for name in fs.list(directory):
            number = parse_delayed(name)
            if number and layout.delayed_file(number) == directory / name:
                yield directory / name
    yield from (layout.checkpoint_dir / n for n in fs.list_files(layout.checkpoint_dir) if parse_checkpoint(n))
    yield from (layout.groups / n for n in fs.list_files(layout.groups) if layout.group_of(n, "position"))


def _published(fs: FileSystem, layout: Layout) -> int:
    """Return the number of the newest log file by the head; 0 without a head."""
    with contextlib.suppress(FileNotFoundError):
        head = parse_head(fs.read_file(layout.head))
        return head.published.disk.file_id if head else 0
    return 0


def _other_than_files(fs: FileSystem, paths: Iterable[Path]) -> list[str]:
    kinds = {path: fs.kind(path) for path in paths}
    return [f"{path} is {kind}, and not a file" for path, kind in kinds.items() if kind not in ("", A_FILE)]


def _other_than_directories(fs: FileSystem, paths: Iterable[Path]) -> list[str]:
    kinds = {path: fs.kind(fs.real_path(path) if fs.kind(path) == A_LINK else path) for path in paths}
    return [f"{path} is {kind}, and not a directory" for path, kind in kinds.items() if kind not in ("", A_DIRECTORY)]


def _refuse(path: Path, wrong: list[str]) -> None:
    if not wrong:
        return
    more = f"; and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
    them = "them" if len(wrong) > 1 else "it"
    raise CorruptionError(
        f"{'; '.join(wrong[:_MOST_NAMED])}{more}: move {them} away, put back what belongs there if you have it, "
        f"and run '{command('repair', path)}'"
    )
