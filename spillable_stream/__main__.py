"""``python -m spillable_stream``: the command line."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Its imports take longer than many a verb. A signal that comes amid them, or behind the verb, ends the process as one
    ends a verb, but at once: nothing is open then, and an exception amid an import might pass for another error.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and the background of a script have it
            signal.signal(number, _end)
    from spillable_stream.cli import main as run

    run()


def _end(number: int, _: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:  # also where nobody hears it
        os._exit(128 + number)


if __name__ == "__main__":
    main()
