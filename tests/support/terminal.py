"""Verbs whose standard error, or all, is a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from typing import NamedTuple

from tests.support.command_line import ROOT, start


class OnTerminal(NamedTuple):
    """What a verb did on a terminal.

    Args:
        status: its exit status.
        printed: what it printed on standard output, a pipe.
        shown: what it showed on the terminal, its standard error.
    """

    status: int
    printed: str
    shown: str


def on_terminal(*arguments: object) -> OnTerminal:
    """Run a verb as a program whose standard error is a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65_536):
                shown.append(data)
        except OSError:  # the other end is closed
            pass

    reading = threading.Thread(target=read)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    try:
        running = start(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    finally:
        os.close(theirs)
    reading.start()
    printed, _ = running.communicate(timeout=120)
    reading.join()
    os.close(ours)
    return OnTerminal(running.returncode, printed.decode(), b"".join(shown).decode())
