"""The take transactions of a query's batches: written when a batch is planned, committed when Spark has it for good."""

from __future__ import annotations

from spillable_stream.channel.consumer import Consumer
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["BatchTakes"]


class BatchTakes:
    """The batches of a group's owner that are planned and not committed, those of a former owner first.

    A batch is known by its first and its last event, whatever is in between. Of a former owner's batch only the events
    are known that it took; what was lost or taken ahead at its ends was not written.

    Args:
        consumer: the group's owner.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._taking: dict[Range, tuple[int, list[Range]]] = {  # batch → take transaction, events
            (ranges[0][0], ranges[-1][1]): (tx, ranges) for tx, ranges in consumer.prepared().items()
        }

    def take(self, first: int, last: int) -> list[Range]:
        """Write that the group takes a batch, unless that is written, and return the events that are in it."""
        if (first, last) not in self._taking:
            ranges = self._consumer.untaken(first, last)
            written = self._written(first, last, ranges)
            if written is not None:
                self._taking[first, last] = self._taking.pop(written)
            else:
                self._taking[first, last] = (self._consumer.prepare(ranges) if ranges else 0, ranges)
        return self._taking[first, last][1]

    def _written(self, first: int, last: int, ranges: list[Range]) -> Range | None:
        """Return the former owner's batch that takes all events that a batch has, if there is one."""
        for batch, (_, taken) in self._taking.items():
            if first <= batch[0] and batch[1] <= last and _is_within(ranges, taken):
                return batch
        return None

    def under_way(self, begin: int) -> int | None:
        """Return where the batch after ``begin`` ended that Spark's checkpoint lost: the sink may have it."""
        for (first, end), (_, ranges) in reversed(self._taking.items()):
            if first == begin + 1 or (first > begin and not self._consumer.untaken(begin + 1, first - 1) and ranges):
                return end
        return None

    def commit_up_to(self, last: int) -> None:
        """Commit the takes of all batches up to an event, and of whatever none of them has, in one append.

        A batch that ends right before events that others took ahead is committed with the next one, which ends behind
        them: the group's position goes on over them, and would be ahead of what Spark knows to be done.
        """
        first = self._consumer.position() + 1
        done = [batch for batch in self._taking if batch[1] <= last]
        if first <= last:  # else a listener has done it
            if not self.is_position(last):
                return
            prepared = [(ranges, tx) for tx, ranges in map(self._taking.__getitem__, done) if tx]
            rest = list(RangeSet(r for ranges, _ in prepared for r in ranges).gaps(first, last))
            self._consumer.commit_all([*prepared, *([(rest, 0)] if rest else [])])
        for batch in done:
            del self._taking[batch]

    def is_position(self, last: int) -> bool:
        """Tell whether the group's position would be at an event, were everything up to it taken."""
        return bool(self._consumer.untaken(last + 1, last + 1))


def _is_within(ranges: list[Range], others: list[Range]) -> bool:
    among = RangeSet(others)
    return bool(ranges) and not any(True for r in ranges for _ in among.gaps(*r))
