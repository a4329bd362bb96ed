"""How large the laboratory's recipes are: small in CI, large on demand (``make crash``)."""

from __future__ import annotations

import os

__all__ = ["sized"]


def sized(ci: int, full: int) -> int:
    """Return the number of cycles for this run: ``full`` where CRASH_SIZE is "full", else ``ci``."""
    return full if os.environ.get("CRASH_SIZE") == "full" else ci
