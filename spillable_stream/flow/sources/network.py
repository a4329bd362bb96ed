"""What all network sources share: one event loop in a thread, and a few threads that put batches.

A commit never blocks the loop. A connection that has a batch in the channels is not read meanwhile, so a sender that
is too fast waits, and nothing is dropped.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from spillable_stream.call_threads import CallThreads
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sources.base import BatchProcessor, EventSource, lose_behind, put_held
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import no_thread_error
from spillable_stream.shown_value import shown

__all__ = ["NetworkSource", "ServerTls", "StreamSource", "bound_socket"]

_log = log_of("spillable_stream.flow")

_T = TypeVar("_T")
_PUTTING_THREADS = 16
_LOOP_THREAD = "flow-network"
_READ_BYTES = 1 << 16
_LAST_READ_SECONDS = 1.0  # for which a source that is being stopped reads what has come
_SILENCE_SECONDS = 0.05
_MOST_SILENCES = 2  # in a row; a connection that ended with a line has nothing more then. A busy loop may miss one


class _Loop:
    """The loop of a process, from the first source that needs it to the last."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.threads: CallThreads | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs; raises StorageError where no thread can start."""
        with self._mutex:
            if self._loop is None:
                try:
                    self._begin()
                except RuntimeError as e:
                    raise no_thread_error(_LOOP_THREAD, e) from e
            assert self._loop is not None
            self._users += 1
            return self._loop

    def _begin(self) -> None:
        loop, threads = asyncio.new_event_loop(), CallThreads(_PUTTING_THREADS, "flow-put")
        thread = threading.Thread(target=loop.run_forever, name=_LOOP_THREAD, daemon=True)
        try:
            threads.begin(_nothing)  # first: with one thread, each later put finds one
            thread.start()
        except BaseException:
            threads.close()
            loop.close()
            raise
        self._loop, self._thread, self.threads = loop, thread, threads

    def release(self) -> None:
        with self._mutex:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None or self.threads is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self.threads.close()
            self._loop = self._thread = self.threads = None


def _nothing() -> None:
    """Only a call."""


_LOOP = _Loop()


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


class ServerTls:
    """What a server needs for TLS.

    Args:
        keystore: a PEM file with the certificate and its key.
        password: the key's password.
        kind: the keystore's type: ``PEM``.

    Raises:
        OptionError: there is no keystore, or it is one of Java's.
    """

    def __init__(self, keystore: str | None, password: str | None, kind: str | None) -> None:
        if not keystore:
            raise OptionError("ssl needs a keystore: a PEM file with the certificate and its key")
        name = keystore.lower()
        if (kind or "PEM").upper() == "JKS" or name.endswith(".jks"):
            raise OptionError(
                f"{keystore} is a keystore of Java's; convert it: keytool -importkeystore -srckeystore {keystore} "
                "-destkeystore k.p12 -deststoretype pkcs12, then openssl pkcs12 -in k.p12 -nodes -out k.pem"
            )
        if (kind or "PEM").upper() != "PEM" or name.endswith((".p12", ".pfx")):
            raise OptionError(
                f"{keystore} is not a PEM file; convert it: openssl pkcs12 -in {keystore} -nodes -out k.pem"
            )
        self.keystore: str = keystore
        self.password: str = password or ""

    def context(self) -> ssl.SSLContext:
        """Read the keystore.

        Raises:
            OptionError: the file can't be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.keystore, password=self.password)
        except (OSError, ssl.SSLError) as e:
            raise OptionError(
                f"the keystore {self.keystore} can't be used ({e}); it must be a PEM file with certificate and key"
            ) from e
        return context


def server_tls(use: bool, keystore: str | None, password: str | None, kind: str | None) -> ServerTls | None:
    """Return what a server needs that uses TLS, else None; raises what `ServerTls` raises."""
    return ServerTls(keystore, password, kind) if use else None


class NetworkSource(EventSource):
    """A source that listens."""

    def __init__(self) -> None:
        super().__init__()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._processor: BatchProcessor | None = None

    def start(self, processor: BatchProcessor) -> None:
        """Listen; returns when clients can connect.

        Raises:
            OptionError: as `bound_socket`.
            StorageError: likewise, or no thread can start.
        """
        self._stopping.clear()
        self._processor = processor
        sockets = self.bind()
        try:
            self._loop = _LOOP.acquire()
            try:
                self._call(self.listen(sockets))
            except BaseException:
                self._loop = None
                _LOOP.release()
                raise
        except BaseException:
            for s in sockets:
                s.close()
            raise

    def stop(self) -> None:
        """Stop listening, answer what was read, and close the connections."""
        if self._loop is None:
            return
        self._stopping.set()
        try:
            self._call(self.unlisten())
        finally:
            self._loop = None
            _LOOP.release()

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

    async def put_held(self, batch: pa.RecordBatch) -> bool:
        """Put a batch, again and again until it is stored or the source is stopped; nothing is read meanwhile."""
        assert self._processor is not None
        processor = self._processor
        return await self.in_thread(lambda: put_held(self, processor, batch, self._stopping))

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Call something that blocks in one of the threads."""
        assert _LOOP.threads is not None
        return await asyncio.wrap_future(_LOOP.threads.begin(call))


class StreamSource(NetworkSource):
    """A source with connections, each a stream of lines."""

    def __init__(self, addresses: list[tuple[str, int]], tls: ServerTls | None = None) -> None:
        super().__init__()
        self._addresses = addresses
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._servers: list[asyncio.Server] = []
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
        self._servers = [await asyncio.start_server(self._accept, sock=s, ssl=self._context) for s in sockets]

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
            _log.debug("%s: a connection broke: %s", self.name, e, extra=fields(component=self.name))
        except Exception:
            self.counters.generic_processing_fail += 1
            _log.exception("%s: a connection is closed", self.name, extra=fields(component=self.name))
        finally:
            self.counters.open_connection_count -= 1
            writer.close()
            self._clients.discard(task)

    async def read(self, reader: asyncio.StreamReader, *, is_within_line: bool = False) -> bytes:
        """Return what came; nothing at the end, and no more than had come when the source is being stopped.

        Args:
            reader: the connection.
            is_within_line: whether the end of a line is yet to come: a stop waits for it, as long as it reads at all.
        """
        if self._stopping.is_set():
            return await self._read_last(reader, is_within_line)
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
        return await self._read_last(reader, is_within_line)

    async def _read_last(self, reader: asyncio.StreamReader, is_within_line: bool) -> bytes:
        """Return what had come before the source was stopped, as far as it can be told from what comes after."""
        now, silences = asyncio.get_running_loop().time, 0
        while (left := self._read_until - now()) > 0 and (is_within_line or silences < _MOST_SILENCES):
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
        _log.warning(
            "%s: %s before the line feed of the last line of %s came: %s there, and %s",
            self.name,
            "the connection ended" if reader.at_eof() else "the source was stopped",
            writer.get_extra_info("peername")[0],
            counted(size, "byte", "are"),
            what,
            extra=fields(component=self.name),
        )

    async def lose_rest(self, reader: asyncio.StreamReader, events: int, held: bytes) -> None:
        """Count and name what came behind a batch that could not be stored when the source was stopped.

        What comes later than that is not read: to its sender the connection breaks.

        Args:
            reader: the connection.
            events: how many of them were read.
            held: the beginning of a line that was read.
        """
        ends_in_line = bool(held)
        with suppress(TimeoutError, ConnectionError, ssl.SSLError):
            async with asyncio.timeout(_SILENCE_SECONDS):
                while data := await reader.read(_READ_BYTES):
                    events += data.count(b"\n")
                    ends_in_line = not data.endswith(b"\n")
        lose_behind(self, events + ends_in_line)

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
