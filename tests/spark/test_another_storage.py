"""Spark's tasks read and stage by the verbs of their plans only: also where a channel has no files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import spillable_stream as ss
from spillable_stream.engine.port import ReadBatch, Unreadable
from spillable_stream.format.batch import encode_schema
from spillable_stream.format.extent import Extent
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.sink_times import SinkTimes
from spillable_stream.spark.sink.task_stage import Staged
from spillable_stream.spark.sink.writer import SpillableBatchWriter
from spillable_stream.spark.source.partition import EventPartition, read_partition
from spillable_stream.spark.source.read_options import BatchOptions
from tests.support.fake_plans import ObjectReadPlan, Objects, ObjectStagePlan

SCHEMA = pa.schema([("n", pa.int64())])
WITH_IDS = pa.schema([("n", pa.int64()), pa.field("write_order_id", pa.int64(), nullable=False)])


def events(first_id: int, count: int) -> ReadBatch:
    batch = pa.record_batch([pa.array(range(first_id, first_id + count), pa.int64())], SCHEMA)
    return ReadBatch(first_id, 7, 1_000_000, 0, batch)


def read(objects: Objects, schema: pa.Schema = SCHEMA, **options: object) -> list[dict[str, int]]:
    """Return the rows of a task that reads all objects."""
    extents = tuple(Extent(name, 0, found[0].first_id, found[-1].last_id) for name, found in objects.items())
    partition = EventPartition(ObjectReadPlan(objects, extents), None)
    batches = read_partition(partition, schema, BatchOptions.of(options))
    return [row for batch in batches for row in batch.to_pylist()]


def test_task_reads_objects() -> None:
    rows = read({"log/1": [events(1, 3)], "log/2": [events(4, 2), events(6, 1)]}, WITH_IDS, metadata=True)
    assert rows == [{"n": n, "write_order_id": n} for n in range(1, 7)]


def test_task_reads_past_a_damaged_object_if_the_options_say_so() -> None:
    objects: Objects = {"log/1": [events(1, 3), Unreadable(4, 5, Path("log/1"), 0, 9), events(6, 1)]}
    with pytest.raises(ss.CorruptionError, match="the event 4 can't be read"):
        read(objects)
    assert [row["n"] for row in read(objects, on_corruption="quarantine")] == [1, 2, 3, 6]


def test_task_reports_an_object_that_is_gone() -> None:
    extent = Extent("log/1", 0, 1, 3)
    partition = EventPartition(ObjectReadPlan({}, (extent,)), None)
    with pytest.raises(ss.DataLossError, match=r"the events 1 to 3 are gone since the read of s3://bucket/orders was"):
        list(read_partition(partition, SCHEMA, BatchOptions.of()))


def stage(plan: ObjectStagePlan, inline_bytes: int) -> Staged:
    """Run a task that writes five rows."""
    schema = StructType([StructField("n", LongType())])
    writer = SpillableBatchWriter(SinkPlan("s3://bucket/orders", plan, schema, SinkTimes(), 1.0, inline_bytes, None))
    message = writer.write(iter([events(1, 5).batch]))
    assert isinstance(message, Staged)
    return message


def test_task_stages_a_large_output_in_an_object_and_sends_a_small_one() -> None:
    plan = ObjectStagePlan(encode_schema(SCHEMA))
    small = stage(plan, 1 << 20)
    assert (small.segment, sum(frame.count for frame in small.frames), plan.staged) == (None, 5, {})
    large = stage(plan, 0)
    assert large.segment is not None and large.segment.count == 5
    assert (large.channel, list(plan.staged)) == ("c0ffee", [large.segment.name])


def test_task_on_a_host_that_does_not_reach_the_objects_is_refused() -> None:
    with pytest.raises(ss.NotAChannelError, match="this host does not reach the bucket"):
        stage(ObjectStagePlan(encode_schema(SCHEMA), is_here=False), 1 << 20)
