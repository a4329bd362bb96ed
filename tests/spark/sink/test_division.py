"""A division is in the name by which a channel remembers a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.format.batch import encode_batch
from spillable_stream.spark.sink.division import (
    batch_of,
    digest,
    division_with_places,
    latest,
    of_query,
    stored_batches,
    stored_otherwise,
    what_to_do,
)


@pytest.fixture
def channel(tmp_path: Path) -> ss.Channel:
    return ss.Channel(tmp_path / "c", minimum_required_space=0)


def remember(channel: ss.Channel, batch: SinkBatch) -> None:
    assert channel.port().publish(Put(encode_batch(as_event_batch([ss.Event(b"")])), [], batch), 0.0)


def test_a_channel_says_which_batches_another_division_stored(channel: ss.Channel) -> None:
    ours, other, flow = "3-00000000", "4-00000000", "flow-00000000"
    with channel:
        for batch in (
            SinkBatch("whole", 9),
            batch_of(SinkBatch("q", 5), ours),
            batch_of(SinkBatch("q", 2), other),
            batch_of(SinkBatch("q", 3), flow),
            batch_of(SinkBatch("a/b", 4), flow),
            SinkBatch("q/elsewhere", 9),
        ):
            remember(channel, batch)
        found = stored_batches(channel)
    assert stored_otherwise(found, SinkBatch("q", 2), ours) == (f"q/{flow}", 3)
    assert stored_otherwise(found, SinkBatch("q", 3), ours) == (f"q/{flow}", 3)
    assert stored_otherwise(found, SinkBatch("q", 4), ours) is None
    assert stored_otherwise(found, SinkBatch("q", 4), flow) == (f"q/{ours}", 5)
    assert stored_otherwise(found, SinkBatch("a/b", 4), ours) == (f"a/b/{flow}", 4)
    assert stored_otherwise(found, SinkBatch("a", 0), ours) is None


def test_a_batch_whose_rows_were_not_divided_counts_as_one_of_another_division() -> None:
    assert stored_otherwise({"q": 2}, SinkBatch("q", 2), "flow-00000000") == ("q", 2)
    assert stored_otherwise({"q": 2}, SinkBatch("q", 3), "flow-00000000") is None


def test_only_the_division_of_a_flow_says_where_its_channels_are() -> None:
    names = ["q/flow-00000000", "q/4-00000000", "q", "other/flow-00000000"]
    assert [division_with_places(name, "q") for name in names] == ["flow-00000000", None, None, None]


def test_only_the_last_batch_comes_again_and_an_earlier_one_is_of_an_old_copy_of_a_checkpoint() -> None:
    assert what_to_do(SinkBatch("q", 7), 7, "the file") == (
        "The batch 7 comes again: run it with the file that it had, and change that when it is done"
    )
    assert what_to_do(SinkBatch("q", 6), 7, "the file").startswith("The batch 6 is an earlier one, as from an old copy")


def test_of_one_query_the_batches_of_all_divisions_are_found() -> None:
    of_q = {"q": 2, "q/4-00000000": 3, "q/flow-00000000": 1}
    found = {**of_q, "r": 9, "q/elsewhere": 9, "qq": 9}
    assert of_query(found, "q") == of_q
    assert stored_otherwise(found, SinkBatch("q", 1), None) == ("q/4-00000000", 3)
    assert stored_otherwise(found, SinkBatch("q", 4), None) is None


def test_of_several_channels_the_last_batch_of_each_name_counts() -> None:
    assert latest({"q": 1}, {"q": 3, "r": 0}, {"q": 2}) == {"q": 3, "r": 0}
    assert latest() == {}


def test_a_digest_tells_its_parts_apart_and_is_the_same_forever() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["customer", "string"]) == "3075fae9"  # channels remember it
