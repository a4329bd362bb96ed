"""The verb ``ui``: serves a web page that shows channels."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated

import typer

from spillable_stream.cli.app import allow_many_files, until_signal
from spillable_stream.cli.arguments import ChannelPaths
from spillable_stream.cli.listening import Port, given_host, link, not_served, say_problems
from spillable_stream.errors import SpillableError

__all__ = ["ui"]

_HOST = Annotated[
    str,
    typer.Option(
        "--host",
        callback=given_host,
        help="The address to listen at; any but this host's own needs a token.",
    ),
]
_NAME = Annotated[
    list[str] | None, typer.Option("--name", help="A name by which browsers reach this host; may be repeated.")
]
_CHANGES = Annotated[bool, typer.Option("--allow-changes", help="Let the page change channels; it asks each time.")]
_TOKEN = Annotated[
    str,
    typer.Option(
        envvar="SPILLABLE_UI_TOKEN",
        help="What a browser must have. Set the variable rather than the option: others see a process's arguments.",
    ),
]


def ui(
    paths: ChannelPaths,
    port: Port = 8765,
    host: _HOST = "127.0.0.1",
    name: _NAME = None,
    allow_changes: _CHANGES = False,
    token: _TOKEN = "",
) -> None:
    """Serve a web page that shows channels live, until Ctrl-C.

    It only looks, unless --allow-changes is given. On this host it needs no token; at any other address it makes one,
    and prints the link with it.

    Example: `spillable ui /data/orders /data/clicks`

    Exit status: 0 it ended as asked, 2 it could not serve.
    """
    from spillable_stream.ui.guard import is_loopback
    from spillable_stream.ui.server import serve

    if not token and not is_loopback(host):
        token = secrets.token_urlsafe(32)

    def ready(host: str, port: int, problems: Mapping[str, str]) -> None:
        typer.echo(f"open {link(host, port, f'?token={token}' if token else '')} (Ctrl-C ends it)")
        say_problems(problems, "the page says so")

    allow_many_files()
    try:
        with until_signal():
            serve(paths, host=host, port=port, token=token, allow_changes=allow_changes, names=name or (), ready=ready)
    except (SpillableError, ImportError, OSError) as e:
        not_served(paths[0], e, host, port)
