"""A query with a new checkpoint moves its group once, with its first batch."""

from __future__ import annotations

from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.errors import CheckpointMismatchError, DataLossError, GroupOwnedError
from spillable_stream.format.frame import FrameType
from spillable_stream.spark.source.batch_plan import reset_group
from spillable_stream.spark.source.group_reset import is_done, new_reset
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.spark.sources import batches, batches_of, put, source

RESET = {"group": "g", "resetGroup": True}

# ── the name of a reset ─────────────────────────────────────────────────────────────────────


def test_a_reset_is_done_when_it_is_the_groups_last_one() -> None:
    first = new_reset("")
    assert not is_done(first, "", "g", "c")
    assert is_done(first, first, "g", "c")
    second = new_reset(first)
    assert not is_done(second, first, "g", "c")
    assert second != new_reset(first)


def test_a_reset_that_another_one_came_before_is_refused() -> None:
    first = new_reset("")
    for since in (new_reset(""), new_reset(first)):
        with pytest.raises(CheckpointMismatchError, match="another query has reset it since"):
            is_done(first, since, "g", "c")


# ── a query that resets its group ───────────────────────────────────────────────────────────


@pytest.fixture
def kept(tmp_path: Any) -> Any:
    """A channel that keeps what the group `g` took, 1 to 10."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 10)
        assert batches_of(channel, group="g") == [(1, 10)]
        yield channel


def position(channel: ss.Channel) -> int:
    return channel.stats().groups["g"].position


def planned(reader: SpillableStreamReader, *, before_4_2: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    start = reader.initialOffset() if not before_4_2 else {}
    end = reader.latestOffset(start or None)
    start = start or reader.initialOffset()
    assert reader.partitions(start, end)
    return start, end


def test_query_begins_where_it_says_and_the_group_is_moved_when_its_first_batch_is_planned(kept: ss.Channel) -> None:
    reader = source(kept, startingOffsets=4, maxEventsPerTrigger=5, **RESET)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    end = reader.latestOffset(start)
    assert (start["writeOrderId"], end["start"], end["writeOrderId"]) == (3, 3, 8)
    assert start["reset"] == end["reset"]
    assert position(kept) == 10, "nothing has moved yet"
    assert reader.reportLatestOffset()["lagEvents"] == 2
    assert reader.partitions(reader.initialOffset(), end)
    assert position(kept) == 3
    following = reader.latestOffset(end)
    assert "reset" not in following and following["writeOrderId"] == 10
    assert position(kept) == 8
    reader.stop()


@pytest.mark.parametrize("before_4_2", [False, True], ids=["4.2 and later", "4.0 and 4.1"])
def test_restart_does_not_reset_the_group_again(kept: ss.Channel, before_4_2: bool) -> None:
    reader = source(kept, startingOffsets="earliest", **RESET)
    _, end = planned(reader, before_4_2=before_4_2)
    reader.commit(end)
    reader.stop()
    put(kept, 2)
    again = source(kept, startingOffsets="earliest", **RESET)
    if before_4_2:
        assert again.partitions(end, end) == []
    following = again.latestOffset(None if before_4_2 else end)
    assert (following["writeOrderId"], following.get("start"), following.get("reset")) == (12, None, None)
    assert again.partitions(end, following)
    again.stop()


@pytest.mark.parametrize("acted", [False, True], ids=["before the seek", "after it"])
def test_first_batch_is_planned_again_as_it_was_wherever_the_driver_was_killed(kept: ss.Channel, acted: bool) -> None:
    killed = source(kept, startingOffsets=4, **RESET)
    start = killed.initialOffset()
    end = killed.latestOffset(start)
    if acted:
        reset_group(killed._query, end["reset"], 3)
        assert position(kept) == 3
    killed.stop()
    put(kept, 5)
    again = source(kept, startingOffsets=4, **RESET)
    (part,) = again.partitions(again.initialOffset(), end)
    assert [(e.first_id, e.last_id) for e in part.plan.extents] == [(4, 10)]  # type: ignore[attr-defined]
    again.commit(end)
    assert position(kept) == 10
    again.stop()


@pytest.mark.parametrize("acted", [False, True])
def test_first_batch_whose_first_events_have_left_since_begins_behind_them_if_the_query_may(
    kept: ss.Channel, acted: bool
) -> None:
    killed = source(kept, startingOffsets=4, **RESET)
    end = killed.latestOffset(killed.initialOffset())
    killed.stop()
    kept.engine().commit(Control(FrameType.RETENTION, {"through": 6}))
    strict = source(kept, startingOffsets=4, **RESET)
    with pytest.raises(DataLossError) as error:
        strict.partitions(end, end)
    assert str(error.value) == (
        f"the query resets the group 'g' of {kept.path} to the event 4, as startingOffsets says, but since then the "
        "events 4 to 6 have left. Set failOnDataLoss to false to begin with the event 7"
    )
    assert position(kept) == 10
    strict.stop()
    for _ in range(1 + acted):
        again = source(kept, startingOffsets=4, failOnDataLoss=False, **RESET)
        (part,) = again.partitions(again.initialOffset(), end)
        assert [(e.first_id, e.last_id) for e in part.plan.extents] == [(7, 10)]  # type: ignore[attr-defined]
        again.stop()
    again = source(kept, **RESET)
    put(kept, 1)
    assert again.latestOffset(end)["writeOrderId"] == 11
    again.stop()


@pytest.mark.parametrize("through", [6, 10])
@pytest.mark.parametrize("options", [{}, {"startingTimestamp": 1}])
def test_reset_to_no_event_by_its_id_begins_with_the_first_that_is_still_there(
    kept: ss.Channel, options: dict[str, Any], through: int
) -> None:
    reader = source(kept, **options, **RESET)
    end = reader.latestOffset(reader.initialOffset())
    kept.engine().commit(Control(FrameType.RETENTION, {"through": through}))
    parts: list[Any] = list(reader.partitions(reader.initialOffset(), end))
    assert [(e.first_id, e.last_id) for p in parts for e in p.plan.extents] == [(7, 10)][: 10 - through]
    put(kept, 1)
    assert reader.latestOffset(end)["writeOrderId"] == 11
    reader.stop()


def test_query_that_finds_nothing_yet_leaves_the_group_where_it_is(kept: ss.Channel) -> None:
    reader = source(kept, startingOffsets="latest", **RESET)
    start = reader.initialOffset()
    assert [reader.latestOffset(start) for _ in range(2)] == [start, start]
    put(kept, 1)
    assert reader.latestOffset(start)["writeOrderId"] == 11
    reader.stop()


def test_empty_first_batch_of_a_query_with_several_sources_moves_the_group(kept: ss.Channel) -> None:
    consumer = kept.consumer("g", resume=True)
    consumer.seek(2)
    consumer.close()
    kept._open.owned.consumers.clear()
    reader = source(kept, startingOffsets="latest", **RESET)
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    assert reader.partitions(start, start) == []
    assert position(kept) == 10
    put(kept, 3)
    reader.stop()
    again = source(kept, startingOffsets="latest", **RESET)
    assert again.latestOffset(start)["writeOrderId"] == 13
    again.stop()


@pytest.mark.parametrize("before_4_2", [False, True], ids=["4.2 and later", "4.0 and 4.1"])
@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("acted", [False, True], ids=["before the seek", "after it"])
def test_empty_first_batch_is_planned_again_where_it_was_wherever_the_driver_was_killed(
    kept: ss.Channel, acted: bool, more: int, before_4_2: bool
) -> None:
    """The options mean a later place by then: what was put meanwhile is the query's."""
    killed = source(kept, startingOffsets="latest", **RESET)
    end = killed.initialOffset()
    assert killed.latestOffset(end) == end
    if acted:
        assert killed.partitions(end, end) == []
    killed.stop()
    if more:
        put(kept, more)
    again = source(kept, startingOffsets="latest", **RESET)
    if before_4_2:
        assert again.partitions(end, end) == []
    assert again.partitions(again.initialOffset(), end) == []
    assert position(kept) == 10
    again.commit(end)
    put(kept, 1)
    following = again.latestOffset(None if before_4_2 else end)
    (part,) = again.partitions(end, following)
    found = [i for e in part.plan.extents for i in range(e.first_id, e.last_id + 1)]  # type: ignore[attr-defined]
    assert found == list(range(11, 12 + more))
    again.stop()


def test_old_copy_of_a_checkpoint_stays_refused_after_the_reset(kept: ss.Channel) -> None:
    reader = source(kept, startingOffsets="earliest", maxEventsPerTrigger=5, **RESET)
    start, end = planned(reader)
    following = reader.latestOffset(end)
    reader.partitions(end, following)
    reader.commit(following)
    reader.stop()
    copy = source(kept, startingOffsets="earliest", **RESET)
    with pytest.raises(CheckpointMismatchError, match="but the group 'g' has taken 6 to 10 too"):
        copy.latestOffset(end)
    with pytest.raises(CheckpointMismatchError, match="but the group 'g' has taken 1 to 10 too"):
        copy.partitions(start, end)
    copy.stop()
    assert batches_of(kept, startingOffsets=9, **RESET) == [(9, 10)]
    with pytest.raises(CheckpointMismatchError, match="another query has reset it since"):
        source(kept, **RESET).partitions(start, end)


def test_live_owner_of_the_group_is_not_moved(kept: ss.Channel) -> None:
    kept.consumer("g", resume=True)
    reader = source(kept, startingOffsets="earliest", ownerTimeout=0, **RESET)
    with pytest.raises(GroupOwnedError):
        reader.latestOffset(reader.initialOffset())
    assert position(kept) == 10


def test_new_group_needs_no_reset(kept: ss.Channel) -> None:
    reader = source(kept, group="new", resetGroup=True, startingOffsets=6)
    start = reader.initialOffset()
    assert "reset" not in start
    assert batches(reader) == [(6, 10)]
    reader.stop()


@pytest.mark.parametrize("before_4_2", [False, True], ids=["4.2 and later", "4.0 and 4.1"])
def test_new_group_is_not_reset_however_often_spark_asks_where_the_query_begins(
    kept: ss.Channel, before_4_2: bool
) -> None:
    reader = source(kept, group="new", resetGroup=True, startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(None if before_4_2 else start) == start
    put(kept, 3)
    assert reader.initialOffset() == start
    end = reader.latestOffset(None if before_4_2 else start)
    put(kept, 1)
    parts: list[Any] = list(reader.partitions(reader.initialOffset(), end))
    assert [(e.first_id, e.last_id) for p in parts for e in p.plan.extents] == [(11, 13)]
    reader.stop()


def test_takes_of_the_former_query_are_given_back(kept: ss.Channel) -> None:
    put(kept, 5)
    former = source(kept, group="g")
    planned(former)
    former.stop()
    assert batches_of(kept, startingOffsets=9, **RESET) == [(9, 15)]
    assert kept.stats().groups["g"].in_flight == 0
