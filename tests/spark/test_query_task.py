"""What a task is told of its streaming query."""

from __future__ import annotations

import pytest
from pyspark import TaskContext

from spillable_stream.spark.query_task import QueryTask

SAID = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "7", "spark.jobGroup.id": "run"}


class Context:
    """A task's context, which says some properties."""

    def __init__(self, said: dict[str, str]) -> None:
        self._said = said

    def getLocalProperty(self, name: str) -> str | None:
        return self._said.get(name)


@pytest.mark.parametrize(
    ("said", "task"),
    [
        (SAID, QueryTask("query", "run", 7)),
        (SAID | {"spark.jobGroup.id": ""}, QueryTask("query", "", 7)),
        (SAID | {"spark.sql.streaming.checkpointLocation": "/c"}, QueryTask("query", "run", 7, "/c")),
        ({"spark.jobGroup.id": "a batch job"}, None),
        ({"sql.streaming.queryId": "query"}, None),
    ],
)
def test_a_task_knows_its_query_its_run_and_its_batch(
    said: dict[str, str], task: QueryTask | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Context(said))
    assert QueryTask.here() == task


def test_outside_of_a_task_there_is_no_query() -> None:
    assert QueryTask.here() is None
