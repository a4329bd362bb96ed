"""The source ``http``: each request is a batch, answered when it is stored."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillable_stream.error_text import text_of, type_and_text
from spillable_stream.errors import (
    TOO_LARGE,
    ChannelError,
    DeliveryError,
    EventTooLargeError,
    OptionError,
    ProducerSequenceError,
    SchemaError,
    SpillableError,
)
from spillable_stream.flow.asgi_server import asgi_server
from spillable_stream.flow.checked_arguments import Port, checked
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources.client_numbers import ClientNumbers
from spillable_stream.flow.sources.http_handlers import Handler, HttpRequest
from spillable_stream.flow.sources.http_handlers import handler as handler_of
from spillable_stream.flow.sources.network import NetworkSource, bound_socket
from spillable_stream.flow.sources.server_tls import server_tls
from spillable_stream.log_records import log_of

if TYPE_CHECKING:
    import uvicorn

__all__ = ["Http"]

_log = log_of("spillable_stream.flow")
_HEADERS = {503: {"Retry-After": "5"}, 413: {"Connection": "close"}}  # nobody reads the rest of what is too large
_MOST_DIGITS = 19  # of 2**63 - 1; Python refuses to read thousands of them
_LARGE_BYTES = 64 << 10  # takes longer to read than to hand to a thread
_MOST_BODY_BYTES = 256 << 20  # of a request: it is in memory, and its events, too


class Http(NetworkSource):
    """Takes events over HTTP: a request is one transaction.

    It answers 200 after the commit, 400 to a malformed request, 413 to one with more events than a transaction of a
    channel can hold, or more bytes than the channel, 409 to a number that a later one has passed over, 503 with
    ``Retry-After`` where a channel refuses, and 500 for other failures. A request with the header ``Idempotency-Key:
    PRODUCER/NUMBER``, whose numbers grow by one, is stored once in each channel, however often it is sent.

    Args:
        port: the port; 0 for any that is free, see `port`.
        bind: the address to listen on.
        handler: Flume's ``JSONHandler`` or ``BLOBHandler``, or an object with ``events(request)``, which
            several threads may call at once.
        handler_properties: what the handler is given, as ``mandatoryParameters`` for a blob.
        ssl: whether clients must use TLS.
        keystore: the certificate and its key, a PEM file.
        keystore_password: the key's password.
        keystore_type: ``PEM``.

    Raises:
        OptionError: the handler can't be used, or the keystore is none.
        ImportError: the extra ``flow`` is not installed.
    """

    @checked
    def __init__(
        self,
        port: Port,
        *,
        bind: str = "0.0.0.0",
        handler: str | Handler = "org.apache.flume.source.http.JSONHandler",
        handler_properties: Mapping[str, str] | None = None,
        ssl: bool = False,
        keystore: str | None = None,
        keystore_password: str | None = None,
        keystore_type: str | None = None,
    ) -> None:
        super().__init__()
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as e:
            raise ImportError(
                "the http source needs starlette and uvicorn: pip install 'spillable-stream[flow]'"
            ) from e
        self._address = (bind, port)
        self._handler = handler_of(handler, handler_properties or {}) if isinstance(handler, str) else handler
        self._tls = server_tls(ssl, keystore, keystore_password, keystore_type)
        self._clients: ClientNumbers | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._uploads: set[asyncio.Task[bytes]] = set()
        self.port: int = port

    def bind(self) -> list[socket.socket]:
        """Bind the address; see `NetworkSource.bind`."""
        if self._tls is not None:
            self._tls.context()  # so that what is wrong with it is said
        if isinstance(self._processor, ChannelProcessor):
            self._clients = ClientNumbers(self._processor)
        keystore, password = (self._tls.keystore, self._tls.password) if self._tls is not None else ("", "")
        self._server = asgi_server(self._answer, keystore=keystore, password=password)
        return [bound_socket(*self._address, socket.SOCK_STREAM)]

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Begin to serve; see `NetworkSource.listen`."""
        assert self._server is not None
        self.port = sockets[0].getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise OptionError(f"the http source could not listen on {self._address[0]}:{self.port}")
            await asyncio.sleep(0.01)

    @property
    def alive(self) -> bool:
        """Whether it listens, and its server serves."""
        return super().alive and self._serving is not None and not self._serving.done()

    async def unlisten(self) -> None:
        """Stop when the requests under way are answered."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            for upload in self._uploads:
                upload.cancel()
            try:
                await self._serving
            except Exception:
                _log.of(self.name).exception("its server ended by itself")
                await self._server.shutdown()
            self._server = self._serving = None

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import ClientDisconnect, Request
        from starlette.responses import PlainTextResponse

        try:
            status, text = await self._store(Request(scope, receive))
        except ClientDisconnect:  # nobody waits for an answer
            self.counters.event_read_fail += 1
            _log.of(self.name).debug("a client left before its request was complete")
            return
        await PlainTextResponse(text, status, _HEADERS.get(status))(scope, receive, send)

    async def _store(self, request: Any) -> tuple[int, str]:
        """Store a request, and return the status and the text of the answer."""
        try:
            body = await self._uploaded(request)
            if body is None:
                return 503, "the source is being stopped; send it again"
            charset = _charset(request.headers.get("content-type", ""))
            batch = await self._events(HttpRequest(body, dict(request.query_params), charset))
            key = _key(request.headers.get("idempotency-key"))
        except SchemaError as e:
            self.counters.event_read_fail += 1
            return 400, str(e)
        except EventTooLargeError as e:
            self.counters.event_read_fail += 1
            return 413, str(e)
        try:
            await self.put(batch, None if key is None else lambda b: self._store_once(b, *key))
        except OptionError as e:
            return 400, str(e)
        except TOO_LARGE as e:
            self.counters.event_read_fail += 1
            return 413, str(e)
        except ProducerSequenceError as e:
            self.counters.event_read_fail += 1
            return 409, str(e)
        except ChannelError as e:
            return 503, str(e)
        except DeliveryError as e:
            return _status(e.failures.values()), str(e)
        except SpillableError as e:
            self.counters.generic_processing_fail += 1
            _log.of(self.name).warning("a request is answered with 500: %s", text_of(e))
            return 500, str(e)
        except Exception as e:
            self.counters.generic_processing_fail += 1
            _log.of(self.name).exception("a request is answered with 500")
            return 500, type_and_text(e)
        return 200, ""

    async def _events(self, request: HttpRequest) -> pa.RecordBatch:
        """Return the events of a request; a large one is read in a thread: the loop answers others meanwhile."""
        if len(request.body) < _LARGE_BYTES:
            return self._handler.events(request)
        return await self.in_thread(lambda: self._handler.events(request))

    async def _uploaded(self, request: Any) -> bytes | None:
        """Return the body of a request; None where the source is stopped before all of it is there.

        Raises:
            EventTooLargeError: it is too large; what comes of it is not read.
        """
        if self._stopping.is_set():  # it came on a connection that is kept alive, after the other ones were cancelled
            return None
        upload: asyncio.Task[bytes] = asyncio.create_task(_body_of(request))
        self._uploads.add(upload)
        try:
            return await upload
        except asyncio.CancelledError:
            if not upload.cancelled() or not self._stopping.is_set():
                raise
            return None
        finally:
            self._uploads.discard(upload)

    def _store_once(self, batch: pa.RecordBatch, client: str, number: int) -> None:
        assert self._clients is not None
        self._clients.store(batch, client, number)


async def _body_of(request: Any) -> bytes:
    """Read the body of a request; raises what `Http._uploaded` does."""
    parts, left = list[bytes](), _MOST_BODY_BYTES
    async for part in request.stream():
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise EventTooLargeError(
                f"the request has more than {_MOST_BODY_BYTES:,} bytes; send its events in several requests"
            )
    return b"".join(parts)


def _status(failures: Collection[Exception]) -> int:
    """Return the status for a request that some channels did not take."""
    if any(isinstance(f, TOO_LARGE) for f in failures):
        return 413
    return 503 if all(isinstance(f, ChannelError) for f in failures) else 500


def _charset(content_type: str) -> str:
    for part in content_type.split(";")[1:]:
        name, _, value = part.strip().partition("=")
        if name.lower() == "charset":
            return value.strip('" ')
    return ""


def _key(text: str | None) -> tuple[str, int] | None:
    """Return the producer and the number of an Idempotency-Key, if there is one.

    Raises:
        SchemaError: it is not ``PRODUCER/NUMBER``.
    """
    if text is None:
        return None
    producer, slash, number = text.rpartition("/")
    is_short = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    if not (slash and producer and is_short and 0 < int(number) < 2**63):
        raise SchemaError(
            f"the Idempotency-Key {text[:100]!r} is not PRODUCER/NUMBER, with numbers 1, 2, 3 … of at most 63 bits"
        )
    return producer, int(number)
