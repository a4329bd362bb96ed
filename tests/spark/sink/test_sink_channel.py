"""The channel of a write, and what a plan says of it; no Spark is needed to show it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.format.batch import encode_batch
from spillable_stream.spark.sink.sink_channel import TASK_INLINE_BYTES
from tests.spark.sink.test_sink_plan import IDS, sink_plan


def test_channel_is_created_for_the_rows_and_widened_by_the_next_plan(tmp_path: Path) -> None:
    wide = StructType([*IDS.fields, StructField("more", LongType())])
    plans = [sink_plan(tmp_path / "c"), sink_plan(tmp_path / "c", wide), sink_plan(tmp_path / "c")]
    assert [plan.stage.schema_id for plan in plans] == [0, 1, 1]
    with ss.Channel(tmp_path / "c", create=False) as channel:
        assert channel.schema.names == ["id", "more"]


def test_task_sends_what_the_sinks_option_says_or_else_the_channels_if_that_is_less(tmp_path: Path) -> None:
    path = tmp_path / "c"
    assert sink_plan(path).max_inline_bytes == TASK_INLINE_BYTES
    assert sink_plan(path, maxInlineBytes=7).max_inline_bytes == 7
    with ss.Channel(path, create=False, max_inline_bytes=1000):
        assert sink_plan(path).max_inline_bytes == 1000


def test_a_plan_says_only_those_batches_that_its_commit_may_ask_for(tmp_path: Path) -> None:
    def stored(**options: Any) -> Mapping[str, int]:
        return sink_plan(tmp_path / "c", **options).stored

    sink_plan(tmp_path / "c")
    with ss.Channel(tmp_path / "c", create=False) as channel:
        for name in ("query", "txn:job", "txn:job/4-00000000", "txn:another"):
            put = Put(encode_batch(pa.record_batch({"id": pa.array([1], pa.int64())})), [], SinkBatch(name, 7))
            assert channel.port().publish(put, 0.0)
    assert stored() == {}
    assert stored(txnAppId="job", txnVersion=5) == {"txn:job": 7, "txn:job/4-00000000": 7}
    assert len(stored(stream=True)) == 4
    assert sink_plan(tmp_path / "c", stream=True).for_tasks().stored == {}
