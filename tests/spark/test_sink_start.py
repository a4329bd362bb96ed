"""What the Python processes that Spark starts for the tasks of a sink wait for: counted, not timed."""

import pytest

from tests.spark.test_source_start import said_by

MOST_MODULES_OF_A_TASK = 150
"""Of this package, that a task may import which writes to channels on this host: about half a millisecond each."""

PLANNER = """
import pickle
import sys

from pyspark.sql.types import LongType, StructField, StructType

from spillable_stream.spark.datasource import SpillableDataSource

columns = StructType([StructField("id", LongType())])
options = dict(argument.split("=") for argument in sys.argv[3:])
source = SpillableDataSource({"path": sys.argv[1], "minimumRequiredSpace": "0", **options})
with open(sys.argv[2], "wb") as file:
    pickle.dump([source.writer(columns, False), source.streamWriter(columns, False)], file)
"""

TASK = """
import pickle
import sys

import pyarrow as pa
from pyspark import TaskContext, worker
from pyspark.sql import Row, datasource
from pyspark.sql.worker import write_into_data_source

with open(sys.argv[1], "rb") as file:
    of_batch, of_stream = pickle.load(file)
few, many = range(10), range(100_000)
for ids in few, many:
    of_batch.write(iter([pa.record_batch({"id": ids})]))
context = TaskContext._taskContext = TaskContext()
context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
context._partitionId = 0
for ids in few, many:  # one by one in Spark 4.0
    has_arrow = hasattr(datasource, "DataSourceStreamArrowWriter")
    of_stream.write(iter([pa.record_batch({"id": ids})]) if has_arrow else (Row(id=i) for i in ids))
print(*(name for name in sys.modules if name.startswith("spillable_stream")))
"""


@pytest.fixture(scope="module", params=[(), ("shards=2", "shardBy=id")], ids=["one channel", "shards"])
def of_a_task(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> set[str]:
    """Return the modules of this package, once a task has staged a few rows and many, of a batch and of a stream."""
    place = tmp_path_factory.mktemp("start")
    said_by(PLANNER, place / "c", place / "sent", *request.param)
    return set(said_by(TASK, place / "sent")[0].split())


def test_a_task_imports_nothing_that_opens_a_channel_plans_or_commits(of_a_task: set[str]) -> None:
    of_others = ("channel.channel", "engine.engine", "engine.open_engine", "spark.channel_pool")
    of_the_driver = (
        *("channel_commit", "sink_channel", "sink_options", "written_channels"),
        *("sharded_channels", "sharded_commit", "task_guards"),
    )
    assert not of_a_task & {f"spillable_stream.{name}" for name in of_others}
    assert not of_a_task & {f"spillable_stream.spark.sink.{name}" for name in of_the_driver}


def test_a_task_imports_few_modules(of_a_task: set[str]) -> None:
    assert "spillable_stream.spark.sink.task_stage" in of_a_task
    assert len(of_a_task) <= MOST_MODULES_OF_A_TASK
