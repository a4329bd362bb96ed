"""Creates a channel from a backup in a directory.

The channel is built in a directory of its own beside its place, ``.restoring-PLACE-TOKEN``, whose lock shows that its
restore is alive, and renamed when it is whole. PLACE is a digest of the channel's name, which may be as long as names
can be. A restore that was killed leaves that directory, which the next one to the same place removes. The channel's log
begins as that of a repaired one does: with a state that says where the events are, in data files before it that hold
nothing but events.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from spillable_stream.archive.backup_content import BackupContent, MadeChannel, is_there_error
from spillable_stream.engine.local.creation import warn_of_memory
from spillable_stream.errors import CorruptionError, OptionError, StorageError
from spillable_stream.format.expiry import Expiry
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import FrameHeader, Payload, encode, encode_with, file_seed
from spillable_stream.format.record import FileHeader
from spillable_stream.integrity.verify import verify
from spillable_stream.log.claim import make_directories
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.identity_file import planned_layout, read_identity, write_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.nesting import require_apart
from spillable_stream.option_types import CreationOptions
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.access import Access
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["restore_to_directory"]


def restore_to_directory(
    content: BackupContent, path: Path, new_identity: bool, progress: OnProgress | None
) -> MadeChannel:
    """Create a channel from a backup; arguments and errors are those of `spillable_stream.archive.restore.restore`."""
    fs = FileSystem()
    _require_free(fs, path)
    fs.require_place(path)
    path = fs.real_path(path)  # beside a link it may be another file system than where that leads
    _require_no_mount(fs, path)
    require_apart(fs, path)
    with _building_place(fs, path) as building:
        made = _Build(fs, content, building, new_identity, progress).run()
        report = verify(building, progress=progress)
        if not report.healthy:
            raise CorruptionError(
                f"the channel that was created from the backup is not healthy: {report.findings[0].text}; nothing was "
                "restored. Create another backup",
                content.where,
            )
        require_apart(fs, path)  # again: another channel may have been created meanwhile
        try:
            fs.rename(building, path)
        except StorageError:
            _require_free(fs, path)  # another restore was faster
            raise
        _sync(fs, path)
    warn_of_memory(fs, read_identity(fs, path))
    return made


def _sync(fs: FileSystem, path: Path) -> None:
    """Make the name of a channel durable that is at its place.

    Raises:
        StorageError: nobody knows whether it is.
    """
    try:
        fs.sync_directory(path.parent)
    except StorageError as e:
        raise StorageError(
            f"the channel was created at {path}, and is whole, but a power cut may take it away: {e}. Remove it, and "
            "restore it again where directories can be synced"
        ) from e


def _require_free(fs: FileSystem, path: Path) -> None:
    if fs.exists(path) and (not path.is_dir() or fs.list(path)):
        raise is_there_error(path)


def _require_no_mount(fs: FileSystem, path: Path) -> None:
    if fs.exists(path) and fs.identity(path).device != fs.identity(path.parent).device:
        raise OptionError(
            f"{path} is where a file system is mounted, and no restore can replace that; give a directory inside of it"
        )


@contextlib.contextmanager
def _building_place(fs: FileSystem, path: Path) -> Iterator[Path]:
    """Yield where to build a channel, which no other restore touches; what is there afterwards is removed."""
    prefix = f".restoring-{sha256(os.fsencode(path.name)).hexdigest()[:16]}-"
    fs.make_directory(path.parent)
    for name in fs.list(path.parent):
        if name.startswith(prefix):
            _remove_left(fs, path.parent / name)
    place = path.parent / (prefix + uuid.uuid4().hex)
    try:
        with contextlib.closing(_locked(fs, place)):
            yield place / "channel"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _locked(fs: FileSystem, place: Path) -> FileLock:
    """Create a directory and lock it, again if another restore took it for one that was left."""
    while True:
        fs.make_directory(place)
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            lock = FileLock.open(fs, place / "lock")
            opened.callback(lock.close)
            if lock.try_acquire() and lock.is_in_place():
                opened.pop_all()
                return lock


def _remove_left(fs: FileSystem, place: Path) -> None:
    """Remove what a restore left that was killed; one that is alive has its lock."""
    with contextlib.suppress(FileNotFoundError, StorageError):
        lock = FileLock.open(fs, place / "lock")
        try:
            if lock.try_acquire():
                shutil.rmtree(place, ignore_errors=True)
        finally:
            lock.close()


class _Build:
    """Builds one channel.

    Args:
        fs: the file system.
        content: the backup.
        path: where the channel is built.
        new_identity: whether it gets a UUID of its own.
        progress: is told how far it is.
    """

    def __init__(
        self, fs: FileSystem, content: BackupContent, path: Path, new_identity: bool, progress: OnProgress | None
    ) -> None:
        self._fs = fs
        self._content = content
        self._path = path
        self._new = new_identity
        self._meter = Meter("restore", "bytes", progress)

    def run(self) -> MadeChannel:
        """Write the channel's files, the identity last."""
        manifest, path = self._content.manifest, self._path
        layout = planned_layout(path, CreationOptions(mode=manifest.mode))
        if not self._new:
            layout = replace(layout, channel=manifest.channel)
        self._fs.access = Access(layout.mode)
        self._fs.make_directory(path)
        layout.grant(self._fs)
        make_directories(self._fs, layout)
        state = self._content.state(in_store=False)
        frames = self._content.frames(state, self._meter)
        state.blocks, newest = _EventFiles(self._fs, layout, state).write(frames)
        self._make_side_files(layout, state)
        image = state.image()
        file = _new_file(self._fs, layout, newest + 1)
        with contextlib.closing(file):
            header = FileHeader(layout.channel, newest + 1, None, dict(image)).frame()
            file.write(0, encode(header, file_seed(layout.channel, log_name(newest + 1)), time_us=state.time_us))
            file.sync()
        self._fs.sync_directory(layout.log_file(newest + 1).parent)
        write_identity(self._fs, layout, extended=state.is_extended)
        return MadeChannel.of(layout.channel, state)

    def _make_side_files(self, layout: Layout, state: ChannelState) -> None:
        """Write the files in which delayed events wait."""
        files, original = DelayedFiles(self._fs, layout), self._content.manifest.channel
        for file, data in self._content.delays(state):
            files.create(data, file, original)
            state.delays.files[file.number] = file._replace(name="")
        for directory in {layout.delayed_file(number).parent for number in state.delays.files}:
            self._fs.sync_directory(directory)


class _EventFiles:
    """Writes data files that hold nothing but events.

    Args:
        fs: the file system.
        layout: the channel's files.
        state: the channel's state, whose options say how large a file gets.
    """

    def __init__(self, fs: FileSystem, layout: Layout, state: ChannelState) -> None:
        self._fs = fs
        self._layout = layout
        self._state = state
        self._file: File | None = None
        self._file_id = 0
        self._end = self._seed = 0

    def write(self, frames: Iterator[tuple[FrameHeader, Payload]]) -> tuple[Blocks, int]:
        """Write all frames, and return where they are, and the number of the last file; 0 if there is none."""
        blocks = Blocks((), self._state.floor - 1)
        is_dated = self._state.options.retention_ms > 0
        try:
            for header, payload in frames:
                if self._file is None or self._end >= self._state.options.max_file_size:
                    self._begin_file()
                assert self._file is not None
                where = header.write_order_id, header.count, self._file_id, self._end, header.length, header.time_us
                self._end += self._file.write(self._end, encode_with(header, payload, self._seed))
                until_us, expiry = header.time_us if is_dated else 0, Expiry.after(header.ttl_us, header.time_us)
                blocks.add(Block(*where, 0, 0, 0, until_us, *expiry))
        finally:
            self._end_file()
        blocks.keep_through(self._state.floor - 1)
        return blocks, self._file_id

    def _begin_file(self) -> None:
        self._end_file()
        self._file_id += 1
        self._file = _new_file(self._fs, self._layout, self._file_id)
        self._seed = file_seed(self._layout.channel, log_name(self._file_id))
        header = FileHeader(self._layout.channel, self._file_id, None, dict(self._state.small())).frame()
        self._end = self._file.write(0, encode(header, self._seed, time_us=time.time_ns() // 1000))

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None


def _new_file(fs: FileSystem, layout: Layout, file_id: int) -> File:
    return fs.open(layout.log_file(file_id), create=True, exclusive=True)
