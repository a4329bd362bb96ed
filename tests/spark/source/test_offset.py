"""What is in an offset that is not this channel's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CheckpointMismatchError, OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.options import BATCH, parse_options
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source import batch_reader, query_start
from spillable_stream.spark.source.batch_reader import SpillableBatchReader
from spillable_stream.spark.source.offset import Offset, ending_id, starting_id
from spillable_stream.spark.source.read_options import BatchOptions
from tests.support.spark.sources import batches_of, source
from tests.support.spark.sources import put as put_events

Put = Callable[..., Path]


@pytest.fixture
def leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ss.Channel]:
    """A channel with 1 to 10, of which 1 to 6 leave as soon as it was found out where to start."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        for _ in range(2):
            put_events(channel, 5)
            assert batches_of(channel, group="g")

        def found(*args: Any) -> str:
            starting = starting_id(*args)
            channel.engine().commit(Control(FrameType.RETENTION, {"through": 6}))
            return starting

        for module in (query_start, batch_reader):
            monkeypatch.setattr(module, "starting_id", found)
        yield channel


NAMELESS: list[dict[str, Any]] = [{"startingTimestamp": 0}, {"startingOffsets": 2, "failOnDataLoss": False}]


@pytest.mark.parametrize("options", NAMELESS, ids=str)
@pytest.mark.parametrize("group", [{}, {"group": "new"}, {"group": "g", "resetGroup": True}], ids=str)
def test_query_that_may_pass_over_what_left_starts_though_that_leaves_meanwhile(
    leaving: ss.Channel, options: dict[str, Any], group: dict[str, Any]
) -> None:
    reader = source(leaving, **options, **group)
    assert reader.initialOffset()["writeOrderId"] == 6
    reader.stop()


@pytest.mark.parametrize("options", NAMELESS, ids=str)
def test_batch_read_that_may_pass_over_what_left_starts_though_that_leaves_meanwhile(
    leaving: ss.Channel, options: dict[str, Any]
) -> None:
    parts: list[Any] = list(batch_read(leaving, options).partitions())
    assert [(e.first_id, e.last_id) for p in parts for e in p.plan.extents] == [(7, 10)]


def test_batch_read_whose_first_event_leaves_while_it_is_planned_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put_events(channel, 10)

        def found(*args: Any) -> int:
            channel.engine().commit(Control(FrameType.RETENTION, {"through": 6}))
            return ending_id(*args)

        monkeypatch.setattr(batch_reader, "ending_id", found)
        with pytest.raises(ss.DataLossError, match="the events 2 to 6 have left the channel"):
            batch_read(channel, {"startingOffsets": 2}).partitions()


def batch_read(channel: ss.Channel, options: dict[str, Any]) -> SpillableBatchReader:
    parsed = BatchOptions.of(parse_options(options, (BATCH,), where="a test"))
    return SpillableBatchReader(str(channel.path), parsed, struct_type(channel.schema))


def test_an_option_is_not_an_offset_of_events_that_a_restored_channel_does_not_have(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put_events(channel, 3)
        ss.backup(channel, tmp_path / "copy")
        put_events(channel, 3)
        before = {"channel": channel.uuid, "writeOrderId": 5}
    (tmp_path / "c").rename(tmp_path / "original")
    ss.restore(tmp_path / "copy", tmp_path / "c")
    with ss.Channel(tmp_path / "c") as channel:
        put_events(channel, 4)
        for option in ("startingOffsets", "endingOffsets"):
            for event_id, now in ((5, "the event 5 there now is another one"), (8, "there is no event 8 now")):
                text = f"{option} is an offset of .*/c before or after a restore, or of another copy: {now}"
                with pytest.raises(OptionError, match=text):
                    batch_read(channel, {option: json.dumps({**before, "writeOrderId": event_id})}).partitions()
        reader = source(channel, startingOffsets=json.dumps({**before, "writeOrderId": 3}))
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        reader.stop()
        assert (start["writeOrderId"], end["writeOrderId"]) == (3, 7)
        told = json.dumps(reader.reportLatestOffset())
        reader.stop()
        assert source(channel, startingOffsets=told).initialOffset()["writeOrderId"] == 7
        options = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
        assert batch_read(channel, options).partitions()
        assert batch_read(channel, {"startingOffsets": '{"writeOrderId": 5}'}).partitions()  # whatever that is now


@pytest.mark.parametrize(
    "offset",
    [
        Offset("this", 7),
        Offset("this", 7, 3),
        Offset("this", 0, 0),
        Offset("this", 7, 3, "auto-1"),
        Offset("this", 7, None, "auto-1"),
        Offset("this", 7, 3, None, "-f00d"),
        Offset("this", 7, 3, "auto-1", None, (9, 5)),
        Offset("this", 7, restore="token"),
        Offset("this", 7, restore="token", recovery="another"),
    ],
)
def test_offset_comes_back_from_spark_as_it_was(offset: Offset) -> None:
    assert Offset.parse(json.loads(json.dumps(offset.to_json())), "this", "/c") == offset


def test_offset_has_sorted_keys_and_the_beginning_of_a_first_batch_only() -> None:
    """Spark compares offsets as text."""
    assert json.dumps(Offset("this", 7).to_json()) == '{"channel": "this", "writeOrderId": 7}'
    assert json.dumps(Offset("this", 7, 3).to_json()) == '{"channel": "this", "start": 3, "writeOrderId": 7}'
    everything = Offset("this", 7, 3, "auto-1", "-f00d", (9, 5), "token", "another").to_json()
    assert list(everything) == sorted(everything)
    assert everything.keys() == {"channel", "group", "made", "recovery", "reset", "restore", "start", "writeOrderId"}


def test_what_a_later_version_adds_to_an_offset_is_passed_over() -> None:
    assert Offset.parse({"channel": "this", "more": 1, "writeOrderId": 7}, "this", "/c") == Offset("this", 7)


@pytest.mark.parametrize(
    ("value", "whose"),
    [
        ({"channel": "that", "writeOrderId": 7}, "the channel that,"),
        ({"topic": {"0": 5}}, "another source (its offset is {'topic': {'0': 5}}),"),
        ({"channel": "this"}, "another source (its offset is {'channel': 'this'}),"),
        ({"channel": "this", "writeOrderId": "7"}, "another source (its offset is {'channel': 'this', "),
        ({"channel": "this", "group": "../x", "writeOrderId": 7}, "another source (its offset is {'channel': 'this', "),
        ({"channel": "this", "group": 1, "writeOrderId": 7}, "another source (its offset is {'channel': 'this', "),
        ({"channel": "this", "reset": 1, "writeOrderId": 7}, "another source (its offset is {'channel': 'this', "),
        ({"channel": "this", "start": "x", "writeOrderId": 7}, "another source (its offset is {'channel': 'this', "),
        ({"channel": "this", "restore": 1, "writeOrderId": 7}, "another source (its offset is {'channel': 'this', "),
        ({"channel": "this", "recovery": 1, "writeOrderId": 7}, "another source (its offset is {'channel': 'this', "),
        ({"channels": {"a": {"path": "/a", "writeOrderId": 7}}}, "a set of channels,"),
        (5, "another source (its offset is 5),"),
        ([1, 2], "another source (its offset is [1, 2]),"),
        (None, "another source (its offset is None),"),
    ],
)
def test_offset_of_another_source_is_refused(value: Any, whose: str) -> None:
    with pytest.raises(CheckpointMismatchError) as e:
        Offset.parse(value, "this", "/c")
    assert str(e.value).startswith(f"the Spark checkpoint belongs to {whose}")
    assert ", and /c is the channel this; use the checkpoint's own source" in str(e.value)


@pytest.mark.slow
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
