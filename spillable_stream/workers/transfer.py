"""Moves events of a group into another channel, each once, whoever dies in between.

::

    prepare the take ── transaction T, durable in the events' channel
    put them         ── as the batch T of a producer, which the other channel remembers
    commit the take T

Each T is greater than the last one, so a batch also uses up the numbers since that, and the other channel remembers a
single range. A take that was prepared, and not committed, belongs to a former mover: if the other channel has a batch
of its number, the events are there and the take is committed; otherwise it is rolled back. Before that an empty batch
uses up its number: the former mover may be alive, and its put still be under way.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterable

import pyarrow as pa

from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import REFUSALS, ProducerSequenceError
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.state.ranges import Range
from spillable_stream.workers.handle import ChannelHandle

__all__ = ["Transfer", "transfer_name"]

_NAME_LETTERS = 40


def transfer_name(kind: str, channel: str, group: str) -> str:
    """Return the producer as which a group's events come to another channel, short enough to be a name.

    Args:
        kind: why they come.
        channel: the UUID of the channel that they come from.
        group: the group.
    """
    digest = hashlib.blake2b(f"{channel} {group}".encode(), digest_size=8).hexdigest()
    return f"{kind}-{group[:_NAME_LETTERS]}.{digest}"


class Transfer:
    """Moves events of one group to one channel. Thread-safe; one live `Transfer` for each group, as its owner.

    Args:
        consumer: the group's owner, made with ``resume``, and with nothing claimed yet.
        to: where the events go.
        name: the producer that ``to`` remembers.

    What another owner has left prepared is settled at once.
    """

    def __init__(self, consumer: Consumer, to: ChannelHandle, name: str) -> None:
        self._consumer = consumer
        self._to = to
        self._name = name
        self._mutex = threading.Lock()
        prepared = consumer.prepared()
        stored = self._settled(prepared)
        for tx, ranges in prepared.items():
            if tx in stored:
                consumer.commit(ranges, tx)
            else:
                consumer.release((), tx)

    def _settled(self, prepared: Iterable[int]) -> set[int]:
        """Return which prepared takes are batches of the other channel; the others can't become one any more."""
        port = self._to.put_port()
        while True:
            with port.snapshot() as state:
                self._last = state.producers.last(self._name)
                answers = {tx: state.producers.answer(self._name, Numbers(tx, tx, BY_PRODUCER)) for tx in prepared}
            # The number of a batch without events was used up; so was one inside of a batch's.
            stored = {tx for tx, known in answers.items() if known is not None and known.first_id <= known.last_id}
            last = max(prepared, default=0)
            if last <= self._last:
                return stored
            used_up = NumberedBatch(self._name, Numbers(self._last + 1, last, BY_PRODUCER))
            with contextlib.suppress(ProducerSequenceError):  # a put came first: look again
                port.publish(Put([], producer=used_up, follows=self._last), 0.0)
                self._last = last
                return stored

    def store(self, ranges: list[Range], batch: pa.RecordBatch | pa.Table) -> int:
        """Put what is made of claimed events into the other channel.

        Returns:
            The transaction with which to commit the take of the events (`Consumer.commit`).

        Raises what a put transaction and `Consumer.prepare` raise. Of `REFUSALS` nothing is left behind: the call may
        be repeated. After anything else the group's next owner settles it.
        """
        with self._mutex:
            tx = self._consumer.prepare(ranges, after=self._last)
            put = self._to.put_transaction()
            put.is_bounded = False
            put.producer = NumberedBatch(self._name, Numbers(self._last + 1, tx, BY_PRODUCER))
            put.follows = self._last
            try:
                with put:
                    put.put_batch(batch)
            except REFUSALS:
                self._consumer.release((), tx)
                raise
            self._last = tx
            return tx
