"""``python -m spillable_stream``: the command line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from spillable_stream.json_option import wants_object

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Its imports take longer than many a verb. A signal that comes amid them, or behind the verb, ends the process as one
    ends a verb, but at once: nothing is open then, and an exception amid an import might pass for another error.
    """
    _handle_signals(_end_unbegun)
    if sys.argv[1:2] == ["agent"]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it lets one read its files, which this one has yet to do
    from spillable_stream.cli import main as run
    from spillable_stream.cli.verbs import import_verbs

    import_verbs(sys.argv[1:])
    _handle_signals(_end)
    run()


def _handle_signals(handler: Callable[[int, object], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and the background of a script have it
            signal.signal(number, handler)


def _end_unbegun(number: int, _: object) -> None:
    """End before the verb begins, also with the object that it would print then."""
    try:
        if wants_object(sys.argv[1:]):
            os.write(1, b'{"interrupted": true, "text": ""}\n')
    finally:
        _end(number, _)


def _end(number: int, _: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:  # also where nobody hears it
        os._exit(128 + number)


if __name__ == "__main__":
    main()
