"""Put and take transactions, with Flume's rules (``BasicTransactionSemantics``).

::

    NEW ──begin──▶ OPEN ──commit | rollback──▶ COMPLETED ──close──▶ CLOSED

A commit that raises leaves the transaction open, to be rolled back. A transaction belongs to the
thread and process that began it. Puts and takes never mix.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

import pyarrow as pa

from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event import (
    ID_COLUMN,
    Event,
    EventColumns,
    events_from_batch,
    id_column,
    rows_from_batch,
)
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.checkpointing import IDLE_SECONDS
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.requests import NoRoomYetError, Put
from spillable_stream.errors import DiskSpaceError, TransactionCapacityError, TransactionStateError
from spillable_stream.format.batch import accept_batch, check_columns, encode_batch, fit_batch
from spillable_stream.format.frame import MAX_COUNT, Frame, total_size
from spillable_stream.format.record import NumberedBatch, SegmentRef
from spillable_stream.format.row_values import row_reader
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.state.ranges import Range, count_of

__all__ = ["PutTransaction", "State", "TakeTransaction", "Transaction"]

_T = TypeVar("_T")
_P = ParamSpec("_P")

_BUFFERED_EVENTS = 8192
_BUFFERED_BYTES = 4 << 20
_INLINE_MEMORY_BYTES = 64 << 20


class State(Enum):
    """Where a transaction is in its life."""

    NEW = "new"
    OPEN = "open"
    COMPLETED = "completed"
    CLOSED = "closed"


class Transaction:
    """What put and take transactions share: the states, and the ``with`` statement."""

    def __init__(self, engine: Engine) -> None:
        self.state: State = State.NEW
        self.committed: CommitResult = CommitResult()
        self._engine = engine
        self._owner = (os.getpid(), threading.get_ident())

    def _require(self, wanted: State, call: str) -> None:
        if self._owner != (os.getpid(), threading.get_ident()):
            raise TransactionStateError(
                f"{call}() of a transaction of pid {self._owner[0]}, thread {self._owner[1]} was called in pid "
                f"{os.getpid()}, thread {threading.get_ident()}; every thread and process begins its own"
            )
        if self.state is not wanted:
            raise TransactionStateError(
                f"{call}() needs a transaction that is {wanted.value}; this one is {self.state.value}"
            )

    def begin(self) -> None:
        """Open the transaction.

        Raises:
            TransactionStateError: it is not new.
        """
        self._require(State.NEW, "begin")
        self._engine.require_not_closed()
        self.state = State.OPEN

    def commit(self) -> None:
        """Do all of it, durably, or raise and stay open.

        Raises:
            TransactionStateError: it is not open.
            SpillableError: it could not be committed; roll it back.
        """
        self._require(State.OPEN, "commit")
        self._commit()
        self.state = State.COMPLETED
        self._engine.checkpointing.make_if_due()

    def rollback(self) -> None:
        """Undo all of it.

        Raises:
            TransactionStateError: it is not open.
        """
        self._require(State.OPEN, "rollback")
        self.state = State.COMPLETED
        self._rollback()

    def close(self) -> None:
        """End the transaction's life; a new one may be closed too.

        Raises:
            TransactionStateError: it is open; commit or roll back first.
        """
        if self.state is State.OPEN:
            raise TransactionStateError("close() of an open transaction; commit or roll back first")
        self.state = State.CLOSED

    def _commit(self) -> None:
        raise TypeError(f"{type(self).__name__} can't commit")

    def _rollback(self) -> None:
        raise TypeError(f"{type(self).__name__} can't roll back")

    def __enter__(self) -> Self:
        if self.state is State.NEW:
            self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.state is State.OPEN and kind is None:
                self.commit()
        finally:
            if self.state is State.OPEN:
                self.rollback()
            self.close()


class PutTransaction(Transaction):
    """Puts events, all or none. Made by `Channel.put_transaction`.

    Args:
        engine: the channel.
        schema: the channel's schema.
        typed: whether events are mappings of a typed channel rather than `Event`.

    Attributes:
        producer: which batch of a producer this is: one that is stored is not stored again, and `committed` has the IDs
            that it got, if they are still known.
        waited_seconds: how long these events have waited for room, in transactions before this one; None for a commit
            that waits itself. Where it would wait, a commit of the others raises `NoRoomYetError`.
    """

    def __init__(self, engine: Engine, schema: pa.Schema, schema_id: int, typed: bool) -> None:
        super().__init__(engine)
        self._schema = schema
        self._schema_id = schema_id
        self._typed = typed
        self._rows: list[dict[str, Any]] = []
        self._events = EventColumns()
        self._frames: list[Frame] = []
        self._frames_bytes = 0
        self._segment: StagedFileWriter | None = None
        self._attempted = False
        self._failure: BaseException | None = None
        self.count: int = 0
        self.producer: NumberedBatch | None = None
        self.waited_seconds: float | None = None

    def put(self, event: Event | Mapping[str, Any]) -> None:
        """Put one event: an `Event`, or in a typed channel a mapping of column to value. It is copied at every depth.

        Raises:
            TransactionStateError: the transaction is not open.
            TransactionCapacityError: it is full.
            SchemaError: the event does not fit the channel.
            DiskSpaceError: it would be staged on disk, and leave less than ``minimumRequiredSpace``.
        """
        self.put_many((event,))

    def put_many(self, events: Iterable[Event | Mapping[str, Any]]) -> None:
        """Put events in order; all of them or, when this raises, none. Raises what `put` raises."""
        self._require_sound("put")
        added = list(events)
        self._admit(len(added))
        parts = [added[i : i + _BUFFERED_EVENTS] for i in range(0, len(added), _BUFFERED_EVENTS)]
        if self._typed:
            read = row_reader(self._schema).read
            for rows in [list(map(read, part)) for part in parts]:
                self._rows += rows
                if len(self._rows) >= _BUFFERED_EVENTS:
                    self._flush_events()
        else:
            for columns in [EventColumns.of(part) for part in parts]:
                for piece in columns.pieces(_BUFFERED_BYTES):
                    self._events.extend(piece)
                    if len(self._events) >= _BUFFERED_EVENTS or self._events.size_bytes >= _BUFFERED_BYTES:
                        self._flush_events()
        self.count += len(added)

    def put_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Put the rows of an Arrow batch or table, in order.

        Columns, and the fields of structs, may come in another order, nullable ones may be missing, and the rest may
        be of a type that fits (`spillable_stream.format.widening`). What `TakeTransaction.take_batch` returned can be
        put as it is: its column ``write_order_id`` is left out.

        Raises what `put` raises.
        """
        self._require_sound("put_batch")
        batches = [batch]
        if isinstance(batch, pa.Table):
            check_columns(batch.schema, self._schema, ID_COLUMN)  # it may have no batches
            batches = batch.to_batches()
        fitted = [accept_batch(b, self._schema, ID_COLUMN) for b in batches]
        self._admit(batch.num_rows)
        self._flush_events()
        for b in fitted:
            self._undivided(self._add, b)
        self.count += batch.num_rows

    def take(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a put transaction does not take.

        Raises:
            TransactionStateError: always.
        """
        raise TransactionStateError("a put transaction can't take; puts and takes never mix")

    take_many = take
    take_batch = take

    def _admit(self, count: int) -> None:
        capacity, held = self._engine.state.options.transaction_capacity, self.count + count
        if held > MAX_COUNT:
            raise TransactionCapacityError(
                f"the transaction would hold {held:,} events, and none holds more than {MAX_COUNT:,}; commit more often"
            )
        if held > capacity:
            raise TransactionCapacityError(
                f"the transaction would hold {held:,} events, transactionCapacity is {capacity:,}; commit more often, "
                "or raise it"
            )

    def _require_sound(self, call: str) -> None:
        self._require(State.OPEN, call)
        if self._failure is not None:
            raise TransactionStateError(
                f"{call}() after a put that failed, or a sync of what was staged ({self._failure}): "
                "roll the transaction back"
            ) from self._failure

    def _undivided(self, work: Callable[_P, None], *arguments: _P.args, **keywords: _P.kwargs) -> None:
        """Do what leaves a part of the events behind if it fails, or can't be repeated, and remember if it does."""
        try:
            work(*arguments, **keywords)
        except BaseException as e:
            self._failure = e
            raise

    def _flush_events(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self._undivided(lambda: self._add(row_reader(self._schema).batch(rows)))
        elif self._events.bodies:
            events, self._events = self._events, EventColumns()
            self._undivided(lambda: self._add(events.batch()))

    def _add(self, batch: pa.RecordBatch) -> None:
        frames = encode_batch(batch, self._schema_id, self._engine.state.options.compression)
        self._frames += frames
        self._frames_bytes += total_size(frames)
        most = self._engine.state.options.max_inline_bytes
        if self._frames_bytes > most and self._frames_bytes > self._inline_bytes():
            self._stage()

    def _inline_bytes(self) -> int:
        """Return how much goes into memory's log itself, which is cheaper than a file; 0 without a memory tier."""
        return _INLINE_MEMORY_BYTES if self._engine.memory.put_bytes() else 0

    def _stage(self) -> None:
        """Move what is buffered to a segment file, so that memory stays bounded."""
        if self._segment is None:
            memory_bytes = self._engine.memory.put_bytes()
            self._segment = self._engine.log.stage(
                memory_bytes=memory_bytes, minimum_required_space=self._engine.state.options.minimum_required_space
            )
        try:
            self._segment.write(self._frames)
        except DiskSpaceError:  # nothing of them was written
            self._engine.make_room()
            self._segment.write(self._frames)
        self._frames, self._frames_bytes = [], 0

    def _commit(self) -> None:
        self._require_sound("commit")
        counters = self._engine.counters
        counters.event_put_attempt_count += self.count
        try:
            self._put_all()
        except NoRoomYetError:  # the attempt continues in another transaction
            counters.event_put_attempt_count -= self.count
            raise
        except BaseException:
            counters.event_put_error_count += 1
            raise
        counters.event_put_success_count += self.count

    def _put_all(self) -> None:
        self._flush_events()
        if self.count == 0:
            return
        segments: list[SegmentRef] = []
        if self._segment is not None:
            if self._frames:
                self._undivided(self._stage)
            self._undivided(lambda segment: segments.append(segment.finish()), self._segment)
            self._attempted = True
        request = Put(self._frames, segments, producer=self.producer)
        try:
            self.committed: CommitResult = self._engine.commit(
                request, self._engine.state.options.keep_alive, self.waited_seconds
            )
        except NoRoomYetError:
            self._attempted = False  # nobody has adopted what was staged
            raise
        finally:
            self._failure = request.not_staged
        if self._segment is not None:
            self._segment.close()

    def _rollback(self) -> None:
        self._rows, self._events, self._frames = [], EventColumns(), []
        if self._segment is not None:
            if self._attempted:  # a commit that failed late may have adopted it; a checkpoint knows
                self._segment.close()
            else:
                self._segment.discard()


class TakeTransaction(Transaction):
    """Takes events, all or none. Made by `Channel.take_transaction`.

    Args:
        engine: the channel.
        consumer: called once, at the first take, for the owner of the group.
        typed: whether events are dictionaries of a typed channel rather than `Event`.
    """

    def __init__(self, engine: Engine, consumer: Callable[[], Consumer], typed: bool) -> None:
        super().__init__(engine)
        self._open_consumer = consumer
        self._consumer: Consumer | None = None
        self._typed = typed
        self._ranges: list[Range] = []
        self.count: int = 0

    def take(self, timeout_seconds: float | None = None) -> Event | dict[str, Any] | None:
        """Take the next event.

        Args:
            timeout_seconds: how long to wait for one; ``overflowTimeout`` by default.

        Returns:
            An `Event`, in a typed channel a dictionary, or None when the channel stayed empty.

        Raises:
            TransactionStateError: the transaction is not open.
            TransactionCapacityError: it is full.
            GroupOwnedError: another live consumer owns the group.
            CorruptionError: the event can't be read.
            SchemaError: Python has no object for a value, which `take_batch` can give.

        An event that can't be given is as if it had not been taken: it is still the next one.
        """
        self._require(State.OPEN, "take")
        if timeout_seconds is None:
            timeout_seconds = self._engine.state.options.overflow_timeout
        found = self._take(1, timeout_seconds, self._objects)
        return found[0] if found else None

    def take_many(self, limit: int, timeout_seconds: float = 0.0) -> list[Any]:
        """Take up to ``limit`` events, fewer at the end of the queue; raises what `take` raises."""
        self._require(State.OPEN, "take_many")
        return self._take(limit, timeout_seconds, self._objects)

    def take_batch(self, limit: int, timeout_seconds: float = 0.0) -> pa.Table | None:
        """Take up to ``limit`` events as an Arrow table, or None; raises what `take` raises.

        The table has the channel's columns and ``write_order_id``.
        """
        self._require(State.OPEN, "take_batch")
        return self._take(limit, timeout_seconds, self._table)

    def put(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a take transaction does not put.

        Raises:
            TransactionStateError: always.
        """
        raise TransactionStateError("a take transaction can't put; puts and takes never mix")

    put_many = put
    put_batch = put

    def _take(self, limit: int, timeout_seconds: float, convert: Callable[[list[ReadBatch]], _T]) -> _T:
        """Claim, read and convert; only what can be given to the caller counts as taken."""
        if limit < 1:
            raise ValueError(f"a take needs a limit of at least 1, not {limit}")
        capacity = self._engine.state.options.transaction_capacity - self.count
        if capacity <= 0:
            raise TransactionCapacityError(
                f"the transaction has taken {self.count:,} events, which is transactionCapacity; commit it first"
            )
        if self._consumer is None:
            self._consumer = self._open_consumer()
        consumer = self._consumer
        deadline = time.monotonic() + timeout_seconds
        ranges = consumer.claim(min(limit, capacity))
        if not ranges:
            self._engine.checkpointing.give_back_when_idle()
        while not ranges and (left := deadline - time.monotonic()) > 0:
            self._engine.wait_for(lambda _: consumer.available(), min(left, IDLE_SECONDS))
            self._engine.checkpointing.give_back_when_idle()
            ranges = consumer.claim(min(limit, capacity))
        self._engine.counters.event_take_attempt_count += count_of(ranges) or 1
        try:
            given = convert(consumer.read(ranges))
        except BaseException:
            self._engine.counters.event_take_error_count += 1
            consumer.release(ranges)
            raise
        self._ranges += ranges
        self.count += count_of(ranges)
        return given

    def _table(self, found: list[ReadBatch]) -> pa.Table | None:
        if not found:
            return None
        schema = self._engine.schemas()[-1]
        ids = pa.chunked_array([id_column(b) for b in found])
        table = pa.Table.from_batches([fit_batch(b.batch, schema) for b in found], schema)
        return table.append_column(ID_COLUMN, ids)

    def _objects(self, found: list[ReadBatch]) -> list[Event | dict[str, Any]]:
        if not self._typed:
            return [e for read in found for e in events_from_batch(read)]
        schema = self._engine.schemas()[-1]
        return [row for r in found for row in rows_from_batch(r._replace(batch=fit_batch(r.batch, schema)))]

    def _commit(self) -> None:
        if self._ranges and self._consumer:
            try:
                tx = self._consumer.commit(self._ranges)
            except BaseException:
                self._engine.counters.event_take_error_count += 1
                raise
            self._engine.counters.event_take_success_count += self.count
            self.committed: CommitResult = CommitResult(tx, self._ranges[0][0], self._ranges[-1][1])

    def _rollback(self) -> None:
        if self._consumer:
            self._consumer.release(self._ranges)
