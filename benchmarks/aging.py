"""Memory as a process ages: measured in a process of its own, which a module is when it is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.rounds import Figures

__all__ = ["age"]


def age(module: str, directory: Path, seconds: float) -> Figures:
    """Return what a module that is run prints, in MB: its resident bytes when it is busy, and so many seconds later."""
    command = [sys.executable, "-m", module, str(directory), str(seconds)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    young, old = (int(word) / 1e6 for word in said.split())
    return {"at first": young, "at last": old, "growth": old - young}
