"""The memory tier as one process uses it: created on demand, freed as events are taken, closed when empty."""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.local.memory_capacity import choose_byte_capacity, warn_if_less, warn_of
from spillable_stream.engine.requests import Control
from spillable_stream.engine.take_requests import PrepareOnDisk
from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier, disk_segment, in_memory, memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import NO_TIER
from spillable_stream.format.record import ReserveRecord
from spillable_stream.log.spares import last_used
from spillable_stream.log.staged_file import copy_to_disk
from spillable_stream.storage.lock import is_locked

__all__ = ["MemoryTier"]

_RETRY_SECONDS = 60.0
_SPARES = 3  # spare files that a checkpoint leaves
_SPARE_PARTS = 4  # between checkpoints a quarter of the capacity may be spare files: staged files need room too
_RESERVED_IDS = 1 << 20  # events in memory need one sync of the disk tier for this many IDs


class MemoryTier:
    """Creates, frees and closes the memory tier.

    `create` and `close` acquire the commit lock. Callers of `is_ready`, `open`, `refuse`, `has_pages_for`,
    `reserve_ids`, `renew` and `free_taken` hold it.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends what the disk tier's log records about the memory tier.

    Attributes:
        set_aside: whether puts bypass the memory tier; ignored in a channel without a disk tier.
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
        """Tell whether puts can go to the memory tier."""
        return self._log.held_position().memory.file_id != 0 and self._is_wanted()

    def most_put_bytes(self) -> int:
        """Return the most payload bytes of a put transaction that can go to memory; 0 without a memory tier."""
        if not self._is_wanted() or not self._follower.positions.memory.file_id:
            return 0
        return self._follower.state.memory_limits().payload_bytes

    def create(self) -> None:
        """Follow the log, and create the memory tier if the options want one and it does not exist yet."""
        state = self._follower.follow(unchecked=True)
        if state.options.memory_capacity and not self._follower.positions.memory.file_id and self._is_wanted():
            with self._appender.committing():
                self.open()

    def open(self) -> bool:
        """Create the memory tier if it is wanted and missing, and tell whether puts can go to it.

        If the file system refuses, warn, and do not try again for a while.
        """
        if not self._is_wanted():
            return False
        if self._log.held_position().memory.file_id:
            return True
        self._open()
        return self.is_ready()

    def _open(self) -> None:
        log, follower = self._log, self._follower
        try:
            byte_capacity = choose_byte_capacity(log.fs, follower.state.options)
        except StorageError as e:
            self.refuse(e)
            return
        generation, token = follower.state.memory.generation + 1, os.urandom(16).hex()
        try:
            self._directory.create(follower.state.options, token)
        except StorageError as e:
            self.refuse(e)
            return
        self._reserve(generation, byte_capacity, follower.state.last_id + _RESERVED_IDS, token)
        try:
            log.tiers.memory.create_first_file(partial(log.memory_image, follower), memory_file_id(generation, 1))
        except StorageError as e:
            follower.catch_up()
            self._reserve(generation, byte_capacity, follower.state.last_id, token="")  # no tier that could be lost
            follower.catch_up()
            self.refuse(e)
            return
        follower.catch_up()
        warn_if_less(byte_capacity, follower.state.options, log.layout.path)

    def refuse(self, cause: StorageError) -> None:
        """Do without the memory tier for a while, because it could not be written; warn last: a filter may raise it."""
        self._refused_at, self._refused_for = time.monotonic(), cause
        with contextlib.suppress(StorageError):
            self._keep_spares(0)
        then = "events go to disk" if self._follower.state.options.overflow_capacity else "puts find no room"
        warn_of(self._log.layout.path, f"{cause}; {then} until it is tried again in {_RETRY_SECONDS:g} s")

    def why_not(self) -> StorageError | None:
        """Return why a configured memory tier is unavailable, or None."""
        wanted = self._follower.state.options.memory_capacity
        return self._refused_for if wanted and not self._is_wanted() else None

    def has_pages_for(self, size_bytes: int) -> bool:
        """Tell whether the tier's files leave room for a put: taken events free memory only by whole files."""
        current, most = self._follower.positions.memory.file_id, self._follower.state.memory_byte_capacity()
        if current != self._measured_at or self._used_bytes + size_bytes > most:  # other processes free files too
            self.free_taken()
            self._measured_at, self._used_bytes = current, self._directory.used_bytes()
            self._keep_spares(min(most - self._used_bytes - size_bytes, most // _SPARE_PARTS))
        return self._used_bytes + size_bytes <= most

    def reserve_ids(self, last_id: int) -> None:
        """Reserve write-order IDs up to ``last_id`` on disk, so that no ID is used twice after the tier is lost."""
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
        """Start a new file. Its header holds the state, so loading needs no older data files."""
        if self._log.held_position().memory.file_id:
            self._log.tiers.memory.roll(partial(self._log.memory_image, self._follower))
            self._follower.catch_up()
            self._free_files()  # also files that this process did not see become empty
            self._keep_spares(_SPARES * self._log.tiers.memory.max_file_size_bytes)

    def free_taken(self) -> None:
        """Free the files of events that every group has taken, as far as this process saw them become empty."""
        emptied = self._follower.state.blocks.memory.emptied
        if emptied and emptied != {self._follower.positions.memory.file_id}:
            self._free_files()

    def _free_files(self) -> None:
        """Remove files without needed events; log files become spares."""
        log, follower = self._log, self._follower
        with follower.snapshot as state:
            memory, current = state.blocks.memory, follower.positions.memory.file_id
            emptied, live = memory.emptied - {current}, set(memory.files)
            memory.emptied &= {current}  # the current file holds the state: free it only after the next one replaces it
        for file_id in log.layout.log_files(log.fs, Tier.MEMORY):
            if file_id not in live and file_id < current:
                log.fs.rename(log.layout.log_file(file_id), log.layout.spare_file(file_id))
        for name in emptied - live:
            if isinstance(name, str):
                log.fs.remove(log.layout.segment_file(name))
        self._measured_at = None

    def _keep_spares(self, most_bytes: int) -> None:
        """Remove spare log files, except the most recent ones up to ``most_bytes`` together.

        Spares are worth their memory: to allocate new pages costs more than to write to them.
        """
        fs = self._log.fs
        spares = self._log.layout.spares(fs, Tier.MEMORY)
        kept = last_used(fs, spares, most_bytes)
        for path in reversed(spares):
            if path not in kept:
                fs.remove(path)

    def exists(self) -> bool:
        """Tell whether any part of a memory tier exists, even after an interrupted creation or removal."""
        return self._follower.state.memory.open or self._directory.is_linked()

    def is_being_staged_in(self) -> bool:
        """Tell whether a Spark task or another writer is staging events there: it locks its segment."""
        paths = (self._log.layout.segment_file(name) for name in self._all_segments())
        return any(is_locked(self._log.fs, path) for path in paths)

    def close(self) -> bool:
        """Remove the memory tier unless it holds events; false if it does. No other handle may be open."""
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
            for name in self._all_segments():  # a Spark batch may still commit them
                if disk_segment(name) not in live:
                    copy_to_disk(log.fs, log.layout, name)
            self._directory.remove()
            return True

    def _all_segments(self) -> list[str]:
        return [name for name in self._log.layout.segments(self._log.fs) if in_memory(name)]
