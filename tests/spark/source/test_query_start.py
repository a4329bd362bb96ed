"""Where a query that has no batch yet begins: decided once, and said again to the letter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.requests import Control
from spillable_stream.errors import DataLossError
from spillable_stream.format.frame import FrameType
from spillable_stream.spark.source.query_group import QueryGroup
from spillable_stream.spark.source.query_start import QueryStart
from spillable_stream.spark.source.read_options import StreamOptions
from tests.support.spark.sources import batches_of, put, source


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ss.Channel]:
    """A channel that keeps 4 to 10, which the group `g` has taken."""
    with ss.Channel(tmp_path / "c", minimum_required_space=0, retention_ms=10**9) as channel:
        put(channel, 10)
        assert batches_of(channel, group="g") == [(1, 10)]
        channel.engine().commit(Control(FrameType.RETENTION, {"through": 3}))
        yield channel


def start_of(options: dict[str, Any]) -> QueryStart:
    found = StreamOptions.of(options)
    return QueryStart(found, QueryGroup(found.group))


@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({}, 3),
        ({"starting_offsets": "latest"}, 10),
        ({"starting_offsets": "7"}, 6),
        ({"starting_timestamp": 0}, 3),
        ({"group": "new"}, 3),
        ({"group": "g"}, 10),
        ({"group": "g", "starting_offsets": "7"}, 10),
        ({"group": "g", "starting_offsets": "7", "reset_group": True}, 6),
    ],
)
def test_a_query_begins_where_its_options_say_or_where_its_group_is(
    kept: ss.Channel, options: dict[str, Any], position: int
) -> None:
    start = start_of(options)
    assert start.position(kept) == position
    assert (start.reset is not None) == options.get("reset_group", False)


@pytest.mark.parametrize("options", [{}, {"group": "new"}, {"group": "g", "reset_group": True}])
def test_a_time_to_come_is_refused_since_the_query_would_have_what_is_put_before_it(
    kept: ss.Channel, options: dict[str, Any]
) -> None:
    start = start_of({"starting_timestamp": 32503680000 * 10**6, **options})
    with pytest.raises(ss.OptionError, match=r"startingTimestamp, 3000-01-01T00:00:00\+00:00, is still to come: "):
        start.position(kept)
    with kept.port().snapshot() as state:
        assert set(state.groups) == {"g"}


def test_a_query_that_continues_its_group_may_keep_an_option_with_a_time_to_come(kept: ss.Channel) -> None:
    assert start_of({"starting_timestamp": 32503680000 * 10**6, "group": "g"}).position(kept) == 10


def test_what_options_mean_is_found_out_once(kept: ss.Channel) -> None:
    for options in ({}, {"group": "g", "reset_group": True}):
        start = start_of({"starting_offsets": "latest", **options})
        first, reset = start.position(kept), start.reset
        put(kept, 3)
        assert (start.position(kept), start.reset) == (first, reset)


def test_an_event_that_has_left_is_refused_and_the_first_that_is_kept_is_named(kept: ss.Channel) -> None:
    with pytest.raises(DataLossError, match=r"the events 2 to 3 have left the channel: .* keeps is 4"):
        start_of({"starting_offsets": "2"}).position(kept)
    assert start_of({"starting_offsets": "2", "fail_on_data_loss": False}).position(kept) == 3


def test_only_a_group_that_the_options_name_is_created(kept: ss.Channel) -> None:
    start_of({}).position(kept)
    assert set(kept.stats().groups) == {"g"}
    start_of({"group": "new"}).position(kept)
    assert set(kept.stats().groups) == {"g", "new"}


def test_spark_is_told_the_same_beginning_before_and_after_the_first_batch_is_asked_for(kept: ss.Channel) -> None:
    reader = source(kept, startingOffsets="latest")
    start = reader.initialOffset()
    put(kept, 5)
    end = reader.latestOffset(start)
    assert reader.initialOffset() == start
    assert (start["writeOrderId"], end["start"], end["writeOrderId"]) == (10, 10, 15)
    assert start["group"] == end["group"]
    reader.stop()


def test_before_spark_4_2_too(kept: ss.Channel) -> None:
    """It asks for the end first, without a beginning."""
    reader = source(kept, startingOffsets="latest")
    end = reader.latestOffset()
    assert reader.initialOffset() == end, "there is nothing yet"
    put(kept, 5)
    end = reader.latestOffset()
    start = reader.initialOffset()
    assert (start["writeOrderId"], end["start"], end["writeOrderId"]) == (10, 10, 15)
    assert reader.partitions(start, end)
    assert reader.latestOffset() == end
    reader.stop()
