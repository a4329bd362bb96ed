"""Begins new files of a log: each one's header holds the state, and names the trusted end of the file before it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from spillable_stream.errors import DiskSpaceError, StateTooLargeError, StorageError
from spillable_stream.format.frame import encode
from spillable_stream.format.head_page import NO_TIER, HeadState, TierEnd
from spillable_stream.format.record import FileHeader
from spillable_stream.log.append_failure import AppendFailure
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.log_files import LogFiles
from spillable_stream.log.published_end import PublishedEnd
from spillable_stream.log.tier_files import TierFiles
from spillable_stream.log.written_file import WrittenFile
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_names import named
from spillable_stream.state.image import SmallImage
from spillable_stream.storage.file import File

__all__ = ["MakeImage", "Rolling"]

_log = log_of(__name__)

_ROLL_AGAIN_SECONDS = 60.0
_WITH_ROOM_SECONDS = 1.0

MakeImage = Callable[[], SmallImage]
"""Makes the image of the state that a new file's header holds."""


class Rolling:
    """Begins the files of one tier; the commit lock is held.

    Args:
        lock: the commit lock and head.
        end: the tier's published end.
        policy: how the tier's files are created and synced.
        files: the log's files.
        writing: the file that is written.
        failure: makes a cut durable.
    """

    def __init__(
        self,
        lock: CommitLock,
        end: PublishedEnd,
        policy: TierFiles,
        files: LogFiles,
        writing: WrittenFile,
        failure: AppendFailure,
    ) -> None:
        self._lock = lock
        self._end = end
        self._policy = policy
        self._files = files
        self._writing = writing
        self._failure = failure
        self._roll_again_at = float("-inf")

    def begin(self, image: MakeImage, file_id: int) -> None:
        """Begin the log with its first file."""
        self.roll_from(NO_TIER, image, file_id)

    def roll(self, image: MakeImage) -> TierEnd:
        """Begin a new file, which holds the state at this moment.

        On a full disk it takes what room the old one has in reserve.

        Raises:
            StorageError: it could not be created; the log stays in the old one.
        """
        try:
            return self.roll_from(self._end.current(), image)
        except StorageError:
            head = self._end.current()  # not clean if the new file is still there: healing the log removes it first
            if head.state != HeadState.CLEAN or not self._trim(head):
                raise
            self._policy.preallocation.begin(head.end)
            return self.roll_from(head, image)

    def roll_if_full(self, head: TierEnd, size_bytes: int, most_bytes: int, image: MakeImage) -> TierEnd:
        """Begin a new file if an append does not fit the newest one, and return the end where it goes.

        Args:
            head: the published end.
            size_bytes: the size of the append.
            most_bytes: ``maxFileSize``.
            image: makes the image of the state.
        """
        begin = self._files.first_frame_end(head.file_id)
        is_full = head.end + size_bytes > self._policy.most_bytes(most_bytes, begin)
        if is_full and head.end > begin and time.monotonic() >= self._roll_again_at:
            try:
                return self.roll_from(head, image)
            except StorageError as e:  # takes must still find a place, and so must what makes the state smaller
                is_full = isinstance(e, DiskSpaceError) and self._end.current().state == HeadState.CLEAN
                if not is_full and not isinstance(e, StateTooLargeError):
                    raise
                self._roll_again_at = time.monotonic() + (_WITH_ROOM_SECONDS if is_full else _ROLL_AGAIN_SECONDS)
                path = self._files.path(head.file_id)
                _log.warning("%s grows beyond %s: %s", path, named("maxFileSize"), e, extra=fields(file=path))
        return head

    def roll_from(self, head: TierEnd, image: MakeImage, first_file_id: int = 1) -> TierEnd:
        """Begin a new file and publish it: in another directory where one has no room, or refuses.

        Args:
            head: the end of the file before it that counts.
            image: makes the image of the state.
            first_file_id: its number, if it is the first.
        """
        self._lock.require_directories()
        first = max([head.file_id + 1, first_file_id, *(i + 1 for i in self._files.ids())])
        *numbers, last = self._policy.next_numbers(first) if head.file_id else [first]
        small = dict(image())
        for file_id in numbers:
            try:
                return self._begin(file_id, head, small)
            except StorageError as e:
                if isinstance(e, StateTooLargeError) or self._end.current().state != HeadState.CLEAN:
                    raise  # a file that may be left would break the chain
                path = self._files.path(file_id)
                _log.warning("the log continues in another directory: %s", e, extra=fields(file=path))
        return self._begin(last, head, small)

    def _begin(self, file_id: int, head: TierEnd, small: dict[str, object]) -> TierEnd:
        layout = self._lock.layout
        previous = (head.file_id, head.end) if head.file_id else None
        path = layout.log_file(file_id)
        spare = self._policy.spare_for(path)
        frame = FileHeader(layout.channel, file_id, previous, small, reused=spare is not None).frame()
        state = head.state if head.state != HeadState.CLEAN else HeadState.APPENDING
        self._end.publish(head._replace(state=state))
        file: File | None = None
        try:
            file = self._policy.create(path, spare)
            end = file.write(0, encode(frame, self._files.seed(file_id), time_us=time.time_ns() // 1000))
            self._policy.sync_new(file)
        except StorageError:
            if file is not None:
                file.close()
            with contextlib.suppress(StorageError):
                if file is not None or self._lock.fs.exists(path):
                    self._policy.remove(path)
                if state == HeadState.APPENDING:
                    self._end.publish(head._replace(state=HeadState.CLEAN))
            raise
        published = TierEnd(file_id, end)
        self._end.publish(published)
        self._trim(head)
        self._files.begun(file_id, end)
        self._writing.use(file_id, file, end)
        return published

    def trim(self) -> None:
        """Give back what is reserved of the newest file, and cut what it held before it was used again."""
        end = self._end.current()
        if end.file_id and self._trim(end):
            self._failure.sync_cut(self._writing.open(end.file_id), end)

    def _trim(self, head: TierEnd) -> bool:
        """Give back what is reserved behind a file's end, and tell whether there was any; only space depends on it."""
        if head.file_id:
            with contextlib.suppress(StorageError, FileNotFoundError):
                return self._policy.trim(lambda: self._writing.open(head.file_id), head.end)
        return False
