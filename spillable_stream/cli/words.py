"""The verbs ``version`` and ``help``, as scripts that start Flume say them."""

from __future__ import annotations

from typing import Annotated

import typer

from spillable_stream.cli.app import UNKNOWN
from spillable_stream.cli.output import say
from spillable_stream.cli.wrong_calls import no_verb

__all__ = ["explain", "version"]


def version() -> None:
    """Print the version.

    Example: `spillable version | cut -d ' ' -f 2`

    Exit status: 0.
    """
    import spillable_stream

    typer.echo(f"spillable_stream {spillable_stream.__version__}")


def explain(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[VERB]", help="A verb, as agent or groups list.")
    ] = None,
) -> None:
    """Print what the verbs do, or how one is used.

    Example: `spillable help agent`

    Exit status: 0, or 2 if there is no such verb.
    """
    root = context.find_root()
    command = root.command
    for number, word in enumerate(words or (), start=1):
        commands = getattr(command, "commands", {})
        if word not in commands:
            say(no_verb((words or [])[:number], commands))
            raise typer.Exit(UNKNOWN)
        command = commands[word]
    raise typer.Exit(root.command.main([*(words or ()), "--help"], prog_name=root.info_name, standalone_mode=False))
