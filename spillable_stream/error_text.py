"""What an error says, whatever the code does that raised it."""

from __future__ import annotations

import threading

__all__ = ["is_interrupt", "text_of", "type_and_text"]


def is_interrupt(error: BaseException) -> bool:
    """Tell whether an error is the user's Ctrl-C, which is nobody's to keep."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def text_of(error: BaseException | None) -> str:
    """Return what an error says, also if its own text raises."""
    try:
        return str(error)
    except BaseException as e:
        if is_interrupt(e):
            raise
        return f"(its text can't be told: {type(e).__name__})"


def type_and_text(error: BaseException | None) -> str:
    """Return an error's type and what it says, as a traceback ends."""
    return f"{type(error).__name__}: {text_of(error)}"
