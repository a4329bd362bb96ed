"""What a sharded write is made of, before Spark sends it to its tasks; no Spark is needed to show it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.engine.port import SinkBatch
from spillable_stream.spark.sink.sharded_channels import shard_path
from spillable_stream.spark.sink.sink_channel import TASK_INLINE_BYTES
from tests.spark.sink.test_sharded_channels import sharded_plan


def test_plan_is_the_same_in_another_process(tmp_path: Path) -> None:
    plan = sharded_plan(tmp_path / "orders", txnAppId="job", txnVersion=5, keepAlive=7)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.transaction == SinkBatch("txn:job", 5)
    assert {channel.commit.keep_alive_seconds for channel in plan.channels} == {7}


def test_task_sends_what_the_option_says_or_else_the_least_that_a_channel_says(tmp_path: Path) -> None:
    base = tmp_path / "orders"
    assert sharded_plan(base).inline_bytes(0) == TASK_INLINE_BYTES
    with ss.Channel(tmp_path / "orders-1", create=False, max_inline_bytes=1000):
        assert sharded_plan(base).inline_bytes(0) == 1000
    assert sharded_plan(base, maxInlineBytes=7).inline_bytes(0) == 7


@pytest.mark.parametrize("store", ["", "object+file://"])
@pytest.mark.parametrize("other", [{"shards": 2}, {"shards": 4}, {"by": "n"}, {"by": "n,customer"}])
def test_batch_that_another_division_stored_is_refused_in_whichever_shard_it_is(
    tmp_path: Path, store: str, other: dict[str, Any]
) -> None:
    """Its rows may be in some of the shards only: by another division the rest of them is nowhere, or everywhere."""
    for stored_in in range(3):
        base = f"{store}{tmp_path}/orders-in-{stored_in}"
        plan = sharded_plan(base)
        with ss.Channel(shard_path(base, stored_in), create=False) as channel:
            remember(channel, plan.remembered(SinkBatch("query", 7)))
        assert sharded_plan(base).remembered(SinkBatch("query", 7)).query == f"query/{plan.shards.name}"
        changed = sharded_plan(base, **other)
        for batch_id in (6, 7):
            with pytest.raises(ss.OptionError, match=r"from query, the batch 7 with other shards .* \(3 shards\)"):
                changed.remembered(SinkBatch("query", batch_id))
        assert changed.remembered(SinkBatch("query", 8)) == (f"query/{changed.shards.name}", 8)
        assert changed.remembered(SinkBatch("another", 7)) == (f"another/{changed.shards.name}", 7)


@pytest.mark.parametrize("name", ["query", "query/flow-00000000"])
def test_batch_that_a_write_without_shards_stored_is_refused(tmp_path: Path, name: str) -> None:
    base = str(tmp_path / "orders")
    sharded_plan(base)
    with ss.Channel(shard_path(base, 1), create=False) as channel:
        remember(channel, SinkBatch(name, 7))
    with pytest.raises(ss.OptionError, match=r"from query, the batch 7 with other shards .* \(without shards\)"):
        sharded_plan(base).remembered(SinkBatch("query", 7))


def remember(channel: ss.Channel, batch: SinkBatch) -> None:
    """Store a row as a sink's batch."""
    from spillable_stream.engine.port import Put
    from spillable_stream.format.batch import encode_batch

    row = pa.record_batch({"customer": ["a"], "n": pa.array([1], pa.int64())})
    assert channel.port().publish(Put(encode_batch(row), [], batch), 0.0)
