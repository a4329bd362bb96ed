from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.flow.sinks.letter_box import LetterBox, _read_note
from spillable_stream.flow.sinks.written import WrittenEvents
from tests.support import events
from tests.support.flow_batches import batch_of


@pytest.fixture
def dead(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    return Channel(tmp_path_factory.mktemp("dead") / "dead", minimum_required_space=0)


def put(box: LetterBox, *ids: int) -> None:
    box.put(batch_of(*(b"%d" % i for i in ids)), pa.array(ids, pa.int64()), "why", 5)


def with_kept_events(open_channel: Callable[..., Channel]) -> Channel:
    channel: Channel = open_channel()
    channel.consumer("another")  # so that the events stay
    events.put(channel, b"1", b"2")
    return channel


def test_letters_say_what_why_and_when(dead: Channel, open_channel: Callable[..., Channel]) -> None:
    put(LetterBox(dead, "a1.k1", open_channel(), "g", WrittenEvents()), 7)
    with dead.take_transaction() as tx:
        letter = tx.take()
    assert isinstance(letter, Event) and letter.body == b"7"
    assert letter.headers == {"deadletter.component": "a1.k1", "deadletter.error": "why", "deadletter.time": "5",
                              "deadletter.id": "7"}  # fmt: skip


def test_events_that_are_letters_count_as_written_after_a_crash(
    dead: Channel, open_channel: Callable[..., Channel]
) -> None:
    channel, written = open_channel(), WrittenEvents()
    channel.consumer("g")
    events.put(channel, *events.numbered(0, 20))
    box = LetterBox(dead, "a1.k1", channel, "g", written)
    put(box, 2, 3, 9)
    put(box, 12)
    written.remove([(2, 3)])  # their take is committed
    put(box, 14)
    after = WrittenEvents()
    LetterBox(dead, "a1.k1", channel, "g", after)
    assert after.among([(1, 20)]) == [(9, 9), (12, 12), (14, 14)]


def test_letters_count_no_more_when_their_take_is_committed_and_a_seek_brings_the_events_back(
    dead: Channel, open_channel: Callable[..., Channel]
) -> None:
    """They are judged anew: whoever seeks has repaired what was wrong with them."""
    channel = with_kept_events(open_channel)
    put(LetterBox(dead, "a1.k1", channel, "g", WrittenEvents()), 1, 2)
    for change in (lambda: events.take(channel, 2, "g"), lambda: channel.seek("g", "earliest")):
        change()
        written = WrittenEvents()
        LetterBox(dead, "a1.k1", channel, "g", written)
        assert not written


def test_letters_of_a_first_batch_behind_a_seek_count_after_a_crash(
    dead: Channel, open_channel: Callable[..., Channel]
) -> None:
    channel = with_kept_events(open_channel)
    events.take(channel, 2, "g")
    channel.seek("g", "earliest")
    put(LetterBox(dead, "a1.k1", channel, "g", WrittenEvents()), 1, 2)
    after = WrittenEvents()
    LetterBox(dead, "a1.k1", channel, "g", after)
    assert after.among([(1, 9)]) == [(1, 2)]


def test_letters_of_another_channel_or_sink_do_not_count(
    dead: Channel, open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel = open_channel()
    put(LetterBox(dead, "a1.k1", channel, "g", WrittenEvents()), 7)
    with Channel(tmp_path / "other", minimum_required_space=0) as other:
        for sink, takes_from in (("a1.k1", other), ("a1.k2", channel)):
            written = WrittenEvents()
            LetterBox(dead, sink, takes_from, "g", written)
            assert not written


def test_a_note_has_room_for_any_batch(dead: Channel, open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    first = 2**62
    put(LetterBox(dead, "a1.k1", channel, "g", WrittenEvents()), *range(first, first + 20_000, 2))
    ranges, _ = _read_note(dead.last_batch("a1.k1.deadLetter").note, channel.uuid)
    assert len(ranges) == 3000
