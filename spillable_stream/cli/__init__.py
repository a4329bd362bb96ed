"""The command line: ``spillable VERB …``. Each module has the verbs that its name says.

The exit status is 0 if all is well, 1 if it is not, and 2 if that can't be told; 129, 130 or 143 after a
signal that cut a verb short (`spillable_stream.cli.app.status_after`), 141 where nobody reads its output, and 74
where that can't be written.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import TextIO

from typer.main import get_command

from spillable_stream.cli.app import UNHEALTHY, UNKNOWN, app, cut_short
from spillable_stream.cli.output import (
    UNREAD,
    UNWRITTEN,
    forget_output,
    say,
    status_of_output,
    system_error,
    watch_output,
)
from spillable_stream.cli.terminal_size import bound_terminal_size
from spillable_stream.termination import interrupting_on_signals

__all__ = ["app", "main"]

_COMMAND = get_command(app)  # with the imports, amid which a signal ends the process with the verb's object
_SIGNALLED = 128  # the statuses beyond it are those of signals


def main() -> None:
    """Run the command line."""
    status: str | int | None
    try:
        with interrupting_on_signals():
            bound_terminal_size(os.environ)
            _prepare_output()
            sys.exit(_COMMAND())
    except KeyboardInterrupt as e:  # before the verb, or at its very end
        status = cut_short(e).exit_code
    except SystemExit as e:
        is_unsaid = isinstance(e.__context__, BrokenPipeError)  # typer and rich end with 1 then
        status = _unsaid(e.__context__) if is_unsaid else e.code
    except OSError as e:
        status = _escaped(e)
    is_cut_short = isinstance(status, int) and status > _SIGNALLED
    status = status if is_cut_short else (status_of_output() or status)
    _forget_what_can_not_be_said()
    sys.exit(status)


def _forget_what_can_not_be_said() -> None:
    """Let Python not try again, as it ends, to write what standard error refused: it would end with 120 instead."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        forget_output(sys.stderr)


def _escaped(error: OSError) -> int:
    """Return the status of an error that no verb handled: of standard output or standard error, or of a verb."""
    if isinstance(error, BrokenPipeError):
        return _unsaid(error)
    if (status := status_of_output()) is not None:
        return status
    try:
        say(f"{type(error).__name__}: {system_error(error)}")
    except OSError as e:
        return _unsaid(e)
    return UNHEALTHY


def _unsaid(error: BaseException | None) -> int:
    """Return the status of a verb that can't say anything any more, on either stream.

    Where nobody hears it, it ends as SIGPIPE ends other programs, which Python ignores: a lost connection of a store
    ends no verb.
    """
    is_unread = isinstance(error, BrokenPipeError) and status_of_output() in (None, UNREAD)
    forget_output(sys.stdout, sys.stderr)
    return UNREAD if is_unread else UNWRITTEN


def _prepare_output() -> None:
    warnings.showwarning = _show_warning
    if sys.stdout is None:
        say("standard output is closed: send it to a file, or to /dev/null")
        sys.exit(UNKNOWN)
    watch_output()


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as a line for people, not for programmers; one that can't be shown ends no work."""
    with suppress(OSError):
        say(f"{category.__name__}: {message}")
