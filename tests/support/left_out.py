"""Which files may have tests that `make test` leaves out."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["LEFT_OUT", "may_have_what_is_left_out"]

LEFT_OUT = "slow or hypothesis or crash"
"""What `make test-rest` runs, as pytest is told."""

_NAMES = re.compile(r"slow|hypothesis|crash", re.IGNORECASE)


@cache
def may_have_what_is_left_out(file: Path) -> bool:
    """Tell whether a file may have tests that `LEFT_OUT` names: those that have them say so somewhere."""
    return _NAMES.search(file.read_text()) is not None
