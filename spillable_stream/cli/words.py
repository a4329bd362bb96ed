"""The verbs ``version`` and ``help``, as scripts that start Flume say them."""

from __future__ import annotations

from typing import Annotated

import typer

from spillable_stream.cli.app import UNKNOWN, app
from spillable_stream.cli.output import say

__all__ = ["explain", "version"]


@app.command()
def version() -> None:
    """Print the version.

    Example: `spillable version | cut -d ' ' -f 2`

    Exit status: 0.
    """
    import spillable_stream

    typer.echo(f"spillable_stream {spillable_stream.__version__}")


@app.command("help")
def explain(
    context: typer.Context, verb: Annotated[str, typer.Argument(metavar="[VERB]", help="A verb.")] = ""
) -> None:
    """Print what the verbs do, or how one is used.

    Example: `spillable help agent`

    Exit status: 0, or 2 if there is no such verb.
    """
    root = context.find_root()
    if not verb:
        typer.echo(root.get_help())
        return
    if verb not in getattr(root.command, "commands", {}):
        say(f"there is no verb {verb!r}; spillable help lists them")
        raise typer.Exit(UNKNOWN)
    root.command.main([verb, "--help"], prog_name=root.info_name, standalone_mode=False)
