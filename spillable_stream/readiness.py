"""Whether something can be read without waiting."""

from __future__ import annotations

import math
import select
from typing import Protocol

__all__ = ["has_input"]


_MOST_SECONDS = 2_000_000.0  # the kernel counts milliseconds in 31 bits


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def has_input(source: _HasFileno, timeout_seconds: float = 0.0) -> bool:
    """Wait until something can be read from a pipe, a socket or a terminal, or it has ended.

    `select.select` refuses descriptors from 1024 on, which a process with a thousand open files has.

    Args:
        source: what to read from.
        timeout_seconds: how long to wait at most, up to some weeks.

    Returns:
        Whether a read would return at once.

    Raises:
        OSError: it has no descriptor.
        ValueError: it is closed.
    """
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN | select.POLLPRI)
    return bool(poll.poll(math.ceil(1000 * min(max(0.0, timeout_seconds), _MOST_SECONDS))))
