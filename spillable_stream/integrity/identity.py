"""What a channel is, even where its identity file is damaged: every data file says it too."""

from __future__ import annotations

from pathlib import Path

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, file_seed, parse_header, payload_matches
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.order import parsed_header
from spillable_stream.log.layout import Layout, log_name
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["find_identity"]

_LARGEST_HEADER_BYTES = 64 << 20


def find_identity(fs: FileSystem, path: Path, findings: Findings) -> tuple[Layout, bool]:
    """Return where a channel's files are, and whether its identity file has to be written anew.

    Args:
        fs: the file system.
        path: the channel's directory.
        findings: where damage to the identity file is noted.

    Raises:
        NotAChannelError: the directory holds no channel.
        UnsupportedFormatError: a newer version wrote it.
        CorruptionError: the identity file is damaged, and no data file in the usual place says what was in it.
    """
    file = path / "channel.json"
    usual = Layout(path, "", (path / "data",), path / "checkpoint", None)
    try:
        layout = Layout.read(fs, path)
    except CorruptionError:
        found = _channel_of_files(fs, usual)
        if found is None:
            raise
        findings.damage(file, "the channel's identity can't be read; its data files say it too")
        return Layout(path, found, usual.data_dirs, usual.checkpoint_dir, None), True
    if _says(fs, layout, layout.channel):
        return layout, False
    found = _channel_of_files(fs, layout)
    if found is not None:
        findings.damage(file, f"the channel's identity is damaged: its data files are of the channel {found}")
        return Layout(path, found, layout.data_dirs, layout.checkpoint_dir, layout.backup_checkpoint_dir), True
    if not layout.log_files(fs) and (found := _channel_of_files(fs, usual)) is not None:
        findings.damage(file, f"the channel's identity is damaged: it has no data files there, but in {path / 'data'}")
        return Layout(path, found, usual.data_dirs, layout.checkpoint_dir, layout.backup_checkpoint_dir), True
    return layout, False


def _says(fs: FileSystem, layout: Layout, channel: str) -> bool:
    """Tell whether some data file is of a channel."""
    return any(_owner(fs, layout, i) == channel for i in reversed(layout.log_files(fs)))


def _channel_of_files(fs: FileSystem, layout: Layout) -> str | None:
    """Return the UUID that the newest data file with a whole header says, or None."""
    owners = (_owner(fs, layout, i) for i in reversed(layout.log_files(fs)))
    return next((owner for owner in owners if owner is not None), None)


def _owner(fs: FileSystem, layout: Layout, file_id: int) -> str | None:
    """Return the UUID in a data file's header, which its own checksum proves, or None."""
    file = fs.open(layout.log_file(file_id), readonly=True)
    try:
        data = file.read(0, HEADER_SIZE_BYTES)
        length = int.from_bytes(data[4:8], "little")
        payload = file.read(HEADER_SIZE_BYTES, min(length, _LARGEST_HEADER_BYTES))
    finally:
        file.close()
    record = parsed_header(payload)
    if record is None or not isinstance(record.channel, str):
        return None
    header = parse_header(data, 0, file_seed(record.channel, log_name(file_id)))
    if header is None or header.type != FrameType.FILE_HEADER or not payload_matches(header, payload):
        return None
    return record.channel
