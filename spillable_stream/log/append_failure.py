"""What follows a failed append: it is cut, or, where its sync failed, nobody appends to that file again.

A failed sync is never tried again: the next one would say that all is well.
"""

from __future__ import annotations

from spillable_stream.errors import StorageError
from spillable_stream.format.head_page import HeadState, TierEnd
from spillable_stream.log.published_end import PublishedEnd
from spillable_stream.log.tier_files import TierFiles
from spillable_stream.log_records import fields, log_of
from spillable_stream.storage.file import File

__all__ = ["AppendFailure"]

_log = log_of(__name__)


class AppendFailure:
    """Settles a failed append of one tier's newest file; the commit lock is held.

    Args:
        end: the tier's published end.
        policy: how the tier's files are synced.
    """

    def __init__(self, end: PublishedEnd, policy: TierFiles) -> None:
        self._end = end
        self._policy = policy

    def sync_or_distrust(self, file: File, head: TierEnd) -> None:
        """Sync, where the tier is synced, or publish that nobody may append to the file again.

        Also after an interrupt (Ctrl-C): the next sync would say that all is well.

        Raises:
            StorageError: the sync failed.
        """
        if not self._policy.is_synced:
            return
        try:
            try:
                file.sync()
            except BaseException:
                self.distrust(head)
                raise
        except BaseException:
            self.distrust(head)  # again: an interrupt may have come before it was done
            raise

    def distrust(self, head: TierEnd) -> None:
        """Publish that nobody may append to the file again: the log continues in a new one."""
        if self._end.current().state != HeadState.SYNC_FAILED:
            self._end.publish(head._replace(state=HeadState.SYNC_FAILED))

    def cut(self, file: File, head: TierEnd) -> None:
        """Take back an append that failed before its sync; if that fails too, the next holder of the lock does it."""
        try:
            self._policy.discard_behind(file, head.end)
        except StorageError as e:
            self._end.publish(head._replace(state=HeadState.APPENDING))
            _log.warning(
                "what a failed append left in %s, from the offset %d on, is cut by the next commit: %s",
                file.path,
                head.end,
                e,
                extra=fields(file=file.path, offset=head.end),
            )
            return
        self.sync_cut(file, head)

    def sync_cut(self, file: File, head: TierEnd) -> None:
        """Make a cut durable; if the sync fails, the next holder of the lock continues in a new file."""
        self._policy.preallocation.begin(head.end)
        try:
            self.sync_or_distrust(file, head)
        except StorageError as e:
            _log.warning(
                "nothing more is appended to %s; the log continues in a new file: %s",
                file.path,
                e,
                extra=fields(file=file.path),
            )
        else:
            self._end.publish(head._replace(state=HeadState.CLEAN))
