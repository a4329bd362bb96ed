"""Cuts what a holder of the commit lock that died or failed left behind the published end of a log."""

from __future__ import annotations

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.frame import FrameType
from spillable_stream.format.head_page import HeadState, TierEnd
from spillable_stream.log.append_failure import AppendFailure
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.frames import FrameScanner, find_frame
from spillable_stream.log.log_files import LogFiles
from spillable_stream.log.published_end import PublishedEnd
from spillable_stream.log.rolling import MakeImage, Rolling
from spillable_stream.log.tier_files import TierFiles
from spillable_stream.log.written_file import WrittenFile
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.file import File

__all__ = ["Healing"]

_log = log_of(__name__)


class Healing:
    """Heals the log of one tier; the commit lock is held.

    Args:
        lock: the commit lock and head.
        end: the tier's published end.
        policy: how the tier's files are cut and removed.
        files: the log's files.
        writing: the file that is written.
        failure: makes a cut durable.
        rolling: begins a new file after a sync that failed.
    """

    def __init__(
        self,
        lock: CommitLock,
        end: PublishedEnd,
        policy: TierFiles,
        files: LogFiles,
        writing: WrittenFile,
        failure: AppendFailure,
        rolling: Rolling,
    ) -> None:
        self._lock = lock
        self._end = end
        self._policy = policy
        self._files = files
        self._writing = writing
        self._failure = failure
        self._rolling = rolling

    def heal(self, image: MakeImage) -> None:
        """Cut what lies behind the published end, if anything may.

        Args:
            image: makes the image of the state at the published end, for a new file's header.

        Raises:
            CorruptionError: a commit lies there that was published once: the head is older than the log.
        """
        head = self._end.current()
        if head.state == HeadState.CLEAN:
            return
        layout = self._lock.layout
        self._writing.close()
        unpublished = [file_id for file_id in self._files.ids() if file_id > head.file_id]
        for file_id in unpublished:  # made by a roll that was not published
            self._require_no_commit(file_id)
        if head.state != HeadState.SYNC_FAILED:
            self._require_one_append(head)
        for file_id in unpublished:
            self._policy.remove(layout.log_file(file_id))
        if head.state != HeadState.SYNC_FAILED:
            self._cut(head)
        if self._end.current().state == HeadState.SYNC_FAILED:
            self._rolling.roll_from(self._end.current(), image)

    def _cut(self, head: TierEnd) -> None:
        """Cut the newest file at the published end; on a disk that refuses that, and is not the only one, leave it."""
        try:
            file = self._writing.open(head.file_id)
            self._policy.discard_behind(file, head.end)
        except StorageError as e:
            if len(self._policy.next_numbers(head.file_id + 1)) == 1:
                raise
            path = self._files.path(head.file_id)
            _log.warning(
                "nothing more is appended to %s; the log continues in a new file: %s", path, e, extra=fields(file=path)
            )
            self._failure.distrust(head)
        else:
            self._failure.sync_cut(file, head)

    def _require_no_commit(self, file_id: int) -> None:
        """Refuse to remove a file that holds a whole COMMIT: it was published once, whatever the head says now."""
        file = self._lock.fs.open(self._lock.layout.log_file(file_id), readonly=True)
        try:
            if (found := next(find_frame(file, self._files.seed(file_id), 0, FrameType.COMMIT), None)) is not None:
                raise _head_is_older(file, found.offset)
        finally:
            file.close()

    def _require_one_append(self, head: TierEnd) -> None:
        """Refuse to cut more than the one append that the mark speaks of."""
        try:
            file = self._writing.open(head.file_id)
        except StorageError:  # its disk may have become read-only
            file = self._lock.fs.open(self._files.path(head.file_id), readonly=True)
        for found in FrameScanner(file, self._files.seed(head.file_id), head.end):
            if found.header.type == FrameType.COMMIT and CommitRecord.parse(found.payload or b"").start > head.end:
                raise _head_is_older(file, found.offset)


def _head_is_older(file: File, offset: int) -> CorruptionError:
    return CorruptionError(
        "the head is older than the log, which holds a commit beyond its end; close every handle of the channel "
        "and open it again, which recovers from the log",
        str(file.path),
        offset,
    )
