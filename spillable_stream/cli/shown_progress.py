"""The progress of long work, on the terminal of who runs a verb."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spillable_stream.channel.figures import size_text
from spillable_stream.progress import OnProgress, Progress

__all__ = ["shown_progress"]


@contextmanager
def shown_progress(what: str) -> Iterator[OnProgress | None]:
    """Show a bar on standard error while the block runs, if that is a terminal; yield what moves it, else None.

    Args:
        what: what to show until the work says more, such as "verify".
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    words, done = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[done]}", markup=False)
    columns = (words, BarColumn(), TaskProgressColumn(), done, TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None, done="")

        def move(now: Progress) -> None:
            bars.update(task, description=now.what, total=now.total, completed=now.done, done=_done(now))

        yield move


def _done(now: Progress) -> str:
    """Return how much is done, in words."""
    if now.unit == "bytes":
        return size_text(now.done) + ("" if now.total is None else f" of {size_text(now.total)}")
    return f"{now.done:,}{'' if now.total is None else f' of {now.total:,}'} {now.unit}"
