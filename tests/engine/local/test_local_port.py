"""The port of a channel on this host: each verb does what it says to the channel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.format.batch import EVENT_SCHEMA, encode_batch
from spillable_stream.format.frame import Frame
from spillable_stream.log.staged_file import StagedFileWriter
from tests.support.events import numbered, put, take


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        yield channel


def two_events() -> list[Frame]:
    rows = [{"headers": {"k": "v"}, "body": body} for body in (b"x", b"y")]
    return list(encode_batch(pa.RecordBatch.from_pylist(rows, EVENT_SCHEMA)))


def test_parts_of_a_read_are_planned_together_and_share_what_is_the_same(channel: ss.Channel) -> None:
    put(channel, *numbered(1, 9))
    first, second, third = channel.port().plan_read([(a, a + 2)] for a in (1, 4, 7))
    assert [(e.first_id, e.last_id) for plan in (first, second, third) for e in plan.extents] == [
        (1, 3),
        (4, 6),
        (7, 9),
    ]
    assert first.ends is second.ends is third.ends


def test_events_in_quarantine_are_not_missed(channel: ss.Channel) -> None:
    (channel.path / "quarantine" / "events-4-6").mkdir(parents=True)
    assert channel.port().not_quarantined([(1, 5)]) == [(1, 3)]


@pytest.mark.parametrize("adopted", [False, True])
def test_staged_file_is_discarded_unless_it_was_adopted(channel: ss.Channel, adopted: bool) -> None:
    port = channel.port()
    writer = port.plan_stage().begin("query", 1)
    assert isinstance(writer, StagedFileWriter)
    writer.write(two_events())
    staged = writer.finish()
    writer.close()
    if adopted:
        assert port.publish(Put([], [staged], SinkBatch("query", 1)), 0)
    port.discard([staged.name])
    port.end_staging("query", 1)
    assert writer.path.exists() == adopted
    assert len(take(channel, 10)) == (2 if adopted else 0)


def test_producers_id_has_one_holder_until_it_is_released(channel: ss.Channel) -> None:
    claim = channel.port().claim_producer("me")
    with ss.Channel(channel.path) as other:
        with pytest.raises(ss.ProducerBusyError, match=f"the producer 'me' of {channel.path} is pid "):
            other.port().claim_producer("me")
        claim.release()
        other.port().claim_producer("me").release()


def test_a_producer_or_a_group_that_is_not_ascii_is_owned_only_where_files_are_named_in_utf_8(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.put_port().claim_producer("grüße").release()
    with ss.Channel(channel.path) as other:
        other.consumer("grüße")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    for own in (channel.put_port().claim_producer, channel.consumer, channel.drop_group):
        with pytest.raises(ss.OptionError, match="this process names files in ascii"):
            own("grüße")
