"""What is gone before a query read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.requests import Control
from spillable_stream.errors import DataLossError
from spillable_stream.format.frame import FrameType
from tests.support.events import lose
from tests.support.spark.sources import batches, batches_of, put, source


@pytest.fixture
def dropping(tmp_path: Path) -> Iterator[ss.Channel]:
    """A channel whose events may expire before they are taken; it has 10."""
    with ss.Channel(
        tmp_path / "d", minimum_required_space=0, retention_ms=3_600_000, retention_untaken="drop"
    ) as channel:
        put(channel, 6, 4)
        yield channel


def expire(channel: ss.Channel, through: int) -> None:
    channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))


def ids(parts: Any) -> list[int]:
    return [i for part in parts for e in part.plan.extents for i in range(e.first_id, e.last_id + 1)]


@pytest.mark.parametrize("before", ["prepare", "untaken"])
@pytest.mark.parametrize("what", ["removed", "lost"])
def test_events_that_go_while_a_batch_is_planned_are_reported(
    dropping: ss.Channel, monkeypatch: pytest.MonkeyPatch, before: str, what: str
) -> None:
    """Another process may get the channel's lock first, between any two steps of the planning."""
    reader = source(dropping, group="g")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    step = getattr(Consumer, before)

    def late(consumer: Consumer, *args: Any) -> Any:
        monkeypatch.undo()
        if what == "removed":
            expire(dropping, 6)
        else:
            lose(dropping, 1, 6)
        return step(consumer, *args)

    monkeypatch.setattr(Consumer, before, late)
    with pytest.raises(DataLossError, match=f"the events 1 to 6 .*{what}"):
        reader.partitions(start, end)
    reader.stop()
    reader = source(dropping, group="g")
    with pytest.raises(DataLossError, match=f"the events 1 to 6 .*{what}"):  # it is said until the query may go on
        reader.partitions(start, end)
    reader.stop()
    reader = source(dropping, group="g", failOnDataLoss=False)
    assert ids(reader.partitions(start, end)) == [7, 8, 9, 10]
    assert reader.latestOffset(end) == end
    assert (dropping.stats().groups["g"].position, dropping.stats().groups["g"].in_flight) == (10, 0)
    reader.stop()


def test_a_query_that_may_continue_warns_once_of_each_event_that_goes_while_a_batch_is_planned(
    dropping: ss.Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = source(dropping, group="g", failOnDataLoss=False)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    expire(dropping, 2)
    prepare = Consumer.prepare

    def late(consumer: Consumer, ranges: Any, commit: Any) -> int:
        expire(dropping, 6)
        return prepare(consumer, ranges, commit)

    monkeypatch.setattr(Consumer, "prepare", late)
    assert ids(reader.partitions(start, end)) == [7, 8, 9, 10]
    told = [r.message for r in caplog.records if "were removed before the query read them" in r.message]
    assert ["the events 1 to 2 of" in told[0], "the events 3 to 6 of" in told[1], len(told)] == [True, True, 2]
    reader.stop()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("options", [{}, {"group": "g"}])
@pytest.mark.parametrize("when", ["before it begins", "before its first batch is asked for", "before that is planned"])
def test_a_loss_of_all_that_there_is_is_reported_by_a_batch_without_events(
    dropping: ss.Channel, when: str, options: dict[str, Any], restarted: bool
) -> None:
    """The next batch would begin behind it, and after a restart nobody would know that the query missed it."""
    reader = source(dropping, **options)
    if when == "before it begins":
        lose(dropping, 1, 10)
    start = reader.initialOffset()
    if when == "before its first batch is asked for":
        lose(dropping, 1, 10)
    end = reader.latestOffset(start)
    if when == "before that is planned":
        lose(dropping, 1, 10)
    if restarted:
        reader.stop()
        reader = source(dropping, **options)
        start = reader.initialOffset()
    with pytest.raises(DataLossError, match="the events 1 to 10 are lost"):
        reader.partitions(start, end)
    reader.stop()
    reader = source(dropping, failOnDataLoss=False, **options)
    assert reader.partitions(reader.initialOffset(), end) == []
    put(dropping, 2)
    assert ids(reader.partitions(end, reader.latestOffset(end))) == [11, 12]
    reader.stop()


def test_a_query_that_asked_for_events_by_id_is_told_that_all_of_them_left_before_its_first_batch(
    channel: ss.Channel,
) -> None:
    channel.consumer("other")
    put(channel, 10)
    reader = source(channel, startingOffsets=3)
    start = reader.initialOffset()
    with channel.take_transaction("other") as tx:
        tx.take_many(10)
    end = reader.latestOffset(start)
    with pytest.raises(DataLossError, match=r"the events 3 to 10 of .* were removed"):
        reader.partitions(start, end)
    reader.stop()


def test_a_batch_that_is_done_and_was_removed_since_is_not_reported_when_spark_asks_for_its_end_first(
    dropping: ss.Channel,
) -> None:
    """As Spark 4.0 and 4.1 do; they commit a batch only with the next one, so the group has yet to take this one."""
    reader = source(dropping, group="g")
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert reader.partitions(start, end)
    reader.stop()
    expire(dropping, 10)
    again = source(dropping, group="g")
    assert again.partitions(end, end) == []
    again.commit(end)
    put(dropping, 2)
    assert ids(again.partitions(end, again.latestOffset())) == [11, 12]
    again.stop()


@pytest.mark.parametrize("options", [{}, {"startingOffsets": "latest"}, {"startingTimestamp": 1}])
def test_a_query_that_asked_for_no_event_by_id_is_told_about_none_that_left_before_its_first_batch(
    channel: ss.Channel, options: dict[str, Any]
) -> None:
    channel.consumer("other")
    put(channel, 10)
    reader = source(channel, **options)
    start = reader.initialOffset()
    with channel.take_transaction("other") as tx:
        tx.take_many(10)
    assert reader.partitions(start, reader.latestOffset(start)) == []
    reader.stop()


def test_lost_events_fail_a_new_query(channel: ss.Channel) -> None:
    put(channel, 5)
    reader = source(channel)
    start = reader.initialOffset()
    lose(channel, 2, 3)
    with pytest.raises(DataLossError, match="the events 2 to 3 are lost"):
        reader.partitions(start, reader.latestOffset(start))


@pytest.mark.parametrize(("first", "last"), [(1, 3), (4, 6), (8, 10)])
def test_a_query_whose_group_is_created_after_a_loss_is_told_about_it(
    channel: ss.Channel, first: int, last: int
) -> None:
    put(channel, 10)
    lose(channel, first, last)
    with pytest.raises(DataLossError, match=f"the events {first} to {last} are lost"):
        batches_of(channel)
    reader = source(channel, group="another", failOnDataLoss=False)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start))
    read = [i for part in parts for e in part.plan.extents for i in range(e.first_id, e.last_id + 1)]  # type: ignore[attr-defined]
    assert read == [i for i in range(1, 11) if not first <= i <= last]
    put(channel, 1)
    assert batches(source(channel, group="after", startingOffsets=11)) == [(11, 11)]
