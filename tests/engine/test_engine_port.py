"""The verbs of a port that are the same wherever the channel is: in a directory, and in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.storage.lock import process_note
from tests.support.events import numbered, put
from tests.support.object_logs import frames_of

Open = Callable[[], ss.Channel]


@pytest.fixture(params=["directory", "store"])
def open_either(
    request: pytest.FixtureRequest, tmp_path: Path, open_handle: Callable[..., ss.Channel]
) -> Iterator[Open]:
    """Open handles of one channel, in one of both kinds of places."""
    with ExitStack() as stack:
        if request.param == "store":
            yield open_handle
        else:
            yield lambda: stack.enter_context(ss.Channel(tmp_path / "c", minimum_required_space=0))


def test_position_is_another_one_after_every_commit_of_anybody(open_either: Open) -> None:
    channel, other = open_either(), open_either()
    port, seen = channel.port(), set()
    for handle in (channel, other):
        assert port.position() == port.position()
        seen.add(port.position())
        put(handle, b"x")
    assert len(seen | {port.position()}) == 3


def test_snapshot_is_up_to_date_and_does_not_change(open_either: Open) -> None:
    channel, other = open_either(), open_either()
    put(other, *numbered(0, 3))
    with channel.port().snapshot() as state:
        put(other, *numbered(3, 3))
        [plan] = channel.port().plan_read([[(1, 6)]])
        assert (state.last_id, plan.extents[-1].last_id) == (3, 3)
    with channel.port().snapshot() as state:
        assert state.last_id == 6


def test_port_of_a_closed_channel_is_refused(open_either: Open) -> None:
    channel = open_either()
    port = channel.port()
    port.require_open()
    channel.close()
    with pytest.raises(ss.ChannelClosedError):
        port.require_open()
    with pytest.raises(ss.ChannelClosedError):
        channel.port()


def test_batch_of_a_sink_is_published_once_by_whichever_handle(open_either: Open) -> None:
    ports = [open_either().port(), open_either().port()]
    for number, (batch_id, is_new) in enumerate(((4, True), (4, False), (3, False), (5, True), (5, False))):
        batch = Put(frames_of(b"x", b"y"), [], SinkBatch("query", batch_id))
        assert ports[number % 2].publish(batch, 0) is is_new
    assert open_either().stats().last_id == 4


def test_takes_are_committed_for_their_owner_and_not_for_another(open_either: Open) -> None:
    channel = open_either()
    put(channel, *numbered(0, 10))
    port = channel.port()
    assert port.owner_of("g").note == ""
    assert port.create_group("g", "4") == port.create_group("g", "earliest") == 3
    consumer = channel.consumer("g", note="of a test")
    consumer.prepare([(4, 7)])
    helper = open_either().port()
    owner = helper.owner_of("g")
    assert owner == port.owner_of("g")
    assert owner.note == consumer.owner
    assert owner.note.startswith(process_note()[:20]) and owner.note.endswith(", of a test")
    assert owner.since is not None and owner.since.utcoffset() is not None
    assert helper.commit_through("g", 7, "somebody else") == 0
    assert helper.commit_through("g", 6, owner.note) == 0
    assert helper.commit_through("g", 7, owner.note) == 1
    assert port.group("g").position == 7
    assert port.create_group("of-a-stream", "latest", automatic=True, since=8) == 8
    assert port.group("of-a-stream").is_automatic


def test_a_plan_without_events_is_recorded_once_and_of_a_streams_own_group_only(open_either: Open) -> None:
    port = open_either().port()
    port.create_group("g", "latest")
    port.create_group("of-a-stream", "latest", automatic=True)
    before = port.position()
    port.record_plan("g")
    assert port.position() == before
    port.record_plan("of-a-stream")
    recorded = port.position()
    port.record_plan("of-a-stream")
    assert port.position() == recorded != before
    assert (port.group("g").has_planned, port.group("of-a-stream").has_planned) == (False, True)


def test_group_that_is_missing_is_refused(open_either: Open) -> None:
    channel = open_either()
    put(channel, b"x")
    with pytest.raises(ss.OptionError, match="has no group 'g'"):
        channel.port().group("g")
    assert channel.port().starting_position("latest") == 1


def test_lost_events_are_reported_to_everybody(open_either: Open) -> None:
    channel = open_either()
    put(channel, *numbered(0, 10))
    with channel.port().snapshot() as state:
        (block,) = state.blocks
    channel.port().report_lost(block.file, 4, 6)
    assert open_either().stats().lost == ((4, 6),)


def test_events_that_are_not_in_the_file_that_was_read_are_not_reported_lost(open_either: Open) -> None:
    """They may be whole in another one, or other events may have, or get, their IDs."""
    channel = open_either()
    put(channel, *numbered(0, 10))
    with channel.port().snapshot() as state:
        (block,) = state.blocks
    for file, first, last in ((f"{block.file}", 4, 6), (block.file, 11, 12), (block.file, 8, 11)):
        with pytest.raises(ss.DataLossError, match=f"the events {first} to {last} are no longer where they were read"):
            channel.port().report_lost(file, first, last)
    assert open_either().stats().lost == ()
