"""The screen of ``spillable top``."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from spillable_stream.cli.top_screen import screen
from spillable_stream.observe.observer import Observer
from tests.support.waiting import is_readable


def test_channels_that_do_not_fit_have_a_line_each(filled: Path) -> None:
    with Observer([filled, f"{filled}-missing"]) as observer:
        found = observer.observe()

    def lines(height: int) -> list[str]:
        console = Console(width=80, height=height, color_system=None)
        with console.capture() as captured:
            console.print(screen(found, 80, height))
        return captured.get().splitlines()

    assert any("drain" in line for line in lines(40))
    few = lines(8)
    assert not any("drain" in line for line in few) and len(few) <= 8
    assert few[0].startswith("spillable top") and few[-1].startswith("q leaves")


@pytest.mark.parametrize("height", [None, 1, 2, 5])
@pytest.mark.parametrize("width", [1, 7, 8, 19, 20])
def test_it_is_drawn_on_the_smallest_terminal(filled: Path, width: int, height: int | None) -> None:
    with Observer([filled, f"{filled}-missing"]) as observer:
        found = observer.observe()
    for seen in (found, found[:1], []):
        console = Console(width=width, height=height, color_system=None)
        with console.capture() as captured:
            console.print(screen(seen, width, height))
        assert all(len(line) <= width for line in captured.get().splitlines())


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_on_a_terminal_it_lives_until_a_key_and_leaves_the_terminal_as_it_was(filled: Path, key: bytes) -> None:
    ours, theirs = pty.openpty()
    try:
        before = termios.tcgetattr(theirs)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"}
        arguments = [sys.executable, "-m", "spillable_stream", "top", "--interval", "0.1", str(filled)]
        # The terminal is the process's own, so that Ctrl-C comes as from a keyboard: a signal that the test sent would
        # race with the key, at which a terminal discards what was written to it.
        running = subprocess.Popen(
            ["setsid", "--ctty", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        try:
            _read_until(ours, b"billing")
            os.write(ours, b"o")
            _read_until(ours, b"events")
            os.write(ours, key)
            _read_until(ours, b"\x1b[?1049l")
            assert running.wait(60) == 0
        finally:
            running.kill()
            running.wait()
        assert termios.tcgetattr(theirs) == before
    finally:
        os.close(ours)
        os.close(theirs)


def _read_until(terminal: int, wanted: bytes) -> bytes:
    """Return what a terminal shows until it shows something."""
    found, deadline = b"", time.monotonic() + 60
    while wanted not in found:
        assert time.monotonic() < deadline, found
        if is_readable(terminal, 1):
            found += os.read(terminal, 65_536)
    return found
