"""Gives a context variable a value for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["block_value"]

_T = TypeVar("_T")


@contextmanager
def block_value(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Let a variable have a value in the block, and the one before it behind that, wherever an interrupt comes.

    Args:
        variable: the variable, which has a value or a default.
        value: its value in the block, and in threads that run in a copy of its context.
    """
    before = variable.get()
    try:
        variable.set(value)
        yield
    finally:
        variable.set(before)
