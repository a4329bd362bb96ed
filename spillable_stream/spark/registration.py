"""Making the format known to a session, and proving that Spark's Python can run it."""

from __future__ import annotations

import re
import sys
from typing import Any

from pyspark.errors import PySparkException

from spillable_stream.errors import OptionError, PythonMismatchError
from spillable_stream.shown_value import shown
from spillable_stream.spark.cluster_size import tell_workers
from spillable_stream.spark.datasource import SpillableDataSource

__all__ = ["register", "require_session", "wrong_python"]

_NOWHERE = "/nonexistent/spillable"
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_WRONG_PYTHONS = (
    (re.compile(r"No module named '([\w.]+)'"), "has no module {0}"),
    (re.compile(r"different version:? \(?([\d.]+)"), f"is {{0}}, and this one is {_VERSION}"),
    (re.compile(r"Cannot run program"), "can't be run"),
)


def register(spark: Any) -> None:
    """Make ``format("spillable")`` known to a Spark session, unless the session found it by itself.

    Where the configuration says how many tasks the cluster runs at once, it is registered anyway, so that reads of
    object stores are split for so many (`spillable_stream.spark.cluster_size`).

    Args:
        spark: the ``SparkSession``, classic or Connect.

    Raises:
        OptionError: it is not a session.
        PythonMismatchError: the Python that Spark runs can't import the package.
    """
    require_session(spark)
    failure, has_told = _ask(spark), tell_workers(spark)
    if (failure or has_told) and wrong_python(failure) is None:
        _register(spark)
        failure = _ask(spark)
    if (wrong := wrong_python(failure)) is not None:
        raise PythonMismatchError(
            f"Spark's Python{_named(spark)} {wrong}: set the environment variable PYSPARK_PYTHON to a Python that has "
            f"spillable_stream, such as {sys.executable}, before Spark starts"
        )


def require_session(spark: Any) -> None:
    """Refuse what is not a session of Spark.

    Raises:
        OptionError: it has nothing to read with.
    """
    if not hasattr(spark, "read") or not hasattr(spark, "streams"):
        raise OptionError(f"spark must be a SparkSession, not {shown(spark)}")


def _ask(spark: Any) -> str:
    """Let Spark's Python look at a channel that is missing, which makes none, and return why it could not, or ""."""
    reader = spark.read.format(SpillableDataSource.name()).option("createIfMissing", True)
    try:
        _ = reader.load(_NOWHERE).schema
    except Exception as e:  # of whatever kind this Spark has for it
        return str(e)
    return ""


def _register(spark: Any) -> None:
    try:
        spark.dataSource.register(SpillableDataSource)
    except PySparkException as e:  # Spark 4.0 refuses what it has found by itself
        if "DATA_SOURCE_ALREADY_EXISTS" not in (e.getCondition() or ""):
            raise


def wrong_python(error: str) -> str | None:
    """Return what an error of Spark's says is wrong with its Python, None if it says nothing of that."""
    for pattern, text in _WRONG_PYTHONS:
        if found := pattern.search(error):
            return text.format(*found.groups())
    return None


def _named(spark: Any) -> str:
    """Return the name of the Python that Spark runs; of a Connect session nobody here knows."""
    try:
        return f", {spark.sparkContext.pythonExec},"
    except PySparkException:
        return ""
