from __future__ import annotations

import asyncio
from typing import Any

import httpx

from spillable_stream.flow.asgi_server import asgi_server
from spillable_stream.flow.sources.network import bound_socket


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def test_a_server_answers_and_does_not_say_what_it_is() -> None:
    async def ask() -> httpx.Response:
        listening = bound_socket("127.0.0.1", 0)
        server = asgi_server(hello)
        serving = asyncio.create_task(server.serve([listening]))
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{listening.getsockname()[1]}")
        server.should_exit = True
        await serving
        return answer

    answer = asyncio.run(ask())
    assert answer.text == "hello"
    assert "server" not in answer.headers
