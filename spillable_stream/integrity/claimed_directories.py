"""The directories that whoever repairs a channel names as the channel's, though nothing in them says that they are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from spillable_stream.arguments import path_text
from spillable_stream.errors import OptionError
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.identity_evidence import find_identity
from spillable_stream.log.layout import Layout
from spillable_stream.objects.location import Location, channel_path
from spillable_stream.shown_value import shown
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["ClaimedPaths", "claimed_directories", "claimed_paths", "require_claimable"]

ClaimedPaths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


def claimed_paths(claim: ClaimedPaths) -> tuple[Path, ...]:
    """Return the paths of the directories that are named.

    Args:
        claim: the path of one, or those of several.

    Raises:
        OptionError: it is not a path, nor several.
    """
    if isinstance(claim, (str, bytes, os.PathLike)):
        claim = (claim,)
    if not isinstance(claim, Iterable):
        raise OptionError(f"claim must be the paths of directories, not {shown(claim)}")
    return tuple(Path(path_text("claim", each)) for each in claim)


def require_claimable(path: str | os.PathLike[str], claim: ClaimedPaths) -> None:
    """Prove that a repair of a channel can be told these directories, before anybody is asked about its loss.

    Args:
        path: the channel's directory, or its address in an object store.
        claim: the directories.

    Raises:
        OptionError: one of them is not a directory of the channel, which has none in a store.
        NotAChannelError: the path holds no channel.
        CorruptionError: nothing says what the channel is.
    """
    place, names = channel_path(path), claimed_paths(claim)
    if names and isinstance(place, Location):
        raise OptionError(f"a channel in an object store has no directories to claim, such as {names[0]}")
    if names and not isinstance(place, Location):
        fs = FileSystem()
        claimed_directories(fs, find_identity(fs, place, Findings())[0], names)


def claimed_directories(fs: FileSystem, layout: Layout, named: Iterable[Path]) -> frozenset[Path]:
    """Return the directories of a channel that are named, as its layout has them.

    Args:
        fs: the file system.
        layout: the channel's files.
        named: their paths, wherever they come from.

    Raises:
        OptionError: one of the paths is not that of a directory of the channel.
    """
    backup = layout.backup_checkpoint_dir
    directories = [*layout.directories().values(), *([backup] if backup is not None else [])]
    known = {fs.real_path(directory): directory for directory in directories}
    found = set()
    for path in named:
        if (directory := known.get(fs.real_path(path))) is None:
            listed = ", ".join(map(str, directories))
            raise OptionError(
                f"{path} can't be claimed: it is not a directory of the channel {layout.path}; give one of {listed}"
            )
        found.add(directory)
    return frozenset(found)
