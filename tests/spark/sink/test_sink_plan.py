"""What a write is made of, before Spark sends it to its tasks; no Spark is needed to show it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.format.batch import encode_batch
from spillable_stream.spark.sink.sink_plan import TASK_INLINE_BYTES, SinkOptions, SinkPlan, plan_sink

IDS = StructType([StructField("id", LongType())])


def sink_plan(path: Path, schema: StructType = IDS, *, stream: bool = False, **options: Any) -> SinkPlan:
    given = {"minimumRequiredSpace": 0, **options}
    return plan_sink(str(path), SinkOptions.parse({k: str(v) for k, v in given.items()}, stream=stream), schema)


def test_plan_is_the_same_in_another_process_and_cannot_be_changed(tmp_path: Path) -> None:
    plan = sink_plan(tmp_path / "c", txnAppId="job", txnVersion=5, keepAlive=7)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert (plan.transaction, plan.keep_alive_seconds) == (SinkBatch("txn:job", 5), 7)
    with pytest.raises(FrozenInstanceError):
        plan.path = "another"  # type: ignore[misc]


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


def test_a_batch_of_several_channels_is_not_stored_by_a_write_to_one_of_them(tmp_path: Path) -> None:
    plan = replace(sink_plan(tmp_path / "c", stream=True), stored={"query/4-00000000": 7})
    for batch_id in (6, 7):
        with pytest.raises(ss.OptionError, match="has, from query, the batch 7 of a write to several channels"):
            plan.remembered(SinkBatch("query", batch_id))
    for batch in (SinkBatch("query", 8), SinkBatch("another", 7)):
        assert plan.remembered(batch) == batch


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


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"txnAppId": "job"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "job", "txnVersion": 1, "stream": True}, "txnAppId and txnVersion are for batch writes"),
        ({"deliverAfter": "1s", "deliverAtColumn": "id"}, "deliverAfter and deliverAtColumn are both given"),
        ({"ttlColumn": "id", "deliverAtColumn": "id"}, "both name the column 'id'"),
        ({"ttlColumn": "at"}, "ttlColumn names the column 'at', and the rows have id"),
        ({"deliverAtColumn": "id"}, "deliverAtColumn names the column 'id' of the type bigint; give it a TIMESTAMP"),
        ({"deliverAfter": "367d"}, "deliverAfter must be .*; the most is 31,622,400 s, a year"),
        ({"deliverAfter": "soon"}, "deliverAfter must be seconds, or a number with ms"),
        ({"startingOffsets": "latest"}, "startingOffsets is not an option of a Spark sink"),
    ],
)
def test_options_of_another_use_are_refused_and_create_no_channel(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ss.OptionError, match=why):
        sink_plan(tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("most", [0, 1, 1000, 256 << 10, 1 << 20, 100 << 20])
def test_what_all_tasks_send_through_the_driver_is_bounded_however_many_there_are(tmp_path: Path, most: int) -> None:
    plan = sink_plan(tmp_path / "c", maxInlineBytes=most)
    limits = [plan.inline_bytes(i) for i in range(100_000)]
    assert limits[0] == most and limits == sorted(limits, reverse=True)
    assert sum(limits) <= 256 << 20
    assert most != 256 << 10 or limits[511] == most  # as many as a job mostly has
