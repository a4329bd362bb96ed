"""The command line's root, and what all its verbs share: exit statuses, arguments, and how an error ends one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from spillable_stream.errors import NotAChannelError, OptionError, SpillableError

__all__ = [
    "HEALTHY",
    "INTERRUPTED",
    "UNHEALTHY",
    "UNKNOWN",
    "AsJson",
    "ChannelPath",
    "ChannelPaths",
    "Yes",
    "allow_many_files",
    "app",
    "confirm",
    "ending",
    "fail",
    "forget_output",
    "say",
    "system_error",
]

HEALTHY, UNHEALTHY, UNKNOWN = 0, 1, 2
"""The exit statuses: all is well, it is not, and that can't be told."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""


_T = TypeVar("_T", str, list[str])


def _given(value: _T) -> _T:
    """Refuse an empty path: it would name the working directory, and is rather a script's variable without a value."""
    if value == "" or (isinstance(value, list) and "" in value):
        raise typer.BadParameter("it is empty; give a channel's directory, or its address in a store")
    return value


ChannelPath = Annotated[
    str,
    typer.Argument(metavar="PATH", callback=_given, help="The channel's directory, or its address in a store."),
]
ChannelPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        callback=_given,
        help="The channels: directories, addresses in a store, or patterns, in quotes: '/data/orders-*'.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Without a terminal it is required.")]


class _Verbs(TyperGroup):
    """The verbs, each of which Ctrl-C ends with a line and a status, wherever it comes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(INTERRUPTED) from None


app: typer.Typer = typer.Typer(
    name="spillable",
    cls=_Verbs,
    help="Use, watch, check, repair and back up the channels of spillable_stream.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _verbs() -> None:
    """Use, watch, check, repair and back up the channels of spillable_stream."""


def fail(path: str, error: Exception, as_json: bool, status: int) -> NoReturn:
    """Say what went wrong and exit.

    Args:
        path: the channel, as it was given.
        error: what was raised.
        as_json: whether to say it as a JSON object on standard output, or in a line on standard error.
        status: the exit status.
    """
    kind, text = type(error).__name__, system_error(error) if isinstance(error, OSError) else str(error)
    if as_json:
        typer.echo(json.dumps({"path": path, "error": kind, "text": text}))
    else:
        typer.echo(f"{kind}: {text}", err=True)
    raise typer.Exit(status)


def system_error(error: OSError) -> str:
    """Return what the system refused, and to what, as a sentence."""
    if error.strerror is None:
        return str(error)
    what = f"{error.filename}: " if error.filename is not None else ""
    return f"{what}{error.strerror} (errno {error.errno})"


def allow_many_files() -> None:
    """Let this process open as many files as it may ever: a look at a channel holds some fifteen."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def forget_output() -> None:
    """Let nothing more be written to standard output, which is closed or full: Python would try again as it ends."""
    with suppress(OSError, ValueError):  # it may not be a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Say something to people: on standard error, so that standard output is the verb's result."""
    typer.echo(text, err=True)


@contextmanager
def ending(path: str, as_json: bool = False, interrupted: Callable[[], str] | None = None) -> Iterator[None]:
    """Let an error or an interrupt end a verb with a line and a status: 2 where nothing was tried, else 1 or 130.

    That nobody reads the output any more (``spillable tail … | head``) passes: `main` ends silently.

    Args:
        path: the channel, as it was given.
        as_json: whether errors are JSON objects on standard output.
        interrupted: says where the work stands, for Ctrl-C.
    """
    try:
        yield
    except (NotAChannelError, OptionError, ImportError) as e:
        fail(path, e, as_json, UNKNOWN)
    except BrokenPipeError:
        raise
    except SpillableError as e:
        fail(path, e, as_json, UNHEALTHY)
    except OSError as e:
        is_of_output = e.filename is None
        if is_of_output:
            forget_output()
        fail(path, e, as_json and not is_of_output, UNHEALTHY)
    except KeyboardInterrupt:
        say("interrupted" + (f": {interrupted()}" if interrupted is not None else ""))
        raise typer.Exit(INTERRUPTED) from None


def is_terminal() -> bool:
    """Tell whether somebody can be asked."""
    return sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask before something that can't be undone; where nobody can be asked, require ``--yes``.

    Args:
        question: what will happen, as a question.
        yes: whether ``--yes`` was given.
    """
    if yes:
        return
    if not is_terminal():
        say(f"{question} Nothing was changed: give --yes where nobody can be asked")
        raise typer.Exit(UNKNOWN)
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort as e:  # Ctrl-C, or the end of the input
        is_interrupted = isinstance(e.__context__, KeyboardInterrupt)
        say(f"\n{'interrupted: ' if is_interrupted else ''}nothing was changed")
        raise typer.Exit(INTERRUPTED if is_interrupted else UNHEALTHY) from None
    if not is_confirmed:
        say("nothing was changed")
        raise typer.Exit(UNHEALTHY)
