"""Staged segments: the events of a big transaction, in a file of their own until a COMMIT adopts it.

A segment is a SEGMENT_HEADER frame and PUT frames whose write-order IDs count from 0; the COMMIT
that adopts it says which ID the first event has. Its name says whose it is::

    segment.OWNER.BATCH.UUID      OWNER: a Spark query's ID, or "local" for a Python transaction

It is staged in the memory tier if there is one, as ``memory-segment.…``, and has the same bytes on
disk, so that a copy moves it there.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.expiry import NEVER, Expiry, joined
from spillable_stream.format.file_names import disk_segment, in_memory, memory_segment, seed_name
from spillable_stream.format.frame import Frame, FrameType, Payload, encode, file_seed, frame_size
from spillable_stream.format.packing import pack
from spillable_stream.format.record import FORMAT_VERSION
from spillable_stream.log.disk_space import require_space, with_room
from spillable_stream.log.layout import Layout
from spillable_stream.log.spare_segments import use_spare_segment
from spillable_stream.names import LOCAL_OWNER, check_owner
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["Age", "StagedFileWriter", "copy_to_disk", "uptime_seconds"]

_SYNC_BYTES = 4 << 20
_LOCK_SECONDS = 1.0  # how long to wait for whoever has the lock of a new segment, before there is another one


class StagedFileWriter:
    """Writes one segment; a lock on the file shows that the writer is alive.

    Args:
        fs: the file system.
        layout: where the channel's files are.
        owner: whose it is (`check_owner`).
        batch: the owner's number for it.
        memory_bytes: how large it may get in the memory tier; 0 stages it on disk at once.
        minimum_required_space: the option's value: what it leaves free on disk, in bytes, or None for the default.
        waiting_bytes: what it leaves beside that for delayed events, which are written again when they are due.

    Raises:
        OptionError: no owner may have this name; no file was created.
    """

    def __init__(
        self,
        fs: FileSystem,
        layout: Layout,
        owner: str = LOCAL_OWNER,
        batch: int = 0,
        memory_bytes: int = 0,
        minimum_required_space: int | None = 0,
        waiting_bytes: int = 0,
    ) -> None:
        self.count: int = 0
        self.payload_bytes: int = 0
        self._expiry: Expiry | None = None  # None before the first event
        self._begun = 0  # up to where the kernel was told to write to the medium
        self._failure: BaseException | None = None
        self._fs = fs
        self._layout = layout
        self._memory_bytes = memory_bytes if memory_bytes and fs.exists(layout.memory) else 0
        self._minimum_required_space = minimum_required_space
        self._waiting_bytes = waiting_bytes
        check_owner(owner)
        while not self._create(self._new_name(owner, batch)):
            pass
        self._seed = file_seed(layout.channel, seed_name(self.name))
        header = {"format": FORMAT_VERSION, "channel": layout.channel, "segment": seed_name(self.name), **_age()}
        frame = Frame.of(FrameType.SEGMENT_HEADER, pack(header))
        try:
            self._end = self._file.write(0, encode(frame, self._seed, time_us=time.time_ns() // 1000))
        except BaseException:
            self.discard()
            raise

    def _new_name(self, owner: str, batch: int) -> str:
        """Return a name, which says in which directory the file is on disk: in one with room."""
        directories = with_room(self._fs, self._layout, self._minimum_required_space)
        while True:
            name = f"segment.{owner}.{batch}.{uuid.uuid4().hex}"
            if self._layout.segment_file(name).parent in directories:
                return memory_segment(name) if self._memory_bytes else name

    def _create(self, name: str) -> bool:
        """Create the file, of a spare if there is one, and lock it; tell whether nobody else kept it locked.

        Until then a checkpoint may take it for an abandoned one and remove it, or a reader may come late to the spare.
        """
        self.name: str = name
        self.path: Path = self._layout.segment_file(name)
        if not in_memory(name):
            use_spare_segment(self._fs, self._layout, self.path)
        while True:
            self._lock = FileLock.open(self._fs, self.path)
            self._file = self._lock.file
            is_free = self._lock.acquire(_LOCK_SECONDS)
            if is_free and self._file.is_in_place():
                return True
            self._lock.close()
            if not is_free:  # whoever has it may do with it what it wants
                return False

    def write(self, frames: Iterable[Frame]) -> None:
        """Append PUT frames.

        Raises:
            StorageError: the file system refused; nothing was appended.
            DiskSpaceError: too little would be free on disk; nothing was appended.
        """
        self._require_sound()
        buffers: list[Payload] = []
        count = payload_bytes = size_bytes = 0
        expiry = self._expiry
        for frame in frames:
            order = self.count + count
            buffers += encode(frame, self._seed, write_order_id=order, time_us=time.time_ns() // 1000)
            count += frame.count
            payload_bytes += len(frame.payload)
            expiry = joined(expiry, Expiry.after(frame.ttl_us))
            size_bytes += frame_size(len(frame.payload))
        if self._memory_bytes and self._end + size_bytes > self._memory_bytes:
            self._move_to_disk(size_bytes)
        elif not self._memory_bytes:
            self._require_space(size_bytes)
        try:
            self._file.write(self._end, buffers)
        except StorageError:
            if not self._memory_bytes:
                raise
            self._move_to_disk(size_bytes)
            self._file.write(self._end, buffers)
        self.count += count
        self.payload_bytes += payload_bytes
        self._expiry = expiry
        self._end += size_bytes
        if not self._memory_bytes and self._end - self._begun >= _SYNC_BYTES:  # while the next rows are made
            self._file.start_sync(self._begun, self._end - self._begun)
            self._begun = self._end

    def _require_space(self, size_bytes: int) -> None:
        if self._minimum_required_space != 0 or self._waiting_bytes:
            directory = self._layout.segment_file(disk_segment(self.name)).parent
            require_space(self._fs, directory, self._minimum_required_space, size_bytes, self._waiting_bytes)

    def _move_to_disk(self, more_bytes: int) -> None:
        """Continue in a file on disk, where so much more is about to be written: this one gets too large for memory."""
        self._require_space(self._end + more_bytes)
        memory, memory_path = self._lock, self.path
        self._memory_bytes = 0
        try:
            with self._last_chance():
                if not self._create(disk_segment(self.name)):
                    raise StorageError(f"{self.path} is locked by another process; the segment can't be moved there")
                self._file.copy_from(memory.file, self._end)
        finally:  # if it fails the segment is discarded, which knows the one on disk by then
            memory.close()
            self._fs.remove(memory_path)

    def keep_on_disk(self) -> None:
        """Move a file that is finished from memory to disk, durably, and hold its lock there; the commit lock is held.

        Raises:
            StorageError: the file system refused; it is in memory, as it was.
        """
        memory, memory_path = self._lock, self.path
        name, _ = copy_to_disk(self._fs, self._layout, self.name)
        lock = FileLock.open(self._fs, self._layout.segment_file(name), create=False)
        lock.try_acquire()  # nobody else knows of it
        self.name, self.path, self._lock, self._file, self._memory_bytes = name, lock.path, lock, lock.file, 0
        memory.close()
        self._fs.remove(memory_path)

    def finish(self) -> SegmentRef:
        """Sync the file and its directory, if it is on disk, and return what a COMMIT needs to adopt it.

        Raises:
            StorageError: a sync failed, now or before; the segment can only be discarded.
        """
        self._require_sound()
        if not self._memory_bytes:
            with self._last_chance():
                if self._file.size() > self._end:  # a spare was longer
                    self._file.truncate(self._end)
                self._file.sync()
                self._fs.sync_directory(self.path.parent)
        expiry = self._expiry or NEVER
        return SegmentRef(self.name, self._end, self.count, self.payload_bytes, 0, 0, 0, *expiry)

    @contextlib.contextmanager
    def _last_chance(self) -> Iterator[None]:
        """Remember what fails and must not be tried again: after a sync that failed, the next says that all is well."""
        try:
            yield
        except BaseException as e:
            self._failure = e
            raise

    def _require_sound(self) -> None:
        if self._failure is not None:
            kind = DiskSpaceError if isinstance(self._failure, DiskSpaceError) else StorageError
            raise kind(f"{self.path} can only be discarded: {self._failure}") from self._failure

    def close(self) -> None:
        """Close the file, which frees its lock, and keep it."""
        self._lock.close()

    def discard(self) -> None:
        """Close and remove the file."""
        with contextlib.suppress(StorageError):
            self._fs.remove(self.path)
        self.close()


def uptime_seconds() -> float:
    """Return how long the machine is up, in seconds: a clock that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Age(TypedDict):
    """When a segment was created: the boot of the machine, and how long that was up, in seconds."""

    boot: str
    up: float


def _age() -> Age:
    """Return what tells the age of a segment that is created now."""
    return {"boot": boot_id().hex(), "up": uptime_seconds()}


def copy_to_disk(fs: FileSystem, layout: Layout, name: str) -> tuple[str, int]:
    """Copy a segment of the memory tier to disk, durably; its bytes are the same there.

    Returns:
        Its name on disk, and its size in bytes.

    Raises:
        StorageError: the file system refused; nothing has that name.
    """
    copy = disk_segment(name)
    return copy, fs.copy_durably(layout.segment_file(name), layout.segment_file(copy))
