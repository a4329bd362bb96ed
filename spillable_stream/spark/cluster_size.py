"""How many tasks a cluster runs at once, as far as its configuration says, and how workers that plan reads are told.

Spark tells such a worker nothing of the cluster; but a source that the session has registered runs with the environment
variables of the session's ``SparkContext``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException

from spillable_stream.engine.port import PARALLELISM

__all__ = ["tasks_at_once", "tell_workers"]

_MOST = 100_000


def tasks_at_once(setting: Callable[[str], str | None]) -> int | None:
    """Return how many tasks the executors can run at once; None where the configuration does not say it.

    Args:
        setting: returns a setting of the session's ``SparkContext``, or None.
    """

    def number(name: str) -> int | None:
        value = setting(name)
        return int(value) if value is not None and value.isdecimal() and int(value) > 0 else None

    of_each, of_task = number("spark.executor.cores"), number("spark.task.cpus") or 1
    executors = number("spark.executor.instances")
    if setting("spark.dynamicAllocation.enabled") == "true":
        executors = number("spark.dynamicAllocation.maxExecutors")
    cores = executors * of_each if executors and of_each else number("spark.cores.max")
    found = number("spark.default.parallelism") or (cores // of_task if cores else None)
    return min(found, _MOST) if found else None


def tell_workers(spark: Any) -> bool:
    """Give the workers of sources that this session registers from now on the number, and tell whether that is new.

    Args:
        spark: the session; of Spark Connect nothing is known.
    """
    try:
        context = spark.sparkContext
    except PySparkException:
        return False
    tasks = tasks_at_once(lambda name: context.getConf().get(name))
    if tasks is None or context.environment.get(PARALLELISM) == str(tasks):
        return False
    context.environment[PARALLELISM] = str(tasks)
    return True
