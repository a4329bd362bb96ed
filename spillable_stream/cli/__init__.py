"""The command line: ``spillable VERB …``. Each module has the verbs that its name says.

The exit status is 0 if all is well, 1 if it is not, and 2 if that can't be told; 129, 130 or 143 after a
signal that cut a verb short (`spillable_stream.cli.app.status_after`), and 141 where nobody reads its output.
"""

from __future__ import annotations

import sys
import warnings
from io import TextIOWrapper
from typing import NoReturn, TextIO

from spillable_stream.cli import (
    consume,
    copies,
    create,
    dead_letters,
    describe,
    examine,
    export,
    flow_agent,
    flow_events,
    flow_graph,
    flow_test,
    flow_validate,
    groups,
    metrics,
    put,
    top,
    ui,
    words,
)
from spillable_stream.cli.app import UNHEALTHY, UNKNOWN, UNREAD, app, cut_short, forget_output, say, system_error
from spillable_stream.termination import interrupting_on_signals

__all__ = [
    "app",
    "consume",
    "copies",
    "create",
    "dead_letters",
    "describe",
    "examine",
    "export",
    "flow_agent",
    "flow_events",
    "flow_graph",
    "flow_test",
    "flow_validate",
    "groups",
    "main",
    "metrics",
    "put",
    "top",
    "ui",
    "words",
]


def main() -> None:
    """Run the command line."""
    try:
        with interrupting_on_signals():
            _prepare_output()
            sys.exit(app())
    except KeyboardInterrupt as e:  # before the verb, or at its very end
        sys.exit(cut_short(e).exit_code)
    except BrokenPipeError:
        _end_unread()
    except SystemExit as e:
        if isinstance(e.__context__, BrokenPipeError):  # typer and rich end with 1 then
            _end_unread()
        raise
    except OSError as e:
        forget_output()
        say(f"{type(e).__name__}: {system_error(e)}")
        sys.exit(UNHEALTHY)


def _end_unread() -> NoReturn:
    """End as SIGPIPE ends other programs, which Python ignores: a lost connection of a store is no end of a verb."""
    forget_output(sys.stdout, sys.stderr)
    sys.exit(UNREAD)


def _prepare_output() -> None:
    warnings.showwarning = _show_warning
    if sys.stdout is None:
        say("standard output is closed: send it to a file, or to /dev/null")
        sys.exit(UNKNOWN)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a path may have letters that the locale lacks; standard error copes


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as a line for people, not for programmers."""
    say(f"{category.__name__}: {message}")
