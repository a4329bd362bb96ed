"""Serves the page: one process serves one set of channels."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from spillable_stream.errors import OptionError
from spillable_stream.ui.guard import Guard, is_loopback

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Server

    from spillable_stream.ui.changes import ChannelChanges
    from spillable_stream.ui.watch import Watch

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
    ready: Callable[[str, int, Mapping[str, str]], None] = lambda host, port, problems: None,
) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        paths: the channels.
        host: the address to listen at.
        port: the port; 0 for a free one.
        token: what a browser must have; needed where other hosts can reach the address.
        allow_changes: whether the page may change channels.
        names: more names of this host by which browsers reach it.
        ready: is told where it listens, when it does, and why which channels can't be looked at.

    Raises:
        ImportError: NiceGUI is not installed.
        OptionError: there are no channels, one is given twice, or a token is needed, or too short.
        OSError: the address can't be used.
    """
    _check_reach(host, token)
    _require_nicegui()
    from spillable_stream.ui.changes import ChannelChanges
    from spillable_stream.ui.watch import Watch

    watch = Watch(paths)
    unsaid: list[Exception] = []
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)

    def say_where() -> None:
        try:
            # from now on uvicorn takes the signals of whoever reads this
            ready(host, listener.getsockname()[1], watch.problems())
        except Exception as e:  # uvicorn would lose it
            unsaid.append(e)
            server.should_exit = True

    own_names = ("localhost", socket.gethostname(), socket.getfqdn(), host, *names)
    application = _application(watch, ChannelChanges(allowed=allow_changes), say_where)
    server = _server(Guard(application, names=own_names, token=token))
    try:
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn has ended by then, and raises it again
            server.run([listener])
    finally:
        listener.close()
    if unsaid:
        raise unsaid[0]


def _check_reach(host: str, token: str) -> None:
    """Refuse to listen where others reach the page without a token that is worth one."""
    if not token and not is_loopback(host):
        raise OptionError(f"other hosts can reach {host}: a token is needed")
    if token and len(token) < LEAST_TOKEN_CHARACTERS:
        raise OptionError(f"a token needs {LEAST_TOKEN_CHARACTERS} characters or more")


def _require_nicegui() -> None:
    try:
        for library in ("uvicorn", "fastapi", "nicegui"):
            import_module(library)
    except ImportError as e:
        raise ImportError("the page needs NiceGUI: pip install 'spillable-stream[ui]'") from e


def _application(watch: Watch, changes: ChannelChanges, started: Callable[[], None]) -> FastAPI:
    """Return the page, as what answers requests.

    Args:
        watch: what it shows; it is closed at the end.
        changes: what it may change.
        started: called when requests are answered.
    """
    from fastapi import FastAPI
    from nicegui import ui

    from spillable_stream.ui.page import add_pages

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await watch.look()
        looking = asyncio.create_task(watch.run())
        started()
        try:
            yield
        finally:
            looking.cancel()
            watch.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    add_pages(watch, changes)
    ui.run_with(app, title="spillable", favicon="🌊", dark=None, language="en-US", show_welcome_message=False)
    return app


def _server(guarded: Guard) -> Server:
    """Return what listens for a page, and ends at a signal."""
    import uvicorn

    from spillable_stream.ui.connection import LimitedProtocol

    config = uvicorn.Config(
        guarded,
        http=LimitedProtocol,
        log_level="warning",
        access_log=False,  # a link with the token must not be in a log
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)
