"""Which boot of which machine this is."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path

__all__ = ["boot_id"]


@functools.cache
def boot_id() -> bytes:
    """Return the 16 bytes that name this boot of this machine."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):  # not Linux: the node's address, so that a reboot is not noticed
        return uuid.UUID(int=uuid.getnode()).bytes
