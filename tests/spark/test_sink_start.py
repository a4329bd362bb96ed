"""What the Python processes that Spark starts for the tasks of a sink wait for: counted, not timed."""

import pytest

from tests.spark.test_source_start import said_by

MOST_MODULES_OF_A_TASK = 150
"""Of this package, that a task may import which writes to channels on this host: about half a millisecond each."""
MOST_MODULES_OF_A_FLOW = 50
"""And how many more through a flow, with its interceptors and its selector."""

PLANNER = """
import pickle
import sys

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from spillable_stream.spark.datasource import SpillableDataSource

columns = StructType([StructField("id", LongType())])
options = dict(argument.split("=") for argument in sys.argv[3:])
source = SpillableDataSource({"path": sys.argv[1], "minimumRequiredSpace": "0", **options})
writers = source.writer(columns, False), source.streamWriter(columns, False)
with open(sys.argv[2], "wb") as file:
    pickle.dump((*writers, [pa.record_batch({"id": range(n)}) for n in (10, 100_000)]), file)
"""

FLOW_PLANNER = """
import pickle
import sys

import pyarrow as pa
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.datasource import SpillableDataSource

columns = StructType([StructField("headers", MapType(StringType(), StringType())), StructField("body", BinaryType())])
writer = SpillableDataSource({"flow": sys.argv[1], "agent": "a1", "source": "r1"}).streamWriter(columns, False)
events = [pa.record_batch([[{}] * n, [b"ERROR"] * n], schema=EVENT_SCHEMA) for n in (10, 100_000)]
with open(sys.argv[2], "wb") as file:
    pickle.dump((None, writer, events), file)
"""

TASK = """
import pickle
import sys

from pyspark import TaskContext, worker
from pyspark.sql import Row, datasource
from pyspark.sql.worker import write_into_data_source

with open(sys.argv[1], "rb") as file:
    of_batch, of_stream, batches = pickle.load(file)
for batch in batches if of_batch is not None else ():
    of_batch.write(iter([batch]))
context = TaskContext._taskContext = TaskContext()
context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
context._partitionId = 0
for batch in batches:  # row by row in Spark 4.0
    has_arrow = hasattr(datasource, "DataSourceStreamArrowWriter")
    rows = iter([batch]) if has_arrow else (Row(**row) for row in batch.to_pylist(maps_as_pydicts="strict"))
    of_stream.write(rows)
print(*(name for name in sys.modules if name.startswith("spillable_stream")))
"""

FLOW = """
a1.sources = r1
a1.channels = ok may
a1.sources.r1.type = seq
a1.sources.r1.channels = ok may
a1.sources.r1.selector.optional = may
a1.sources.r1.interceptors = i1 i2
a1.sources.r1.interceptors.i1.type = regex_filter
a1.sources.r1.interceptors.i1.regex = .*ERROR.*
a1.sources.r1.interceptors.i2.type = host
"""


@pytest.fixture(scope="module", params=["one channel", "shards", "a flow"])
def of_a_task(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> set[str]:
    """Return the modules of this package, once a task has staged a few rows and many, of a batch and of a stream."""
    place = tmp_path_factory.mktemp("start")
    if request.param == "a flow":
        channels = [
            f"a1.channels.{name}.type = file\na1.channels.{name}.checkpointDir = {place / name}\n"
            f"a1.channels.{name}.dataDirs = {place / name}-data\na1.channels.{name}.minimumRequiredSpace = 0\n"
            for name in ("ok", "may")
        ]
        (place / "flume.conf").write_text("".join([FLOW, *channels]))
        said_by(FLOW_PLANNER, place / "flume.conf", place / "sent")
    else:
        shards = ["shards=2", "shardBy=id"] if request.param == "shards" else []
        said_by(PLANNER, place / "c", place / "sent", *shards)
    return set(said_by(TASK, place / "sent")[0].split())


def test_a_task_imports_nothing_that_opens_a_channel_plans_or_commits(of_a_task: set[str]) -> None:
    of_others = ("channel.channel", "engine.engine", "engine.open_engine", "spark.channel_pool")
    of_the_driver = (
        *("channel_commit", "sink_channel", "sink_options", "written_channels"),
        *("sharded_channels", "sharded_commit", "task_guards"),
        *("flow_channels", "optional_channels", "optional_commit"),
    )
    assert not of_a_task & {f"spillable_stream.{name}" for name in of_others}
    assert not of_a_task & {f"spillable_stream.spark.sink.{name}" for name in of_the_driver}


def test_a_task_imports_few_modules(of_a_task: set[str]) -> None:
    assert "spillable_stream.spark.sink.task_stage" in of_a_task
    is_of_a_flow = "spillable_stream.spark.sink.flow_writer" in of_a_task
    assert len(of_a_task) <= MOST_MODULES_OF_A_TASK + (MOST_MODULES_OF_A_FLOW if is_of_a_flow else 0)
