"""What a write is made of, before Spark sends it to its tasks; no Spark is needed to show it."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import spillable_stream as ss
from spillable_stream.engine.port import SinkBatch
from spillable_stream.spark.sink.sink_channel import plan_sink
from spillable_stream.spark.sink.sink_options import SinkOptions
from spillable_stream.spark.sink.sink_plan import SinkPlan

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


def test_a_batch_of_several_channels_is_not_stored_by_a_write_to_one_of_them(tmp_path: Path) -> None:
    plan = replace(sink_plan(tmp_path / "c", stream=True), stored={"query/4-00000000": 7})
    for batch_id in (6, 7):
        with pytest.raises(ss.OptionError, match="has, from query, the batch 7 of a write to several channels"):
            plan.remembered(SinkBatch("query", batch_id))
    for batch in (SinkBatch("query", 8), SinkBatch("another", 7)):
        assert plan.remembered(batch) == batch


@pytest.mark.parametrize("most", [0, 1, 1000, 256 << 10, 1 << 20, 100 << 20])
def test_what_all_tasks_send_through_the_driver_is_bounded_however_many_there_are(tmp_path: Path, most: int) -> None:
    plan = sink_plan(tmp_path / "c", maxInlineBytes=most)
    limits = [plan.inline_bytes(i) for i in range(100_000)]
    assert limits[0] == most and limits == sorted(limits, reverse=True)
    assert sum(limits) <= 256 << 20
    assert most != 256 << 10 or limits[511] == most  # as many as a job mostly has
