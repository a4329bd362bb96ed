"""Notes on what is beside a channel's log: files that it can do without, those of others, and its place in memory."""

from __future__ import annotations

import os
from pathlib import Path

from spillable_stream.engine.local.position_hint import parse_position_hint
from spillable_stream.integrity.findings import Findings
from spillable_stream.log.host_memory import directory_in_memory
from spillable_stream.log.layout import Layout
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["check_positions", "note_memory", "note_segments", "note_strays"]

_SHOWN_STRAYS = 10
_POSITION_READS = 3  # the group's owner may be writing it


def check_positions(fs: FileSystem, layout: Layout, state: ChannelState, findings: Findings) -> list[Path]:
    """Check the groups' position files, which only the report of a loss needs, and return those to remove."""
    bad = []
    for name in fs.list_files(layout.path / "groups"):
        group = layout.group_of(name, "position")
        if group is None or _position_is_good(fs, layout, group):
            continue
        path = layout.group_position(group)
        if state.memory.open and group in state.groups:
            text = "the group's position is damaged: should the memory tier be lost, what it took counts as lost"
            findings.warn(path, text, 0)
            bad.append(path)
        else:
            findings.note(path, "the group's position is damaged; nothing needs it now", 0)
    return bad


def _position_is_good(fs: FileSystem, layout: Layout, group: str) -> bool:
    for _ in range(_POSITION_READS):
        try:
            data = fs.read_file(layout.group_position(group))
        except FileNotFoundError:
            return True
        if not data or parse_position_hint(layout, group, data) is not None:
            return True
    return False


def note_memory(fs: FileSystem, layout: Layout, findings: Findings) -> None:
    """Note that a channel ends with its host."""
    if (directory := directory_in_memory(fs, layout)) is not None:
        text = "it is on a file system in memory: the events end with the host. Move the channel to a disk"
        findings.note(directory, text)


def note_segments(fs: FileSystem, layout: Layout, state: ChannelState, findings: Findings) -> None:
    """Note the segments without events of the channel."""
    findings.note_segments(set(layout.segments(fs)) - state.segments(), layout.segment_file)


def note_strays(fs: FileSystem, layout: Layout, findings: Findings) -> None:
    """Note foreign files in the channel's directories."""
    directories = {*layout.data_dirs, layout.checkpoint_dir, layout.memory, layout.path / "groups"}
    for directory in sorted(directories):
        files = set(fs.list_files(directory))
        names = [n for n in fs.list(directory) if n not in files or not layout.is_own(directory, n)]
        if names:
            shown = ", ".join(ascii(os.fsencode(n))[1:] for n in names[:_SHOWN_STRAYS])
            more = f", and {len(names) - _SHOWN_STRAYS} more" if len(names) > _SHOWN_STRAYS else ""
            are = "name in it is not the channel's and is"
            if len(names) > 1:
                are = "names in it are not the channel's and are"
            findings.note(directory, f"{len(names)} {are} left alone: {shown}{more}")
