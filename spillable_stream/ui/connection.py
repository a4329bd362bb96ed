"""Limits HTTP connections: how many there are, and how long each lasts without a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["LimitedProtocol"]

_MOST_CONNECTIONS = 256
_REQUEST_SECONDS = 10.0


class LimitedProtocol(H11Protocol):
    """uvicorn's connection, closed at once beyond a number of them, and after a while without a whole request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse to."""
        super().connection_made(transport)
        self._idle_timer = self.loop.call_later(_REQUEST_SECONDS, self._close_idle)
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._idle_timer.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Become a websocket, which may be silent."""
        self._idle_timer.cancel()
        super().handle_websocket_upgrade(event)

    def _close_idle(self) -> None:
        if self.cycle is None:
            self.transport.close()
