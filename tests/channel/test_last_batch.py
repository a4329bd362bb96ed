"""A producer finds its last number and the note that it stored with it, whatever happened to the channel since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spillable_stream as ss
from spillable_stream import Channel, Event
from spillable_stream.channel.last_batch import LastBatch
from spillable_stream.errors import MemoryLossWarning, OptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.numbered_batch import BY_PRODUCER, MAX_NOTE_BYTES, NumberedBatch, Numbers
from spillable_stream.format.record import FileHeader
from spillable_stream.state.producer_history import ProducerHistory, ProducerState
from tests.support.damage import flip, frames, kill, log_file, lose_memory, offsets
from tests.support.events import numbered, peek, put
from tests.support.object_channels import URL, stores_in_memory

Open = Callable[..., Channel]
NOTHING = LastBatch(0, b"")


def commit(channel: Channel, sequence: int, note: bytes = b"", *, producer: str = "p", body: bytes = b"x") -> None:
    with channel.put_transaction() as tx:
        tx.producer = NumberedBatch(producer, Numbers(sequence, sequence, BY_PRODUCER), note)
        tx.put(Event(body))


def parse_header(path: Path, file_id: int) -> FileHeader:
    return FileHeader.parse(frames(path, file_id)[0].payload)


def test_a_producer_that_never_committed_has_neither_number_nor_note(open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, b"n", producer="another")
    assert channel.last_batch("p") == NOTHING


def test_the_note_is_that_of_the_last_number(open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, b"one")
    commit(channel, 3, b"three")
    commit(channel, 2, b"late")
    assert channel.last_batch("p") == LastBatch(3, b"three")


def test_a_batch_without_a_note_leaves_none(open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, b"one")
    commit(channel, 2)
    assert channel.last_batch("p") == LastBatch(2, b"")


def test_a_batch_that_is_stored_already_does_not_change_the_note(open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, b"one")
    commit(channel, 1, b"another")
    assert channel.last_batch("p") == LastBatch(1, b"one") and channel.stats().channel_size == 1


@pytest.mark.parametrize("checkpoint", [True, False], ids=["from a checkpoint", "from the log"])
@pytest.mark.parametrize("memory", [0, 100], ids=["disk", "memory moved to disk"])
def test_it_is_there_after_a_close(path: Path, open_channel: Open, checkpoint: bool, memory: int) -> None:
    with open_channel(memory_capacity=memory, checkpoint_on_close=checkpoint) as channel:
        commit(channel, 5, b"five")
    (path / "head").unlink()
    assert open_channel().last_batch("p") == LastBatch(5, b"five")


def test_it_is_there_after_a_kill_with_memory_or_without(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    commit(channel, 5, b"five")
    kill(channel)
    assert open_channel().last_batch("p") == LastBatch(5, b"five")


def test_it_is_known_where_the_log_continues_in_a_new_file(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_file_size=1 << 20)
    commit(channel, 5, b"five")
    for _ in range(4):
        put(channel, bytes(400_000))
    kill(channel)
    assert len(list((path / "data").glob("log-*"))) > 1
    headers = [parse_header(path, i) for i in (1, 2)]
    assert [h.state.get("producers", {}).get("notes") for h in headers] == [None, {"p": [5, b"five"]}]
    assert open_channel().last_batch("p") == LastBatch(5, b"five")


def test_a_handle_that_only_looks_sees_it(path: Path, open_channel: Open) -> None:
    commit(open_channel(), 5, b"five")
    with Channel(path, readonly=True) as seen:
        assert seen.last_batch("p") == LastBatch(5, b"five")


def test_the_note_of_a_commit_in_memory_is_on_disk_with_the_next_commit_there(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=1, overflow_timeout=0)
    commit(channel, 1, b"in memory")
    put(channel, *numbered(0, 2))  # on disk
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    assert channel.last_batch("p") == LastBatch(1, b"in memory")


def test_a_note_that_the_disk_had_not_heard_of_is_lost_with_its_batch(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=1, overflow_timeout=0)
    commit(channel, 1, b"in memory")
    put(channel, *numbered(0, 2))  # on disk
    with channel.take_transaction() as tx:
        tx.take_many(1)
    commit(channel, 2, b"in memory again")
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    last = channel.last_batch("p")
    assert last in (LastBatch(1, b"in memory"), LastBatch(2, b"in memory again"))
    assert (last.sequence == 2) == (b"x" in peek(channel))


def test_a_note_may_have_64_kib_and_no_more(open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, bytes(MAX_NOTE_BYTES))
    with pytest.raises(OptionError, match="65,537 bytes, but the most is 65,536; nothing was stored"):
        commit(channel, 2, bytes(MAX_NOTE_BYTES + 1))
    assert channel.last_batch("p") == LastBatch(1, bytes(MAX_NOTE_BYTES)) and channel.stats().channel_size == 1


def test_a_channel_in_a_store_has_it_from_its_log_and_from_a_checkpoint() -> None:
    with stores_in_memory():
        with Channel(URL) as channel:
            commit(channel, 5, b"five")
        with Channel(URL) as channel:
            assert channel.last_batch("p") == LastBatch(5, b"five")
            channel.checkpoint()
            commit(channel, 6, b"six")
        with Channel(URL) as channel:
            assert channel.last_batch("p") == LastBatch(6, b"six")
            assert ss.verify(URL).healthy


def test_a_spool_says_what_is_in_it(tmp_path: Path) -> None:
    with stores_in_memory(), Channel(URL, durability="local", spool=str(tmp_path / "spool")) as channel:
        commit(channel, 5, b"five")
        assert channel.last_batch("p") == LastBatch(5, b"five")
        channel.flush()
        assert channel.last_batch("p") == LastBatch(5, b"five")


def test_a_repair_keeps_it(path: Path, open_channel: Open) -> None:
    with open_channel(checkpoint_on_close=False) as channel:
        commit(channel, 5, b"five")
        put(channel, b"damaged")
        put(channel, b"behind it")
    flip(log_file(path), offsets(path, FrameType.PUT)[1] + 60)
    assert not ss.verify(path).healthy
    ss.repair(path)
    assert open_channel().last_batch("p") == LastBatch(5, b"five")
    assert ss.verify(path).healthy


def test_a_channel_without_notes_says_nothing_of_them() -> None:
    producers = ProducerHistory()
    producers.record("p", Numbers(1, 1), (1, 1), in_memory=True)
    assert producers.image()["producers"].keys() == {"states", "unsaid"}
    assert producers.memory_only_notes() == {}


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([b"", b"a", b"b"])), unique_by=lambda b: b[0]))
def test_in_whatever_order_batches_come_the_note_is_that_of_the_highest(batches: list[tuple[int, bytes]]) -> None:
    state = ProducerState()
    for i, (sequence, note) in enumerate(batches):
        state.record(Numbers(sequence, sequence), (i, i), note)
        highest = max(batches[: i + 1])
        assert (state.last, state.note) == highest
        again = ProducerHistory({"states": {"p": state.image()}, "notes": {"p": state.noted} if state.note else {}})
        assert (again.last("p"), again.note("p")) == highest
