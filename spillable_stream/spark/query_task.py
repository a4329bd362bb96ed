"""What a task knows of its streaming query. Nothing tells it to a source or a sink, which run outside of tasks."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

__all__ = ["QueryTask", "partition_id"]

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"  # Spark sends the session's configuration with each task


def partition_id() -> int:
    """Return the number of the task that runs here among those of its job; 0 outside of one."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


@dataclass(frozen=True, slots=True)
class QueryTask:
    """A task of a streaming query.

    Args:
        query: the query's ID, which its checkpoint keeps.
        run: the ID of its run, which each start makes anew; "" if Spark does not say it.
        batch_id: the number of the micro-batch.
        checkpoints: where the session keeps the checkpoints of queries that have no option for it; "" if it does not.
    """

    query: str
    run: str
    batch_id: int
    checkpoints: str = ""

    @classmethod
    def here(cls) -> QueryTask | None:
        """Return the task that runs here; None outside of a streaming query."""
        context = TaskContext.get()
        if context is None:
            return None
        query, batch_id = (context.getLocalProperty(f) for f in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or batch_id is None:
            return None
        run, checkpoints = (context.getLocalProperty(f) or "" for f in ("spark.jobGroup.id", _CHECKPOINTS))
        return cls(query, run, int(batch_id), checkpoints)
