"""The takes of a query's batches, where others took some of the events ahead, or some were lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.support.events import lose, numbered, peek, put
from tests.support.spark.sources import batches, named_source

pytestmark = pytest.mark.spark


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        yield channel


def take_ahead(channel: ss.Channel, first: int, last: int) -> None:
    """Take events behind others that are left, as a consumer with several transactions may."""
    with ss.Channel(channel.path) as other:
        other.consumer("default", resume=True).commit([(first, last)])


def position(channel: ss.Channel) -> tuple[int, int]:
    """Return the group's position, and how many events are in takes that are not committed."""
    stats = channel.stats().groups["default"]
    return stats.position, stats.in_flight


# ── taken ahead ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [{"maxEventsPerTrigger": 3}, {"maxBytesPerTrigger": 1}, {"minEventsPerTrigger": 1}])
@pytest.mark.parametrize("ahead", [[(4, 10)], [(4, 6)], [(2, 3), (5, 7)], [(2, 2), (4, 4), (6, 6)]])
def test_a_query_continues_behind_events_that_others_took(
    channel: ss.Channel, limit: dict[str, Any], ahead: list[tuple[int, int]]
) -> None:
    """A batch that ended right before them would be behind the group's position, as if another query had gone on."""
    for each in ahead:
        take_ahead(channel, *each)
    reader = named_source(channel, **limit)
    start, ends = reader.initialOffset(), []
    for _ in range(20):
        if (end := reader.latestOffset(start)) == start:
            break
        reader.partitions(start, end)
        start = end
        ends.append(end["writeOrderId"])
    assert ends[-1] == 10
    assert position(channel) == (10, 0)
    put(channel, b"next")
    assert reader.latestOffset(start)["writeOrderId"] == 11
    reader.stop()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_that_spark_ended_right_before_events_that_others_took_since_is_committed_with_the_next(
    channel: ss.Channel, restarts: bool
) -> None:
    reader = named_source(channel, maxEventsPerTrigger=3)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert end["writeOrderId"] == 3
    reader.stop()
    take_ahead(channel, 4, 8)
    reader = named_source(channel, maxEventsPerTrigger=3)
    assert reader.partitions(start, end), "Spark's offset log says where it ends"
    if restarts:
        reader.stop()
        reader = named_source(channel, maxEventsPerTrigger=3)
    following = reader.latestOffset(end)
    assert following["writeOrderId"] == 10
    assert position(channel) == (0, 3)
    reader.commit(end)
    assert position(channel) == (0, 3)
    assert reader.partitions(end, following)
    assert reader.latestOffset(following) == following
    assert position(channel) == (10, 0)
    reader.stop()


def test_a_listener_leaves_such_a_batch_to_its_source(channel: ss.Channel) -> None:
    take_ahead(channel, 4, 10)
    reader = named_source(channel)
    start = reader.initialOffset()
    reader.partitions(start, {**start, "writeOrderId": 3})
    assert finish_takes(channel.engine(), "default", 3) == 0
    assert position(channel) == (0, 3)
    assert finish_takes(channel.engine(), "default", 10) == 1
    assert position(channel) == (10, 0)
    reader.stop()


def test_events_that_a_query_passes_over_do_not_carry_the_group_behind_its_checkpoint(channel: ss.Channel) -> None:
    take_ahead(channel, 5, 10)
    reader = named_source(channel, failOnDataLoss=False)
    assert batches(reader, 4) == [(5, 10)]
    assert position(channel) == (10, 0)
    reader.stop()


# ── lost before it was planned ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", [(1, 3), (8, 10), (4, 5), (1, 10)])
def test_a_batch_that_lost_events_before_it_was_planned_is_the_same_after_every_restart(
    channel: ss.Channel, lost: tuple[int, int]
) -> None:
    reader = named_source(channel, failOnDataLoss=False)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    lose(channel, *lost)
    rows = _rows(reader, start, end)
    assert sorted(rows) == [b"%d" % (i - 1) for i in range(1, 11) if not lost[0] <= i <= lost[1]]
    for _ in range(3):
        reader.stop()
        put(channel, b"another")
        reader = named_source(channel, failOnDataLoss=False)
        assert _rows(reader, start, end) == rows
        assert position(channel)[1] == len(rows), "it is taken once"
    assert reader.latestOffset(end)["writeOrderId"] == 13
    assert position(channel) == (10, 0)
    reader.stop()


@pytest.mark.parametrize("lost", [(1, 3), (8, 10), (4, 5)])
def test_a_batch_that_lost_events_and_that_sparks_checkpoint_lost_has_the_same_events_again(
    channel: ss.Channel, lost: tuple[int, int]
) -> None:
    reader = named_source(channel, failOnDataLoss=False)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    lose(channel, *lost)
    rows = _rows(reader, start, end)
    reader.stop()
    put(channel, b"another")
    reader = named_source(channel, failOnDataLoss=False)
    again = reader.latestOffset(start)
    assert _rows(reader, start, again) == rows
    assert position(channel)[1] == len(rows)
    following = reader.latestOffset(again)
    assert _rows(reader, again, following) == [b"another"]
    reader.latestOffset(following)
    assert position(channel) == (11, 0)
    reader.stop()
    assert peek(channel) == []


# ── gone while it was under way ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("through", [10, 15])
@pytest.mark.parametrize("limit", [{}, {"maxEventsPerTrigger": 5}])
def test_batches_that_are_gone_while_nobody_owns_the_group_do_not_stay_under_way(
    tmp_path: Path, limit: dict[str, Any], through: int, lost: bool
) -> None:
    """A take under way holds events back, and so it would for the life of the query."""
    with ss.Channel(
        tmp_path / "c", minimum_required_space=0, retention_ms=3_600_000, retention_untaken="drop"
    ) as channel:
        put(channel, *numbered(0, 10))
        reader = named_source(channel, **limit)
        start = reader.initialOffset()
        for _ in range(2 if limit else 1):
            end = reader.latestOffset(start)
            assert reader.partitions(start, end)
            start = end
        reader.stop()
        put(channel, *numbered(10, 5))
        if lost:
            lose(channel, 1, through)
        else:
            channel.engine().commit(Control(FrameType.RETENTION, {"through": through}))
        reader = named_source(channel, failOnDataLoss=False)
        following = reader.latestOffset(end)
        assert position(channel) == (through, 0)
        assert following["writeOrderId"] == 15
        before = channel.stats().last_id, channel.engine().state.next_transaction
        reader.commit(end)
        assert (channel.stats().last_id, channel.engine().state.next_transaction) == before, "nothing is left to do"
        assert bool(reader.partitions(end, following)) == (through < 15)
        assert reader.latestOffset(following) == following
        assert position(channel) == (15, 0)
        reader.stop()


def test_a_batch_that_is_gone_and_that_a_listener_committed_is_not_committed_again(channel: ss.Channel) -> None:
    reader = named_source(channel)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert reader.partitions(start, end)
    assert finish_takes(channel.engine(), "default", 10) == 1
    before = channel.engine().state.next_transaction
    reader.commit(end)
    assert channel.engine().follow().next_transaction == before
    reader.stop()


def _rows(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    read: Callable[[Any], Any] = reader.read
    return [
        body for part in reader.partitions(start, end) for batch in read(part) for body in batch["body"].to_pylist()
    ]
