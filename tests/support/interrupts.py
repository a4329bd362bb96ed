"""Interrupts at every place where Python lets one in: after a call, a jump back, or the beginning of a function."""

from __future__ import annotations

import dis
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

__all__ = ["Interrupts", "interrupt_main"]

_LETS_IN = ("CALL", "RESUME")


@cache
def _places(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which an interrupt may come.

    Python raises it in the instruction before; so those are left out that another handler of exceptions is for.
    """
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    steps = [(i.offset, after.offset) for i, after in pairwise(instructions) if i.opname.startswith(_LETS_IN)]
    steps += [(i.offset, i.argval) for i in instructions if i.opname == "JUMP_BACKWARD"]
    return frozenset(after for before, after in steps if _handler(code, before) == _handler(code, after))


def _handler(code: CodeType, offset: int) -> int | None:
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)


class Interrupts:
    """Runs something in this thread, and interrupts it at its n-th place in some files.

    Args:
        number: n, counted from 1.
        within: parts of the files' paths.
        handler: what a signal handler does there; None for one that raises ``error``.
        error: what is raised then, and ends `run`: that of Ctrl-C by default.

    Attributes:
        hit: whether there was such a place.
    """

    def __init__(
        self,
        number: int,
        *within: str,
        handler: Callable[[], object] | None = None,
        error: type[BaseException] = KeyboardInterrupt,
    ) -> None:
        self._left = number
        self._within = within
        self._handler = handler
        self._error = error
        self._files: dict[str, bool] = {}
        self.hit = False

    def run(self, do: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            do()
        except self._error:
            assert self.hit
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _: str, __: Any) -> Any:
        """Trace a call if it is in one of the files: whatever costs is done once a call, not once an instruction."""
        code = frame.f_code
        if (is_within := self._files.get(code.co_filename)) is None:
            is_within = self._files[code.co_filename] = any(part in code.co_filename for part in self._within)
        if not is_within:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        places = _places(code)

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode" and frame.f_lasti in places:
                self._left -= 1
                if self._left == 0:
                    self._interrupt()
            return trace

        return trace

    def _interrupt(self) -> None:
        self.hit = True
        if self._handler is None:
            raise self._error
        self._handler()
        sys.settrace(None)


def interrupt_main() -> None:
    """Send Ctrl-C to the main thread of this process, as a terminal does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
