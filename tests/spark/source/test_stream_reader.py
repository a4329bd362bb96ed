"""The streaming source, called as Spark calls it, without Spark's JVM."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.errors import DataLossError, NotAChannelError, OptionError, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.idle_polls import IdlePolls
from spillable_stream.spark.source.read_limits import ReadAllAvailable
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.delays import put_late
from tests.support.expiry import WallClock
from tests.support.spark.sources import batches, batches_of, named_source, put, source

# ── limits ──────────────────────────────────────────────────────────────────────────────────


def test_kafkas_name_of_the_limit_works(channel: ss.Channel) -> None:
    put(channel, 5)
    assert batches(source(channel, maxOffsetsPerTrigger=3)) == [(1, 3), (4, 5)]


def test_both_names_of_one_option_are_refused(channel: ss.Channel) -> None:
    with pytest.raises(OptionError, match="maxEventsPerTrigger is given twice"):
        source(channel, maxOffsetsPerTrigger=3, maxEventsPerTrigger=3)


def test_available_now_does_not_wait_for_more(channel: ss.Channel) -> None:
    put(channel, 3)
    reader = source(channel, minEventsPerTrigger=5)
    reader.prepareForTriggerAvailableNow()
    put(channel, 1)
    assert batches(reader) == [(1, 3)]


def test_available_now_has_what_others_have_delayed_until_now(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, reader = WallClock(monkeypatch), source(channel)
    reader.initialOffset()
    put_late(channel, 5, b"late")
    wall.pass_by(6)
    reader.prepareForTriggerAvailableNow()
    assert batches(reader) == [(1, 1)]


def test_once_takes_everything_whatever_the_limits(channel: ss.Channel) -> None:
    put(channel, 10)
    reader = source(channel, maxEventsPerTrigger=2, minEventsPerTrigger=50)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable())["writeOrderId"] == 10


def test_max_events_per_partition_splits_a_batch(channel: ss.Channel) -> None:
    put(channel, 10)
    reader = source(channel, maxEventsPerPartition=3)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start))
    sizes = [sum(b.num_rows for b in reader.read(part)) for part in parts]
    assert sum(sizes) == 10 and max(sizes) <= 3


# ── events that expire ──────────────────────────────────────────────────────────────────────


def bodies(reader: SpillableStreamReader, start: Any, end: Any) -> list[bytes]:
    """Return the bodies of a batch that is planned now."""
    parts = reader.partitions(start, end)
    return [body for part in parts for batch in reader.read(part) for body in batch.column("body").to_pylist()]


def test_a_batch_leaves_out_what_has_expired_when_it_is_planned_and_has_the_same_rows_when_it_is_again(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    with channel.put_transaction() as tx:
        for i, ttl in enumerate([10, None, 30]):
            tx.put(ss.Event(b"%d" % i), ttl=ttl)
    clock.pass_by(11)
    reader = source(channel, group="g")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert bodies(reader, start, end) == [b"1", b"2"]
    clock.pass_by(20)  # the third expires, which is judged already
    assert bodies(reader, start, end) == [b"1", b"2"]
    reader.stop()
    clock.pass_by(-40)  # and the first one counts again by the clock
    again = source(channel, group="g")
    again.initialOffset()
    assert bodies(again, start, end) == [b"1", b"2"]
    again.commit(end)
    assert channel.stats().groups["g"].expired_events == 1
    assert channel.stats().groups["g"].lag == 0


def test_a_batch_of_expired_events_has_no_rows_and_is_done(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    with channel.put_transaction() as tx:
        tx.put(ss.Event(b"a"), ttl=10)
    clock.pass_by(11)
    reader = source(channel, group="g")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert reader.partitions(start, end) == []
    reader.commit(end)
    group = channel.stats().groups["g"]
    assert (group.expired_events, group.lag) == (1, 0)


# ── where a new group starts ────────────────────────────────────────────────────────────────


def test_starting_offset_of_another_query_continues_after_it(channel: ss.Channel) -> None:
    put(channel, 5)
    shown = source(channel, group="a").latestOffset(None)
    put(channel, 2)
    assert batches(source(channel, group="b", startingOffsets=json.dumps(shown))) == [(6, 7)]


def test_starting_offset_of_another_channel_is_refused(channel: ss.Channel) -> None:
    with pytest.raises(OptionError, match="is an offset of the channel"):
        source(channel, startingOffsets='{"channel": "x", "writeOrderId": 1}').initialOffset()


@pytest.mark.parametrize("value", ["{", '{"writeOrderId": "1"}', "[1]", "-1", '{"offset": 1}', "soon"])
def test_starting_offset_that_is_invalid_is_refused(channel: ss.Channel, value: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets must be earliest, latest"):
        source(channel, startingOffsets=value)


def test_starting_timestamp_begins_with_the_first_event_since(channel: ss.Channel) -> None:
    put(channel, 3, 2)
    with channel.take_transaction("clock") as tx:
        times = [e.timestamp for e in tx.take_many(5)]
        tx.rollback()
    since = datetime.fromtimestamp(times[3], UTC).isoformat()
    assert batches(source(channel, startingTimestamp=since)) == [(4, 5)]
    assert batches(source(channel, group="all", startingTimestamp=0)) == [(1, 5)]
    with pytest.raises(ss.OptionError, match="is still to come"):
        batches(source(channel, group="none", startingTimestamp="2999-01-01T00:00:00Z"))


@pytest.mark.parametrize("value", ["yesterday", "2026-11-21T08:00:00", "-5", "2026-11-21"])
def test_starting_timestamp_without_a_zone_or_a_meaning_is_refused(channel: ss.Channel, value: str) -> None:
    with pytest.raises(OptionError, match="startingTimestamp must be milliseconds since 1970, or an ISO 8601"):
        source(channel, startingTimestamp=value)


def test_starting_offsets_and_timestamp_exclude_each_other(channel: ss.Channel) -> None:
    with pytest.raises(OptionError, match="exclude each other"):
        source(channel, startingOffsets="latest", startingTimestamp=0).initialOffset()


@pytest.mark.parametrize("starting", [2, '{"writeOrderId": 1}'])
def test_start_at_an_event_that_left_is_an_error_or_passed_over(
    channel: ss.Channel, starting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    put(channel, 5)
    with channel.take_transaction("first") as tx:
        tx.take_many(3)
    with pytest.raises(DataLossError, match="the events 2 to 3 have left the channel"):
        source(channel, startingOffsets=starting).initialOffset()
    assert source(channel, startingOffsets=starting, failOnDataLoss=False).initialOffset()["writeOrderId"] == 3
    assert "begins with the event 4; the read continues without the events 2 to 3" in caplog.text


def test_group_that_exists_continues_at_its_position(channel: ss.Channel) -> None:
    for options, found in (
        ({}, [(1, 5)]),
        ({"startingOffsets": "earliest"}, [(6, 10)]),
        ({"startingTimestamp": 0}, [(11, 15)]),
    ):
        put(channel, 5)
        assert batches_of(channel, group="g", **options) == found


# ── checkpoints that do not fit ─────────────────────────────────────────────────────────────


def test_first_batch_may_be_empty(channel: ss.Channel) -> None:
    reader = source(channel)
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    assert reader.partitions(start, start) == []  # another source of the query had something
    put(channel, 5)
    end = reader.latestOffset(start)
    assert len(reader.partitions(start, end)) == 1
    reader.commit(end)
    assert reader.latestOffset(end) == end


def test_ends_stay_the_same_to_the_letter_where_spark_passes_no_start(channel: ss.Channel) -> None:
    """Spark 4.0 and 4.1 call ``latestOffset()``, and ``partitions(x, x)`` after a restart."""
    put(channel, 5)
    reader = source(channel)
    end = reader.latestOffset()
    start = reader.initialOffset()
    assert end["start"] == 0
    reader.partitions(start, end)
    assert reader.latestOffset() == end
    reader.stop()
    again = source(channel)
    again.partitions(end, end)
    assert again.latestOffset() == end
    put(channel, 1)
    assert again.latestOffset()["writeOrderId"] == 6


def test_checkpoint_of_a_query_that_continues_may_end_where_a_listener_committed(channel: ss.Channel) -> None:
    """Spark 4.0 and 4.1 call ``partitions(x, x)`` then, and x may be the end of the first batch."""
    put(channel, 5)
    reader = source(channel)
    end = reader.latestOffset()
    reader.partitions(reader.initialOffset(), end)
    reader.commit(end)
    reader.stop()
    again = source(channel)
    assert again.partitions(end, end) == []
    assert again.latestOffset() == end
    put(channel, 2)
    assert again.latestOffset()["writeOrderId"] == 7


def test_query_that_was_killed_before_its_batch_was_planned_plans_it(channel: ss.Channel) -> None:
    """Spark 4.0 and 4.1 call ``partitions(x, x)`` then too, x being the end of a batch that nobody has had."""
    put(channel, 5)
    killed = source(channel)
    end = killed.latestOffset()
    killed.stop()
    again = source(channel)
    assert again.partitions(end, end) == []
    assert len(again.partitions(again.initialOffset(), end)) == 1
    again.commit(end)
    assert again.latestOffset() == end


def test_batch_that_was_under_way_is_planned_again_as_it_was(channel: ss.Channel) -> None:
    put(channel, 5)
    first = source(channel)
    start = first.initialOffset()
    first.partitions(start, first.latestOffset(start))
    first.stop()
    put(channel, 5)
    assert source(channel).latestOffset(start)["writeOrderId"] == 5


# ── an idle query ───────────────────────────────────────────────────────────────────────────


def _files(path: Path) -> dict[str, tuple[int, int]]:
    found = (Path(d, f) for d, _, files in os.walk(path) for f in files)
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in found}


def test_idle_query_writes_nothing(channel: ss.Channel) -> None:
    put(channel, 5)
    reader = named_source(channel)
    assert batches(reader) == [(1, 5)]
    start, before = reader.initialOffset(), _files(channel.path)
    for _ in range(10):
        assert reader.latestOffset(start) == start
        reader.reportLatestOffset()
    assert _files(channel.path) == before


def test_idle_query_sees_an_event_while_it_waits(channel: ss.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SHORTEST_WAIT_SECONDS", "_LONGEST_WAIT_SECONDS"):
        monkeypatch.setattr(f"spillable_stream.spark.source.idle_polls.{name}", 60)
    reader = source(channel)
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start  # the first time at once
    threading.Timer(0.05, put, [channel, 1]).start()
    assert reader.latestOffset(start)["writeOrderId"] == 1


def test_query_that_is_busy_with_another_source_is_not_kept_waiting(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IdlePolls, "wait", lambda *_: pytest.fail("it waited"))
    reader = source(channel)
    start = reader.initialOffset()
    for _ in range(3):
        assert reader.latestOffset(start) == start
        reader.commit(start)  # a batch went by


def test_available_now_does_not_wait_when_it_is_done(channel: ss.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdlePolls, "wait", lambda *_: pytest.fail("it waited"))
    reader = source(channel)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert [reader.latestOffset(start) for _ in range(3)] == [start] * 3


# ── how far behind it is ────────────────────────────────────────────────────────────────────


def lag(reader: SpillableStreamReader) -> tuple[int, int | None]:
    report = reader.reportLatestOffset()
    words = [report[f"{of}OffsetsBehindLatest"] for of in ("min", "max", "avg")]
    assert words == [report["lagEvents"]] * 3
    assert list(report) == sorted(report)
    return report["lagEvents"], report["oldestPutTimeMicros"]


def test_lag_is_what_no_batch_has_covered(channel: ss.Channel) -> None:
    put(channel, 10, 5)
    with channel.engine().snapshot() as state:
        times = [state.blocks.time_of(i) for i in (1, 11)]
    reader = source(channel, maxEventsPerTrigger=10)
    start = reader.initialOffset()
    assert lag(reader) == (15, times[0])
    end = reader.latestOffset(start)
    assert lag(reader) == (5, times[1]), "Spark asks before it plans the batch, and shows it when that is done"
    reader.partitions(start, end)
    assert lag(reader) == (5, times[1])
    last = reader.latestOffset(end)
    assert lag(reader) == (0, None)
    reader.partitions(end, last)
    reader.stop()


@pytest.mark.parametrize("async_progress", [False, True])
def test_after_a_restart_the_last_batch_is_not_lag(channel: ss.Channel, async_progress: bool) -> None:
    put(channel, 10)
    reader = source(channel, asyncProgressTrackingEnabled=async_progress)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    reader.stop()
    again = source(channel, asyncProgressTrackingEnabled=async_progress)
    again.latestOffset(end)
    assert lag(again) == (0, None)
    put(channel, 1)
    assert lag(again)[0] == 1
    again.stop()


def test_what_others_took_ahead_is_not_lag(channel: ss.Channel) -> None:
    put(channel, 4, 4, 2)
    with ss.Channel(channel.path) as other:
        other.consumer("default").commit([(5, 8)])
    reader = named_source(channel, maxEventsPerTrigger=4)
    assert reader.latestOffset(reader.initialOffset())["writeOrderId"] == 8
    with channel.engine().snapshot() as state:
        assert lag(reader) == (2, state.blocks.time_of(9))
    reader.stop()


# ── the schema ──────────────────────────────────────────────────────────────────────────────


def test_schema_is_checked_at_the_first_call(channel: ss.Channel) -> None:
    schema = struct_type(channel.schema).add("more", "integer")
    reader = SpillableStreamReader(str(channel.path), StreamOptions.of(), schema)
    with pytest.raises(SchemaError, match="the channel has no column 'more'; it has headers, body"):
        reader.initialOffset()


def test_query_continues_with_its_columns_when_the_channel_gets_more(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "t", schema=pa.schema({"a": pa.int32(), "b": pa.string()})) as channel:
        reader = source(channel)
        start = reader.initialOffset()
        newer = pa.schema({"c": pa.float64(), "b": pa.string(), "a": pa.int32()})
        for schema, row in ((channel.schema, {"a": 1, "b": "x"}), (newer, {"a": 2, "b": "y", "c": 0.5})):
            channel.evolve(schema)
            with channel.put_transaction() as tx:
                tx.put(row)
        (part,) = reader.partitions(start, reader.latestOffset(start))
        (batch,) = reader.read(part)
        assert batch.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
        reader.stop()
        (part,) = source(channel, group="new").partitions(start, reader.latestOffset(start))
        (batch,) = source(channel, group="new").read(part)
        assert batch.to_pylist() == [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": "y", "c": 0.5}]


# ── a channel that is missing ───────────────────────────────────────────────────────────────


def creating(path: Path) -> SpillableStreamReader:
    return SpillableStreamReader(str(path), StreamOptions.of({"create_if_missing": True}), struct_type(EVENT_SCHEMA))


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("call", ["latestOffset", "partitions", "commit"])
def test_query_with_a_checkpoint_creates_no_channel_in_the_place_of_its_own(
    tmp_path: Path, call: str, available_now: bool
) -> None:
    path = tmp_path / "c"
    first = creating(path)
    start = first.initialOffset()
    first.stop()
    path.rename(tmp_path / "elsewhere")
    again = creating(path)
    if available_now:
        again.prepareForTriggerAvailableNow()
    with pytest.raises(NotAChannelError, match=r"it is missing\. .* put that back, or use a new checkpointLocation"):
        getattr(again, call)(*[start] * (2 if call == "partitions" else 1))
    assert not path.exists()


def test_query_that_creates_its_channel_ends_there_with_available_now(tmp_path: Path) -> None:
    path = tmp_path / "c"
    reader = creating(path)
    reader.prepareForTriggerAvailableNow()
    assert not path.exists()
    start = reader.initialOffset()
    with ss.Channel(path, create=False) as channel:
        put(channel, 1)
    assert reader.latestOffset(start) == start
    reader.stop()
