"""Names of a channel at which something of another kind is: a directory for a file, a link, a pipe.

No damage does that, and no use of the channel passes over it. So whoever did it is told the names, and nothing else is
read: a repair would have to remove what it does not know.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from spillable_stream.errors import CorruptionError, NotAChannelError
from spillable_stream.integrity.identity_evidence import usual_layout
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import IDENTITY, Layout
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.storage.filesystem import A_DIRECTORY, A_FILE, A_LINK, FileSystem

__all__ = ["require_kinds"]

_MOST_NAMED = 10


def require_kinds(fs: FileSystem, path: Path) -> None:
    """Refuse a channel with something of another kind at the name of one of its files and directories.

    A directory may be a link to one: its owner file proves whose it is.

    Args:
        fs: the file system.
        path: the channel's directory.

    Raises:
        CorruptionError: there is; says what to do.
        UnsupportedFormatError: a newer version wrote the channel.
    """
    layout = usual_layout(path)
    _refuse(_none_of_files(fs, _files(layout)))
    with contextlib.suppress(CorruptionError, NotAChannelError):
        layout = read_identity(fs, path)
    _refuse(_none_of_directories(fs, directories := _directories(layout)))
    _refuse(_none_of_files(fs, _files_in(fs, layout, directories)))


def _directories(layout: Layout) -> list[Path]:
    outside = {layout.backup_checkpoint_dir or layout.checkpoint_dir, layout.checkpoint_dir, *layout.data_dirs}
    return sorted({*outside, layout.groups, layout.path / "producers", layout.memory})


def _files(layout: Layout) -> Iterator[Path]:
    """Yield the paths that files of every channel may have in its own directory."""
    yield from (layout.lock, layout.open_lock, layout.checkpoint_lock, layout.upkeep_lock, layout.head)
    yield from (layout.memory_origin, layout.path / "store", layout.path / "store.lock")
    yield from (layout.path / IDENTITY, layout.path / OWNER_FILE)


def _files_in(fs: FileSystem, layout: Layout, directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths in directories whose names are those of the channel's files."""
    producers = layout.path / "producers"
    for directory in directories:
        for name in fs.list(directory):
            if name.endswith(".lock") if directory == producers else layout.is_own(directory, name):
                yield directory / name


def _none_of_files(fs: FileSystem, paths: Iterable[Path]) -> list[str]:
    kinds = {path: fs.kind(path) for path in paths}
    return [f"{path} is {kind}, and not a file" for path, kind in kinds.items() if kind not in ("", A_FILE)]


def _none_of_directories(fs: FileSystem, paths: Iterable[Path]) -> list[str]:
    kinds = {path: fs.kind(fs.real_path(path) if fs.kind(path) == A_LINK else path) for path in paths}
    return [f"{path} is {kind}, and not a directory" for path, kind in kinds.items() if kind not in ("", A_DIRECTORY)]


def _refuse(wrong: list[str]) -> None:
    if not wrong:
        return
    more = f"; and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
    them = "them" if len(wrong) > 1 else "it"
    raise CorruptionError(
        f"{'; '.join(wrong[:_MOST_NAMED])}{more}: move {them} away, put back what belongs there if you have it, "
        "and run 'spillable repair'"
    )
