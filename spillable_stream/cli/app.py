"""The command line's root, and what all its verbs share: exit statuses, arguments, and how an error ends one."""

from __future__ import annotations

import json
from typing import Annotated, NoReturn

import typer

__all__ = ["HEALTHY", "UNHEALTHY", "UNKNOWN", "AsJson", "ChannelPath", "ChannelPaths", "app", "fail"]

HEALTHY, UNHEALTHY, UNKNOWN = 0, 1, 2
"""The exit statuses: all is well, it is not, and that can't be told."""

ChannelPath = Annotated[str, typer.Argument(metavar="PATH", help="The channel's directory, or its address in a store.")]
ChannelPaths = Annotated[
    list[str], typer.Argument(metavar="PATH…", help="The channels: their directories, or their addresses in a store.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

app: typer.Typer = typer.Typer(
    name="spillable",
    help="Use, watch, check and repair the channels of spillable_stream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _verbs() -> None:
    """Use, watch, check and repair the channels of spillable_stream."""


def fail(path: str, error: Exception, as_json: bool, status: int) -> NoReturn:
    """Say what went wrong and exit.

    Args:
        path: the channel, as it was given.
        error: what was raised.
        as_json: whether to say it as a JSON object on standard output, or in a line on standard error.
        status: the exit status.
    """
    if as_json:
        typer.echo(json.dumps({"path": path, "error": type(error).__name__, "text": str(error)}))
    else:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
    raise typer.Exit(status)
