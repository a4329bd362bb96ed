"""The finished batches of a source: those that Spark has committed, whose takes are committed then.

Spark proves it by `commit`, one batch late, or earlier by the request for the next one. Where an append costs much, the
commit waits for the take of the next batch (`late_commit`).
"""

from __future__ import annotations

from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.port import one_look
from spillable_stream.errors import SpillableError
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.source.batch_takes import BatchTakes
from spillable_stream.spark.source.group_lease import GroupLease
from spillable_stream.spark.source.late_commit import LateCommit
from spillable_stream.spark.source.read_options import StreamOptions

__all__ = ["FinishedBatches"]

_log = log_of(__name__)


class FinishedBatches:
    """Commits the takes of finished batches.

    Args:
        lease: what the source holds open and owns.
        options: the source's options.
        path: the channel's path.

    Attributes:
        takes: the takes of the group's owner; there from `own` on.
    """

    takes: BatchTakes

    def __init__(self, lease: GroupLease, options: StreamOptions, path: str) -> None:
        self._lease = lease
        self._options = options
        self._path = path
        self._late = LateCommit(self._commit_unasked, path)

    def own(self, consumer: Consumer) -> None:
        """Begin with the takes that a new owner finds, or one whose group was moved."""
        self.takes = BatchTakes(consumer)

    def planned(self) -> None:
        """Cancel the late commit if it went with the take of the batch that was just planned."""
        if not self.takes.due_id:
            self._late.cancel()

    def commit_proven(self, proven_id: int) -> None:
        """Commit the takes of the batches that are in Spark's commit log. Spark's request for the next one proves that.

        Waiting for `commit` would deadlock on a full channel. Spark calls it only when it plans the next batch, which
        needs a put, and a channel full of events that the query has read accepts none.

        Args:
            proven_id: everything up to this event is in Spark's commit log (`Question.proven_id`).
        """
        if not self._options.async_progress_tracking_enabled:
            self.commit(proven_id)

    def commit(self, done_id: int) -> None:
        """Commit the takes of everything up to an event: now, or with the next take where an append costs much."""
        delay_seconds = self._lease.channel().port().commit_delay_seconds()
        if not delay_seconds:
            self.takes.commit_up_to(done_id)
        elif self.takes.commit_with_the_next(done_id):
            self._late.within(delay_seconds)

    def commit_due(self) -> None:
        """Commit what waits for the next take, if the group is owned still."""
        self._late.cancel()
        with one_look(), self._lease.call():
            if self._lease.owner() is not None:
                self.takes.commit_due()

    def _commit_unasked(self) -> None:
        """Do what `commit_due` does for no call of Spark's, whose next take raises a loss that this meets."""
        with self._lease.call():
            if self._lease.owner() is not None:
                with self._lease.channel().port().unasked():
                    self.commit_due()

    def commit_before_close(self) -> None:
        """Commit what waits for the next take, before the group is given up; where that fails, say so.

        A loss waits for the next call of whoever has the channel open, too: Spark's call is a close.
        """
        try:
            with self._lease.channel().port().unasked():
                self.commit_due()
        except SpillableError as e:  # the query's next source commits it, or a listener
            _log.warning(
                "%s: the take of a finished micro-batch was not committed before its source closed: %s",
                self._path,
                e,
                extra=fields(self._path),
            )
