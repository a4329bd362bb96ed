"""A program that runs all of Spark's benchmarks at tiny sizes, one after another in one process: `make bench-spark`."""

from __future__ import annotations

import pickle
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import run, spark_latency, spark_rows, spark_session, spark_sink, spark_source, spark_start
from benchmarks.rounds import Comparison, Group, Plan, measure
from benchmarks.spark import SPARK_PARTS

__all__ = ["main"]

_ITS_OWN_JVM = "spark-objects"  # a JVM's workers know of the store what its environment said when it was started


def main(directory: Path) -> None:
    """Measure in a directory, and leave there what was found.

    Args:
        directory: for `found`, a pickle.
    """
    first, *_, last = spark_rows.KINDS  # the one between them is the first one with a longer text
    spark_rows.KINDS = tuple(kind._replace(batch_rows=400) for kind in (first, last))
    spark_session.WARM_UP_BATCHES, spark_source._BATCHES, spark_sink._BATCHES = 1, 2, 2
    spark_latency._FIRST_EVENTS, spark_latency._WARM_UP_EVENTS, spark_latency._WARM_UP_BATCHES = 2, 1, 1
    run.measure = _without_warm_ups
    found = run.Run(Plan(rounds=1))
    with _one_session():
        for name in SPARK_PARTS:
            if name != _ITS_OWN_JVM:
                _run(name, found, directory)
    spark_rows.KINDS = spark_rows.KINDS[:1]  # a task of a store takes seconds
    _run(_ITS_OWN_JVM, found, directory)
    (directory / "found").write_bytes(pickle.dumps(found))


def _run(name: str, found: run.Run, directory: Path) -> None:
    part = run.run([name], found.plan, directory)
    found.parts |= part.parts
    found.broken |= part.broken


def _one_session() -> ExitStack:
    """Let the parts share a JVM: what one of them has compiled is of no weight here."""
    stack = ExitStack()
    session: Any = stack.enter_context(spark_session.session())
    for part in (spark_latency, spark_sink, spark_source, spark_start):
        stack.enter_context(mock.patch.object(part, "session", lambda: nullcontext(session)))
    return stack


def _without_warm_ups(group: Group, *measured: Any) -> Comparison:
    return measure(replace(group, warm_ups=0), *measured)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
