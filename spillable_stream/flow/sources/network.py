"""What all network sources share: one event loop in a thread, and a few threads that put batches.

A commit never blocks the loop. A connection that has a batch in the channels is not read meanwhile, so a sender that
is too fast waits, and nothing is dropped.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from spillable_stream.call_threads import CallThreads
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sources.base import BatchProcessor, EventSource, SourceBase
from spillable_stream.flow.sources.held import put_held, put_unstored
from spillable_stream.flow.sources.network_loop import LOOP
from spillable_stream.shown_value import shown

__all__ = ["NetworkSource", "bound_socket"]

_T = TypeVar("_T")
_PUTTING_THREADS = 16
_PUT_THREAD = "flow-put"


def _nothing() -> None:
    """Only a call."""


def bound_socket(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Return a socket bound to an address.

    Raises:
        OptionError: the host has no address here.
        StorageError: the port is in use, or this user may not have it.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host or None, port, type=kind, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as e:
        raise OptionError(f"there is no address {shown(host)} to listen on ({e}); correct bind") from e
    found = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        if kind == socket.SOCK_STREAM:
            found.listen(128)
        found.setblocking(False)
    except OSError as e:
        found.close()
        raise StorageError(
            f"can't listen on {host}:{port} ({e.strerror}); choose another port, or end what has it"
        ) from e
    return found


class NetworkSource(EventSource):
    """A source that listens."""

    def __init__(self) -> None:
        super().__init__()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: CallThreads | None = None  # of its own: where its channel is full, the others still put
        self._processor: BatchProcessor | None = None
        self._put_unstored: asyncio.Task[bool] | None = None

    def succeed(self, before: SourceBase, *, is_at_end: bool) -> bool:
        """Take over what the source before could not store; see `SourceBase.succeed`."""
        self.take_unstored(before)
        return True

    def start(self, processor: BatchProcessor) -> None:
        """Listen; returns when clients can connect. What one has left that has ended by itself is stopped first.

        Raises:
            OptionError: as `bound_socket`.
            StorageError: likewise, or no thread can start.
        """
        self.stop()
        self._stopping.clear()
        self._processor = processor
        with ExitStack() as failing:
            sockets = self.bind()
            for s in sockets:
                failing.callback(s.close)
            failing.callback(self._release)
            self._threads = CallThreads(_PUTTING_THREADS, _PUT_THREAD)
            self._threads.begin(_nothing)  # with one thread, each later put finds one
            self._loop = LOOP.acquire()
            self._call(self._begin(sockets))
            failing.pop_all()

    async def _begin(self, sockets: list[socket.socket]) -> None:
        """Listen, and put what the source before could not store; nothing is read meanwhile, see `may_read`."""
        assert self._processor is not None
        processor = self._processor
        put = partial(put_unstored, self, processor, self._stopping)
        self._put_unstored = asyncio.create_task(self.in_thread(put))
        try:
            await self.listen(sockets)
        except BaseException:
            self._stopping.set()
            await self._put_unstored
            raise

    def stop(self) -> None:
        """Stop listening, answer what was read, and close the connections."""
        if self._loop is None:
            return
        self._stopping.set()
        try:
            self._call(self._end())
        finally:
            self._release()

    async def _end(self) -> None:
        await self.unlisten()
        if self._put_unstored is not None:
            await self._put_unstored

    def _release(self) -> None:
        if self._loop is not None:
            self._loop = None
            LOOP.release()
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    @property
    def alive(self) -> bool:
        """Whether it listens."""
        return self._loop is not None

    def bind(self) -> list[socket.socket]:
        """Return bound sockets, and do all else that may hang, such as a name service: the loop serves other sources.

        Raises:
            OptionError, StorageError: as `bound_socket`.
        """
        raise NotImplementedError

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Begin to listen, in the loop.

        Args:
            sockets: what `bind` returned.
        """
        raise NotImplementedError

    async def unlisten(self) -> None:
        """Stop, in the loop, when what was read is stored or refused."""
        raise NotImplementedError

    async def put(self, batch: pa.RecordBatch, store: Callable[[pa.RecordBatch], object] | None = None) -> None:
        """Put a batch in one of the threads.

        Args:
            batch: the events.
            store: how; through the processor by default.

        Raises:
            SpillableError: a channel refused.
        """
        assert self._processor is not None
        store = store or self._processor.process
        self.counters.received(batch.num_rows)
        with self.counters.storing(batch.num_rows):
            await self.in_thread(lambda: store(batch))

    async def may_read(self) -> bool:
        """Wait until what the source before could not store is stored; tell whether it is: else the source is stopped.

        Before that nothing is read: each start anew would add to what is held, as long as the channel fails.
        """
        assert self._put_unstored is not None
        return await asyncio.shield(self._put_unstored)

    async def put_held(self, batch: pa.RecordBatch, *, is_behind: bool = False) -> bool:
        """Put a batch, again and again until it is stored or the source is stopped; nothing is read meanwhile.

        Args:
            batch: the events.
            is_behind: whether it was read behind one that is not stored, as is the source stopped: then it is kept.

        Returns:
            Whether it is stored.
        """
        assert self._processor is not None
        processor = self._processor
        return await self.in_thread(lambda: put_held(self, processor, batch, self._stopping, is_behind=is_behind))

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Call something that blocks in one of the threads."""
        assert self._threads is not None
        return await asyncio.wrap_future(self._threads.begin(call))
