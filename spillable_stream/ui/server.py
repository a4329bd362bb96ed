"""Serves the page: one process serves one set of channels."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence

from spillable_stream.errors import OptionError
from spillable_stream.ui.guard import Guard, is_loopback

__all__ = ["LEAST_TOKEN_CHARACTERS", "serve"]

LEAST_TOKEN_CHARACTERS = 16


def serve(
    paths: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    allow_changes: bool = False,
    names: Sequence[str] = (),
    ready: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        paths: the channels.
        host: the address to listen at.
        port: the port; 0 for a free one.
        token: what a browser must have; needed where others than this host reach the address.
        allow_changes: whether the page may change channels.
        names: more names of this host by which browsers reach it.
        ready: is told where it listens, when it does.

    Raises:
        ImportError: NiceGUI is not installed.
        OptionError: there are no channels, one is given twice, or a token is needed, or too short.
        OSError: the address can't be used.
    """
    if not token and not is_loopback(host):
        raise OptionError(f"others than this host reach {host}: a token is needed")
    if token and len(token) < LEAST_TOKEN_CHARACTERS:
        raise OptionError(f"a token needs {LEAST_TOKEN_CHARACTERS} characters or more")
    try:
        import uvicorn
        from fastapi import FastAPI
        from nicegui import ui

        from spillable_stream.ui.connection import LimitedProtocol
        from spillable_stream.ui.page import add_pages
    except ImportError as e:
        raise ImportError("the page needs NiceGUI: pip install 'spillable-stream[ui]'") from e
    from spillable_stream.ui.changes import Changes
    from spillable_stream.ui.watch import Watch

    watch = Watch(paths)
    unsaid: list[Exception] = []
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await watch.look()
        looking = asyncio.create_task(watch.run())
        try:
            ready(host, listener.getsockname()[1])  # now uvicorn takes the signals of whoever reads it
        except Exception as e:  # uvicorn would lose it
            unsaid.append(e)
            server.should_exit = True
        try:
            yield
        finally:
            looking.cancel()
            watch.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    add_pages(watch, Changes(allowed=allow_changes))
    ui.run_with(app, title="spillable", favicon="🌊", dark=None, language="en-US", show_welcome_message=False)
    own_names = ("localhost", socket.gethostname(), socket.getfqdn(), host, *names)
    guarded = Guard(app, names=own_names, token=token)
    config = uvicorn.Config(
        guarded,
        http=LimitedProtocol,
        log_level="warning",
        access_log=False,  # a link with the token must not be in a log
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    try:
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has ended by then, and raises it again
            server.run([listener])
    finally:
        listener.close()
    if unsaid:
        raise unsaid[0]
