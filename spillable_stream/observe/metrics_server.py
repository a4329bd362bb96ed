"""The metrics of channels over HTTP: for Prometheus, for what reads Flume's JSON, and for probes of health."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import PathLike
from types import TracebackType
from typing import Any, NamedTuple, Self

from spillable_stream.arguments import text, whole_number
from spillable_stream.channel.channel import Channel
from spillable_stream.error_text import type_and_text
from spillable_stream.log_records import Seldom, log_of
from spillable_stream.observe.flume_counters import flume_counters
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observer import Observer
from spillable_stream.observe.prometheus_export import prometheus_registry
from spillable_stream.own_thread import NoThreadError, start_thread

__all__ = ["MetricsServer", "serve_metrics"]

_log = log_of(__name__)

_MAX_AGE_SECONDS = 0.5  # scrapers that come together share a look
_REQUEST_SECONDS = 10.0
_REFUSED_SECONDS = 0.25  # after a connection that could not be accepted
_MOST_CONNECTIONS = 32
_ANSWERING = "spillable-metrics-answer"
_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_LINKS = (
    b'<!doctype html><html lang="en"><title>spillable metrics</title><h1>Metrics of channels</h1>'
    b'<ul><li><a href="metrics">Prometheus</a><li><a href="metrics.json">JSON, as Flume</a>'
    b'<li><a href="healthz">health</a><li><a href="readyz">readiness</a></ul></html>'
)


class _Answer(NamedTuple):
    """An answer to a request."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK


class MetricsServer:
    """Serves metrics until it is closed; made by `serve_metrics`.

    Attributes:
        host: the address that it listens at.
        port: the port.
    """

    def __init__(self, observer: Observer, host: str, port: int) -> None:
        self._observer = observer
        self._registry = prometheus_registry(observer, _MAX_AGE_SECONDS)
        self._since = time.time()
        self._server = _Server((host, port), self._answer)
        self.host: str = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="spillable-metrics", daemon=True)
        try:
            start_thread(self._thread)
        except BaseException:
            self._server.server_close()
            raise

    def __repr__(self) -> str:
        return f"MetricsServer({self.host!r}, {self.port})"

    def problems(self) -> dict[str, str]:
        """Return by its path why each channel could not be looked at, of those that could not."""
        return {seen.path: seen.problem for seen in self._observe() if seen.problem}

    def close(self) -> None:
        """Stop serving, and close what was opened."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._observer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, path: str, accept: str) -> _Answer:
        match path:
            case "/":
                return _Answer(_LINKS, "text/html; charset=utf-8")
            case "/metrics" if "application/json" in accept:
                return self._flume()
            case "/metrics":
                from prometheus_client.exposition import choose_encoder

                encode, content_type = choose_encoder(accept)
                return _Answer(encode(self._registry), content_type)
            case "/metrics.json":
                return self._flume()
            case "/healthz":
                return _Answer(b'{"healthy": true}\n', _JSON)
            case "/readyz":
                return self._readiness()
        return _Answer(b"not found\n", _TEXT, HTTPStatus.NOT_FOUND)

    def _flume(self) -> _Answer:
        return _Answer(json.dumps(flume_counters(self._observe(), self._since)).encode(), _JSON)

    def _readiness(self) -> _Answer:
        problems = {seen.path: problem for seen in self._observe() if (problem := _problem(seen))}
        said = json.dumps({"ready": not problems, "problems": problems}).encode() + b"\n"
        return _Answer(said, _JSON, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)

    def _observe(self) -> list[Observation]:
        return self._observer.observe(max_age_seconds=_MAX_AGE_SECONDS)


def _problem(seen: Observation) -> str:
    """Return why a channel can't be used; "" if it can."""
    if seen.stats is not None and seen.stats.unhealthy:
        return "a failure closed the log of this handle; open the channel again"
    return "it was not looked at yet" if seen.is_to_come else seen.problem


class _Server(ThreadingHTTPServer):
    """Answers each request in a thread of its own, up to a number of them; connections beyond it are closed.

    Args:
        address: host and port to listen at.
        answer: returns the answer, by the path and the header ``Accept``.
    """

    def __init__(self, address: tuple[str, int], answer: Any) -> None:
        self.answer = answer
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._refusal = Seldom()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError as e:  # no descriptor is left, say: what waits to be accepted would be tried again at once
            if self._refusal.is_due():
                _log.warning("no request for metrics can be accepted now: %s", e)
            time.sleep(_REFUSED_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        given = (request, client_address)
        try:
            start_thread(threading.Thread(target=self.process_request_thread, args=given, name=_ANSWERING, daemon=True))
        except NoThreadError as e:
            self._free.release()
            self.shutdown_request(request)
            _log.warning("a request for metrics from %s gets no answer: %s", client_address, e)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a request for metrics from %s failed", client_address, exc_info=True)


class _RequestReader(socket.SocketIO):
    """Reads a request, all of which has to come in a time; a timeout of the socket is for each part of it."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, "r")
        self._connection = connection
        self._deadline = time.monotonic() + _REQUEST_SECONDS

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return super().readinto(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "spillable"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_RequestReader(self.connection))

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            answer = self.server.answer(path, self.headers.get("Accept", ""))
        except Exception as e:
            _log.warning("a request for %r failed", path, exc_info=True)
            said = f"{type_and_text(e)}\n".encode(errors="backslashreplace")
            answer = _Answer(said, _TEXT, HTTPStatus.INTERNAL_SERVER_ERROR)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.connection.settimeout(_REQUEST_SECONDS)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        _log.debug(format, *arguments)


def serve_metrics(
    channels: Iterable[Channel | str | PathLike[str]], port: int = 0, *, host: str = "127.0.0.1"
) -> MetricsServer:
    """Serve the metrics of channels over HTTP, in threads of this process, until the result is closed.

    ``/metrics`` is for Prometheus, ``/metrics.json`` has Flume's JSON, ``/healthz`` answers 200 while this process
    serves, and ``/readyz`` answers 200 if every channel can be used, and otherwise 503 with the reasons.

    Args:
        channels: handles, which stay open, and paths, which are opened read-only. A path where there is no channel, or
            none yet, is shown as such. A path may be a pattern, such as ``/data/orders-*``: channels join as they
            appear, and leave when they are gone.
        port: the port; 0 for a free one, which `MetricsServer.port` says.
        host: the address to listen at, of IPv4 or IPv6: this host's own only, unless you give another.

    Raises:
        ImportError: prometheus-client is not installed.
        OptionError: there are no channels, one is given twice, the port is not one, or the host is not text.
        OSError: the port is not available.
        StorageError: the process can have no more threads.
    """
    port = whole_number("port", port, 0, 65_535)
    text("host", host)
    observer = Observer(channels)
    try:
        return MetricsServer(observer, host, port)
    except BaseException:
        observer.close()
        raise
