"""Put transactions: what is put is buffered in columns, staged if it is large, and committed whole."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar, TypeVarTuple

import pyarrow as pa

from spillable_stream.channel.delayed_events import DelayedEvents
from spillable_stream.channel.delayed_put import DelayedPut
from spillable_stream.channel.due_time import due_ms, require_delays
from spillable_stream.channel.event import ID_COLUMN, Event, event_list
from spillable_stream.channel.event_columns import EventColumns
from spillable_stream.channel.put_buffer import MOST_EVENTS, PutBuffer
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.channel.stored_options import options_to_be
from spillable_stream.channel.transaction import OPEN, Transaction
from spillable_stream.channel.ttl import ttl_us
from spillable_stream.counted import counted
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.delayed_puts import Delayed
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.port import ProducerClaim
from spillable_stream.engine.put_request import NoRoomYetError, Put
from spillable_stream.error_text import type_and_text
from spillable_stream.errors import (
    REFUSALS,
    CommitOutcomeUnknownError,
    OptionError,
    SpillableError,
    TransactionCapacityError,
    TransactionStateError,
)
from spillable_stream.format.arrow_input import ArrowRows, arrow_rows
from spillable_stream.format.batch import SURELY_FRAMED_BYTES, accept_batch, check_columns, encode_batch, fit_batch
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.frame import MAX_COUNT
from spillable_stream.format.numbered_batch import MAX_NOTE_BYTES, NumberedBatch
from spillable_stream.format.row_values import row_reader
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.option_names import named
from spillable_stream.quantities import Duration

__all__ = ["PutTransaction"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class PutTransaction(Transaction):
    """Puts events, all or none. Created by `Channel.put_transaction`.

    Args:
        engine: the channel.
        schema: the channel's schema.
        schema_id: its number in the channel.
        typed: whether events are mappings of a typed channel rather than `Event`.

    Attributes:
        producer: which batch of a producer this is: one that is stored is not stored again, and `committed` has the IDs
            that it got, if they are still known. Its note is stored with it, for `Channel.last_batch`.
        claim: the claim on the producer's ID: where another producer has had the ID since, the commit raises a
            `ProducerBusyError`, and stores nothing. None where nobody claimed it.
        follows: the producer's last number in the channel, on which the batch was cut: where it is another one by
            now, the commit raises a `ProducerSequenceError`, and stores nothing. None for any.
        is_bounded: whether ``transactionCapacity`` bounds it; not where others chose how much goes together.
        waited_seconds: how long these events have waited for room, in transactions before this one; None for a commit
            that waits itself. Where it would wait, a commit of the others raises `NoRoomYetError`.
        carries_dues: whether its events are shipped to another channel, which delays them (a spool): this one puts them
            now, with their due times.
        delays_as: the schema in which `put_timed` stores delayed rows, and its number: the channel's, or an earlier one
            that they came in, since nothing can put values of some later columns in another order.
    """

    producer: NumberedBatch | None = None
    claim: ProducerClaim | None = None
    follows: int | None = None
    is_bounded: bool = True
    waited_seconds: float | None = None
    carries_dues: bool = False
    count: int = 0
    _attempted: bool = False
    _failure: BaseException | None = None
    _delayed: DelayedPut | None = None

    def __init__(self, engine: Engine, schema: pa.Schema, schema_id: int, typed: bool) -> None:
        super().__init__(engine)
        self._schema = schema
        self._schema_id = schema_id
        self._typed = typed
        self._buffer = PutBuffer(engine, schema, schema_id)
        self.delays_as: tuple[pa.Schema, int] = schema, schema_id

    def put(
        self,
        event: Event | Mapping[str, Any],
        *,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Put one event: an `Event`, or in a typed channel a mapping of column to value. It is copied at every depth.

        A delayed event is stored with the transaction, and enters the order when it is due: it gets its ID then. No
        take sees it before. One that is due already is put like others.

        Args:
            event: the event.
            ttl: for how long it counts after the commit, such as 90, in seconds, "2h", or a timedelta, at most a
                century: takes pass over it after that. None: forever. That of a delayed event counts from when it
                enters the order.
            deliver_after: in which time it is due, such as 90, in seconds, "2h", or a timedelta.
            deliver_at: when it is due, with a time zone. A year from now at most.

        Raises:
            OptionError: ``ttl`` or the delay is not a valid time; nothing was put.
            TransactionStateError: the transaction is not open.
            TransactionCapacityError: it is full.
            SchemaError: the event does not fit the channel.
            DiskSpaceError: it would be staged on disk, and leave less than ``minimumRequiredSpace``.
        """
        self.put_many((event,), ttl=ttl, deliver_after=deliver_after, deliver_at=deliver_at)

    def put_many(
        self,
        events: Iterable[Event | Mapping[str, Any]],
        *,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Put events in order; all of them or, when this raises, none.

        Args:
            events: the events.
            ttl: that of each of them, as in `put`.
            deliver_after: that of each of them, likewise.
            deliver_at: likewise.

        Raises what `put` raises.
        """
        event_ttl_us, event_due_ms = self._begin_put("put", ttl, deliver_after, deliver_at)
        added = event_list(events, "put_many")
        self._admit(len(added))
        parts = [added[i : i + MOST_EVENTS] for i in range(0, len(added), MOST_EVENTS)]
        if event_due_ms and not self.carries_dues:
            delayed = self._delay()
            delayed.add(added, event_due_ms, event_ttl_us)
            self._undivided(delayed.stage_if_many)
        elif self._typed:
            read = row_reader(self._schema).read
            pieces = [list(map(read, part)) for part in parts]
            self._undivided(self._buffer.begin_run, event_ttl_us, event_due_ms)
            for rows in pieces:
                self._undivided(self._buffer.add_rows, rows)
        else:
            all_columns = [EventColumns.of(part) for part in parts]
            self._undivided(self._buffer.begin_run, event_ttl_us, event_due_ms)
            for columns in all_columns:
                self._undivided(self._buffer.add_events, columns)
        self.count += len(added)

    def due_ms(self, deliver_after: Duration | None, deliver_at: datetime | None) -> int:
        """Return when events are due that are put now, in milliseconds since 1970; 0 for now.

        Args:
            deliver_after: as in `put`.
            deliver_at: likewise.

        Raises:
            OptionError: the delay is not a valid time.
        """
        found_ms = due_ms(deliver_after, deliver_at, self._engine.deliveries.clock_ms())
        if found_ms:
            self.require_delays()
        return found_ms

    def require_delays(self) -> None:
        """Refuse to delay events where none can be delayed.

        Raises:
            OptionError: the channel can't; says what to do.
        """
        has_disk = self.carries_dues or options_to_be(self._engine).overflow_capacity > 0
        require_delays(self._engine.path, self.delays_as[0] if self._typed else None, has_disk=has_disk)

    def _delay(self) -> DelayedPut:
        if self._delayed is None:
            self._delayed = DelayedPut(self._engine, DelayedEvents(*self.delays_as, typed=self._typed))
        return self._delayed

    def put_batch(
        self,
        batch: ArrowRows,
        *,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Put the rows of an Arrow batch, a table or a data frame, in order; ttl and delays are as in `put`.

        Columns, and the fields of structs, may come in another order, nullable ones may be missing, and the rest may
        be of a type that fits (`spillable_stream.format.widening`). What `TakeTransaction.take_batch` returned can be
        put as it is: its column ``write_order_id`` is left out.

        Args:
            batch: the rows: a `pyarrow.RecordBatch`, a `pyarrow.Table`, or a data frame of pandas, polars or another
                library that offers its columns as Arrow.
            ttl: that of each of them, as in `put`.
            deliver_after: that of each of them, likewise.
            deliver_at: likewise.

        Raises what `put` raises.
        """
        event_ttl_us, event_due_ms = self._begin_put("put_batch", ttl, deliver_after, deliver_at)
        rows = batch if isinstance(batch, pa.RecordBatch) else arrow_rows(batch, "put_batch")
        if isinstance(rows, pa.Table):
            check_columns(rows.schema, self._schema, ID_COLUMN)  # it may have no batches
            fitted = [accept_batch(b, self._schema, ID_COLUMN) for b in rows.to_batches()]
        else:
            fitted = [accept_batch(rows, self._schema, ID_COLUMN)]
        self._admit(rows.num_rows)
        try:
            if self._buffer.waiting:
                self._buffer.flush()
            for b in fitted:
                if event_due_ms:
                    self._add_late(b, array("q", [event_due_ms]) * b.num_rows, event_ttl_us)
                else:
                    self._buffer.add(b, event_ttl_us)
        except BaseException as e:
            self._failure = e  # `_undivided`, inlined for speed
            raise
        self.count += rows.num_rows

    def require_fit(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch that would not fit into the channel if that were empty. Nothing is put.

        Args:
            batch: the rows.

        Raises:
            PutTooLargeError: it would not fit.
            EventTooLargeError: one of them is larger than a frame can be.
            SchemaError: it does not fit the channel's columns.
        """
        state = self._engine.follower.state
        limits, size_bytes = state.memory_limits(), batch.nbytes
        if size_bytes < SURELY_FRAMED_BYTES:
            if batch.num_rows <= state.options.overflow_capacity:
                return
            if batch.num_rows <= limits.events and size_bytes < limits.payload_bytes // 2:
                return
        fitted = accept_batch(batch, self._schema, ID_COLUMN)
        frame_bytes = self._engine.follower.frame_bytes
        put = Put(encode_batch(fitted, self._schema_id, state.options.compression, frame_bytes=frame_bytes))
        if (too_large := put.too_large(state, self._engine.path)) is not None:
            raise too_large

    def put_timed(self, batch: pa.RecordBatch, times: RowTimes) -> None:
        """Put the rows of an Arrow batch, each with its own ttl and due time, as `put_batch` does.

        Rows that are put now keep their order. Neighbours of one ttl share a frame.

        Args:
            batch: the rows.
            times: their times, which nobody checks here.

        Raises what `put` raises.
        """
        self._begin_put("put_timed")
        has_delays = times.has_delays()
        fitted = accept_batch(batch, self.delays_as[0] if has_delays else self._schema, ID_COLUMN)
        if has_delays:
            self.require_delays()
        self._admit(batch.num_rows)
        self._undivided(self._buffer.flush)
        for rows, event_ttl_us, dues_ms in times.divide(fitted):
            if dues_ms:
                self._undivided(self._add_late, rows, dues_ms, event_ttl_us)
            else:
                self._undivided(self._buffer.add, fit_batch(rows, self._schema), event_ttl_us)
        self.count += batch.num_rows

    def take(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a put transaction does not take.

        Raises:
            TransactionStateError: always.
        """
        raise TransactionStateError("a put transaction can't take; puts and takes never mix")

    take_many = take
    take_batch = take

    def _begin_put(
        self,
        call: str,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> tuple[int, int]:
        """Return the ttl of what is put, in microseconds, and when it is due, in milliseconds since 1970; 0 for none.

        Raises:
            OptionError: one of them is not a valid time.
            TransactionStateError: nothing can be put, and ``call`` is refused.
        """
        self._require(OPEN, call)
        if self._failure is not None:
            self._refuse_after_failure(call)
        event_due_ms = 0
        if deliver_after is not None or deliver_at is not None:
            event_due_ms = self.due_ms(deliver_after, deliver_at)
        return (0 if ttl is None else ttl_us(ttl)), event_due_ms

    def _admit(self, count: int) -> None:
        capacity, held = self._engine.follower.state.options.transaction_capacity, self.count + count
        if held > MAX_COUNT:
            raise TransactionCapacityError(
                f"the transaction would hold {held:,} events, but the most is {MAX_COUNT:,}; commit more often"
            )
        if held > capacity and self.is_bounded:
            raise TransactionCapacityError(
                f"the transaction would hold {counted(held, 'event')}, but {named('transactionCapacity')} is "
                f"{capacity:,}; commit more often, or raise it"
            )

    def _refuse_after_failure(self, call: str) -> NoReturn:
        raise TransactionStateError(
            f"{call}() can't follow a put or a sync that failed in this transaction, or a commit that may be stored "
            f"({type_and_text(self._failure)}); roll it back"
        ) from self._failure

    def _undivided(self, work: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
        """Do work that a failure leaves half done, or that can't be repeated, and remember the failure."""
        try:
            return work(*arguments)
        except BaseException as e:
            self._failure = e
            raise

    def _commit(self) -> None:
        if self._failure is not None:
            self._refuse_after_failure("commit")
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
        if self._buffer.waiting:
            self._undivided(self._buffer.flush)
        if self.count == 0:
            return
        if self.producer is not None and len(self.producer.note) > MAX_NOTE_BYTES:
            raise OptionError(
                f"the note of a producer's batch has {len(self.producer.note):,} bytes, but the most is "
                f"{MAX_NOTE_BYTES:,}; nothing was stored"
            )
        was_attempted, segments = self._attempted, list[SegmentRef]()
        if self._buffer.segment is not None:
            segments = self._undivided(self._buffer.finish)
            self._attempted = True
        request = Put(
            self._buffer.frames,
            segments,
            producer=self.producer,
            follows=self.follows,
            delayed=None if self._delayed is None else self._waiting(self._delayed),
            is_extended=self._buffer.has_dues,
            writer=self._buffer.segment if isinstance(self._buffer.segment, StagedFileWriter) else None,
            require=None if self.claim is None else self.claim.require,
        )
        try:
            self.committed: CommitResult = self._engine.commit(
                request, self._engine.follower.state.options.keep_alive, self.waited_seconds
            )
        except BaseException as e:
            if isinstance(e, REFUSALS):
                self._attempted = was_attempted  # nobody has adopted what was staged, and a full disk needs the room
            self._failure = e if _may_be_stored(e) else request.not_staged
            raise
        if self._buffer.segment is not None:
            self._buffer.close()
        if self._delayed is not None:
            self._delayed.close()

    def _waiting(self, delayed: DelayedPut) -> Delayed | None:
        """Return the delayed events, encoded."""
        if not delayed.is_staged:
            return delayed.finish()
        found = self._undivided(delayed.finish)
        self._attempted = True
        return found

    def _add_late(self, batch: pa.RecordBatch, dues_ms: Sequence[int], event_ttl_us: int) -> None:
        if self.carries_dues:
            self._buffer.add(batch, event_ttl_us, dues_ms)
            return
        delayed = self._delay()
        delayed.add_batch(batch, dues_ms, event_ttl_us)
        delayed.stage_if_many()

    def _forget(self) -> str:
        if not self.count:
            return ""
        return (
            f"a put transaction of {self._engine.path} with {counted(self.count, 'event')} was forgotten, but neither "
            "committed nor rolled back"
        )

    def _rollback(self) -> None:
        if self._delayed is not None:
            if self._attempted:
                self._delayed.close()
            else:
                self._delayed.discard()
            self._delayed = None
        if self._attempted:  # a commit that failed late may have adopted what was staged
            self._buffer.close()
        else:
            self._buffer.discard()


def _may_be_stored(error: BaseException) -> bool:
    """Tell whether a commit that raised may count, now or in a moment; then another one would put the events twice."""
    return isinstance(error, CommitOutcomeUnknownError) or not isinstance(error, SpillableError)
