"""How a handle leaves its channel: what it creates and lets go, and what the last one moves to disk and gives back."""

from __future__ import annotations

from spillable_stream.counted import counted
from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.checkpointing import Checkpointing
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.engine.local.memory_tier import MemoryTier
from spillable_stream.engine.local.moving import Moving
from spillable_stream.engine.local.upkeep import Upkeep
from spillable_stream.errors import LockTimeoutError, StorageError

__all__ = ["Leaving"]


class Leaving:
    """Does what comes before a handle is closed, or parked.

    Args:
        log: the channel's log.
        follower: its state.
        memory: its memory tier.
        moving: moves events from memory to disk.
        checkpointing: creates its checkpoints.
        drained: the files that nothing needs any more.
        upkeep: does in the background what is due.
        active_calls: the calls that are under way in this process.
    """

    def __init__(
        self,
        log: LocalLog,
        follower: Follower,
        memory: MemoryTier,
        moving: Moving,
        checkpointing: Checkpointing,
        drained: DrainedFiles,
        upkeep: Upkeep,
        active_calls: ActiveCalls,
    ) -> None:
        self._log = log
        self._follower = follower
        self._memory = memory
        self._moving = moving
        self._checkpointing = checkpointing
        self._drained = drained
        self._upkeep = upkeep
        self._active_calls = active_calls

    def flush(self) -> int:
        """Move every event of the memory tier to disk, and return how many there were; as `Engine.flush` says."""
        return self._active_calls.run("a flush", self._moving.flush)

    def leave(self, *, checkpoint: bool | None, flush: bool | None) -> None:
        """Let old events go, create a checkpoint; as the last handle, move memory to disk, and reserve no space.

        The arguments, and what it raises, are those of `Engine.leave`.
        """
        options = self._follower.state.options
        if self._log.closed or self._log.is_view:
            return
        flush = options.flush_on_close if flush is None else flush
        if self._log.failed:
            if flush:
                self._require_nothing_in_memory(self._log.failed)
            return
        self._upkeep.settle()
        no_room: StorageError | None = None
        try:
            if options.checkpoint_on_close if checkpoint is None else checkpoint:
                # Other handles may use its spares; the last one removes them.
                no_room = self._checkpointing.create_if_there_is_room(spares=True)
        except (StorageError, LockTimeoutError):
            self._leave_as_last(flush=flush)  # what refuses a checkpoint may still take events
            raise
        self._leave_as_last(flush=flush)
        if no_room and (no_room := self._checkpointing.create_if_there_is_room()):  # where the log's reserve was
            self._checkpointing.report(no_room)

    def _leave_as_last(self, *, flush: bool) -> None:
        if self._log.become_last():
            if flush:
                self._move_to_disk()
            self._drained.give_back_reserves()

    def _move_to_disk(self) -> None:
        """Move to disk what is in memory, and remove the memory tier; no other handle is open.

        Raises:
            StorageError: the disk refused; what was in memory still is.
        """
        if self._memory.exists() and not self._memory.is_being_staged_in():
            self.flush()
            while not self._memory.close():  # a thread's commit was under way
                self.flush()

    def _require_nothing_in_memory(self, failed: str) -> None:
        """Refuse to leave events in memory in silence, as the last handle: this one can't move them any more.

        Raises:
            StorageError: there are some, as far as is known.
        """
        events = self._follower.state.use(in_memory=True).events
        if events and self._log.become_last():
            raise StorageError(
                f"{counted(events, 'event', 'are')} still in the memory of {self._log.path}, since this handle "
                f"failed, and can't move them to disk: {failed}; open the channel again, and close it"
            )

    def park(self) -> None:
        """Count as closed for everybody else until the log resumes; as the last handle, move memory to disk."""
        options = self._follower.state.options
        self._upkeep.settle(for_good=False)  # while it counts as open
        if options.flush_on_close and options.memory_capacity:
            self._memory.set_aside = self._log.become_last()  # the next call's put would be moved to disk at once, too
            if self._memory.set_aside:
                self._move_to_disk()
        self._upkeep.stop()
        self._log.park()
