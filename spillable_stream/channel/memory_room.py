"""The memory tier of one process: made when it is wanted, freed as events are taken, closed when it is empty."""

from __future__ import annotations

import time

from spillable_stream.channel.replica import Replica
from spillable_stream.channel.requests import Control, PrepareOnDisk
from spillable_stream.errors import StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.log.head import NO_TIER
from spillable_stream.log.layout import Tier, disk_segment, in_memory, memory_file_id
from spillable_stream.log.segment import is_being_written

__all__ = ["MemoryRoom"]

_RETRY_SECONDS = 60.0
_RESERVED_IDS = 1 << 20  # one sync for so many events that stay in memory


class MemoryRoom:
    """What there is to do about the memory tier. But for `make` and `put_bytes`, the channel's lock is held.

    Args:
        replica: the channel.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._directory = replica.memory_directory
        self._refused_at = float("-inf")
        self._first: int | str = 0
        self._segments: set[str] = set()

    def _is_wanted(self) -> bool:
        refused = time.monotonic() - self._refused_at <= _RETRY_SECONDS
        return bool(self._replica.state.options["memory_capacity"]) and not refused

    def is_ready(self) -> bool:
        """Tell whether there is a memory tier to put to."""
        return self._is_wanted() and self._replica.lock.current().memory.file_id != 0

    def put_bytes(self) -> int:
        """Return how many bytes of payloads a put transaction may have to go to memory, 0 without a memory tier."""
        if not self._is_wanted() or not self._replica.positions.memory.file_id:
            return 0
        return self._replica.state.memory_limits().payload_bytes

    def make(self) -> None:
        """Make the memory tier, if the channel is to have one and has none yet."""
        self._replica.follow()
        if self._is_wanted() and not self._replica.positions.memory.file_id:
            with self._replica.committing():
                self.open()

    def open(self) -> None:
        """Do what `make` does, or go on without it for a while."""
        replica = self._replica
        if not self._is_wanted() or self.is_ready():
            return
        byte_capacity = self._directory.choose(replica.state.options)
        if not byte_capacity:
            self._refused_at = time.monotonic()
            return
        generation = replica.state.memory.generation + 1
        self._reserve(generation, byte_capacity, replica.state.last_id + _RESERVED_IDS)
        try:
            self._directory.make(replica.state.options)
            replica.tiers.memory.create_first_file(replica.memory_image, memory_file_id(generation, 1))
        except StorageError as e:
            self.refuse(e)
        replica.catch_up()

    def refuse(self, cause: StorageError) -> None:
        """Do without the memory tier for a while: it could not be written."""
        self._refused_at = time.monotonic()
        self._directory.give_up(cause)

    def reserve_ids(self, last_id: int) -> None:
        """Make sure that write-order IDs up to one are reserved on disk, so that none is ever used twice."""
        memory = self._replica.state.memory
        if last_id > memory.reserved_id:
            self._reserve(memory.generation, memory.byte_capacity, last_id + _RESERVED_IDS)

    def _reserve(self, generation: int, byte_capacity: int, through_id: int, *, open: bool = True) -> None:
        value = {"through": through_id, "generation": generation, "bytes": byte_capacity, "open": open}
        self._replica.append_alone(Control(FrameType.RESERVE, value))

    def renew(self) -> None:
        """Begin a new file, whose image of the state makes older data files unnecessary to read the channel."""
        if self._replica.lock.current().memory.file_id:
            self._replica.tiers.memory.roll(self._replica.memory_image)
            self._replica.catch_up()
            self.free_taken()

    def adopted(self, segments: list[str]) -> None:
        """Note segments that are in memory, to be removed when they are taken."""
        self._segments.update(segments)

    def free_taken(self) -> None:
        """Free the memory of events that every group has taken; their files are used again."""
        replica = self._replica
        with replica.looking() as state:
            blocks, current = state.blocks.memory, replica.positions.memory.file_id
            head = blocks.first()
            begin = head.file if head else current
            if begin == self._first or not current:
                return
            self._first = begin
            first_file = next((b.file for b in blocks if isinstance(b.file, int)), current)
            live = {b.file for b in blocks if isinstance(b.file, str)}
        for file_id in replica.layout.log_files(replica.fs, Tier.MEMORY):
            if file_id < first_file:  # the newest holds the state, and stays
                replica.fs.rename(replica.layout.log_file(file_id), replica.layout.spare_memory)
        for name in self._segments - live:
            replica.fs.remove(replica.layout.segment_file(name))
        self._segments = live

    def exists(self) -> bool:
        """Tell whether there is anything of a memory tier, even one whose making or removal was cut short."""
        return self._replica.state.memory.open or self._directory.is_linked()

    def is_being_staged_in(self) -> bool:
        """Tell whether a Spark task or another writer is staging events there."""
        paths = (self._replica.layout.segment_file(name) for name in self._all_segments())
        return any(is_being_written(self._replica.fs, path) for path in paths)

    def close(self) -> None:
        """Let go of a memory tier that holds nothing; nobody else has the channel open."""
        replica = self._replica
        with replica.committing():
            memory, pending = replica.state.memory, replica.state.pending
            replica.append_alone(PrepareOnDisk({tx: list(p.takes) for tx, p in pending.items() if p.in_memory}))
            self._reserve(memory.generation, memory.byte_capacity, replica.state.last_id, open=False)
            replica.lock.publish(replica.lock.current()._replace(memory=NO_TIER))
            replica.tiers.memory.close()
            replica.catch_up()
            for name in self._all_segments():  # of a Spark batch that is still to be committed
                source, target = (replica.layout.segment_file(n) for n in (name, disk_segment(name)))
                replica.fs.copy_durably(source, target)
            self._directory.remove()

    def _all_segments(self) -> list[str]:
        return [name for name in self._replica.layout.segments(self._replica.fs) if in_memory(name)]
