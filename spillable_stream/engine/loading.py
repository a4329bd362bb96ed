"""From files to a state: loading what is published, recovering what is not, reporting what is lost."""

from __future__ import annotations

import errno
import logging
import os
import warnings
from functools import partial
from typing import Any

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.group_position import read_group_position
from spillable_stream.engine.memory_directory import MemoryDirectory
from spillable_stream.engine.requests import Control
from spillable_stream.errors import (
    ChannelBusyError,
    CorruptionError,
    DataLossError,
    MemoryLossWarning,
    OtherHostError,
    StorageError,
)
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.file_names import Tier, generation_of, log_name, memory_file_id
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd
from spillable_stream.format.record import NONSENSE
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.recovery import (
    discard_unfinished_file,
    first_commit,
    oldest_file,
    recover,
    require_log_of_checkpoint,
)
from spillable_stream.log.tiers import Positions, Tiers
from spillable_stream.log.wal import Position
from spillable_stream.options import CHANNEL, defaults
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, count_of, shown

__all__ = ["StateLoader", "restored"]

_log = logging.getLogger(__name__)

_ATTEMPTS = 5


class StateLoader:
    """Loads and recovers the state of a channel.

    Args:
        lock: the channel's lock and head.
        tiers: its logs.
        checkpoints: its checkpoints.
        directory: the memory tier's directory.
    """

    def __init__(self, lock: CommitLock, tiers: Tiers, checkpoints: Checkpoints, directory: MemoryDirectory) -> None:
        self._lock = lock
        self._fs = lock.fs
        self._layout = lock.layout
        self._tiers = tiers
        self._checkpoints = checkpoints
        self._directory = directory
        self._recovered: tuple[ChannelState, Positions] | None = None  # what a recovery has replayed already

    # ── loading ─────────────────────────────────────────────────────────────────────────────────

    def is_current(self) -> bool:
        """Tell whether the head and the memory tier that it publishes are of use, so that `load` can begin.

        Raises:
            OtherHostError: the memory tier is alive elsewhere.
        """
        published = self._lock.head.read()
        if published is None:
            return False
        if self._directory.is_present(published):
            return True
        self._require_own_host([])
        return False

    def is_proven(self) -> bool:
        """Tell whether the head is whole: of a damaged one the older slot is left, which would take commits back."""
        return self._lock.head.is_whole()

    def apply(self, state: ChannelState, file_id: int, found: LocatedFrame) -> None:
        """Apply a frame that was found in a log.

        Raises:
            CorruptionError: what it says is no sense, though its checksums are right.
        """
        path = str(self._layout.log_file(file_id))
        try:
            state.apply(file_id, found.offset, found.header, found.payload)
        except CorruptionError as e:
            if e.path:
                raise
            raise type(e)(e.args[0], path, found.offset) from e
        except NONSENSE as e:
            text = f"a {found.header.type.name} is invalid: {type(e).__name__}: {e}"
            raise CorruptionError(text, path, found.offset) from e

    def load(self, ends: CommitPoint | None = None) -> tuple[ChannelState, Positions]:
        """Return the state at the published ends.

        Args:
            ends: what a recovery found and has not published yet.

        Raises:
            CorruptionError: a log is damaged.
            DataLossError: events are missing.
        """
        for attempt in range(_ATTEMPTS):
            published = ends or self._lock.published()
            end = Positions.of(published)
            recovered, self._recovered = self._recovered, None
            try:
                known = recovered is not None and recovered[1] == end
                state = recovered[0] if recovered and known else self._replay(published, end)
                self._check_complete(state)
            except (FileNotFoundError, DataLossError, CorruptionError):
                # Another process may have made a checkpoint and deleted files meanwhile.
                if ends or attempt == _ATTEMPTS - 1 or (attempt and self._lock.published() == published):
                    raise
                continue
            return state, end
        raise ChannelBusyError(f"{self._layout.path} changes faster than it can be read; try again")

    def _replay(self, published: CommitPoint, end: Positions) -> ChannelState:
        state, start = self._memory_base(published) if published.memory.file_id else self._disk_base(end.disk)
        for file_id, found in self._tiers.records(start, end):
            self.apply(state, file_id, found)
        return state

    def _memory_base(self, published: CommitPoint) -> tuple[ChannelState, Positions]:
        """Return the state that the newest file of the memory tier begins with."""
        file_id = published.memory.file_id
        path = str(self._layout.log_file(file_id))
        try:
            header = self._tiers.memory.read_file_header(file_id)
        except FileNotFoundError as e:
            raise DataLossError(
                "the memory tier's directory was removed; close every handle and open the channel again", path
            ) from e
        if header is None:
            raise CorruptionError("the header of a file of the memory tier is damaged", path, 0)
        state = restored(header.state, path)
        try:
            disk = Position(*header.state["disk"])
        except NONSENSE as e:
            raise CorruptionError("a state of the memory tier does not say where the disk's log was", path, 0) from e
        if disk > Position(*published.disk[:2]):
            raise DataLossError(f"the memory tier knows of the disk tier's log up to {disk}, beyond its end", path)
        return state, Positions(disk, Position(file_id, 0))

    def _disk_base(self, end: Position | None) -> tuple[ChannelState, Positions]:
        """Return the state to replay from: the newest good checkpoint's, else the oldest file's.

        Args:
            end: what was published; None while nothing is, after a reboot.
        """
        for position, image in self._checkpoints.load():
            if end is not None and position > end:
                continue  # made by another process since
            if position.file_id not in self._layout.log_files(self._fs):
                raise DataLossError(
                    f"{log_name(position.file_id)} is missing: a checkpoint was made of it", str(self._layout.path)
                )
            return restored(image, str(self._layout.checkpoint_dir)), Positions(position)
        file_id, header = oldest_file(self._fs, self._tiers.disk, end.file_id if end else None)
        return restored(header.state, str(self._layout.log_file(file_id))), Positions(Position(file_id, 0))

    def _check_complete(self, state: ChannelState) -> None:
        """Prove that every event that is still needed has a file."""
        if missing := state.missing():
            raise DataLossError(
                f"the events {shown(missing)} are missing: data files were removed", str(self._layout.path)
            )
        present: set[int | str] = set(self._layout.segments(self._fs))
        for tier in Tier:
            present.update(self._layout.log_files(self._fs, tier))
        for block in state.blocks:
            if block.file not in present:
                raise DataLossError(
                    f"the events {block.first_id} to {block.last_id} are missing: the file "
                    f"{self._layout.file(block.file).name} was removed",
                    str(self._layout.file(block.file)),
                )

    # ── recovery; the channel's lock is held, and nobody else has the channel open ──────────────

    def recover(self) -> int:
        """Find the ends of the logs, cut what is torn, settle what became of the memory tier, publish.

        The head is of no use for that but as a lower bound of what had been synced.

        Returns:
            How many bytes were cut from the disk tier.

        Raises:
            CorruptionError: bytes that had been synced are damaged.
            DataLossError: data files are missing.
            OtherHostError: the memory tier may be alive on another host or in another container.
            ForeignDirectoryError: it is there, and not to be trusted.
        """
        self._fs.sync_directory(self._layout.path)  # whoever made the channel may have been killed before that
        discard_unfinished_file(self._fs, self._tiers.disk, self._checkpoints)
        known = self._lock.head.read_any_boot()
        state, start = self._disk_base(None)
        if start.disk.offset:
            require_log_of_checkpoint(self._fs, self._tiers.disk, start.disk, state.time_us)
        found = recover(self._fs, self._tiers.disk, start.disk, partial(self.apply, state))
        _log.info("recovered %s: the log ends at %s, event %d", self._layout.path, found.end, state.last_id)
        if not state.memory.open:
            self._publish(found.end, None, state.last_id, known)
            self._directory.remove()
            self._recovered = state, Positions(found.end)
        elif not self._recover_memory(state, found.end, known):
            self._lose(state, found.end, known)
        self._lock.head.write_host()
        return found.torn_bytes

    def _publish(self, disk: Position, memory: Position | None, last_id: int, known: CommitPoint | None) -> None:
        """Publish what was recovered; the last checkpoint is as old as the head said.

        A file of which the head said that a sync of it failed is still never written to again.
        """
        checkpoint_time, state = 0, HeadState.CLEAN
        if known is not None:
            checkpoint_time = known.checkpoint_time
            if known.disk.file_id == disk.file_id and known.disk.state == HeadState.SYNC_FAILED:
                state = HeadState.SYNC_FAILED
        memory_end = TierEnd(*memory) if memory else NO_TIER
        self._lock.publish(CommitPoint(TierEnd(*disk, state), memory_end, last_id, checkpoint_time))

    def _recover_memory(self, state: ChannelState, end: Position, known: CommitPoint | None) -> bool:
        """Publish the ends of both tiers and return true, or false if the memory tier is gone or of no use.

        Args:
            state: what the disk tier says.
            end: the end of its log.
            known: what the head said last.
        """
        try:
            files = self._memory_files(state, known)
            if not files:
                return False
            memory = recover(self._fs, self._tiers.memory, Position(files[-1], 0), lambda *_: None).end
            header = self._tiers.memory.read_file_header(files[-1])
            whole, _ = self.load(CommitPoint(TierEnd(*end), TierEnd(*memory)))
            if whole.memory.token != state.memory.token:
                return False
            # Without a medium, what was written is there as long as the file system is; with one, nothing was synced.
            unsafe = header is None or header.state.get("boot") != self._lock.head.boot
            unsafe = unsafe or not self._fs.is_in_memory(self._layout.memory)
            if unsafe:
                self._read_memory(whole)
        except (CorruptionError, StorageError, FileNotFoundError, KeyError) as e:
            if not self._concerns_memory(e) or (isinstance(e, StorageError) and not _is_of_medium(e)):
                raise  # such as a disk that fails, or too many open files: the tier is no worse for that
            if isinstance(e, CorruptionError) and not isinstance(e, DataLossError) and self._is_whole_place():
                raise  # what is damaged in memory is not lost: a repair gives up no more than that
            _log.warning("the memory tier of %s can't be used: %s", self._layout.path, e)
            return False
        last_id = whole.last_id
        if unsafe and last_id < state.memory.reserved_id:
            doubtful = [(last_id + 1, state.memory.reserved_id)]
            last_id = state.memory.reserved_id
            end = self._record_loss(whole, end, {"lost": [], "doubtful": doubtful, "groups": {}, "kept": True}, last_id)
        self._publish(end, memory, last_id, known)
        return True

    def _memory_files(self, state: ChannelState, known: CommitPoint | None) -> list[int]:
        """Return the memory tier's files, none if they are not what the disk tier speaks of.

        The newest may have been being made when its maker died; its header is not whole then, and it goes. One that
        holds commits was whole once.
        """
        self._directory.adopt(state.memory.token)
        self._directory.restore_owner()
        if not self._directory.is_own():
            return []
        self._directory.hold_alone()
        files = self._layout.log_files(self._fs, Tier.MEMORY)
        if not files or generation_of(files[-1]) != state.memory.generation:
            return []
        published = known.memory.file_id if known else 0
        while files and files[-1] > published and self._tiers.memory.read_file_header(files[-1]) is None:
            if len(files) == 1 and files[0] != memory_file_id(state.memory.generation, 1):
                break  # there were others before it, so it was published
            if first_commit(self._fs, self._tiers.memory, files[-1]) is not None:
                return []
            self._fs.remove(self._layout.log_file(files.pop()))
        return files

    def _is_whole_place(self) -> bool:
        """Tell whether nothing can be missing in the memory tier's directory but what was damaged or removed there."""
        place = self._directory.place()
        same_boot = place is not None and place.boot == self._lock.head.boot.hex()
        return same_boot and self._fs.is_in_memory(self._layout.memory)

    def _concerns_memory(self, error: Exception) -> bool:
        """Tell whether an error is about the memory tier's own files, or about what is in none."""
        about = error.path if isinstance(error, CorruptionError) else str(error)
        places = (str(self._layout.memory), str(self._fs.real_path(self._layout.memory)))
        return isinstance(error, KeyError) or about in ("", str(self._layout.path)) or any(p in about for p in places)

    def _read_memory(self, state: ChannelState) -> None:
        """Prove that every event in memory can be read."""
        schemas = [decode_schema(s) for s in state.schemas]
        reader = EventReader(self._fs, self._layout, schemas.__getitem__)
        try:
            for block in state.blocks.memory:
                for _ in reader.read(block.extent()):
                    pass
        finally:
            reader.close()

    def _lose(self, state: ChannelState, end: Position, known: CommitPoint | None) -> None:
        """Record what went with the memory tier, publish, and warn.

        Args:
            state: what the disk tier says.
            end: the end of its log.
            known: what the head said last, which may be long ago.
        """
        groups = {}
        for name, group in state.groups.items():
            group.learn(*read_group_position(self._fs, self._layout, name))
            groups[name] = group.taken()
        last_id = max(state.last_id, known.last_id if known else 0)
        reserved = state.memory.reserved_id
        state.do_without_memory(last_id + 1, groups)
        lost = state.missing()
        unused = reserved <= last_id or self._directory.is_unused(state.memory.token)
        doubtful = [] if unused else [(last_id + 1, reserved)]
        if lost or doubtful:
            self._require_own_host(lost)
        last_id = max(last_id, *(b for _, b in doubtful), 0)
        end = self._record_loss(state, end, {"lost": lost, "doubtful": doubtful, "groups": groups}, last_id)
        self._publish(end, None, last_id, known)
        self._directory.remove()

    def _require_own_host(self, lost: list[Range]) -> None:
        """Refuse to take for lost what another host, or a container, may still have in its memory.

        Raises:
            OtherHostError: the memory tier was made where this process can't look.
            ForeignDirectoryError: it is there, and nothing proves that it is the channel's.
        """
        self._directory.require_trusted()
        if not self._directory.is_elsewhere():
            return
        place, host, here = self._directory.place(), self._lock.head.host(), os.uname().nodename
        if place is None and host in ("", here):  # an earlier release made it, which knew no more
            return
        where = f"{place.path} on the host {place.host}" if place else f"the host {host}"
        raise OtherHostError(
            f"{self._layout.path} has a memory tier in {where}, which is not visible here on {here}, with "
            f"the events {shown(lost) or 'of the last moments'}: it may be in another container or on another host. "
            "Share /dev/shm with that container, or close the channel there with Channel.close(), which moves its "
            f"events to disk; if it is gone for good, remove {self._layout.memory}, and they will be reported lost"
        )

    def _record_loss(self, state: ChannelState, end: Position, value: dict[str, Any], last_id: int) -> Position:
        """Warn of a loss, append its record to the disk tier, and return the new end."""
        lost, doubtful = value["lost"], value["doubtful"]
        if lost or doubtful:  # before it is recorded: rather twice than never
            message = _loss(str(self._layout.path), lost, doubtful)
            warnings.warn(MemoryLossWarning(message, tuple(lost), tuple(doubtful)), stacklevel=2)
        plan = AppendPlan(state, Tier.DISK, start=end.offset)
        Control(FrameType.LOST, {**value, "next": last_id + 1}).plan(plan)
        return self._tiers.disk.append_unpublished(end, plan.entries)


def _is_of_medium(error: StorageError) -> bool:
    """Tell whether a call failed for what the medium is like, and would fail again."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EIO, errno.ENXIO, errno.ESTALE)


def restored(image: dict[str, Any], path: str = "") -> ChannelState:
    """Return the state of an image; one that an earlier version made has fewer options.

    Args:
        image: the image.
        path: the file that it was in.

    Raises:
        CorruptionError: it is no image.
    """
    try:
        return ChannelState.from_image({**image, "options": {**defaults(CHANNEL), **image["options"]}})
    except NONSENSE as e:
        raise CorruptionError(f"a state is invalid: {type(e).__name__}: {e}", path, 0 if path else None) from e


def _loss(path: str, lost: list[Range], doubtful: list[Range]) -> str:
    count = count_of(lost)
    message = f"the memory tier of {path} is gone: "
    message += f"{count:,} events are lost, {shown(lost)}" if lost else "no event is known to be lost"
    if doubtful:
        message += (
            f"; events that were put in the last moments before may be lost too, with IDs among {shown(doubtful)}"
        )
    return message + ". All events on disk are there, in order"
