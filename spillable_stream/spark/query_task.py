"""What a task knows of its streaming query. Nothing tells it to a source or a sink, which run outside of tasks."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

__all__ = ["QueryTask"]


@dataclass(frozen=True, slots=True)
class QueryTask:
    """A task of a streaming query.

    Args:
        query: the query's ID, which its checkpoint keeps.
        run: the ID of its run, which each start makes anew; "" if Spark does not say it.
        batch_id: the number of the micro-batch.
    """

    query: str
    run: str
    batch_id: int

    @classmethod
    def here(cls) -> QueryTask | None:
        """Return the task that runs here; None outside of a streaming query."""
        context = TaskContext.get()
        if context is None:
            return None
        query, batch_id = (context.getLocalProperty(f) for f in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or batch_id is None:
            return None
        return cls(query, context.getLocalProperty("spark.jobGroup.id") or "", int(batch_id))
