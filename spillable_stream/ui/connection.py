"""Limits HTTP connections: how many there are, and how long a client may take to send a request or read an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["LimitedProtocol"]

_MOST_CONNECTIONS = 256
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 60.0  # for each part: a slow network may take long


class LimitedProtocol(H11Protocol):
    """uvicorn's connection, closed at once beyond a number of them, and after a while of a client that stalls."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse to."""
        super().connection_made(transport)
        self._await_client()
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, or several."""
        super().data_received(data)
        self._await_client()

    def on_response_complete(self) -> None:
        """Begin to wait for another request, or until the client has read the last answer."""
        super().on_response_complete()
        self._await_client()

    def pause_writing(self) -> None:
        """Begin to wait until the client reads."""
        super().pause_writing()
        self._start_timer(_ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        super().resume_writing()
        self._stop_timer()
        self._await_client()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Become a websocket, which may be silent."""
        super().handle_websocket_upgrade(event)
        self._stop_timer()

    def _await_client(self) -> None:
        """Close the connection in a while, unless its client has sent a whole request, or read the rest, by then."""
        if self not in self.connections:
            self._stop_timer()
        elif self.flow.write_paused:
            pass  # it has to read first
        elif self.transport.is_closing():
            self._start_timer(_ANSWER_SECONDS, self.transport.abort)
        elif self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timer()
        elif self._timer is None:
            self._start_timer(_REQUEST_SECONDS, self._close)

    def _close(self) -> None:
        self.transport.close()
        self._start_timer(_ANSWER_SECONDS, self.transport.abort)

    def _start_timer(self, seconds: float, end: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
