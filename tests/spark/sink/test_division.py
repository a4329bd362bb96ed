"""A division is in the name by which a channel remembers a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.format.batch import encode_batch
from spillable_stream.spark.sink.division import batch_of, digest, latest, stored_otherwise


@pytest.fixture
def channel(tmp_path: Path) -> ss.Channel:
    return ss.Channel(tmp_path / "c", minimum_required_space=0)


def remember(channel: ss.Channel, batch: SinkBatch) -> None:
    assert channel.port().publish(Put(encode_batch(as_event_batch([ss.Event(b"")])), [], batch), 0.0)


def test_a_channel_says_which_batches_another_division_stored(channel: ss.Channel) -> None:
    with channel:
        for batch in (
            SinkBatch("whole", 9),
            batch_of(SinkBatch("q", 1), "3-00000000"),
            batch_of(SinkBatch("q", 2), "4-00000000"),
            batch_of(SinkBatch("q", 3), "flow-00000000"),
            batch_of(SinkBatch("a/b", 4), "flow-00000000"),
        ):
            remember(channel, batch)
        assert stored_otherwise(channel, "flow-00000000") == {"q": (2, "4-00000000")}
        assert stored_otherwise(channel, "5-00000000") == {"q": (3, "flow-00000000"), "a/b": (4, "flow-00000000")}


def test_of_several_channels_the_last_batch_of_each_query_counts() -> None:
    assert latest({"q": (1, "a")}, {"q": (3, "b"), "r": (0, "c")}, {"q": (2, "a")}) == {"q": (3, "b"), "r": (0, "c")}
    assert latest() == {}


def test_a_digest_tells_its_parts_apart_and_is_the_same_forever() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["customer", "string"]) == "3075fae9"  # channels remember it
