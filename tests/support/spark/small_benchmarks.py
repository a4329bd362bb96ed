"""A program that runs all of Spark's benchmarks at tiny sizes, one after another in one process: `make bench-spark`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from benchmarks import run, spark_latency, spark_rows, spark_sink, spark_source
from benchmarks.rounds import Plan
from benchmarks.spark import SPARK_PARTS

__all__ = ["main"]


def main(directory: Path) -> None:
    """Measure in a directory, and leave there what was found.

    Args:
        directory: for `found`, a pickle.
    """
    kinds = tuple(kind._replace(batch_rows=400) for kind in spark_rows.KINDS)
    spark_source._BATCHES = spark_sink._BATCHES = 3
    spark_latency._EVENTS, spark_latency._WARM_UP_EVENTS = 4, 2
    found = run.Run(Plan(rounds=1))
    for name in SPARK_PARTS:
        spark_rows.KINDS = kinds[:1] if name == "spark-objects" else kinds  # a task of a store takes seconds
        part = run.run([name], found.plan, directory)
        found.parts |= part.parts
        found.broken |= part.broken
    (directory / "found").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
