"""The command line's root, and what all its verbs share: exit statuses, arguments, and how an error ends one."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer

from spillable_stream.cli.next_steps import after_damage, next_step
from spillable_stream.cli.output import forget_output, is_output_lost, say, system_error
from spillable_stream.cli.verbs import MARKUP, Verbs
from spillable_stream.cli.wrong_calls import UsageError, VerbGroup, channel_option_hint
from spillable_stream.errors import NotAChannelError, OptionError, SpillableError
from spillable_stream.json_option import wants_object
from spillable_stream.option_names import name_as_in_files
from spillable_stream.termination import Terminated

__all__ = [
    "HEALTHY",
    "UNHEALTHY",
    "UNKNOWN",
    "AsJson",
    "allow_many_files",
    "app",
    "as_line",
    "confirm",
    "cut_short",
    "ending",
    "fail",
    "print_object",
    "status_after",
    "until_signal",
]

HEALTHY, UNHEALTHY, UNKNOWN = 0, 1, 2
"""The exit statuses: all is well, it is not, and that can't be told."""

_ARGUMENTS = "spillable.arguments"  # what a context remembers of the call

_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # of pairs; the others stand for the bytes of a path


@dataclass(slots=True)
class _Run:
    """How a verb is run: whether it prints a JSON object, and whether it has."""

    as_json: bool = False
    has_printed: bool = False


_run: ContextVar[_Run | None] = ContextVar("spillable verb", default=None)


def _remember(value: bool) -> bool:
    if (run := _run.get()) is not None:
        run.as_json = value
    return value


AsJson = Annotated[bool, typer.Option("--json", callback=_remember, help="Print one JSON object instead of text.")]


class _Verbs(VerbGroup):
    """The verbs, each of which Ctrl-C, SIGTERM and SIGHUP end with a line and a status, wherever they come."""

    def __init__(self, *, commands: Any, **more: Any) -> None:
        verbs: Any = commands or Verbs()
        super().__init__(commands=verbs, **more)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the verbs, and import none of them."""
        return [*self.commands]

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        given = tuple(args)  # typer takes them out of the list
        try:
            context = super().make_context(info_name, args, *more, **named)
        except KeyboardInterrupt as e:
            raise cut_short(e, as_json=wants_object(given)) from None
        context.meta[_ARGUMENTS] = given
        return context

    def invoke(self, ctx: Any) -> Any:
        name_as_in_files()  # as ``-o`` has them
        run = _Run(as_json=wants_object(ctx.meta[_ARGUMENTS]))  # until typer has read them
        before = _run.set(run)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as e:
            raise cut_short(e, as_json=run.as_json) from None
        except ImportError as e:
            if isinstance(e, ModuleNotFoundError):  # a fault of this package; it says what of others is missing
                raise
            if not run.as_json or not print_object({"error": ImportError.__name__, "text": str(e)}):
                say(f"{ImportError.__name__}: {e}")
            raise typer.Exit(UNKNOWN) from None
        except UsageError as e:
            e.message += channel_option_hint(e)
            if not wants_object(ctx.meta[_ARGUMENTS]) or not _has_json(e.ctx):
                raise
            print_object({"error": OptionError.__name__, "text": e.format_message()})
            raise typer.Exit(UNKNOWN) from None
        finally:
            _run.reset(before)


app: typer.Typer = typer.Typer(
    name="spillable",
    cls=_Verbs,
    help="Use, watch, check, repair and back up the channels of spillable_stream.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        import spillable_stream

        typer.echo(f"spillable_stream {spillable_stream.__version__}")
        raise typer.Exit


@app.callback()
def _verbs(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Use, watch, check, repair and back up the channels of spillable_stream."""


def fail(path: str, error: Exception, as_json: bool, status: int, hint: str = "", **done: Any) -> NoReturn:
    """Say what went wrong and exit; not of an output that is lost, which `main` ends.

    Args:
        path: the channel, as it was given.
        error: what was raised.
        as_json: whether to say it as a JSON object on standard output, or in a line on standard error.
        status: the exit status.
        hint: more of what to do.
        done: more of what a JSON object says.

    Raises:
        OSError: standard output can't be written, or nobody reads it any more.
    """
    if isinstance(error, OSError) and is_output_lost():
        raise error
    kind, text = type(error).__name__, system_error(error) if isinstance(error, OSError) else str(error)
    text += next_step(error) + hint
    if not as_json or not print_object({"path": path, "error": kind, "text": text, **done}):
        typer.echo(f"{kind}: {text}", err=True)
    raise typer.Exit(status)


def print_object(found: Mapping[str, Any]) -> bool:
    """Print the JSON object of a verb, unless it has printed one: an error or a signal may come at its very end.

    Returns:
        Whether it was printed.
    """
    run = _run.get()
    if run is not None:
        if run.has_printed:
            return False
        run.has_printed = True
    typer.echo(as_line(found))
    return True


def as_line(found: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a line in UTF-8, which a path may not be: each byte that is not becomes a mark for it."""
    text = json.dumps(found, default=str, ensure_ascii=False)
    return _HALVES.sub("\ufffd", text).encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def status_after(error: KeyboardInterrupt) -> int:
    """Return the exit status of a verb that a signal has cut short: 128 and the signal's number, as shells have it."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def cut_short(
    error: KeyboardInterrupt, stands: str = "", path: str = "", *, as_json: bool = False, **done: Any
) -> typer.Exit:
    """Say that a signal cut a verb short, and return what ends it with its status, also where nobody hears it.

    Args:
        error: what the signal raised.
        stands: where the work stands, in words.
        path: the channel, as it was given.
        as_json: whether to print a JSON object, too.
        done: more of what it says.
    """
    stands = "; ".join(filter(None, [*getattr(error, "__notes__", ()), stands]))  # a store that did not answer is one
    with suppress(OSError):  # Ctrl-C ends the reader of a pipe, too
        say("interrupted" + (stands and f": {stands}"))
    if as_json:
        try:
            print_object({**({"path": path} if path else {}), "interrupted": True, "text": stands, **done})
        except OSError:
            forget_output()
    return typer.Exit(status_after(error))


def _has_json(context: Any) -> bool:
    """Tell whether the verb that refuses a call has the option `AsJson`, which typer may not have read by then."""
    return context is not None and any(parameter.name == "as_json" for parameter in context.command.params)


@contextmanager
def until_signal() -> Iterator[None]:
    """Let a signal end a verb that has no other end: it ends as it should, with status 0."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(HEALTHY) from None


def allow_many_files() -> None:
    """Let this process open as many files as it may ever: a look at a channel holds some fifteen."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def ending(
    path: str,
    as_json: bool = False,
    interrupted: Callable[[], str] = str,
    done: Callable[[], Mapping[str, Any]] = dict,
    failed: Callable[[], str] = str,
) -> Iterator[None]:
    """Let an error or a signal end a verb with a line and a status: 2 where nothing was tried, 1, or `status_after`.

    That standard output can't be written, or that nobody reads it any more (``spillable tail … | head``), passes:
    `main` ends with the status of that.

    Args:
        path: the channel, as it was given.
        as_json: whether the result is a JSON object on standard output, also of an error or an interrupt.
        interrupted: says where the work stands, for a signal.
        done: says it for a program, likewise; also of an error by which a part may be done.
        failed: says it for an error of a channel, behind the error's text.
    """
    try:
        yield
    except (NotAChannelError, OptionError, ImportError) as e:
        fail(path, e, as_json, UNKNOWN, failed())
    except SpillableError as e:
        fail(path, e, as_json, UNHEALTHY, after_damage(e, path) + failed(), **done())
    except OSError as e:
        fail(path, e, as_json, UNHEALTHY, **done())
    except KeyboardInterrupt as e:
        raise cut_short(e, interrupted(), path, as_json=as_json, **done()) from None


def is_terminal() -> bool:
    """Tell whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def _end_unconfirmed(path: str, text: str, as_json: bool, status: int, **why: Any) -> NoReturn:
    """End a verb whose question has not been answered with yes."""
    if not as_json or not print_object({"path": path, **why, "text": text}):
        say(text)
    raise typer.Exit(status)


def confirm(path: str, question: str, yes: bool) -> None:
    """Ask before something that can't be undone; where nobody can be asked, require ``--yes``.

    Args:
        path: the channel, as it was given.
        question: what will happen, as a question.
        yes: whether ``--yes`` was given.
    """
    if yes:
        return
    if not is_terminal():
        text = f"{question} Nothing was changed: give --yes where nobody can be asked"
        _end_unconfirmed(path, text, _is_as_json(), UNKNOWN, error=OptionError.__name__)
    if not _ask(path, question):
        _end_unconfirmed(path, "nothing was changed", _is_as_json(), UNHEALTHY, declined=True)


def _ask(path: str, question: str) -> bool:
    """Ask whoever is at the terminal, before anything is changed, and tell whether the answer is yes.

    Args:
        path: the channel, as it was given.
        question: what will happen, as a question.
    """
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as e:  # Ctrl-C, or the end of the input
        say("")
        if isinstance(e.__context__, KeyboardInterrupt):
            raise cut_short(e.__context__, "nothing was changed", path, as_json=_is_as_json()) from None
        return False


def _is_as_json() -> bool:
    run = _run.get()
    return run is not None and run.as_json
