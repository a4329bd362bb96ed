"""Batches that a client numbers, so that one that it sends again is stored once."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from spillable_stream.errors import DeliveryError, ProducerSequenceError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.routed_batch import RoutedBatch
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.names import check_producer

__all__ = ["ClientNumbers"]


_MOST_CLIENTS = 10_000


class ClientNumbers:
    """Stores batches under their clients' numbers: each channel remembers the last ones of each client. Thread-safe.

    A batch uses up the numbers before its own that the channel does not have: they went elsewhere, or nowhere. One of
    these that comes late is refused, since it can't be stored any more, and must not be acknowledged.
    """

    def __init__(self, processor: ChannelProcessor) -> None:
        self._processor = processor
        self._mutex = threading.Lock()
        self._clients: OrderedDict[str, threading.Lock] = OrderedDict()

    def store(self, batch: pa.RecordBatch, client: str, number: int) -> None:
        """Put a batch into the channels that do not have this number of the client, or a later one.

        Optional channels come last, and only once all required ones have it. One that has no room at once, or fails,
        does without; a repetition of the number tries it again.

        Args:
            batch: the events: the same ones whenever the number is the same.
            client: the client's name, which is a producer of the channels.
            number: the batch's number; a client's numbers grow.

        Raises:
            DeliveryError: some required channels did not get their part.
            ProducerSequenceError: a required channel has a later batch of the client, and not this one.
            OptionError: no producer can have the client's name.
        """
        with self._lock_of(check_producer(client)):
            routed = self._processor.route(batch)
            failures: dict[str, Exception] = {}
            stored = []
            lasts = {name: self._last(name, client, number) for name in routed.required}
            for name, part in routed.required.items():
                try:
                    self._put(routed, name, part, client, number, lasts[name])
                    stored.append(name)
                except Exception as e:
                    failures[name] = e
            if failures:
                first = next(iter(failures.values()))
                where = ", ".join(failures)
                raise DeliveryError(
                    f"batch {number} of {client} is not in {where}: {first}. Send it again", failures, tuple(stored)
                ) from first
            self._processor.optional_puts.put(
                routed.optional, lambda name: self._put_optional(routed, name, client, number)
            )

    def _put_optional(self, routed: RoutedBatch, name: str, client: str, number: int) -> Exception | None:
        try:
            last = self._processor.channels[name].last_batch(client).sequence
            self._put(routed, name, routed.optional[name], client, number, last, is_optional=True)
        except Exception as e:
            return e
        return None

    def _last(self, name: str, client: str, number: int) -> int:
        """Return the last number that a channel has of a client.

        Raises:
            ProducerSequenceError: it is a later one, and the channel does not have this one.
        """
        with self._processor.channels[name].put_port().snapshot() as state:
            last, was_skipped = state.producers.last(client), state.producers.was_skipped(client, number)
        if was_skipped:
            raise ProducerSequenceError(
                f"batch {number} of {client} comes after batch {last} and is not in {name}: nothing was stored. A "
                "client's numbers must grow; send these events under the next one"
            )
        return last

    def _put(
        self,
        routed: RoutedBatch,
        name: str,
        part: pa.RecordBatch,
        client: str,
        number: int,
        last: int,
        *,
        is_optional: bool = False,
    ) -> None:
        if last < number:
            numbered = NumberedBatch(client, Numbers(last + 1, number, BY_PRODUCER))
            self._processor.puts.put(routed, name, part, numbered, may_wait=not is_optional)

    def _lock_of(self, client: str) -> threading.Lock:
        with self._mutex:
            lock = self._clients.setdefault(client, threading.Lock())
            self._clients.move_to_end(client)
            while len(self._clients) > _MOST_CLIENTS:
                oldest = next(iter(self._clients))
                if self._clients[oldest].locked():
                    break
                del self._clients[oldest]
            return lock
