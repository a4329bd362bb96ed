"""What sources of lines over TCP share: connections, each of which is read, answered and ended."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress

from spillable_stream.counted import counted
from spillable_stream.flow.sources.network import NetworkSource, bound_socket
from spillable_stream.flow.sources.server_tls import ServerTls
from spillable_stream.log_records import log_of

__all__ = ["StreamSource"]

_log = log_of("spillable_stream.flow")

_READ_BYTES = 1 << 16
_LAST_READ_SECONDS = 1.0  # for which a source that is being stopped reads what has come
_SILENCE_SECONDS = 0.05
_MOST_SILENCES = 2  # in a row; a connection that ended with a line has nothing more then. A busy loop may miss one


class StreamSource(NetworkSource):
    """A source with connections, each a stream of lines."""

    def __init__(self, addresses: list[tuple[str, int]], tls: ServerTls | None = None) -> None:
        super().__init__()
        self._addresses = addresses
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._servers: list[asyncio.Server] = []
        self._opening: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._read_until = float("inf")  # in the loop's seconds
        self.ports: list[int] = []

    @property
    def port(self) -> int:
        """The port that it listens on, when it is started."""
        return self.ports[0]

    def bind(self) -> list[socket.socket]:
        """Bind all addresses, or none; see `NetworkSource.bind`."""
        self._context = None if self._tls is None else self._tls.context()
        sockets: list[socket.socket] = []
        try:
            for host, port in self._addresses:
                sockets.append(bound_socket(host, port))
        except BaseException:
            for s in sockets:
                s.close()
            raise
        self.ports = [s.getsockname()[1] for s in sockets]
        return sockets

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Begin to listen; see `NetworkSource.listen`."""
        self._read_until = float("inf")
        self._servers = [
            await asyncio.start_server(self._accept, sock=s, ssl=self._context, start_serving=False) for s in sockets
        ]
        self._opening = asyncio.create_task(self._serve_later())

    async def _serve_later(self) -> None:
        """Accept connections when they may be read: until then only the kernel has them, and not many."""
        if await self.may_read():
            for server in self._servers:
                if not self._stopping.is_set():  # nor closed
                    await server.start_serving()

    async def unlisten(self) -> None:
        """Stop listening, and close each connection when it is idle or what it has sent is stored."""
        self._read_until = asyncio.get_running_loop().time() + _LAST_READ_SECONDS
        for server in self._servers:
            server.close()
        for task in list(self._idle):
            task.cancel()
        last = asyncio.get_running_loop().call_at(self._read_until, self._give_up_answers)
        if self._clients:
            await asyncio.wait(self._clients)
        last.cancel()
        self._servers = []

    def _give_up_answers(self) -> None:
        for task in list(self._answering):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        self.counters.open_connection_count += 1
        try:
            await self.serve(reader, writer)
        except (ConnectionError, ssl.SSLError, TimeoutError) as e:
            _log.of(self.name).debug("a connection broke: %s", e)
        except Exception:
            self.counters.generic_processing_fail += 1
            _log.of(self.name).exception("a connection is closed")
        finally:
            self.counters.open_connection_count -= 1
            writer.close()
            self._clients.discard(task)

    async def read(
        self, reader: asyncio.StreamReader, *, is_within_line: bool = False, until: float = float("inf")
    ) -> bytes:
        """Return what came; nothing at the end, and no more than had come when the source is being stopped.

        Args:
            reader: the connection.
            is_within_line: whether the end of a line is yet to come: a stop waits for it, as long as it reads at all.
            until: until when a source that is being stopped reads at most; see `last_moment`.
        """
        if self._stopping.is_set():
            return await self._read_last(reader, is_within_line, until)
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            return await reader.read(_READ_BYTES)
        except asyncio.CancelledError:
            task.uncancel()
        finally:
            self._idle.discard(task)
        # The stop may come together with bytes, or before those that were sent.
        return await self._read_last(reader, is_within_line, until)

    async def _read_last(self, reader: asyncio.StreamReader, is_within_line: bool, until: float) -> bytes:
        """Return what had come before the source was stopped, as far as it can be told from what comes after."""
        now, silences = asyncio.get_running_loop().time, 0
        while (left := min(self._read_until, until) - now()) > 0 and (is_within_line or silences < _MOST_SILENCES):
            with suppress(TimeoutError):
                return await asyncio.wait_for(reader.read(_READ_BYTES), min(left, _SILENCE_SECONDS))
            silences += 1
        return b""

    def tell_cut(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int, what: str) -> None:
        """Count and name the beginning of a line whose end did not come before the connection ended.

        Args:
            reader: the connection.
            writer: likewise.
            size: how many bytes of the line have come.
            what: what becomes of them, as "they are dropped".
        """
        self.counters.event_read_fail += 1
        _log.of(self.name).warning(
            "%s before the line feed of the last line of %s came: %s there, and %s",
            "the connection ended" if reader.at_eof() else "the source was stopped",
            writer.get_extra_info("peername")[0],
            counted(size, "byte", "are"),
            what,
        )

    def last_moment(self) -> float:
        """Return until when a connection is read behind a batch that is not stored, in the loop's seconds.

        What comes later is not read: to its sender the connection breaks.
        """
        return asyncio.get_running_loop().time() + _SILENCE_SECONDS

    async def answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        """Send an answer. A client that does not read it is waited for, but not for long once the source is stopped.

        Raises:
            ConnectionError: the client has gone, or the source is stopped and it does not read.
        """
        task = asyncio.current_task()
        assert task is not None
        writer.write(answer)
        self._answering.add(task)
        try:
            left = self._read_until - asyncio.get_running_loop().time()
            await asyncio.wait_for(writer.drain(), None if left == float("inf") else max(left, _SILENCE_SECONDS))
        except (asyncio.CancelledError, TimeoutError) as e:
            if isinstance(e, asyncio.CancelledError):
                task.uncancel()
            writer.transport.abort()
            raise ConnectionAbortedError("the client does not read its answers, and the source is stopped") from e
        finally:
            self._answering.discard(task)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        raise NotImplementedError
