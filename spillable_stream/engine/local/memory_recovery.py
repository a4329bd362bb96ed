"""Recovers the memory tier when a channel's first handle opens it, or records and reports what was lost with it.

Only what is certainly gone is declared lost. The rules are stated in `spillable_stream.state.memory_loss_rules` and
`spillable_stream.log.chain`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import warnings
from pathlib import Path
from typing import NamedTuple

from spillable_stream.counted import counted
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.local.loading import StateLoader
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.local.position_hint import read_position_hint
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CorruptionError, MemoryLossWarning, OtherHostError, StorageError
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.file_names import Tier, generation_of
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import CommitPoint, TierEnd
from spillable_stream.format.packing import NONSENSE
from spillable_stream.format.record import FileHeader
from spillable_stream.log.chain import NewestFile, first_commit, header_fault, judge_newest_file, newest_generation
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.recovery import recover
from spillable_stream.log.tier_logs import Tiers
from spillable_stream.log.wal import Position
from spillable_stream.log_records import fields, log_of
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.image import image_of
from spillable_stream.state.memory_loss_rules import (
    MemoryLoss,
    appends_may_be_missing,
    lose_memory,
    lose_newest_appends,
    may_have_been_used,
)
from spillable_stream.state.ranges import Range, count_of, events_in, listed

__all__ = ["MemoryRecovery", "RecoveredEnds"]

_log = log_of(__name__)


class RecoveredEnds(NamedTuple):
    """What a recovery is going to publish.

    Args:
        disk: the end of the disk tier's log.
        memory: the end of the memory tier's; None without one.
        last_id: the last write-order ID in use.
    """

    disk: Position
    memory: Position | None
    last_id: int


class MemoryRecovery:
    """Recovers the memory tier of a channel.

    Args:
        lock: the commit lock and head.
        tiers: its logs.
        directory: the memory tier's directory.
        loader: loads the state of both logs.
    """

    def __init__(self, lock: CommitLock, tiers: Tiers, directory: MemoryDirectory, loader: StateLoader) -> None:
        self._lock = lock
        self._fs = lock.fs
        self._layout = lock.layout
        self._tiers = tiers
        self._directory = directory
        self._loader = loader

    def is_usable(self, published: CommitPoint) -> bool:
        """Tell whether the memory tier that the head publishes is there, or none is published.

        Raises:
            OtherHostError: it may be alive elsewhere.
            ForeignDirectoryError: it is there, and not to be trusted.
        """
        if self._directory.is_present(published):
            return True
        self._require_own_host([])
        return False

    def settle(self, state: ChannelState, end: Position, known: CommitPoint | None) -> RecoveredEnds:
        """Find the end of the memory tier's log, or record and report what went with the tier.

        The commit lock is held, and nobody else has the channel open.

        Args:
            state: what the disk tier says: there is a memory tier. Of one that is gone nothing is left in it.
            end: the end of the disk tier's log.
            known: what the head said last, which may be long ago.

        Raises:
            CorruptionError: it is damaged, and nothing of it is lost.
            OtherHostError: it may be alive on another host or in another container.
            ForeignDirectoryError: it is there, and not to be trusted.
        """
        return self._recover(state, end, known) or self._lose(state, end, known)

    def _recover(self, state: ChannelState, end: Position, known: CommitPoint | None) -> RecoveredEnds | None:
        """Return the ends of both tiers, or None if the memory tier is gone or of no use."""
        try:
            files = self._files(state, known)
            if not files:
                return None
            memory = recover(self._fs, self._tiers.memory, Position(files[-1], 0), lambda *_: None).end
            header = self._tiers.memory.read_file_header(files[-1])
            if _knows_more(header, end):  # the disk's log is an older one that was put back
                _log.warning(
                    "the memory tier of %s can't be used: it knows of the disk's log beyond its end",
                    self._layout.path,
                    extra=fields(self._layout.path),
                )
                return None
            whole, _ = self._loader.load_at(CommitPoint(TierEnd(*end), TierEnd(*memory)))
            self._loader.require_complete(whole)
            if whole.memory.token != state.memory.token:
                return None
            in_memory = self._fs.is_in_memory(self._layout.memory)
            unsafe = appends_may_be_missing(header.state if header else None, self._lock.head.boot, in_memory)
            if unsafe:
                self._require_readable(whole)
        except (CorruptionError, StorageError, FileNotFoundError, KeyError) as e:
            if not self._is_lost_to(e):
                raise
            _log.warning(
                "the memory tier of %s can't be used: %s", self._layout.path, e, extra=fields(self._layout.path)
            )
            return None
        if unsafe and (loss := lose_newest_appends(whole)) is not None:
            return RecoveredEnds(self._record(whole, end, loss), memory, loss.last_id)
        return RecoveredEnds(end, memory, whole.last_id)

    def _files(self, state: ChannelState, known: CommitPoint | None) -> list[int]:
        """Return the memory tier's files, none if they are not what the disk tier speaks of.

        Files that were being created when their creator died are removed.
        """
        self._directory.adopt(state.memory.token)
        self._directory.restore_owner()
        if not self._directory.is_own():
            return []
        self._directory.hold_alone()
        files = newest_generation(self._layout.log_files(self._fs, Tier.MEMORY))
        if not files or generation_of(files[-1]) != state.memory.generation:
            return []
        wal, published = self._tiers.memory, known.memory.file_id if known else 0
        while files:
            path = self._layout.log_file(files[-1])
            commit = functools.partial(first_commit, self._fs, path, wal.seed(files[-1]))
            match judge_newest_file(files, wal.read_file_header, lambda: published, commit):
                case NewestFile.UNFINISHED:
                    self._fs.remove(path)
                    files.pop()
                case NewestFile.COMMITTED:
                    raise header_fault(self._layout, files[-1], " and a commit follows")
                case _:
                    break
        return files

    # ── what makes it of no use ─────────────────────────────────────────────────────────────────

    def _is_lost_to(self, error: Exception) -> bool:
        """Tell whether the memory tier is lost to an error of its recovery; else the error does not harm it."""
        if not self._is_about_memory(error):
            return False
        if isinstance(error, StorageError):  # not such as too many open files
            return _is_of_medium(error)
        if isinstance(error, CorruptionError):
            return not self._is_of_this_boot()  # else a repair gives up what was damaged or removed, and no more
        return True

    def _is_of_this_boot(self) -> bool:
        """Tell whether no power cut can have damaged the memory tier, wherever it is."""
        origin = self._directory.origin()
        return origin is not None and origin.boot == self._lock.head.boot.hex()

    def _is_about_memory(self, error: Exception) -> bool:
        """Tell whether an error is about the memory tier's own files, or about what is in none."""
        about = error.path if isinstance(error, CorruptionError) else str(error)
        places = (str(self._layout.memory), str(self._fs.real_path(self._layout.memory)))
        return isinstance(error, KeyError) or about in ("", str(self._layout.path)) or any(p in about for p in places)

    def _require_readable(self, state: ChannelState) -> None:
        """Prove that every event in memory can be read."""
        schemas = [decode_schema(s) for s in state.schemas]
        reader = EventReader(self._fs, self._layout, schemas.__getitem__)
        try:
            for block in state.blocks.memory:
                for _ in reader.read(block.extent()):
                    pass
        finally:
            reader.close()

    # ── what went with it ───────────────────────────────────────────────────────────────────────

    def _lose(self, state: ChannelState, end: Position, known: CommitPoint | None) -> RecoveredEnds:
        """Record what went with the memory tier, and warn."""
        positions = {name: read_position_hint(self._fs, self._layout, name) for name in state.groups}
        unused = not may_have_been_used(state, known) and self._directory.is_unused(
            state.memory.token, lambda: self._layout.log_files(self._fs, Tier.MEMORY)
        )
        loss = lose_memory(state, positions, known.last_id if known else 0, unused=unused)
        if loss.lost or loss.doubtful:
            self._require_own_host(loss.lost)
        return RecoveredEnds(self._record(state, end, loss), None, loss.last_id)

    def _require_own_host(self, lost: list[Range]) -> None:
        """Refuse to treat as lost what another host, or a container, may still have in its memory.

        Raises:
            OtherHostError: the memory tier was created where this process can't look.
            ForeignDirectoryError: it is there, and nothing proves that it is the channel's.
        """
        self._directory.require_trusted()
        if not self._directory.is_elsewhere():
            return
        origin, host, here = self._directory.origin(), self._lock.head.host(), os.uname().nodename
        if origin is None and host in ("", here):  # an earlier release created it, which knew no more
            return
        where = f"{origin.path} on the host {origin.host}" if origin else f"the host {host}"
        raise OtherHostError(
            f"{self._layout.path} has {events_in(lost) if lost else 'the events of the last moments'} in a memory tier "
            f"in {where}, which is not visible here on {here}: it may be in another container or on another host. "
            "Share /dev/shm with that container, or close the channel there with Channel.close(), which moves its "
            f"events to disk; if it is gone for good, remove {self._layout.memory}, and they will be reported lost"
        )

    def _record(self, state: ChannelState, end: Position, loss: MemoryLoss) -> Position:
        """Warn of a loss, append its record to the disk tier, and return the new end."""
        plan = AppendPlan(state, Tier.DISK, start=end.offset)
        Control(FrameType.LOST, loss.record()).plan(plan)
        record = functools.partial(self._tiers.disk.append_unpublished, end, plan.entries)
        try:
            _warn_of_loss(self._layout.path, loss)  # before it is recorded: rather twice than never
        except MemoryLossWarning:  # a filter raises it, so the loss is known, and the next open need not fail
            record()
            raise
        return record()


def _knows_more(header: FileHeader | None, end: Position) -> bool:
    """Tell whether a file of the memory tier was begun where the disk tier's log has not come to, by its end."""
    if header is None:
        return False
    with contextlib.suppress(*NONSENSE):  # which loading it finds
        return Position(*image_of(header.state)["disk"]) > end
    return False


def _is_of_medium(error: StorageError) -> bool:
    """Tell whether a call failed for what the medium is like, and would fail again."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EIO, errno.ENXIO, errno.ESTALE)


def _warn_of_loss(path: Path, loss: MemoryLoss) -> None:
    """Warn of a loss, unless no event is lost and none may be."""
    if not loss.lost and not loss.doubtful:
        return
    lost = f"{counted(count_of(loss.lost), 'event', 'are')} lost, {listed(loss.lost)}"
    message = f"the memory tier of {path} is gone: {lost if loss.lost else 'no event is known to be lost'}"
    if loss.taken:
        message += f" (of them every group had taken {count_of(loss.taken):,}, which were kept: {listed(loss.taken)})"
    if loss.doubtful:
        message += (
            f"; events that were put in the last moments before that would have IDs among {listed(loss.doubtful)}, and "
            "be lost too"
        )
    message += ". All events on disk are there, in order"
    warnings.warn(MemoryLossWarning(message, tuple(loss.lost), tuple(loss.doubtful)), stacklevel=3)
