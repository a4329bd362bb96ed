"""Directories of what hypothesis runs: many in one test, each of which would sync files on a disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["scratch_directory"]


def scratch_directory() -> Path:
    """Create a directory where the fixtures of pytest have theirs; whoever asks for it removes it."""
    return Path(tempfile.mkdtemp(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
