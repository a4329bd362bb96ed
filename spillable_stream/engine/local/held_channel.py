"""A channel that a handle holds: the parts to read it and commit to it."""

from __future__ import annotations

from dataclasses import dataclass

from spillable_stream.engine.local.loading import LoadedState, StateLoader
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.local.memory_recovery import MemoryRecovery
from spillable_stream.log.anchors import are_anchored, recovery_token
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.directories import Directories
from spillable_stream.log.tier_logs import Tiers
from spillable_stream.storage.file import File
from spillable_stream.storage.lock import FileLock

__all__ = ["HeldChannel"]


@dataclass(slots=True)
class HeldChannel:
    """A held channel, and the parts to read it and commit to it.

    Args:
        directories: its directories.
        open_lock: the open lock, shared.
        lock: its commit lock and head.
        tiers: its logs.
        checkpoints: its checkpoints.
        memory_directory: the memory tier's directory.
        loader: loads its state.
        memory_recovery: recovers its memory tier.
        torn_bytes: how many bytes the recovery cut.
        recovered: whether this handle recovered the channel.
        recovery: the token of the channel's last recovery; "" if it is not known.
        replayed: the state that the recovery replayed, which saves the first load a replay; None without one.
    """

    directories: Directories
    open_lock: FileLock
    lock: CommitLock
    tiers: Tiers
    checkpoints: Checkpoints
    memory_directory: MemoryDirectory
    loader: StateLoader
    memory_recovery: MemoryRecovery
    torn_bytes: int = 0
    recovered: bool = False
    recovery: str = ""
    replayed: LoadedState | None = None

    def load(self) -> LoadedState:
        """Return the state at the published ends.

        Raises what `StateLoader.load` raises.
        """
        replayed, self.replayed = self.replayed, None
        return self.loader.load(replayed)

    def is_current(self) -> bool:
        """Tell whether the head and the memory tier that it publishes can be used.

        Raises:
            OtherHostError: the memory tier is alive elsewhere.
        """
        if not self.is_anchored() or (published := self.lock.head.read()) is None:
            return False
        # A damaged head may have only its older slot left: to use that would undo commits.
        return self.memory_recovery.is_usable(published) and self.lock.head.is_whole()

    def is_anchored(self) -> bool:
        """Tell whether the locks and the head are the files that the other handles use, not replacements."""
        return are_anchored(*self.anchors())

    def noted_recovery(self) -> str:
        """Return what the open lock says of the last recovery: while that is held, nobody recovers the channel."""
        return recovery_token(self.open_lock.file)

    def anchors(self) -> tuple[File, File, File]:
        """Return the files that all handles of the channel have to share."""
        return self.open_lock.file, self.lock.file, self.lock.head.file

    def close(self, *, forked: bool = False) -> None:
        """Close everything; write nothing.

        Args:
            forked: the process is a forked child, where the thread that holds the lock may not exist: do not wait.
        """
        self.lock.close(forked=forked)
        self.tiers.close()
        self.memory_directory.close()
        self.open_lock.close()
        self.directories.close()  # last: the head is trusted only while the directories are held
