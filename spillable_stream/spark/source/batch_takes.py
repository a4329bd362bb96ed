"""The take transactions of a query's batches: written at planning, committed once Spark has committed the batch."""

from __future__ import annotations

from spillable_stream.channel.consumer import Consumer, TakeToCommit
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["BatchTakes"]


class BatchTakes:
    """The planned but uncommitted batches of a group's owner, those of a former owner first.

    The first and the last event identify a batch, whatever is in between. For a former owner's batch, they are the
    first and the last event that it took: the log does not record lost or taken events at the ends of the batch.

    Attributes:
        due_id: everything up to this event is done, and its commit waits for the next take; 0 if nothing waits.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.due_id: int = 0
        self._taking: dict[Range, TakeToCommit] = {  # by batch
            (ranges[0][0], ranges[-1][1]): TakeToCommit(ranges, tx) for tx, ranges in consumer.prepared().items()
        }

    def take(self, first: int, last: int) -> list[Range]:
        """Write a batch's take unless it is written already, and return the ranges of events in the batch.

        What is due is committed in the same append.
        """
        if (first, last) not in self._taking:
            ranges = self._consumer.untaken(first, last)
            written = self._written(first, last, ranges)
            if written is not None:
                self._taking[first, last] = self._taking.pop(written)
            else:
                self._taking[first, last] = TakeToCommit(ranges, self._prepare(ranges) if ranges else 0)
        return self._taking[first, last].ranges

    def _prepare(self, ranges: list[Range]) -> int:
        takes, done = self._takes_up_to(self.due_id) if self.due_id else ([], [])
        transaction_id = self._consumer.prepare(ranges, takes)
        self._forget(done)
        self.due_id = 0
        return transaction_id

    def _written(self, first: int, last: int, ranges: list[Range]) -> Range | None:
        """Return the former owner's batch that has all events in ``ranges``; None without one."""
        for batch, (taken, _) in self._taking.items():
            if first <= batch[0] and batch[1] <= last and _is_within(ranges, taken):
                return batch
        return None

    def unfinished(self, begin: int) -> int | None:
        """Return where the batch after ``begin`` ended if its take is written; None otherwise.

        Spark's checkpoint may have lost such a batch although the sink has stored it.
        """
        for (first, end), (ranges, _) in reversed(self._taking.items()):
            if first == begin + 1 or (first > begin and not self._consumer.untaken(begin + 1, first - 1) and ranges):
                return end
        return None

    def commit_with_the_next(self, last: int) -> bool:
        """Commit the takes of all batches up to an event together with the take of the next batch, or by `commit_due`.

        Args:
            last: everything up to this event is done.

        Returns:
            Whether there is something to commit.
        """
        if self._consumer.position() < last or any(batch[1] <= last for batch in self._taking):
            self.due_id = max(self.due_id, last)
        return self.due_id > 0

    def commit_due(self) -> None:
        """Commit what waits for the next take."""
        if self.due_id:
            self.commit_up_to(self.due_id)

    def commit_up_to(self, last: int) -> None:
        """Commit the takes of all batches up to an event, and of events in none of them, in one append.

        A batch that ends right before events that others took ahead is committed together with the next one. Its own
        commit would move the group's position over those events, beyond the end of the batch that Spark knows.
        """
        takes, done = self._takes_up_to(last)
        self._consumer.commit_all(takes)
        self._forget(done)
        if last >= self.due_id:
            self.due_id = 0

    def _takes_up_to(self, last: int) -> tuple[list[TakeToCommit], list[Range]]:
        """Return what a commit of everything up to an event consists of, and which batches are done then."""
        first = self._consumer.position() + 1
        done = [batch for batch in self._taking if batch[1] <= last]
        if first <= last and not self.is_position(last):
            return [], []
        # Events that are gone count as taken, so the position does not say whether a listener has committed a batch.
        pending = self._consumer.prepared() if done else {}
        prepared = [take for take in map(self._taking.__getitem__, done) if take.prepared in pending]
        rest = list(RangeSet(r for take in prepared for r in take.ranges).gaps(first, last))
        return [*prepared, *([TakeToCommit(rest)] if rest else [])], done

    def _forget(self, done: list[Range]) -> None:
        for batch in done:
            del self._taking[batch]

    def is_position(self, last: int) -> bool:
        """Tell whether taking everything up to an event would leave the group's position at that event."""
        return bool(self._consumer.untaken(last + 1, last + 1))


def _is_within(ranges: list[Range], others: list[Range]) -> bool:
    among = RangeSet(others)
    return bool(ranges) and not any(True for r in ranges for _ in among.gaps(*r))
