"""Waiting for room in a producer's buffer without a thread: tasks of an event loop, first come, first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from spillable_stream.errors import ProducerClosedError, ProducerTimeoutError
from spillable_stream.producer.future import SendFuture
from spillable_stream.producer.producer import Producer
from spillable_stream.producer.room import Place

__all__ = ["AsyncRoom"]

_HEALED_SECONDS = 1.0  # after which who waits looks by itself


class AsyncRoom:
    """The sends of an event loop that wait for room.

    A send is tried in its own task, with no `await` after it: one that is cancelled while it waits is not sent.

    Args:
        producer: what sends.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._queue: OrderedDict[_Turn, None] = OrderedDict()
        self._place = Place(self._changed, self._is_gone)  # of who is first here, among the threads that wait
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awakening = False
        self._closed = False

    async def send(self, send: Callable[..., SendFuture], max_block_ms: int | None) -> SendFuture:
        """Send, when there is room and all have sent who waited before.

        Args:
            send: a send of the producer, which takes ``max_block_ms``.
            max_block_ms: how long to wait, in milliseconds: -1 for ever; None for as long as the producer does.

        Raises:
            ProducerTimeoutError: there was no room by then.
            ProducerClosedError: the producer is closed, also while this waits.
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
                        with self._producer.waiting_in(self._place):
                            return send(max_block_ms=0)
                    except ProducerTimeoutError as e:
                        if late:
                            raise ProducerTimeoutError(f"{max_block_ms:,} ms made no room: {e}") from None
                elif late:
                    raise ProducerTimeoutError(
                        f"no room within {max_block_ms:,} ms: {len(self._queue) - 1:,} other sends wait for it in this "
                        "event loop; send less, or raise total_size_in_bytes or max_block_ms"
                    )
                look_at = loop.time() + _HEALED_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(look_at if deadline is None else min(look_at, deadline)):
                        await turn.wait()
        finally:
            was_first = next(iter(self._queue)) is turn
            del self._queue[turn]
            if was_first:
                self._producer.leave(self._place)
                self._wake_first()

    def close(self) -> None:
        """Refuse all sends, also those that wait."""
        self._closed = True
        self._wake_first()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed; make a new one")

    def _changed(self) -> bool:
        """Let the loop wake who is first, once for many changes, and tell whether it is there; in any thread."""
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
        self._awakening = False  # before anybody looks: what changes from now on wakes again
        self._wake_first()

    def _wake_first(self) -> None:
        for turn in self._queue:
            turn.set()
            return


class _Turn(asyncio.Event):
    """One who waits."""
