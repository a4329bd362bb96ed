"""Channels of the first releases, whose directories have no owner files: each is proven by what is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spillable_stream.errors import ForeignDirectoryError
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.format.head_page import parse_head
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.claim import make_directories
from spillable_stream.log.directory_ownership import adoption_fault
from spillable_stream.log.frames import FrameScanner
from spillable_stream.log.identity_file import write_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.unproven_directories import repair_advice
from spillable_stream.shown_value import command
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["adopt"]


def adopt(fs: FileSystem, layout: Layout) -> Layout:
    """Give every directory of a channel its owner file, and return the layout; nobody else has the channel open.

    A data directory is the channel's if a file in it begins with a header that says so, or if none belongs there; but
    not one that a copy of the channel got before.

    Raises:
        ForeignDirectoryError: a directory is missing, or not proven to be the channel's, and nothing was written; or a
            copy of the channel got one meanwhile.
        ChannelBusyError: another process has been claiming one for too long.
        StorageError: the file system refused.
    """
    for directory in (*layout.data_dirs, layout.checkpoint_dir):
        if not fs.exists(directory) and not (directory == layout.path / "checkpoint"):
            raise _foreign(layout, directory, "it is missing")
    for role, directory in layout.directories().items():
        if (fault := adoption_fault(fs, layout, role, directory)) is not None:
            raise _foreign(layout, directory, fault, repair_advice(fs, layout))
    files = layout.log_files(fs)
    newest = max([_published_file(fs, layout), Checkpoints(fs, layout).newest_file_id(), *files[-1:]])
    for directory in layout.data_dirs:
        inside = [i for i in files if layout.log_file(i).parent == directory]
        if inside and not any(_is_own(fs, layout, i) for i in inside):
            raise _foreign(layout, directory, "no data file in it says that it is")
        missing = [i for i in range(files[0] if files else 1, newest + 1) if layout.log_file(i).parent == directory]
        if missing and not inside:
            raise _foreign(layout, directory, f"{log_name(missing[0])} is not in it")
    make_directories(fs, layout)
    layout = replace(layout, owned=True)
    write_identity(fs, layout)
    return layout


def _published_file(fs: FileSystem, layout: Layout) -> int:
    """Return the newest data file that the head knows of, a lower bound; 0 if it says nothing."""
    try:
        found = parse_head(fs.read_file(layout.head))
    except FileNotFoundError:
        return 0
    return found[2].disk.file_id if found else 0


def _is_own(fs: FileSystem, layout: Layout, file_id: int) -> bool:
    file = fs.open(layout.log_file(file_id), readonly=True)
    try:
        found = next(iter(FrameScanner(file, file_seed(layout.channel, log_name(file_id)), 0)), None)
    finally:
        file.close()
    return found is not None and found.header.type == FrameType.FILE_HEADER


def _foreign(layout: Layout, directory: Path, why: str, advice: str = "") -> ForeignDirectoryError:
    advice = advice or f"Is its disk mounted? If so, run '{command('verify', layout.path)}'"
    return ForeignDirectoryError(
        f"{directory} is not proven to be a directory of the channel {layout.path}: {why}. {advice}"
    )
