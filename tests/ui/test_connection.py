"""Connections that do not last without a request."""

from __future__ import annotations

import asyncio
import select
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from spillable_stream.ui import connection
from spillable_stream.ui.connection import LimitedProtocol
from spillable_stream.ui.guard import Guard

_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_BEGUN_LOGIN = b"POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken="


async def _page(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await receive()
        await receive()


def _served(tmp_path: Path, use: Any, page: Any = _page) -> None:
    """Serve at a Unix socket while a coroutine uses it."""

    async def run() -> None:
        place = str(tmp_path / "s")
        server = uvicorn.Server(
            uvicorn.Config(
                page,
                http=LimitedProtocol,
                uds=place,
                lifespan="off",
                log_level="error",
                timeout_keep_alive=60,
                timeout_graceful_shutdown=1,
            )
        )
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            await use(place)
        finally:
            server.should_exit = True
            await serving

    asyncio.run(run())


async def _sent(place: str, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and send something before the server, which has this thread, can take the connection."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(place)
    client.sendall(data)
    return await asyncio.open_unix_connection(sock=client)


def test_one_without_a_request_is_closed_and_one_with_a_request_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REQUEST_SECONDS", 0.05)

    async def use(place: str) -> None:
        for begin in (b"", b"GET / HTTP/1.1\r\nHost: "):
            reader, writer = await _sent(place, begin)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()
        reader, writer = await _sent(place, _REQUEST)
        assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
        writer.close()

    _served(tmp_path, use)


def test_one_whose_later_request_does_not_become_whole_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REQUEST_SECONDS", 0.05)

    async def use(place: str) -> None:
        reader, writer = await _sent(place, _REQUEST)
        await asyncio.wait_for(reader.readuntil(b"ok"), 60)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()

    _served(tmp_path, use)


def test_one_whose_request_lacks_the_end_of_its_body_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_REQUEST_SECONDS", 0.05)

    async def use(place: str) -> None:
        reader, writer = await _sent(place, _BEGUN_LOGIN)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()

    _served(tmp_path, use, Guard(_page, token="x" * 16))


def test_one_that_does_not_read_its_answer_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.05)
    ended = asyncio.Event()

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        ended.set()

    async def use(place: str) -> None:
        client = socket.socket(socket.AF_UNIX)
        client.connect(place)
        client.sendall(_REQUEST)
        await asyncio.wait_for(ended.wait(), 20)
        client.close()

    _served(tmp_path, use, page)


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.0\r\n\r\n", 2 * _REQUEST, _REQUEST + b"\0\r\n\r\n"],
    ids=["the only request", "another request behind", "nonsense behind"],
)
def test_one_that_does_not_read_an_answer_that_is_whole_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.05)

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(8 << 20)})

    async def use(place: str) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(place)
            client.sendall(sent)
            closed = select.poll()
            closed.register(client, 0)
            assert await asyncio.to_thread(closed.poll, 20_000)

    _served(tmp_path, use, page)


def test_a_websocket_may_be_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_REQUEST_SECONDS", 0.05)

    async def use(place: str) -> None:
        reader, writer = await _sent(
            place,
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        )
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(b"HTTP/1.1 101")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        writer.close()

    _served(tmp_path, use)


def test_those_beyond_the_limit_are_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MOST_CONNECTIONS", 2)

    async def use(place: str) -> None:
        pairs = [await asyncio.open_unix_connection(place) for _ in range(5)]
        for reader, _ in pairs[2:]:
            with pytest.raises((ConnectionResetError, AssertionError)):
                assert await asyncio.wait_for(reader.read(1), 60)
        for _, writer in pairs:
            writer.close()

    _served(tmp_path, use)
