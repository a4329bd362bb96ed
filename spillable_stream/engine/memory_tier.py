"""The memory tier of one process: made when it is wanted, freed as events are taken, closed when it is empty."""

from __future__ import annotations

import contextlib
import secrets
import time
from functools import partial

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local_log import LocalLog
from spillable_stream.engine.requests import Control, PrepareOnDisk
from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier, disk_segment, in_memory, memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import NO_TIER
from spillable_stream.format.record import ReserveRecord
from spillable_stream.log.staged_file import copy_to_disk
from spillable_stream.storage.lock import is_locked

__all__ = ["MemoryTier"]

_RETRY_SECONDS = 60.0
_SPARES = 3  # that a checkpoint leaves
_SPARE_PARTS = 4  # of the capacity, one of which may be spare between checkpoints: staged files come on top
_RESERVED_IDS = 1 << 20  # one sync for so many events that stay in memory


class MemoryTier:
    """What there is to do about the memory tier. But for `make` and `put_bytes`, the channel's lock is held.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log what the disk tier is to know of the memory tier.

    Attributes:
        set_aside: whether puts go to disk, though there could be a memory tier, if the channel has any room there.
    """

    def __init__(self, log: LocalLog, follower: Follower, appender: Appender) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self.set_aside = False
        self._directory = log.memory_directory
        self._refused_at = float("-inf")
        self._refused_for: StorageError | None = None
        self._measured_at: int | None = None
        self._used_bytes = 0

    def _is_wanted(self) -> bool:
        options = self._follower.state.options
        if not options.memory_capacity or (self.set_aside and options.overflow_capacity):
            return False
        return time.monotonic() - self._refused_at > _RETRY_SECONDS

    def is_ready(self) -> bool:
        """Tell whether there is a memory tier to put to."""
        return self._log.held_position().memory.file_id != 0 and self._is_wanted()

    def put_bytes(self) -> int:
        """Return how many bytes of payloads a put transaction may have to go to memory, 0 without a memory tier."""
        if not self._is_wanted() or not self._follower.positions.memory.file_id:
            return 0
        return self._follower.state.memory_limits().payload_bytes

    def make(self) -> None:
        """Make the memory tier, if the channel is to have one and has none yet."""
        self._follower.follow(unchecked=True)
        if self._is_wanted() and not self._follower.positions.memory.file_id:
            with self._appender.committing():
                self.open()

    def open(self) -> bool:
        """Do what `make` does, or go on without it for a while; tell whether there is a memory tier to put to."""
        if self.is_ready():
            return True
        if self._is_wanted():
            self._open()
        return self.is_ready()

    def _open(self) -> None:
        log, follower = self._log, self._follower
        try:
            byte_capacity = self._directory.choose_byte_capacity(follower.state.options)
        except StorageError as e:
            self.refuse(e)
            return
        generation, token = follower.state.memory.generation + 1, secrets.token_hex(16)
        try:
            self._directory.make(follower.state.options, token)
        except StorageError as e:
            self.refuse(e)
            return
        self._reserve(generation, byte_capacity, follower.state.last_id + _RESERVED_IDS, token)
        try:
            log.tiers.memory.create_first_file(partial(log.memory_image, follower), memory_file_id(generation, 1))
        except StorageError as e:
            self.refuse(e)
            follower.catch_up()
            self._reserve(generation, byte_capacity, follower.state.last_id, token="")  # there is none to be lost
        follower.catch_up()

    def refuse(self, cause: StorageError) -> None:
        """Do without the memory tier for a while: it could not be written."""
        self._refused_at, self._refused_for = time.monotonic(), cause
        with contextlib.suppress(StorageError):
            self._keep_spares(0)
        then = "events go to disk" if self._follower.state.options.overflow_capacity else "puts find no room"
        self._directory.warn_of(f"{cause}; {then} until it is tried again in {_RETRY_SECONDS:g} s")

    def why_not(self) -> StorageError | None:
        """Return why there is no memory tier though there is to be one, or None."""
        wanted = self._follower.state.options.memory_capacity
        return self._refused_for if wanted and not self._is_wanted() else None

    def has_pages_for(self, size_bytes: int) -> bool:
        """Tell whether the tier's files leave room for a put: events that are taken are freed file by file."""
        current, most = self._follower.positions.memory.file_id, self._follower.state.memory_byte_capacity()
        if current != self._measured_at or self._used_bytes + size_bytes > most:  # others free files too
            self.free_taken()
            self._measured_at, self._used_bytes = current, self._directory.used_bytes()
            self._keep_spares(min(most - self._used_bytes - size_bytes, most // _SPARE_PARTS))
        return self._used_bytes + size_bytes <= most

    def reserve_ids(self, last_id: int) -> None:
        """Make sure that write-order IDs up to one are reserved on disk, so that none is ever used twice."""
        memory = self._follower.state.memory
        if last_id > memory.reserved_id:
            self._reserve(memory.generation, memory.byte_capacity, last_id + _RESERVED_IDS, memory.token)

    def _reserve(self, generation: int, byte_capacity: int, through_id: int, token: str) -> None:
        value: ReserveRecord = {
            "through": through_id,
            "generation": generation,
            "bytes": byte_capacity,
            "open": bool(token),
            "token": token,
        }
        self._appender.append_alone(Control(FrameType.RESERVE, value))

    def renew(self) -> None:
        """Begin a new file, whose image of the state makes older data files unnecessary to read the channel."""
        if self._log.held_position().memory.file_id:
            self._log.tiers.memory.roll(partial(self._log.memory_image, self._follower))
            self._follower.catch_up()
            self._free_files()  # also what this process never saw emptied
            self._keep_spares(_SPARES * self._log.tiers.memory.max_file_size_bytes)

    def free_taken(self) -> None:
        """Free the memory of events that every group has taken, as far as this process saw files emptied."""
        emptied = self._follower.state.blocks.memory.emptied
        if emptied and emptied != {self._follower.positions.memory.file_id}:
            self._free_files()

    def _free_files(self) -> None:
        """Remove files that hold no event which is needed; log files become spares."""
        log, follower = self._log, self._follower
        with follower.snapshot as state:
            memory, current = state.blocks.memory, follower.positions.memory.file_id
            emptied, live = memory.emptied - {current}, set(memory.files)
            memory.emptied &= {current}  # it is written, and holds the state: it goes when it is neither
        for file_id in log.layout.log_files(log.fs, Tier.MEMORY):
            if file_id not in live and file_id < current:
                log.fs.rename(log.layout.log_file(file_id), log.layout.spare_file(file_id))
        for name in emptied - live:
            if isinstance(name, str):
                log.fs.remove(log.layout.segment_file(name))
        self._measured_at = None

    def _keep_spares(self, most_bytes: int) -> None:
        """Give the memory of spare log files back, but for so much of those that were used last.

        Until a checkpoint a part of the capacity is kept: new pages cost more than what is written to them.
        """
        fs = self._log.fs
        for path in reversed(self._log.layout.spare_memory(fs)):
            most_bytes -= fs.size_bytes(path)
            if most_bytes < 0:
                fs.remove(path)

    def exists(self) -> bool:
        """Tell whether there is anything of a memory tier, even one whose making or removal was cut short."""
        return self._follower.state.memory.open or self._directory.is_linked()

    def is_being_staged_in(self) -> bool:
        """Tell whether a Spark task or another writer is staging events there; it has its segment's lock."""
        paths = (self._log.layout.segment_file(name) for name in self._all_segments())
        return any(is_locked(self._log.fs, path) for path in paths)

    def close(self) -> bool:
        """Let go of the memory tier, unless it holds events, and tell whether; nobody else has the channel open."""
        log, follower, appender = self._log, self._follower, self._appender
        with appender.committing():
            if len(follower.state.blocks.memory):
                return False
            memory, pending = follower.state.memory, follower.state.pending
            appender.append_alone(PrepareOnDisk({tx: list(p.takes) for tx, p in pending.items() if p.in_memory}))
            self._reserve(memory.generation, memory.byte_capacity, follower.state.last_id, token="")
            log.lock.publish(log.held_position()._replace(memory=NO_TIER))
            log.tiers.memory.close()
            follower.catch_up()
            live = follower.state.blocks.segments()
            for name in self._all_segments():  # of a Spark batch that is still to be committed
                if disk_segment(name) not in live:
                    copy_to_disk(log.fs, log.layout, name)
            self._directory.remove()
            return True

    def _all_segments(self) -> list[str]:
        return [name for name in self._log.layout.segments(self._log.fs) if in_memory(name)]
