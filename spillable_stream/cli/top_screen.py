"""The screen of ``top``: what is on it, and the keys that change it."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from spillable_stream.cli.top_view import block, block_height, overview
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observer import Observer
from spillable_stream.readiness import has_input

__all__ = ["run", "screen"]

_LEAST_CELLS = 20
_KEYS = "q leaves · o one line each · ↑ ↓ scroll"
_UP, _DOWN = ("\x1b[A", "k"), ("\x1b[B", "j")


def run(observer: Observer, interval_seconds: float, console: Console) -> None:
    """Show channels on a terminal until a key ends it.

    Args:
        observer: looks at the channels.
        interval_seconds: the time between two looks.
        console: the terminal.
    """
    is_compact, first = False, 0
    with _single_keys() as read_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            found = observer.observe()
            due = time.monotonic() + interval_seconds
            while (left := due - time.monotonic()) > 0:
                first = max(0, min(first, len(found) - 1))
                live.update(screen(found[first:], console.width, console.height, is_compact=is_compact), refresh=True)
                match read_key(left):
                    case "q" | "Q" | "\x1b" | "\x03":
                        return
                    case "o" | "O":
                        is_compact = not is_compact
                    case key if key in _UP:
                        first -= 1
                    case key if key in _DOWN:
                        first += 1


def screen(
    observations: Sequence[Observation], width: int, height: int | None, *, is_compact: bool = False
) -> RenderableType:
    """Return the whole view.

    Args:
        observations: the channels.
        width: the terminal's, in cells.
        height: the terminal's, in lines; None for as many as it takes.
        is_compact: whether each channel has one line, even if there is room for more.
    """
    width = max(width, _LEAST_CELLS)  # a terminal that is narrower cuts it
    if height is None:
        return Group(*(block(seen, width) for seen in observations))
    clock = time.strftime("%H:%M:%S")
    head = Text(f"{'spillable top':<{width - len(clock)}}{clock}", "bold reverse")
    foot = Text(_KEYS, "dim", no_wrap=True, overflow="ellipsis")
    room = height - 2
    if is_compact or (len(observations) > 1 and sum(block_height(s, width) for s in observations) > room):
        shown = overview(observations[: max(0, room - 1)], width)
        return Group(head, shown, foot)
    return Group(head, *(block(seen, width) for seen in observations), foot)


@contextlib.contextmanager
def _single_keys() -> Iterator[Callable[[float], str]]:
    """Let keys come one at a time, without an echo; yield what returns the next one, or "" when time is up."""

    def read_key(timeout_seconds: float) -> str:
        if not has_input(source, timeout_seconds):
            return ""
        return os.read(source.fileno(), 8).decode(errors="replace")

    def no_key(timeout_seconds: float) -> str:
        time.sleep(timeout_seconds)
        return ""

    source = sys.stdin
    if not source.isatty():
        yield no_key
        return
    before = termios.tcgetattr(source)
    try:
        tty.setcbreak(source)
        yield read_key
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)
