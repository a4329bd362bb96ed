"""The Pythons that are started from here, by Spark too."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["quick_pythons"]

_DIRECTORY = Path(__file__).with_name("python")  # of a sitecustomize.py


def quick_pythons() -> None:
    """Let every Python that is started from here on find PySpark compiled, which halves the time that Spark's need.

    None does linear algebra, so NumPy makes no threads for it: a third of the processor's time of our import.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_DIRECTORY) not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_DIRECTORY), *path]))
