"""Have the Pythons that Spark starts import PySpark from where it is installed, which is compiled once.

Spark puts archives of the same modules before it, which each process would compile anew.
"""

import os
import sys

_ARCHIVES = ("pyspark", "py4j-", "spark-core_")


def _is_installed(package: str) -> bool:
    return any(os.path.isdir(os.path.join(entry, package)) for entry in sys.path)


if _is_installed("pyspark") and _is_installed("py4j"):
    sys.path[:] = [
        entry
        for entry in sys.path
        if not (entry.endswith((".zip", ".jar")) and os.path.basename(entry).startswith(_ARCHIVES))
    ]
