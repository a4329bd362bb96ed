"""Take transactions: events are claimed in order, and return to the queue at a rollback."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

import pyarrow as pa

from spillable_stream.arguments import seconds, whole_number
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event import EventT
from spillable_stream.channel.taken_events import events_from_batch, rows_from_batch, table_from_batches
from spillable_stream.channel.transaction import OPEN, Transaction
from spillable_stream.channel.ttl import ttl_left_us
from spillable_stream.counted import counted
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import now_us
from spillable_stream.engine.tier_ports import IDLE_SECONDS
from spillable_stream.errors import DataLossError, TransactionCapacityError, TransactionStateError
from spillable_stream.format.batch import fit_batch
from spillable_stream.format.named_tuple import new_tuple
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.option_names import named
from spillable_stream.quantities import Duration
from spillable_stream.state.ranges import Range, count_of

__all__ = ["TakeTransaction"]

_LONGEST_SECONDS = 1e9
_T = TypeVar("_T")


class TakeTransaction(Transaction, Generic[EventT]):
    """Takes events, all or none. Created by `Channel.take_transaction`.

    Args:
        engine: the channel.
        consumer: called once, at the first take, for the owner of the group.
        typed: whether events are dictionaries of a typed channel rather than `Event`.
    """

    count: int = 0

    def __init__(self, engine: Engine, consumer: Callable[[], Consumer], typed: bool) -> None:
        super().__init__(engine)
        self._open_consumer = consumer
        self._consumer: Consumer | None = None
        self._typed = typed
        self._ranges: list[Range] = []
        self._claimed: list[Range] = []  # by the take that is under way, or that an interrupt has ended
        self._moved_at = 0  # the consumer's, before the first claim
        self._expiring: list[ReadBatch] = []  # what `take_batch` gave of events with a ttl

    def take(self, timeout_seconds: Duration | None = None) -> EventT | None:
        """Take the next event.

        Args:
            timeout_seconds: how long to wait for one, such as 5, "5m" or `math.inf`; ``overflowTimeout`` by default.

        Returns:
            An `Event`, in a typed channel a dictionary, or None when the channel stayed empty.

        Raises:
            TransactionStateError: the transaction is not open, or the group was moved by a seek since its first take.
            TransactionCapacityError: it is full.
            GroupOwnedError: another live consumer owns the group.
            OptionError: the timeout is not a time span, or negative; or in `take_many` the limit not an integer of at
                least 1.
            CorruptionError: the event can't be read.
            DataLossError: the event is gone, and the message says which ones are.
            SchemaError: Python has no object for a value, which `take_batch` can give.

        An event that can't be given is as if it had not been taken: it is still the next one.
        """
        self._require(OPEN, "take")
        if timeout_seconds is None:
            timeout_seconds = self._engine.state.options.overflow_timeout
        found = self._take(1, timeout_seconds, self._objects)
        return found[0] if found else None

    def take_many(self, limit: int, timeout_seconds: Duration = 0.0) -> list[EventT]:
        """Take events, fewer at the end of the queue; raises what `take` raises.

        Args:
            limit: how many at most; the whole transaction takes at most ``transactionCapacity``.
            timeout_seconds: how long to wait for the first one.

        Returns:
            The events; an empty list when the channel stayed empty.
        """
        self._require(OPEN, "take_many")
        return self._take(limit, timeout_seconds, self._objects)

    def take_batch(self, limit: int, timeout_seconds: Duration = 0.0) -> pa.Table | None:
        """Take events as an Arrow table, fewer at the end of the queue; raises what `take` raises.

        Args:
            limit: how many at most; the whole transaction takes at most ``transactionCapacity``.
            timeout_seconds: how long to wait for the first one.

        Returns:
            The channel's columns and ``write_order_id``; None when the channel stayed empty.
        """
        self._require(OPEN, "take_batch")
        return self._take(limit, timeout_seconds, self._table)

    def ttls_left_us(self, ids: pa.Int64Array) -> pa.Int64Array | None:
        """Return what is left by now of the ttls of events that `take_batch` gave, for whoever puts them elsewhere.

        Args:
            ids: the events' write-order IDs, ascending.

        Returns:
            The ttls in microseconds, 0 for an event without one; None where no event has one.
        """
        if not self._expiring:
            return None
        by_us, all_ids = now_us(), ids.to_pylist()
        left = [0] * len(all_ids)
        for read in self._expiring:
            rows = range(bisect_left(all_ids, read.first_id), bisect_right(all_ids, read.last_id))
            left[rows.start : rows.stop] = [ttl_left_us(read.time_us, read.expires_us, by_us)] * len(rows)
        return pa.array(left, pa.int64())

    def put(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a take transaction does not put.

        Raises:
            TransactionStateError: always.
        """
        raise TransactionStateError("a take transaction can't put; puts and takes never mix")

    put_many = put
    put_batch = put

    def _take(self, limit: int, timeout_seconds: Duration, convert: Callable[[list[ReadBatch]], _T]) -> _T:
        """Claim, read and convert; only what can be given to the caller counts as taken."""
        if type(limit) is not int or limit < 1:
            limit = whole_number("limit", limit)
        if type(timeout_seconds) is not float or not 0 <= timeout_seconds < _LONGEST_SECONDS:
            timeout_seconds = seconds("timeout_seconds", timeout_seconds)
        capacity = self._engine.follower.state.options.transaction_capacity - self.count
        if capacity <= 0:
            raise TransactionCapacityError(
                f"the transaction has taken {counted(self.count, 'event')}, as many as {named('transactionCapacity')} "
                "allows; commit it first"
            )
        if self._consumer is None:
            self._consumer = self._open_consumer()
        consumer = self._consumer
        if self._claimed:
            consumer.claims.give_back(self._claimed, self._moved_at)
        deadline = time.monotonic() + timeout_seconds
        while True:
            ranges = self._claim(consumer, min(limit, capacity), deadline)
            taken = count_of(ranges)
            self._engine.counters.event_take_attempt_count += taken or 1
            try:
                given = convert(consumer.read(ranges))
            except BaseException as e:
                unread = list(ranges)
                consumer.claims.give_back(ranges, self._moved_at)
                if isinstance(e, DataLossError) and consumer.has_missed(unread):
                    continue
                self._engine.counters.event_take_error_count += 1
                raise
            self._ranges += ranges  # no call within these three lines: an interrupt leaves all done or none
            self._claimed = []
            self.count += taken
            return given

    def _claim(self, consumer: Consumer, limit: int, deadline: float) -> list[Range]:
        """Claim events; none if there are none until the deadline, in seconds of the monotonic clock."""
        while True:
            if not self._ranges:
                self._moved_at = consumer.claims.moved_at
            ranges = consumer.claim(limit, self._moved_at, self._claimed)
            if ranges:
                return ranges
            self._engine.checkpointing.give_back_when_idle()
            if (left := deadline - time.monotonic()) <= 0:
                return []
            self._engine.wait_for(lambda _: consumer.available(), min(left, IDLE_SECONDS))

    def _table(self, found: list[ReadBatch]) -> pa.Table | None:
        if not found:
            return None
        self._expiring += [read for read in found if read.expires_us]
        return table_from_batches(found, self._engine.schemas()[-1])

    def _objects(self, found: list[ReadBatch]) -> list[Any]:
        if not self._typed:
            return [e for read in found for e in events_from_batch(read)]
        schema = self._engine.schemas()[-1]
        return [row for r in found for row in rows_from_batch(r._replace(batch=fit_batch(r.batch, schema)))]

    def _commit(self) -> None:
        if self._claimed and self._consumer:
            self._consumer.claims.give_back(self._claimed, self._moved_at)
        if self._ranges and self._consumer:
            try:
                tx = self._consumer.commit(self._ranges, moved_at=self._moved_at)
            except BaseException:
                self._engine.counters.event_take_error_count += 1
                raise
            self._engine.counters.event_take_success_count += self.count
            self.committed: CommitResult = new_tuple(CommitResult, (tx, self._ranges[0][0], self._ranges[-1][1]))

    def _rollback(self) -> None:
        if self._consumer:
            for claimed in (self._claimed, self._ranges):
                self._consumer.claims.give_back(claimed, self._moved_at)

    def _forget(self) -> str:
        consumer = self._consumer
        claimed = self._ranges + self._claimed
        if consumer is None or not claimed or consumer.active_calls.ended:
            return ""
        consumer.claims.release_later(claimed, self._moved_at)
        return (
            f"a take transaction of the group {consumer.group!r} of {self._engine.path} was forgotten, but neither "
            f"committed nor rolled back: {counted(self.count, 'event', 'are')} back in the queue"
        )
