"""What the tests need to know of Spark's versions; for users it is in docs/compatibility.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyspark
import pytest

SPARK = tuple(int(n) for n in pyspark.__version__.split(".")[:2])
ADMISSION_CONTROL = SPARK >= (4, 2)  # the source is told of limits and of the trigger


def needs(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Return the mark of a test of what older versions of Spark lack."""
    return pytest.mark.skipif((major, minor) > SPARK, reason=f"Spark has {what} since {major}.{minor}")


def drain(start: Callable[[], Any]) -> list[Any]:
    """Run a query with the trigger availableNow until it has read all there is; return its batches' reports.

    Args:
        start: starts the query. Without admission control it is called until a run reads nothing: such a run ends after
            one batch, be it a new one or the replay of one that was under way. The last run, which reads nothing, lets
            the source commit the take of the batch before.
    """
    reports = []
    while True:
        query = start()
        query.awaitTermination()
        read = [report for report in query.recentProgress if report.numInputRows]
        reports += read
        if ADMISSION_CONTROL or not read:
            return reports
