"""The web server of tests."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.support.servers.http_stub import HttpStub, Response


def test_a_server_that_ends_leaves_no_connection_open() -> None:
    with HttpStub(lambda _: Response(204)) as stub:
        there = urlsplit(stub.url)
        client = socket.create_connection((there.hostname, there.port), timeout=5)
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 204")
    with client:
        assert client.recv(1) == b""
