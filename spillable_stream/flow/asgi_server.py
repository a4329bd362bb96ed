"""How the flow's web servers are configured: the http source, and monitoring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

__all__ = ["asgi_server"]


def asgi_server(app: Callable[..., Awaitable[None]], *, keystore: str = "", password: str = "") -> uvicorn.Server:
    """Return a server that logs nothing of its own, and says nothing of itself.

    Args:
        app: the ASGI 3 application.
        keystore: a PEM file with the certificate and its key; empty for plain HTTP.
        password: the key's password.
    """
    import uvicorn

    tls: dict[str, Any] = {"ssl_certfile": keystore, "ssl_keyfile_password": password} if keystore else {}
    return uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, interface="asgi3", lifespan="off", server_header=False, **tls
        )
    )
