"""Lets tasks of an event loop wait for room in a producer's buffer without a thread, first come, first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from spillable_stream.counted import counted
from spillable_stream.errors import ProducerClosedError, ProducerTimeoutError
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.producer import Producer
from spillable_stream.producer.room import Poller

__all__ = ["AsyncRoom"]

_HEALED_SECONDS = 1.0  # a waiting task checks for room this often, even if nobody wakes it


class AsyncRoom:
    """The queue of an event loop's sends that wait for room.

    Each send runs in its own task, with no `await` after it, so a send that is cancelled while it waits is not sent.

    Args:
        producer: the producer to send with.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._queue: OrderedDict[_Turn, None] = OrderedDict()
        self._poller = Poller(self._changed, self._is_gone)  # stands for the first turn, in the threads' queue for room
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awakening = False
        self._closed = False

    async def send(self, send: Callable[..., SendFuture], max_block_ms: int | None) -> SendFuture:
        """Send once there is room and all earlier sends of this event loop have had theirs.

        Args:
            send: a bound send of the producer that takes ``max_block_ms``.
            max_block_ms: how long to wait, in milliseconds; -1 for no limit, None for the producer's
                ``max_block_ms``.

        Raises:
            ProducerTimeoutError: there was no room within ``max_block_ms``.
            ProducerClosedError: the producer is closed, or was closed while this waited.
        """
        if max_block_ms is None:
            max_block_ms = self._producer.max_block_ms
        if self._closed or max_block_ms == 0 or not self._queue:
            self._refuse_closed()
            try:
                return send(max_block_ms=0)
            except ProducerTimeoutError:
                if max_block_ms == 0:
                    raise
        return await self._send_in_turn(send, max_block_ms)

    async def _send_in_turn(self, send: Callable[..., SendFuture], max_block_ms: int) -> SendFuture:
        loop, turn = asyncio.get_running_loop(), _Turn()
        deadline = loop.time() + max_block_ms / 1000 if max_block_ms > 0 else None
        if not self._queue:
            self._loop, self._awakening = loop, False
        self._queue[turn] = None
        try:
            while True:
                turn.clear()
                late = deadline is not None and loop.time() >= deadline
                if next(iter(self._queue)) is turn:
                    self._refuse_closed()
                    try:
                        with self._producer.waiting_in(self._poller):
                            return send(max_block_ms=0)
                    except ProducerTimeoutError as e:
                        if late:
                            raise ProducerTimeoutError(f"no room within {max_block_ms:,} ms: {e}") from None
                elif late:
                    raise ProducerTimeoutError(
                        f"no room within {max_block_ms:,} ms: {counted(len(self._queue) - 1, 'other send', 'are')} "
                        "waiting for it in this event loop; send less, or raise total_size_in_bytes or max_block_ms"
                    )
                look_at = loop.time() + _HEALED_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(look_at if deadline is None else min(look_at, deadline)):
                        await turn.wait()
        finally:
            was_first = next(iter(self._queue)) is turn
            del self._queue[turn]
            if was_first:
                self._producer.leave(self._poller)
                self._wake_first()

    def close(self) -> None:
        """Refuse all sends, including those that wait."""
        self._closed = True
        self._wake_first()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed; create a new one")

    def _changed(self) -> bool:
        """Have the loop wake the first turn, once for many changes; False if the loop is gone. Thread-safe."""
        if not self._awakening and self._loop is not None:
            self._awakening = True
            try:
                self._loop.call_soon_threadsafe(self._awake)
            except RuntimeError:  # the loop is closed, and nobody waits in it
                self._awakening = False
        return not self._is_gone()

    def _is_gone(self) -> bool:
        return self._loop is None or self._loop.is_closed()

    def _awake(self) -> None:
        self._awakening = False  # before any task checks for room: a later change must wake the loop again
        self._wake_first()

    def _wake_first(self) -> None:
        for turn in self._queue:
            turn.set()
            return


class _Turn(asyncio.Event):
    """A waiting send; set when it should check for room."""
