"""What an error says, whatever the code does that raised it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath

__all__ = ["is_interrupt", "may_be_of_a_signal", "naming", "text_of", "type_and_text"]


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is the user's Ctrl-C, which is nobody's to keep."""
    return isinstance(error, KeyboardInterrupt) and may_be_of_a_signal(error)


def may_be_of_a_signal(error: BaseException) -> bool:
    """Tell whether a signal may have raised an error, as Ctrl-C and SIGTERM do: in the main thread, anywhere."""
    is_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, (KeyboardInterrupt, SystemExit)) and is_main


def text_of(error: BaseException | None) -> str:
    """Return what an error says, also if its own text raises; of a group of errors, what each of them says."""
    try:
        text = str(error)
    except BaseException as e:
        if is_interrupt(e):
            raise
        return f"(its text can't be told: {type(e).__name__})"
    if isinstance(error, BaseExceptionGroup):
        return f"{text}: {'; '.join(map(type_and_text, error.exceptions))}"
    return text


def type_and_text(error: BaseException | None) -> str:
    """Return an error's type and what it says, as a traceback ends."""
    return f"{type(error).__name__}: {text_of(error)}"


@contextmanager
def naming(path: str | PathLike[str]) -> Iterator[None]:
    """Let an `OSError` name a file that is read: the system names it only where it can't be opened."""
    try:
        yield
    except OSError as e:
        if e.filename is None and e.strerror is not None:
            e.filename = fspath(path)
        raise
