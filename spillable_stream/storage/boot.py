"""Identifies the current boot of this machine, and tells how long ago it was."""

from __future__ import annotations

import functools
import time
import uuid
from pathlib import Path

__all__ = ["boot_id", "since_boot_us"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # on Linux also while the machine sleeps


@functools.cache
def boot_id() -> bytes:
    """Return 16 bytes that identify this boot of this machine."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):  # not Linux: the machine's address, so reboots go unnoticed
        return uuid.UUID(int=uuid.getnode()).bytes


def since_boot_us() -> int:
    """Return the time since the boot, in microseconds: a clock that nobody can set."""
    return time.clock_gettime_ns(_CLOCK) // 1000
