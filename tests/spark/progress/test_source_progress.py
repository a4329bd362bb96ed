"""What the progress of a query says of one of its sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

import spillable_stream as ss
import spillable_stream.spark
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport
from spillable_stream.spark.progress.query_listener import QueryListener
from spillable_stream.spark.progress.source_progress import SourceProgress
from spillable_stream.spark.source.offset import Offset
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader
from tests.support.events import numbered, put
from tests.support.spark.events import end_offset, group_state, tell
from tests.support.spark.reader_process import plan, progress, reader
from tests.support.spark.versions import needs

pytestmark = [pytest.mark.spark, needs(4, 2, "a source that says to its query's progress what a listener must know")]


Open = Callable[..., ss.Channel]


@pytest.mark.parametrize(
    "offsets",
    [
        ('{"orders":{"0":5}}', '{"orders":{"0":5}}', '{"orders":{"0":9}}'),  # Kafka
        ("7", "9", "9"),
        (None, None, None),
        ("None", "None", "None"),
        ("not JSON", "not JSON", ""),
        ("[]", "[]", "[]"),
        ("[" * 200_000,) * 3,
    ],
    ids=lambda offsets: str(offsets)[:30],
)
def test_sources_of_other_kinds_are_passed_over(
    offsets: Any, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    tell(alone, progress([offsets]))
    assert alone.reports() == [] and not caplog.records


def test_the_group_that_a_stream_created_for_itself_is_in_its_offset() -> None:
    """Before Spark 4.2 nothing else names it."""

    def parsed(end: Any, latest: Any = None) -> list[SourceProgress]:
        return SourceProgress.parse(SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest)))

    own = {"channel": "c", "group": "auto-1", "start": 3, "writeOrderId": 7}
    assert parsed(own) == [SourceProgress(7, "c", group="auto-1")]
    assert parsed({"channel": "c", "reset": "-f00d", "start": 3, "writeOrderId": 7}) == [SourceProgress(7, "c")]
    assert parsed({"channel": "c", "other": 1, "writeOrderId": 7}) == []


def test_an_offset_with_every_key_that_a_source_gives_is_a_channels() -> None:
    """As the first one of a query on a restored channel is, which begins with a reset."""
    whole = Offset(
        "c",
        7,
        start_id=3,
        group="auto-1",
        reset="-f00d",
        made_at=(3, 2),
        restore="token",
        recovery="another",
        put_us=5,
    )
    assert all(getattr(whole, field.name) for field in fields(whole))
    progress = SimpleNamespace(endOffset=json.dumps(whole.to_json()), latestOffset="null")
    assert SourceProgress.parse(progress) == [SourceProgress(7, "c", group="auto-1")]


def test_a_query_on_a_restored_channel_is_reported(
    open_channel: Open, path: Path, tmp_path: Path, alone: QueryListener
) -> None:
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        ss.backup(channel, tmp_path / "backup")
    path.rename(tmp_path / "original")
    ss.restore(tmp_path / "backup", path)
    put(open_channel(), *numbered(10, 5))
    source = reader(str(path))
    first = plan(source, source.initialOffset(), 0)
    tell(alone, first)
    assert [(r.last_id, r.lag_events) for r in alone.reports()] == [(10, 5)]
    tell(alone, plan(source, end_offset(first), 1))  # the first one with events that the original does not have
    assert [(r.last_id, r.lag_events) for r in alone.reports()] == [(15, 0)]
    source.stop()


def test_an_offset_that_is_invalid_is_logged_and_harms_nobody_else(
    open_channel: Open, path: Path, alone: QueryListener, caplog: pytest.LogCaptureFixture
) -> None:
    put(open_channel(), *numbered(0, 10))
    source = reader(str(path))
    good = plan(source, source.initialOffset(), 0)["progress"]["sources"][0]
    nonsense = {"channel": "x", "writeOrderId": "y"}
    tell(alone, progress([(nonsense,) * 3, (good["startOffset"], good["endOffset"], good["latestOffset"])]))
    assert [r.exc_info is not None for r in caplog.records] == [True]
    assert [r.last_id for r in alone.reports()] == [10]
    source.stop()


def test_spark_before_4_2_says_only_how_far_a_query_is(open_channel: Open, path: Path, alone: QueryListener) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 20))
    source = reader(str(path))
    done = plan(source, source.initialOffset(), 0)["progress"]["sources"][0]
    tell(alone, progress([(done["startOffset"], done["endOffset"], done["endOffset"])]))
    report = alone.reports()[0]
    assert (report.path, report.group, report.last_id, report.lag_events) == (None, None, 10, None)
    assert group_state(channel) == (0, 10)
    source.stop()


LATEST = OffsetReport("uuid", 50, "/c", "g", "owner", Lag(10, 1_500_000)).to_json()
END = {"channel": "uuid", "writeOrderId": 40}


def parsed(end: Any, latest: Any = LATEST) -> SourceProgress | None:
    source = SimpleNamespace(startOffset=None, endOffset=json.dumps(end), latestOffset=json.dumps(latest))
    found = SourceProgress.parse(source)
    assert len(found) < 2
    return found[0] if found else None


def test_all_that_spark_says_of_a_channel_is_told() -> None:
    assert parsed(END) == SourceProgress(40, "uuid", "/c", "g", "owner", Lag(10, 1_500_000))
    assert parsed({**END, "start": 0}) == parsed(END), "of a first batch"


@pytest.mark.parametrize("latest", [None, {**LATEST, "channel": "another"}, "x", []], ids=repr)
def test_where_spark_says_nothing_of_this_channel_only_the_place_is_told(latest: Any) -> None:
    assert parsed(END, latest) == SourceProgress(40, "uuid")


def test_an_offset_in_place_of_what_the_source_knows_is_sparks_before_4_2() -> None:
    assert parsed(END, END) == SourceProgress(40, "uuid", is_before_4_2=True)
    of_set = {"channels": {"uuid": {"path": "/c", "writeOrderId": 40}}}
    assert parsed(of_set, of_set) == SourceProgress(40, "uuid", is_before_4_2=True)


@pytest.mark.parametrize("end", [None, 7, "x", [], {}, {"orders": {"0": 5}}, {**END, "more": 1}, {"channel": "uuid"}])
def test_the_offset_of_another_source_is_none_of_a_channels(end: Any) -> None:
    assert parsed(end) is None


@pytest.mark.parametrize("end", [{**END, "writeOrderId": "40"}, {**END, "channel": 5}])
def test_an_offset_with_the_right_keys_and_wrong_values_is_an_error(end: Any) -> None:
    with pytest.raises(ValueError, match="has the keys of a channel's offset, and is none"):
        parsed(end)


@pytest.mark.parametrize("group", ["", "a/b", ".."])
def test_a_group_that_none_can_have_is_not_told(group: str) -> None:
    found = parsed(END, {**LATEST, "group": group})
    assert found is not None and found.group is None


def test_of_a_set_each_channel_is_told_with_its_share_of_the_rows() -> None:
    def place(number: int, last_id: int, **more: Any) -> dict[str, Any]:
        return {"path": f"/{number}", "writeOrderId": last_id, **more}

    report = OffsetReport("b", 50, "/2", "g", "owner", Lag(10, None)).to_json()
    source = SimpleNamespace(
        startOffset=json.dumps({"channels": {"a": place(1, 7), "b": place(2, 4)}}),
        endOffset=json.dumps({"channels": {"a": place(1, 7), "b": place(2, 40), "c": place(3, 13, start=1)}}),
        latestOffset=json.dumps({"channels": {"b": report}}),
    )
    assert SourceProgress.parse(source) == [
        SourceProgress(7, "a", share=0.0),
        SourceProgress(40, "b", "/2", "g", "owner", Lag(10, None), share=0.75),
        SourceProgress(13, "c", share=0.25),
    ]


def test_a_listener_commits_and_reports_each_channel_of_a_set(tmp_path: Path, alone: QueryListener) -> None:
    channels = [ss.Channel(tmp_path / name, minimum_required_space=0) for name in ("a", "b")]
    for channel, count in zip(channels, (4, 8), strict=True):
        put(channel, *numbered(0, count))
    options = StreamOptions.of({"group": "default"})
    source = SpillableSetReader(ChannelSet([str(channel.path) for channel in channels]), options, StructType())
    tell(alone, plan(source, source.initialOffset(), 0))  # type: ignore[arg-type]
    assert sorted((r.path, r.last_id, r.lag_events) for r in alone.reports()) == sorted(
        (str(channel.path), count, 0) for channel, count in zip(channels, (4, 8), strict=True)
    )
    assert [group_state(channel) for channel in channels] == [(4, 0), (8, 0)]
    source.stop()
    for channel in channels:
        channel.close()
