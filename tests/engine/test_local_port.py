"""The port of a channel on this host: each verb does what it says to the channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.format.batch import EVENT_SCHEMA, encode_batch
from spillable_stream.format.frame import Frame
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.lock import process_note
from tests.support.events import numbered, put, take


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        yield channel


def two_events() -> list[Frame]:
    rows = [{"headers": {"k": "v"}, "body": body} for body in (b"x", b"y")]
    return list(encode_batch(pa.RecordBatch.from_pylist(rows, EVENT_SCHEMA)))


def test_position_is_another_one_after_every_commit_of_anybody(channel: ss.Channel) -> None:
    port, seen = channel.port(), set()
    with ss.Channel(channel.path) as other:
        for handle in (channel, other):
            assert port.position() == port.position()
            seen.add(port.position())
            put(handle, b"x")
    assert len(seen | {port.position()}) == 3


def test_snapshot_is_up_to_date_and_stands_still(channel: ss.Channel) -> None:
    with ss.Channel(channel.path) as other:
        put(other, *numbered(0, 3))
        with channel.port().snapshot() as state:
            put(other, *numbered(3, 3))
            [plan] = channel.port().plan_read([[(1, 6)]])
            assert (state.last_id, plan.extents[-1].last_id) == (3, 3)
        with channel.port().snapshot() as state:
            assert state.last_id == 6


def test_port_of_a_closed_channel_is_refused(channel: ss.Channel) -> None:
    port = channel.port()
    channel.close()
    with pytest.raises(ss.ChannelClosedError):
        port.require_open()
    with pytest.raises(ss.ChannelClosedError):
        channel.port()


def test_batch_of_a_sink_is_published_once(channel: ss.Channel) -> None:
    port = channel.port()
    for batch_id, is_new in ((4, True), (4, False), (3, False), (5, True)):
        frames = two_events()
        assert port.publish(Put(frames, [], SinkBatch("query", batch_id)), 0) is is_new
    assert channel.stats().last_id == 4


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


def test_takes_are_committed_for_their_owner_and_not_for_another(channel: ss.Channel) -> None:
    put(channel, *numbered(0, 10))
    port = channel.port()
    assert port.owner_of("g").note == ""
    assert port.create_group("g", "4") == port.create_group("g", "earliest") == 3
    consumer = channel.consumer("g", note="of a test")
    consumer.prepare([(4, 7)])
    owner = port.owner_of("g")
    assert owner.note == consumer.owner and owner.note.startswith(process_note())
    assert owner.since is not None and owner.since.utcoffset() is not None
    assert port.commit_through("g", 7, "somebody else") == 0
    assert port.commit_through("g", 6, owner.note) == 0
    assert port.commit_through("g", 7, owner.note) == 1
    assert port.group("g").position == 7
    assert port.create_group("of-a-stream", "latest", automatic=True, since=8) == 8
    assert port.group("of-a-stream").is_automatic


def test_a_plan_without_events_is_recorded_once_and_of_a_streams_own_group_only(channel: ss.Channel) -> None:
    port = channel.port()
    port.create_group("g", "latest")
    port.create_group("of-a-stream", "latest", automatic=True)
    before = port.position()
    port.note_plan("g")
    assert port.position() == before
    port.note_plan("of-a-stream")
    recorded = port.position()
    port.note_plan("of-a-stream")
    assert port.position() == recorded != before
    assert (port.group("g").has_planned, port.group("of-a-stream").has_planned) == (False, True)


def test_group_that_is_missing_is_refused(channel: ss.Channel) -> None:
    put(channel, b"x")
    with pytest.raises(ss.OptionError, match="has no group 'g'"):
        channel.port().group("g")
    assert channel.port().starting_position("latest") == 1


def test_lost_events_are_reported_to_everybody(channel: ss.Channel) -> None:
    put(channel, *numbered(0, 10))
    channel.port().report_lost(4, 6)
    assert channel.stats().lost == ((4, 6),)


def test_producers_id_has_one_holder_until_it_is_released(channel: ss.Channel) -> None:
    claim = channel.port().claim_producer("me")
    with ss.Channel(channel.path) as other:
        with pytest.raises(ss.ProducerBusyError, match=f"the producer 'me' of {channel.path} is pid "):
            other.port().claim_producer("me")
        claim.release()
        other.port().claim_producer("me").release()
