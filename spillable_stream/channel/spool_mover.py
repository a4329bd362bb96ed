"""The mover of a spool: publishes its events to the store, in order and each once, whoever dies in between.

::

    spool ── events after those that the store has ── one put of the spool's producer ──▶ store
      ▲                                                 numbers: the events' IDs in the spool
      └── take of the group "spool-…", when they are there

The mover owns the group, which a lock on this host guards, so there is one mover. The store's record of the producer
says up to which event it has the spool: a put is planned on that record or refused, so neither a mover that died before
its take was committed, nor a request of it that arrives late, stores an event twice. The record also has a note
that names this event's put: a copy of the spool that went its own way has another one there, and would leave it out.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from itertools import groupby, takewhile

import pyarrow as pa

from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.channel.ttl import ttl_left_us
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.expiry import now_us
from spillable_stream.engine.open_engine import port_of
from spillable_stream.engine.port import ProducerClaim
from spillable_stream.engine.tier_ports import IDLE_SECONDS
from spillable_stream.errors import DataLossError, GroupOwnedError, ProducerSequenceError
from spillable_stream.format.batch import fit_batch
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.format.shipped_put import ShippedPut
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.names import SPOOL_PREFIX
from spillable_stream.state.channel_state import ChannelState

__all__ = ["SpoolMover", "spool_group"]

_PUT_EVENTS = 100_000
_PUT_BYTES = 8 << 20


def spool_group(channel: str) -> str:
    """Return the group that the mover of a spool takes as.

    Args:
        channel: the UUID of the channel in the store: a spool is of one channel for life.
    """
    return f"{SPOOL_PREFIX}{channel}"


class SpoolMover:
    """Ships what is in a spool. One thread at a time.

    Args:
        spool: the engine of the spool's channel.
        store: the engine of the channel in the store.

    Attributes:
        group: the group that it takes as; the spool has it.
        producer_id: the producer that the store knows the spool as.
    """

    def __init__(self, spool: Engine, store: Engine) -> None:
        self.group: str = spool_group(store.channel)
        self.producer_id: str = f"{SPOOL_PREFIX}{spool.channel}"
        self._spool = spool
        self._store = store
        self._consumer: Consumer | None = None
        self._claim: ProducerClaim | None = None
        self._shipped: int | None = None  # the last event that the store has; None while that is not known

    # ── what waits ──────────────────────────────────────────────────────────────────────────

    def wait(self, is_over: Callable[[], bool]) -> bool:
        """Wait for events to ship, for a second at most, and tell whether there are any.

        Args:
            is_over: tells whether to stop waiting.
        """
        found = self._spool.wait_for(lambda state: is_over() or state.lag(self.group) > 0, IDLE_SECONDS)
        if not found:
            self._spool.checkpointing.give_back_when_idle()
        return found and not is_over()

    def waiting(self) -> tuple[int, int]:
        """Return how many events are yet to be shipped, and the ID of the last one that is in the spool."""
        with self._spool.snapshot() as state:
            return state.lag(self.group), state.last_id

    def position(self) -> int:
        """Return the ID up to which all events are shipped."""
        with self._spool.snapshot() as state:
            return state.groups[self.group].position

    # ── what is lost ────────────────────────────────────────────────────────────────────────

    def unasked(self) -> AbstractContextManager[None, bool | None]:
        """Return a block for what no call asked for: a loss of the store's slots that it meets waits."""
        return self._store.log.unasked()

    # ── owning ──────────────────────────────────────────────────────────────────────────────

    def own(self) -> bool:
        """Become the one that ships, and tell whether this is it; False where another handle ships.

        Raises:
            ProducerBusyError: a live mover of another host ships a copy of the spool.
            StorageError: the store refused or failed.
        """
        if self._consumer is not None and self._consumer.is_lost:
            self.close(is_answered=True)
        if self._consumer is None:
            try:
                self._consumer = Consumer(self._spool, self.group, owner_timeout_seconds=0.0)
            except GroupOwnedError:
                return False
        if self._claim is None:
            self._claim = port_of(self._store).claim_producer(self.producer_id)
        return True

    def close(self, *, is_answered: bool) -> None:
        """Let another handle ship.

        Args:
            is_answered: whether the store answers. If not, the claim is left to end by itself, 10 s after the next.
        """
        claim, self._claim = self._claim, None
        consumer, self._consumer, self._shipped = self._consumer, None, None
        try:
            if claim is not None:
                claim.release() if is_answered else claim.leave()
        finally:
            if consumer is not None:
                consumer.close()

    def leave(self) -> None:
        """In a forked child: leave it to the parent to ship."""
        if self._claim is not None:
            self._claim.leave()
        if self._consumer is not None:
            self._consumer.leave()
        self._claim = self._consumer = None

    # ── shipping ────────────────────────────────────────────────────────────────────────────

    def ship(self) -> None:
        """Ship the first of what waits, as one put; `own` said that this is the one that ships.

        It raises what a put to the store and a take from the spool raise. Nothing is lost then: the next call asks the
        store how far it got.

        Raises:
            DataLossError: the spool is an older copy of what it was when it was shipped.
        """
        consumer = self._consumer
        assert consumer is not None
        if self._shipped is None:
            self._shipped = self._ask(consumer)
        if (pace := self._store.committer.group_commit.pace) is not None:
            pace()  # first: what comes meanwhile goes with it
        first, last = self._unshipped()
        through = self._shipped
        if (begin := max(first, through + 1)) <= last:  # the last ones may be lost with a memory tier
            through = self._publish(consumer, begin, last)
        if through >= first and (taken := consumer.untaken(first, through)):
            consumer.commit(taken)

    def _ask(self, consumer: Consumer) -> int:
        """Return the last event of the spool that the store has; an append of unknown outcome is settled first.

        Raises:
            DataLossError: the spool does not have that event: it is an older copy of itself.
        """
        store = self._store
        with store.committing(), store.follower.as_known as state:
            shipped, note = state.producers.last(self.producer_id), state.producers.note(self.producer_id)
        _, last = self._unshipped()
        if shipped > last:
            raise self._older_copy(
                f"the spool has events up to {last}, and {store.path} has its events up to {shipped}"
            )
        if note and (untaken := consumer.untaken(shipped, shipped)):  # else it was shipped from here, or lost
            (found,) = consumer.read(untaken)
            if _put_of(found) != ShippedPut.parse(note):
                raise self._older_copy(
                    f"event {shipped} of the spool differs from the one with this ID in {store.path}"
                )
        return shipped

    def _older_copy(self, why: str) -> DataLossError:
        said = f"{why}: the spool is an older copy of itself. Ship nothing from it; begin with an empty directory"
        return DataLossError(said, str(self._spool.path))

    def _unshipped(self) -> tuple[int, int]:
        with self._spool.snapshot() as state:
            return state.groups[self.group].position + 1, state.last_id

    def _publish(self, consumer: Consumer, first: int, last: int) -> int:
        """Put the first of a range of events to the store, and return the last one that is there then."""
        shipped, self._shipped = self._shipped, None  # not known until it is there
        assert shipped is not None
        try:
            self._shipped = self._put(consumer, first, last, shipped)
        except ProducerSequenceError:
            self._shipped = self._ask(consumer)
            if self._shipped == shipped:
                raise  # it was not a late request of a mover before
        return self._shipped

    def _put(self, consumer: Consumer, first: int, last: int, shipped: int) -> int:
        store, schema, through = self._store, self._spool.schemas()[-1], first - 1
        if not set(schema.names) <= set(store.schemas()[-1].names):
            store.follow()  # another process added columns, and put with them to the spool
        schemas, note = store.schemas(), b""
        tx = PutTransaction(store, schemas[-1], len(schemas) - 1, store.is_typed())
        tx.is_bounded = False  # each of its transactions was, when it was put
        with tx:
            for piece in self._pieces(consumer, first, last):
                _put_now(tx, [read for read in piece if not read.dues_ms], schema)
                self._put_due(tx, [read for read in piece if read.dues_ms])
                through, note = piece[-1].last_id, _put_of(piece[-1]).packed()
            tx.follows = shipped
            tx.producer = NumberedBatch(self.producer_id, Numbers(shipped + 1, through, BY_PRODUCER), note)
        return max(shipped, through)

    def _put_due(self, tx: PutTransaction, piece: list[ReadBatch]) -> None:
        """Put delayed events in the order of their due times; those that are due by now come behind all others.

        They keep to the columns that they came with: one that the channel got since may hold them in no other order.
        """
        if not piece:
            return
        schema = self._spool.schemas()[max(read.schema_id for read in piece)]
        schemas = enumerate(self._store.schemas())
        with_all = ((s, number) for number, s in schemas if set(schema.names) <= set(s.names))
        tx.delays_as = next(with_all, tx.delays_as)
        dues_ms, ttls_us, by_us = array("q"), array("q"), now_us()
        for read in piece:
            dues_ms += array("q", read.dues_ms)
            ttls_us += array("q", [read.expires_us - read.time_us if read.expires_us else 0]) * len(read.dues_ms)
        order = sorted(range(len(dues_ms)), key=dues_ms.__getitem__)  # of those due at once, in the order of their puts
        due_ms = [dues_ms[i] if dues_ms[i] * 1000 > by_us else 0 for i in order]
        ttl_us = [ttls_us[i] and max(1, ttls_us[i] - max(0, by_us - dues_ms[i] * 1000)) for i in order]
        rows, at = _together(piece, schema).take(pa.array(order, pa.int64())).combine_chunks(), 0
        for batch in rows.to_batches():
            end = at + batch.num_rows
            tx.put_timed(batch, RowTimes(pa.array(ttl_us[at:end], pa.int64()), pa.array(due_ms[at:end], pa.int64())))
            at = end

    def _pieces(self, consumer: Consumer, first: int, last: int) -> Iterator[list[ReadBatch]]:
        """Yield the events of one put: whole transactions, as many as fit; one that is larger comes in several pieces.

        What fits is what the channel in the store has room for now. Where that is less than a transaction, one is put
        alone, and waits for room. It is divided only where the channel can't hold it.
        """
        with self._store.follower.as_known as state:
            capacity = state.options.overflow_capacity
            room = max(1, capacity - state.use(in_memory=False).events)
        read, through = self._read(consumer, first, min(last, first + min(_PUT_EVENTS, room) - 1))
        if through < last and read:
            tail = read[-1].transaction_id
            whole = list(takewhile(lambda r: r.transaction_id != tail, read))
            if not whole:
                yield read
                yield from self._rest(consumer, tail, through + 1, min(last, first + capacity - 1))
                return
            read = whole
        if read:
            yield read

    def _rest(self, consumer: Consumer, transaction: int, first: int, last: int) -> Iterator[list[ReadBatch]]:
        """Yield what is left of a large transaction."""
        while first <= last:
            read, through = self._read(consumer, first, last)
            same = list(takewhile(lambda r: r.transaction_id == transaction, read))
            if same:
                yield same
            if len(same) < len(read) or not read:
                return
            first = through + 1

    def _read(self, consumer: Consumer, first: int, last: int) -> tuple[list[ReadBatch], int]:
        """Return the first events of a range, as many as a piece may have, and the last ID that was looked at."""
        with self._spool.follower.as_known as state:
            through = _bounded(state, first, last)
        return consumer.read(consumer.untaken(first, through)), through


def _put_of(read: ReadBatch) -> ShippedPut:
    return ShippedPut(read.transaction_id, read.time_us, read.payload_crc)


def _put_now(tx: PutTransaction, piece: list[ReadBatch], schema: pa.Schema) -> None:
    for ttl, reads in groupby(piece, partial(_ttl_left, by_us=now_us())):
        tx.put_batch(_together(reads, schema), ttl=ttl)


def _together(reads: Iterable[ReadBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([fit_batch(read.batch, schema) for read in reads], schema).combine_chunks()


def _ttl_left(read: ReadBatch, by_us: int) -> timedelta | None:
    left_us = ttl_left_us(read.time_us, read.expires_us, by_us)
    return timedelta(microseconds=left_us) if left_us else None


def _bounded(state: ChannelState, first: int, last: int) -> int:
    return state.blocks.last_id_within(first, last, _PUT_BYTES)
