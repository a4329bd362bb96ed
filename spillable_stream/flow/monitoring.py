"""The web server that says how an agent is: ``/metrics``, ``/ping`` and ``/ready``."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from spillable_stream.errors import StorageError
from spillable_stream.flow.agent import Agent
from spillable_stream.flow.asgi_server import asgi_server
from spillable_stream.flow.checked_arguments import Port, checked
from spillable_stream.flow.metrics import flume_json, prometheus_text
from spillable_stream.flow.sources.network import bound_socket
from spillable_stream.log_records import fields, log_of
from spillable_stream.own_thread import start_thread

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Monitoring"]

_log = log_of("spillable_stream.flow")

_START_SECONDS = 30.0
_AGAIN_SECONDS = 3.0
_PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Monitoring:
    """Serves an agent's numbers and health.

    ``/metrics`` is Flume's JSON, or Prometheus's text to a client that asks for it. ``/ping`` always answers;
    ``/ready`` answers 503 while something of the agent does not work, and says what.

    Args:
        agent: the agent.
        port: the port; 0 for any that is free, see `port`.
        host: the address to listen on.
        prometheus: whether ``/metrics`` is Prometheus's text for every client.

    Raises:
        ImportError: the extra ``flow`` is not installed.
    """

    @checked
    def __init__(self, agent: Agent, port: Port, *, host: str = "0.0.0.0", prometheus: bool = False) -> None:
        try:
            import uvicorn  # noqa: F401
            from starlette.applications import Starlette
            from starlette.routing import Route
        except ImportError as e:
            raise ImportError("monitoring needs starlette and uvicorn: pip install 'spillable-stream[flow]'") from e
        self._agent, self._prometheus = agent, prometheus
        self._address = (host, port)
        self.port: int = port
        routes = [
            Route("/", self._root),
            Route("/metrics", self._metrics),
            Route("/ping", self._ping),
            Route("/ready", self._ready),
        ]
        self._app = _without_trace(Starlette(routes=routes))
        self._server = asgi_server(self._app)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen.

        Raises:
            StorageError: the port is in use, or no thread can be started.
        """
        listening = bound_socket(*self._address)
        self.port = listening.getsockname()[1]
        thread = threading.Thread(target=self._serve, args=(listening,), name="flow-monitoring", daemon=True)
        try:
            start_thread(thread)
        except BaseException:
            listening.close()
            raise
        self._thread = thread
        end = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > end or not self._thread.is_alive():
                raise StorageError(f"monitoring could not listen on port {self.port}")
            time.sleep(0.005)

    def _serve(self, listening: socket.socket) -> None:
        """Serve until it is stopped; nobody else would notice, or tell a probe, that the server has ended."""
        has_started = False
        while not self._ended.is_set():
            try:
                asyncio.run(self._server.serve([listening]))
            except Exception:
                has_started |= self._server.started
                if not has_started:
                    raise  # which `start` tells
                name = self._agent.name
                _log.exception(
                    "the monitoring of the agent %s ended by itself, and is started again in %g s",
                    name,
                    _AGAIN_SECONDS,
                    extra=fields(component=name, seconds=_AGAIN_SECONDS),
                )
                self._ended.wait(_AGAIN_SECONDS)
                self._server = asgi_server(self._app)
            else:
                return

    def stop(self) -> None:
        """Stop listening."""
        self._ended.set()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _root(self, _: Request) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse('<html><body><a href="/metrics">metrics</a></body></html>')

    def _metrics(self, request: Request) -> Response:
        from starlette.responses import Response

        accepted = request.headers.get("accept", "")
        if self._prometheus or "openmetrics" in accepted or "version=0.0.4" in accepted:
            return Response(prometheus_text(self._agent), media_type=_PROMETHEUS_TYPE)
        return Response(flume_json(self._agent), media_type="application/json")

    def _ping(self, _: Request) -> Response:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("pong")

    def _ready(self, _: Request) -> Response:
        from starlette.responses import Response

        troubles = self._agent.troubles()
        body = json.dumps({"ready": not troubles, "troubles": troubles})
        return Response(body, 503 if troubles else 200, media_type="application/json")


def _without_trace(app: Any) -> Any:
    """Answer 403 to TRACE and OPTIONS, as Flume does."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import PlainTextResponse

        if scope["type"] == "http" and scope["method"] in ("TRACE", "OPTIONS"):
            await PlainTextResponse("forbidden", 403)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer
