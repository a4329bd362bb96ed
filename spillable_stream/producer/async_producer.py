"""The producer for asyncio, with the same words."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from spillable_stream.arguments import function, whole_milliseconds
from spillable_stream.channel.event import Event, event_list
from spillable_stream.errors import OptionError
from spillable_stream.format.arrow_input import ArrowRows, arrow_rows
from spillable_stream.option_types import ProducerKeywords
from spillable_stream.own_thread import in_own_thread
from spillable_stream.producer.async_room import AsyncRoom
from spillable_stream.producer.batch import Callback, ProducerBatch
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.producer import Producer
from spillable_stream.producer.result import Result
from spillable_stream.producer.send_times import as_due_time
from spillable_stream.producer.stats import ProducerStats
from spillable_stream.producer.target import Receiver, Receivers
from spillable_stream.quantities import Duration, Milliseconds
from spillable_stream.shown_value import shown

__all__ = ["AsyncProducer"]

_THREAD = "spillable-producer-async"


class AsyncProducer:
    """A `Producer` whose sends never block the event loop. All calls are of one loop.

    Each send is awaited twice: first until the event is accepted, which is at once unless the buffer is
    full, and then, if at all, until it is stored::

        future = await producer.send(b"body")
        result = await future

    Sends wait for room in the order in which they came, without a thread. One that is cancelled while it waits is not
    sent, nor will be. Once it is accepted it is sent, also if its future is cancelled. Callbacks are called in the
    event loop.

    Args:
        target: as for `Producer`, or a `Producer`, which stays open at the end; then it is the only argument.
        producer_id: as for `Producer`.
        dead_letter: as for `Producer`.
        clock: the time, for tests.
        rng: the jitter of retries, for tests.
        options: as for `Producer`.

    Raises:
        OptionError: a `Producer` is given, and with it an argument or an option that only a new one can have.

    It raises what `Producer` raises, too; opening channels does block.
    """

    def __init__(
        self,
        target: Receiver | Receivers | Producer,
        *,
        producer_id: str | None = None,
        dead_letter: Receiver | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        self._owned = not isinstance(target, Producer)
        if isinstance(target, Producer):
            own = {"producer_id": producer_id, "dead_letter": dead_letter, "clock": clock, "rng": rng}
            given = [*(name for name, value in own.items() if value is not None), *options]
            if given:
                raise OptionError(
                    f"{given[0]} is for a new producer, and {shown(target)} was given: give it to Producer(…)"
                )
            self._producer = target
        else:
            self._producer = Producer(
                target, producer_id=producer_id, dead_letter=dead_letter, clock=clock, rng=rng, **options
            )
        self._waiting: dict[tuple[ProducerBatch, asyncio.AbstractEventLoop], _Waiting] = {}
        self._room = AsyncRoom(self._producer)

    def __repr__(self) -> str:
        return f"Async{self._producer!r}"

    @property
    def producer_id(self) -> str:
        """The producer's ID."""
        return self._producer.producer_id

    async def send(
        self,
        event: Event | bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        callback: Callback | None = None,
        max_block_ms: Milliseconds | None = None,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> asyncio.Future[Result]:
        """Send one event; see `Producer.send`."""
        send = partial(self._producer.send, event, headers, key=key, ttl=ttl)
        return await self._send(send, callback, max_block_ms, deliver_after, deliver_at)

    async def send_many(
        self,
        events: Iterable[Event | bytes | Mapping[str, Any]],
        *,
        key: str | None = None,
        callback: Callback | None = None,
        sequence: int | None = None,
        max_block_ms: Milliseconds | None = None,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> asyncio.Future[Result]:
        """Send events that are committed together; see `Producer.send_many`."""
        found = event_list(events, "send_many")
        send = partial(self._producer.send_many, found, key=key, sequence=sequence, ttl=ttl)
        return await self._send(send, callback, max_block_ms, deliver_after, deliver_at)

    async def send_batch(
        self,
        batch: ArrowRows,
        *,
        key: str | None = None,
        callback: Callback | None = None,
        sequence: int | None = None,
        max_block_ms: Milliseconds | None = None,
        ttl: Duration | None = None,
        deliver_after: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> asyncio.Future[Result]:
        """Send an Arrow batch; see `Producer.send_batch`."""
        rows = arrow_rows(batch, "send_batch")  # once: a stream can be read only once, however often this tries
        send = partial(self._producer.send_batch, rows, key=key, sequence=sequence, ttl=ttl)
        return await self._send(send, callback, max_block_ms, deliver_after, deliver_at)

    async def _send(
        self,
        send: Callable[..., SendFuture],
        callback: Callback | None,
        max_block_ms: Milliseconds | None,
        deliver_after: Duration | None,
        deliver_at: datetime | None,
    ) -> asyncio.Future[Result]:
        after, at = as_due_time(deliver_after, deliver_at)  # first: a wait for room delays nothing
        wait_ms = None if max_block_ms is None else whole_milliseconds("max_block_ms", max_block_ms, -1)
        loop = asyncio.get_running_loop()
        told = None if callback is None else _called_in(loop, callback)
        sent = await self._room.send(partial(send, callback=told, deliver_after=after, deliver_at=at), wait_ms)
        return self._awaitable(sent, loop)

    def _awaitable(self, sent: SendFuture, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = loop.create_future()
        self._watch(future, sent, loop)
        return future

    def _watch(self, future: asyncio.Future[Result], sent: SendFuture, loop: asyncio.AbstractEventLoop) -> None:
        part, index = sent.batch.part(sent.index)
        waiting = self._waiting.get((part, loop))
        if waiting is None:
            waiting = _Waiting(loop, partial(self._waiting.pop, (part, loop), None), self._watch)
            if part.watch(index, waiting):
                self._waiting[part, loop] = waiting
            else:
                loop.call_soon(waiting.complete)
        waiting.futures.append((future, sent))

    def last_sequence(self, key: str | None = None) -> int:
        """Return the highest number of this producer's batches in a channel; see `Producer.last_sequence`."""
        return self._producer.last_sequence(key)

    def stats(self) -> ProducerStats:
        """Return what is queued, and what became of the rest."""
        return self._producer.stats()

    async def flush(self, timeout_seconds: Duration | None = None) -> None:
        """Commit what was sent so far, and wait for it; see `Producer.flush`. What waits for room is not sent yet.

        Raises:
            StorageError: the process can have no thread in which to wait. Try again.
        """
        await in_own_thread(partial(self._producer.flush, timeout_seconds), _THREAD)

    async def close(self, timeout_seconds: Duration | None = None) -> None:
        """Commit what was sent, tell everybody, and end; see `Producer.close`. A producer that was given stays open.

        Sends that wait for room raise `ProducerClosedError`, at once. The close continues even if this is cancelled.

        Raises:
            StorageError: the process can have no thread in which to wait. Close it again; what was sent is stored
                meanwhile, and the end of the process closes it.
        """
        self._room.close()
        end = self._producer.close if self._owned else self._producer.flush
        await in_own_thread(partial(end, timeout_seconds), _THREAD)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _called_in(loop: asyncio.AbstractEventLoop, callback: Callback) -> Callback:
    function("callback", callback)

    def tell(result: Result) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(callback, result)

    return tell


class _Waiting:
    """The futures of one batch, which are completed together: one wake-up of the loop for all.

    Args:
        loop: the event loop.
        forget: called when they are complete, in the loop.
        again: called there with those that are of a part of the batch that has no result yet.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        forget: Callable[[], object],
        again: Callable[[asyncio.Future[Result], SendFuture, asyncio.AbstractEventLoop], None],
    ) -> None:
        self.futures: list[tuple[asyncio.Future[Result], SendFuture]] = []
        self._loop = loop
        self._forget = forget
        self._again = again

    def finish(self, *, forked: bool = False) -> None:
        """Complete them in the loop, unless that is closed or another process's."""
        if not forked:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.complete)

    def complete(self) -> None:
        """Complete them; in the loop."""
        self._forget()
        for future, sent in self.futures:
            if future.done():  # cancelled
                continue
            if not sent.done():
                self._again(future, sent, self._loop)
                continue
            part, index = sent.batch.part(sent.index)
            if (error := part.error_of(index, sent.count)) is not None:
                future.set_exception(error)
            else:
                future.set_result(part.result_of(index, sent.count))
