"""Queries of a channel in a store whose bucket was put back to an older version, and that others continued."""

from __future__ import annotations

import pytest

import spillable_stream as ss
from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.spark.test_channel_pool import close_parked
from tests.support.events import put
from tests.support.object_channels import URL, stores_in_memory


def stream_of_the_store(**options: str) -> SpillableStreamReader:
    return SpillableStreamReader(URL, StreamOptions.of(options), struct_type(EVENT_SCHEMA))


def put_to_the_store(*bodies: bytes) -> None:
    with ss.Channel(URL, commit_interval=0) as channel:
        put(channel, *bodies)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("options", [{"group": "g"}, {}], ids=["group", "automatic"])
def test_a_batch_that_was_planned_is_not_planned_again_with_the_events_that_have_its_ids_now(
    options: dict[str, str], others: bool
) -> None:
    """A sink may have the batch, and would skip these events."""
    with stores_in_memory() as stores:
        put_to_the_store(b"of both")
        before = dict(stores[URL].objects)
        put_to_the_store(b"mine")
        reader = stream_of_the_store(**options)
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert len(reader.partitions(start, end)) == 1
        reader.stop()
        if others:
            stores[URL].objects.clear()
            stores[URL].objects.update(before)
            put_to_the_store(b"others'", b"others', too")
        again = stream_of_the_store(**options)
        if others:
            with pytest.raises(CheckpointMismatchError, match="the event 2 is another one by now: the bucket was put"):
                again.partitions(start, end)
        else:
            assert len(again.partitions(start, end)) == 1
            assert again.latestOffset(end) == end, "to the letter, where nothing is new"
        again.stop()
    close_parked()  # which are of these stores
