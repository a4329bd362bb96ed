"""What is in an offset that is not this channel's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.spark.offset import event_id, offset

Put = Callable[..., Path]


def test_offset_says_up_to_which_event() -> None:
    assert event_id(offset("this", 7, 3), "this", "/c") == 7


@pytest.mark.parametrize(
    ("value", "whose"),
    [
        ({"channel": "that", "writeOrderId": 7}, "the channel that,"),
        ({"topic": {"0": 5}}, "another source (its offset is {'topic': {'0': 5}}),"),
        ({"channel": "this"}, "another source (its offset is {'channel': 'this'}),"),
        ({"channel": "this", "writeOrderId": "7"}, "another source (its offset is {'channel': 'this', "),
        (5, "another source (its offset is 5),"),
        ([1, 2], "another source (its offset is [1, 2]),"),
        (None, "another source (its offset is None),"),
    ],
)
def test_offset_of_another_source_is_refused(value: Any, whose: str) -> None:
    with pytest.raises(CheckpointMismatchError) as e:
        event_id(value, "this", "/c")
    assert str(e.value).startswith(f"the Spark checkpoint belongs to {whose}")
    assert "/c is this; use the checkpoint's own" in str(e.value)


@pytest.mark.spark
def test_checkpoint_of_another_source_is_refused(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load()
    first = rate.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    try:
        first.processAllAvailable()
    finally:
        first.stop()
    events = spark.readStream.format("spillable").load(str(put("a", b"x")))
    query = events.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    with pytest.raises(PySparkException, match="the Spark checkpoint belongs to another source"):
        query.awaitTermination(60)
