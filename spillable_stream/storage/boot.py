"""Identifies the current boot of this machine."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path

__all__ = ["boot_id"]


@functools.cache
def boot_id() -> bytes:
    """Return 16 bytes that identify this boot of this machine."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):  # not Linux: the machine's address, so reboots go unnoticed
        return uuid.UUID(int=uuid.getnode()).bytes
