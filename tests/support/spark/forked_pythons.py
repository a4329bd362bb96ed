"""Spark's Pythons, forked from one that has imported what they need."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["fork_pythons"]

_DIRECTORY = Path(__file__).with_name("python")  # of a sitecustomize.py


def fork_pythons() -> None:
    """Let the Pythons of each Spark session that is started from here on be forked: `spark_fork_server` says how."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_DIRECTORY) not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_DIRECTORY), *filter(None, path)])
