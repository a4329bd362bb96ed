"""Forked children of a test that do one thing, say what is wrong, and end."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

__all__ = ["in_child"]

_SECONDS = 120  # of a child that hangs; none takes as long


def in_child(work: Callable[[], object]) -> None:
    """Run ``work`` in a forked child, and fail if it raises, with its traceback, returns False, or hangs."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(_SECONDS)
            assert work() is not False
            os.write(writer, b"ok")
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said == b"ok", said.decode() or f"the child hung for {_SECONDS} s"
