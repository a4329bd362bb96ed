"""Files on disk whose events were all taken: which they are, and what becomes of them.

A data file is not needed once nothing in it is, since the header of every file holds the state before it: a replay
begins at the newest checkpoint, or at the header of the oldest file. So a file is free with the commit of the take of
its last event, and is used again or removed (`spillable_stream.log.spares`); small ones wait for the next checkpoint.
The newest file is never freed: if it holds only taken events, a checkpoint makes the log continue in a new one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.local.local_log import LocalLog
from spillable_stream.errors import SpillableError, StorageError
from spillable_stream.format.file_names import disk_segment
from spillable_stream.log.abandoned_segments import remove_abandoned_segments
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.disk_space import lacking_bytes
from spillable_stream.log.spare_segments import LeavingSegments
from spillable_stream.log.spares import Spares
from spillable_stream.log_records import fields, log_of
from spillable_stream.state.channel_state import ChannelState

__all__ = ["DrainedFiles"]

_log = log_of(__name__)

_PARTS_OF_SPARES = 4  # so many times what is freed without a checkpoint may be spare
_WORTH_A_FILE_BYTES = 256 << 10  # with fewer bytes of taken events, the log does not continue in a new file


class DrainedFiles:
    """The files of a channel's disk tier that nothing needs any more."""

    def __init__(self, log: LocalLog, follower: Follower, appender: Appender) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._fs = log.fs
        self._spares = Spares(log.fs, log.layout)
        self._opened_in = follower.positions.disk.file_id  # what is in older files, only they themselves say
        self._too_small: tuple[int, set[int | str]] = 0, set()  # the newest file and what was empty, when judged

    def are_any(self) -> bool:
        """Tell whether a checkpoint created now would free files."""
        log, follower = self._log, self._follower
        if self._is_newest_drained():
            return True
        with follower.snapshot as state:
            first_needed, taken = self._first_needed(state), _taken_segments(state)
        if any(self._fs.exists(log.layout.segment_file(name)) for name in taken):  # others free them, too
            return True
        return any(i < first_needed for i in log.layout.log_files(self._fs))

    def are_known_to_be_small(self) -> bool:
        """Tell whether `are_worth_using_again` has judged the same files before, and found them too small."""
        return self._too_small == (self._follower.positions.disk.file_id, self._follower.state.blocks.disk.emptied)

    def are_worth_using_again(self) -> bool:
        """Tell whether this process saw files get empty that together are a good part of the spares there may be."""
        state, current = self._follower.state, self._follower.positions.disk.file_id
        every = set(state.blocks.disk.emptied)  # in one call from C: other threads' commits empty files meanwhile
        emptied = [file for file in every if isinstance(file, str) or file < current]
        if emptied and state.options.spare_bytes:
            size_bytes = sum([self._fs.size_bytes(self._log.layout.file(file)) for file in emptied])
            if size_bytes >= state.options.spare_bytes // _PARTS_OF_SPARES:
                return True
        self._too_small = current, every
        return False

    def leave_newest(self) -> None:
        """Continue the log in a new file if nothing in this one is needed, so that it can be freed."""
        if self._is_newest_drained():
            otherwise = "%s: taken events keep their disk space until the next checkpoint: %s"
            self._continue_if(self._is_newest_drained, otherwise)

    def leave_full_directory(self) -> None:
        """Continue the log in another directory if the disk of this one has no room, and that of another one has."""
        if len(set(self._log.layout.data_dirs)) > 1:
            self._continue_if(self._log.tiers.disk.is_directory_full, "%s stays in a directory without room: %s")

    def _continue_if(self, is_needed: Callable[[], bool], otherwise: str) -> None:
        """Continue the log in a new file, if that is needed under the commit lock; a failure is logged as said."""
        try:
            with self._appender.committing():
                if is_needed():
                    self._log.tiers.disk.roll(self._follower.state.small)
                    self._follower.catch_up()
        except StorageError as e:
            _log.warning(otherwise, self._log.path, e, extra=fields(self._log.path))

    def free_taken_segments(self, *, spares: bool) -> None:
        """Free the segments whose last event this process saw leave; the caller holds the commit lock.

        No replay needs them, so they go before a checkpoint is written without them: whoever loads that takes what is
        left for staged files that a write may yet commit.

        Args:
            spares: as in `free`.
        """
        log, follower = self._log, self._follower
        with follower.snapshot as state:
            taken = _taken_segments(state)
        if not taken:
            return
        with LeavingSegments(self._fs, log.layout, self._most_spare_bytes() if spares else 0) as leaving:
            for name in taken:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    leaving.add(log.layout.segment_file(name))
        with follower.snapshot as state:
            state.blocks.disk.emptied.difference_update(taken)

    def free(self, *, spares: bool) -> None:
        """Free the files and segments that nothing needs; the caller holds the commit lock.

        A checkpoint is removed before its file: a replay that began there would miss it. Files older than this handle
        are not used again: in a copy of a channel in use, they may hold frames of files that are to come.

        Args:
            spares: whether to keep some of the others to be used again, as far as the options and the disk let it.
        """
        self.free_taken_segments(spares=spares)
        log, follower = self._log, self._follower
        with follower.snapshot as state:
            first_needed = self._first_needed(state)
            live, sinks = state.segments(), dict(state.sinks)
            ttl_seconds = state.options.staging_ttl
            waiting, next_number = dict(state.delays.files), state.delays.next_number
            state.blocks.disk.emptied.clear()
        most_spare_bytes = self._most_spare_bytes() if spares else 0
        remove_abandoned_segments(self._fs, log.layout, live, sinks, ttl_seconds, most_spare_bytes=most_spare_bytes)
        if next_number > 1:
            DelayedFiles(self._fs, log.layout).remove_unneeded(waiting, next_number)
        unneeded = [i for i in log.layout.log_files(self._fs) if i < first_needed]
        if unneeded and log.tiers.disk.read_file_header(first_needed) is not None:
            log.checkpoints.remove_before(first_needed)
            older = [log.layout.log_file(i) for i in unneeded if i < self._opened_in]
            own = [log.layout.log_file(i) for i in unneeded if i >= self._opened_in]
            self._spares.retire(own, most_spare_bytes, older)
        elif not spares:
            self._spares.keep(0)

    def _most_spare_bytes(self) -> int:
        """Return how many bytes of spare files there may be: none while free space is short."""
        return 0 if self.lacking_bytes() else self._follower.state.options.spare_bytes

    def lacking_bytes(self) -> int:
        """Return how many bytes more must be free so that puts are not refused, or nearly.

        Raises:
            StorageError: the system does not say.
        """
        state = self._follower.state
        given, waiting_bytes = state.options.minimum_required_space, state.delays.payload_bytes
        return lacking_bytes(self._fs, self._log.layout, given, waiting_bytes)

    def remove_spares(self) -> None:
        """Remove the files that wait to be used again."""
        if self._spares.are_any():
            with self._appender.committing():
                self._spares.keep(0)

    def give_back_reserves(self) -> None:
        """Remove the spare files, and what is reserved of the newest one, before the last handle is closed.

        A failure is logged: a later close tries again.
        """
        try:
            self.remove_spares()
            with self._appender.committing():
                self._log.tiers.disk.trim()
        except SpillableError as e:
            _log.warning("%s keeps space that it does not use: %s", self._log.path, e, extra=fields(self._log.path))

    def remove_staging(self, owner: str, batch_id: int) -> None:
        """Remove what a Spark query or batch write staged, up to and including a batch, and no commit adopted."""
        log, follower, appender = self._log, self._follower, self._appender
        if any(f"segment.{owner}." in name for name in log.layout.segments(self._fs)):
            with appender.committing(), follower.snapshot as state:
                live = state.segments()
                remove_abandoned_segments(self._fs, log.layout, live, {owner: batch_id}, float("inf"), owner)

    def discard(self, segments: list[str]) -> None:
        """Remove staged segments that no commit adopted, also after a commit whose outcome is unknown.

        The commit lock settles that outcome: the leftovers of such a commit were cut, or the log continued in a
        new file. A failed commit may have copied a segment to disk, so both copies are removed.
        """
        log, follower, appender = self._log, self._follower, self._appender
        with appender.committing(), follower.snapshot as state:
            adopted = {disk_segment(name) for name in state.segments()}
            for name in segments:
                if disk_segment(name) not in adopted:
                    self._fs.remove(log.layout.segment_file(name))
                    self._fs.remove(log.layout.segment_file(disk_segment(name)))

    def _first_needed(self, state: ChannelState) -> int:
        """Return the number of the first data file that holds needed events, or of the newest file if none does."""
        current, oldest_block = self._follower.positions.disk.file_id, state.blocks.oldest_data_file()
        return current if oldest_block is None else min(current, oldest_block)

    def _is_newest_drained(self) -> bool:
        """Tell whether the disk tier holds no events and its newest file is large enough to be worth freeing."""
        with self._follower.snapshot as state:
            end, log = self._follower.positions.disk, self._log.tiers.disk
            if len(state.blocks.disk) or end.offset < _WORTH_A_FILE_BYTES:
                return False
            try:
                return end.offset - log.first_frame_end(end.file_id) >= _WORTH_A_FILE_BYTES
            except FileNotFoundError:  # the log continued in a new file, and another process removed this one
                return False


def _taken_segments(state: ChannelState) -> list[str]:
    """Return the segments whose last event this process saw leave."""
    disk = state.blocks.disk
    return [name for name in disk.emptied if isinstance(name, str) and name not in disk.files]
