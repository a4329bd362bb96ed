"""A web server in this process that answers as a test says."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

__all__ = ["HttpStub", "Request", "Response", "pass_on"]

_OF_ONE_CONNECTION = {"connection", "content-length", "transfer-encoding"}


class Request(NamedTuple):
    """What a client sent; the path is decoded, names of headers are in small letters."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Response(NamedTuple):
    """What it gets; ``cut`` leaves so many bytes of the body out, though its length is told whole."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    cut: int = 0


class HttpStub:
    """A server at a free port of the loopback interface, from `__enter__` to `__exit__`.

    Args:
        answer: returns the answer to a request, or None to break the connection without one.
        certificate: the file that has one and its key, for a server of HTTPS.

    Attributes:
        requests: all that came, in order.
        url: its address.
    """

    def __init__(self, answer: Callable[[Request], Response | None], certificate: Path | None = None) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close also what clients keep open for their next request: they live as long as the process."""
        super().server_close()
        for connection in self._connections.copy():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that give up are part of what is tested."""


def _handler(stub: HttpStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16  # headers and body in one piece

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _serve(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, unquote(url.path), query, headers, body)
            stub.requests.append(request)
            response = stub.answer(request)
            if response is None:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body[: len(response.body) - response.cut])
            if response.cut:
                self.close_connection = True
            self.wfile.flush()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    return Handler


def pass_on(request: Request, url: str) -> Response:
    """Send a request to a server, and return what it answers.

    Args:
        request: the request.
        url: the server's address.
    """
    there = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        query = f"?{urlencode(request.query)}" if request.query else ""
        there.request(request.method, quote(request.path) + query, request.body, dict(request.headers))
        answer = there.getresponse()
        headers = {n: v for n, v in answer.getheaders() if n.lower() not in _OF_ONE_CONNECTION}
        return Response(answer.status, answer.read(), headers)
    finally:
        there.close()
