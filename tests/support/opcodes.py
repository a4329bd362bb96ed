"""Counts what Python's interpreter does: a cost that is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["opcodes"]


def opcodes(work: Callable[[], object], counts: Callable[[FrameType], bool]) -> int:
    """Return how many of the instructions that ``work`` executes count.

    Args:
        work: what to do.
        counts: whether the instruction that a frame is about to execute counts.
    """
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode" and counts(frame)
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
