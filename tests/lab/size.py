"""How large the laboratory's recipes are: small in CI, large on demand (``make crash``)."""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["sized"]

T = TypeVar("T")


def sized(ci: T, full: T) -> T:
    """Return what this run has, as a number of cycles: ``full`` where CRASH_SIZE is "full", else ``ci``."""
    return full if os.environ.get("CRASH_SIZE") == "full" else ci
