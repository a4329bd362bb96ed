"""Counts what Python's interpreter does: a cost that is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import Any

__all__ = ["opcodes"]


def opcodes(
    work: Callable[[], object],
    counted: Callable[[CodeType, dict[str, object]], Container[int]] = lambda _, __: range(1 << 30),
    within: str = "",
) -> int:
    """Return how many of the instructions that ``work`` executes count.

    Args:
        work: what to do.
        counted: returns the offsets of the instructions of a function that count, by its code and its globals; all by
            default. It is asked once for each.
        within: a part of the paths of the files whose instructions count.
    """
    count = 0
    known: dict[int, tuple[CodeType, Container[int]]] = {}  # by the code's ID: its hash takes long

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        if within not in code.co_filename:
            return None
        if id(code) not in known:
            known[id(code)] = code, counted(code, frame.f_globals)
        offsets = known[id(code)][1]
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def note(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal count
            count += event == "opcode" and frame.f_lasti in offsets
            return note

        return note

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
