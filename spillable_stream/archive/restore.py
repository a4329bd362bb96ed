"""`restore`: makes a channel of a backup.

The channel is built in ``.NAME.restoring`` beside its place, and renamed when it is whole. A restore that was killed
leaves that directory, which the next one to the same place removes. The channel's log begins as that of a repaired one
does: with a state that says where the events are, in data files before it that hold nothing but events.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from spillable_stream.archive.archived_events import read_events, read_file
from spillable_stream.archive.backup import archive_location, shown_location
from spillable_stream.archive.manifest import Manifest, newest_manifest
from spillable_stream.engine.open_engine import channel_path, uuid_at
from spillable_stream.errors import (
    ChannelError,
    CorruptionError,
    ForeignDirectoryError,
    NotAChannelError,
    OptionError,
    SpillableError,
)
from spillable_stream.format.expiry import Expiry
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import FrameHeader, Payload, encode, encode_with, file_seed, frame_size
from spillable_stream.format.record import EXTENDED_FORMAT_VERSION, MALFORMED, FileHeader, unpack
from spillable_stream.integrity.verify import verify
from spillable_stream.log.claim import make_directories
from spillable_stream.log.identity_file import planned_layout, write_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log_records import fields
from spillable_stream.objects.location import is_location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.store import Store
from spillable_stream.option_types import CreationOptions
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.state.blocks import Block, Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Trimmed
from spillable_stream.storage.access import Access
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["RestoreReport", "restore"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A channel that was made of a backup.

    Args:
        channel: its UUID.
        path: where it is.
        copy: where the backup is.
        number: the backup's number there.
        taken_at: when the backup was begun, in ISO 8601.
        last_id: the last write-order ID in use: the channel has what the original had up to there.
        events: how many events are in it.
        is_new: whether it has an identity of its own.
    """

    channel: str
    path: str
    copy: str
    number: int
    taken_at: str
    last_id: int
    events: int
    is_new: bool


def restore(
    copy: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    new_identity: bool = False,
    progress: OnProgress | None = None,
) -> RestoreReport:
    """Make a channel of a backup, as the channel was at its moment: events, groups, options, producers and queries.

    All directories of the channel are inside of its own, wherever those of the original were. It is verified before it
    has its name.

    Args:
        copy: the backup: a directory, or an address in a store.
        to: the new channel's directory, which is missing or empty.
        new_identity: whether it gets a UUID of its own, as a second channel. Without it the channel is the original's
            successor, which is refused while the original is where it was.
        progress: is told how far it is: the restore in bytes, then the verify; if it raises, nothing is made.

    Raises:
        NotAChannelError: there is no backup at ``copy``.
        ChannelError: ``to`` is there and not empty.
        ForeignDirectoryError: the original is where it was, and ``new_identity`` is false.
        CorruptionError: the backup is damaged; nothing was made.
        OptionError: ``to`` is in a store, or nothing can be at ``copy``.
        UnsupportedFormatError: a newer version wrote the backup.
        StorageError: the file system or the store refused; nothing was made.
    """
    if is_location(to):
        raise OptionError(f"a backup is restored to a directory, not to {to}: give a path")
    location, path = archive_location(copy), Path(to).absolute()
    store = open_store(location)
    manifest = newest_manifest(store)
    if manifest is None:
        raise NotAChannelError(f"there is no backup at {shown_location(location)}")
    fs = FileSystem()
    if fs.exists(path) and (not path.is_dir() or fs.list(path)):
        raise ChannelError(f"{path} is there: move it away, or restore to another path")
    if not new_identity:
        _require_original_gone(manifest)
    where = shown_location(location)
    return _Restore(fs, store, where, manifest, path, new_identity, progress).run()


def _require_original_gone(manifest: Manifest) -> None:
    """Refuse a second channel of one identity, as far as this host can tell.

    Raises:
        ForeignDirectoryError: the original is where it was.
    """
    try:
        is_there = uuid_at(channel_path(manifest.source)) == manifest.channel
    except (SpillableError, ImportError):  # it is gone, or out of this host's reach
        return
    if is_there:
        raise ForeignDirectoryError(
            f"the channel {manifest.channel} is still at {manifest.source}, and two channels of one identity must not "
            "be in use: restore with --new-identity (new_identity=True), or move the original away first"
        )


class _Restore:
    """One restore.

    Args:
        fs: the file system.
        store: the backup's store.
        where: what users call it.
        manifest: the backup.
        path: where the channel will be.
        new_identity: whether it gets a UUID of its own.
        progress: as `restore` says.
    """

    def __init__(
        self,
        fs: FileSystem,
        store: Store,
        where: str,
        manifest: Manifest,
        path: Path,
        new_identity: bool,
        progress: OnProgress | None,
    ) -> None:
        self._fs = fs
        self._store = store
        self._where = where
        self._manifest = manifest
        self._path = path
        self._new = new_identity
        self._progress = progress

    def run(self) -> RestoreReport:
        """Make the channel; raises what `restore` does."""
        building = self._path.with_name(f".{self._path.name}.restoring")
        shutil.rmtree(building, ignore_errors=True)
        try:
            layout, events = self._build(building)
            report = verify(building, progress=self._progress)
            if not report.healthy:
                raise CorruptionError(
                    f"the channel that was made of the backup is not healthy: {report.findings[0].text}; nothing was "
                    "restored",
                    self._where,
                )
            self._fs.rename(building, self._path)
            self._fs.sync_directory(self._path.parent)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        made, manifest = layout.channel, self._manifest
        more = fields(self._path, last_id=manifest.last_id)
        _log.info("restored %s from %s up to the event %d", self._path, self._where, manifest.last_id, extra=more)
        return RestoreReport(
            made,
            str(self._path),
            self._where,
            manifest.number,
            manifest.taken_at,
            manifest.last_id,
            events,
            self._new,
        )

    def _build(self, path: Path) -> tuple[Layout, int]:
        """Write the channel's files, the identity last, and return how many events it has."""
        layout = planned_layout(path, CreationOptions(mode=self._manifest.mode))
        if not self._new:
            layout = replace(layout, channel=self._manifest.channel)
        self._fs.access = Access(layout.mode)
        self._fs.make_directory(path)
        layout.grant(self._fs)
        make_directories(self._fs, layout)
        state = self._state()
        state.blocks, newest = _EventFiles(self._fs, layout, state).write(self._frames(state))
        events = sum(block.count for block in state.blocks)
        image = state.image()
        file = _new_file(self._fs, layout, newest + 1)
        with contextlib.closing(file):
            header = FileHeader(layout.channel, newest + 1, None, dict(image)).frame()
            file.write(0, encode(header, file_seed(layout.channel, log_name(newest + 1)), time_us=state.time_us))
            file.sync()
        self._fs.sync_directory(layout.log_file(newest + 1).parent)
        extended = EXTENDED_FORMAT_VERSION if state.blocks.has_expiry else layout.format
        write_identity(self._fs, replace(layout, format=extended))
        return layout, events

    def _state(self) -> ChannelState:
        """Return the state of the backup, without events, as that of a channel on a disk whose log begins now."""
        where = f"{self._store.root}/{self._manifest.state.key}"
        data = read_file(self._store, self._manifest.state)
        try:
            state = ChannelState.from_image(unpack(data))
        except MALFORMED as e:
            raise CorruptionError(f"the state of the backup can't be read ({e})", where) from e
        state.memory.open = False
        state.overflow = False
        state.memory_only_sinks.clear()
        state.memory_only_groups.clear()
        state.producers.memory_only.clear()
        for pending in state.pending.values():
            pending.in_memory = False
        state.trimmed = Trimmed()
        state.owners = {}
        return state

    def _frames(self, state: ChannelState) -> Iterator[tuple[FrameHeader, Payload]]:
        """Yield the frames of the backup that the channel keeps, in order."""
        meter = Meter("restore", "bytes", self._progress)
        meter.begin(sum(file.size_bytes for file in self._manifest.files))
        for file in self._manifest.files:
            for header, payload in read_events(self._store, self._manifest.channel, file):
                meter.add(frame_size(header.length))
                if header.write_order_id + header.count - 1 >= state.first_kept:
                    yield header, payload


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
