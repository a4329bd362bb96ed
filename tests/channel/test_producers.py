"""A producer's batch that is committed again is not stored again, and gets the same answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Channel, Event
from spillable_stream.channel import producers as producers_module
from spillable_stream.channel.producers import NO_IDS, PASSING, Producers, ProducerState
from spillable_stream.channel.requests import Committed, Plan
from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import MemoryLossWarning, ProducerSequenceError
from spillable_stream.options import CHANNEL, defaults
from tests.channel.test_state import Log
from tests.damage import kill, lose_memory
from tests.events import numbered, peek, put

Open = Callable[..., Channel]


def commit(channel: Channel, sequence: int, *bodies: bytes, producer: str = "p") -> Committed:
    """Commit a producer's batch."""
    tx = channel.put_transaction()
    tx.begin()
    tx.producer = producer, sequence, sequence
    tx.put_many(Event(b) for b in bodies)
    tx.commit()
    tx.close()
    return tx.committed


def ids(committed: Committed) -> tuple[int, int]:
    return committed.first_id, committed.last_id


# ── what is remembered ──────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(1, 300), max_size=200))
def test_a_batch_is_known_or_new_as_a_set_of_all_says_or_nobody_knows(sequences: list[int]) -> None:
    state, model = ProducerState(), dict[int, tuple[int, int]]()
    for i, sequence in enumerate(sequences):
        try:
            answer = state.answer(sequence)
        except ProducerSequenceError:
            assert sequence <= state.forgotten
            continue
        assert (answer is None) == (sequence not in model)
        assert answer in (None, NO_IDS, model.get(sequence))
        if answer is None:
            model[sequence] = i, i + 1
            state.note((sequence, sequence), (i, i + 1))
        assert state.last == max(model)
    again = ProducerState()
    again.learn(state.image())
    assert again.image() == state.image()


def test_numbers_in_order_are_one_range_however_many() -> None:
    state = ProducerState()
    for sequence in range(1, 10_001):
        state.note((sequence, sequence), (sequence, sequence))
    assert list(state.committed) == [(1, 10_000)]
    assert len(state.answers) == 64
    assert (state.answer(10_000), state.answer(1), state.answer(10_001)) == ((10_000, 10_000), NO_IDS, None)


def test_a_batch_that_takes_the_numbers_before_it_leaves_no_gap() -> None:
    state = ProducerState()
    for end in range(100, 100_100, 100):
        state.note((end - 99, end), (end, end))
    assert (list(state.committed), state.forgotten) == ([(1, 100_000)], 0)
    assert (state.answer(100), state.answer(5050), state.answer(100_000)) == (NO_IDS, NO_IDS, (100_000, 100_000))


def test_beyond_the_most_gaps_what_is_older_is_refused_and_not_stored_twice() -> None:
    state = ProducerState()
    for sequence in range(10, 760, 10):  # 75 of them, with gaps
        state.note((sequence, sequence), NO_IDS)
    assert len(state.committed) == 64 and state.forgotten == 110
    for unknown in (5, 10, 105, 110):
        with pytest.raises(ProducerSequenceError, match="go on after the last one, 750"):
            state.answer(unknown)
    assert (state.answer(115), state.answer(120)) == (None, NO_IDS)


def test_as_many_producers_are_remembered_as_committed_last_and_names_outlive_the_nameless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers_module, "_MAX_PRODUCERS", 3)
    producers = Producers()
    for name in ("a", "b", "c", *(f"{PASSING}{i}" for i in range(9)), "a", "d"):
        producers.note(name, (1, 1), NO_IDS, in_memory=False)
    assert list(producers) == ["c", "~6", "~7", "~8", "a", "d"]
    assert (producers.last("b"), producers.answer("b", 1)) == (0, None)


# ── in a channel ────────────────────────────────────────────────────────────────────────────────


def test_a_batch_committed_again_is_not_stored_and_gets_the_same_ids(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"before")
    first = commit(channel, 1, b"a", b"b")
    again = commit(channel, 1, b"a", b"b")
    assert (ids(first), ids(again)) == ((2, 3), (2, 3))
    assert (first.transaction_id > 0, again.transaction_id) == (True, 0)
    assert peek(channel) == [b"before", b"a", b"b"]
    assert channel.stats().producers == {"p": 1}


def test_batches_may_come_in_any_order_and_each_is_stored_once(open_channel: Open) -> None:
    channel = open_channel()
    for sequence in (3, 1, 3, 2, 1, 2, 5, 5):
        commit(channel, sequence, b"%d" % sequence)
    assert peek(channel) == [b"3", b"1", b"2", b"5"]
    assert channel.stats().producers == {"p": 5}


def test_producers_do_not_know_each_other(open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, b"p's")
    commit(channel, 1, b"q's", producer="q")
    assert peek(channel) == [b"p's", b"q's"]


def test_one_append_stores_a_batch_once_though_it_is_in_there_twice(open_channel: Open) -> None:
    channel = open_channel()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: ids(commit(channel, 1 + i % 4, b"%d" % (i % 4))), range(64)))
    assert sorted(peek(channel)) == numbered(0, 4)
    assert len(set(found)) == 4


def test_a_batch_that_is_staged_is_stored_once_too(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_inline_bytes=0)
    for _ in range(2):
        commit(channel, 1, b"x" * 1000)
    channel.checkpoint()
    assert (channel.stats().channel_size, channel.stats().segments) == (1, 1)


def test_a_full_channel_knows_a_batch_that_is_in_it(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=1, keep_alive=0)
    assert ids(commit(channel, 1, b"x")) == ids(commit(channel, 1, b"x"))


def test_a_batch_too_old_to_be_known_is_refused_and_its_neighbours_are_not(open_channel: Open) -> None:
    channel = open_channel()
    for sequence in range(10, 660, 10):
        commit(channel, sequence, b"x")
    size = channel.stats().channel_size
    with pytest.raises(ProducerSequenceError):
        commit(channel, 5, b"y")
    commit(channel, 1000, b"z")
    assert channel.stats().channel_size == size + 1


@pytest.mark.parametrize("how", ["replay", "checkpoint", "next file"])
def test_it_is_known_after_a_crash(path: Path, open_channel: Open, how: str) -> None:
    channel = open_channel(**({"max_file_size": 8192} if how == "next file" else {}))
    found = [ids(commit(channel, sequence, b"%d" % sequence)) for sequence in (1, 3, 2)]
    if how == "checkpoint":
        channel.checkpoint()
    for i in range(200 if how == "next file" else 0):
        put(channel, b"%d" % i * 40)
    kill(channel)
    (path / "head").unlink()
    again = open_channel()
    assert [ids(commit(again, sequence, b"again")) for sequence in (1, 3, 2)] == found
    assert b"again" not in peek(again)


def test_another_process_knows_it(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    commit(channel, 1, b"x")
    program = (
        "import sys; from spillable_stream import *\n"
        "with Channel(sys.argv[1]) as c:\n"
        "    for sequence in 1, 2:\n"
        "        tx = c.put_transaction(); tx.begin(); tx.producer = 'p', sequence, sequence\n"
        "        tx.put(Event(b'%d of a child' % sequence)); tx.commit()\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    commit(channel, 2, b"y")
    assert peek(channel) == [b"x", b"2 of a child"]


# ── with a memory tier ──────────────────────────────────────────────────────────────────────────


def test_it_is_known_after_the_memory_tier_was_closed(path: Path, open_channel: Open) -> None:
    with open_channel(memory_capacity=100) as channel:
        found = ids(commit(channel, 7, b"x"))
    (path / "head").unlink()
    channel = open_channel()
    assert ids(commit(channel, 7, b"x")) == found
    assert peek(channel) == [b"x"]


def test_what_memory_says_is_on_disk_with_the_next_commit_there(path: Path, open_channel: Open) -> None:
    channel = open_channel(memory_capacity=1, overflow_timeout=0)
    commit(channel, 1, b"in memory, and lost")
    put(channel, *numbered(0, 2))  # on disk
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    assert ids(commit(channel, 1, b"again")) == (1, 1)
    assert peek(channel) == numbered(0, 2)


def test_a_batch_that_was_lost_with_memory_before_the_disk_heard_of_it_can_be_put_again(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(memory_capacity=10)
    commit(channel, 1, b"lost")
    kill(channel)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    commit(channel, 1, b"again")
    assert peek(channel) == [b"again"]


def test_what_was_said_on_disk_is_not_said_again() -> None:
    log = Log()
    log.state.producers.note("p", (5, 5), (1, 1), in_memory=True)
    seen = log.state.producers.seen()
    assert list(seen) == ["p"]
    log.commit(1, "put", 2, 0, seen={"next": 2, "groups": {}, "producers": seen})
    assert log.state.producers.seen() == {} and log.state.producers.last("p") == 5


def test_what_a_commit_on_disk_saw_of_memory_does_not_undo_the_one_before_it() -> None:
    """Both were planned from one state: the second one says what memory had said before the first."""
    log = Log()
    log.state.producers.note("p", (5, 5), (1, 1), in_memory=True)
    seen = {"next": 2, "groups": {}, "producers": log.state.producers.seen()}
    log.commit(1, "put", 2, 0, producer=("p", 6, 6), seen=seen)
    log.commit(2, "put", 2, 0, seen=seen)
    assert log.state.producers.last("p") == 6


@given(st.lists(st.integers(1, 30), max_size=20, unique=True), st.data())
def test_what_nobody_knows_any_more_never_becomes_new_again(batches: list[int], data: st.DataObject) -> None:
    """Not by an older image, as each COMMIT on disk may have one of what memory's log said before it."""
    with mock.patch.object(producers_module, "_MAX_RANGES", 2):
        state, images = ProducerState(), []
        for sequence in batches:
            with suppress(ProducerSequenceError):
                if state.answer(sequence) is None:
                    state.note((sequence, sequence), (1, 1))
            images.append(state.image())
            before = state.forgotten
            state.learn(data.draw(st.sampled_from(images)))
            assert state.forgotten >= before
            for old in batches[: batches.index(sequence)]:
                assert _is_known_or_refused(state, old)


def _is_known_or_refused(state: ProducerState, sequence: int) -> bool:
    try:
        return state.answer(sequence) is not None
    except ProducerSequenceError:
        return True


def test_of_an_append_the_first_commit_says_what_memory_said() -> None:
    state = ChannelState(defaults(CHANNEL), [])
    state.memory.open = True
    state.producers.note("p", (1, 1), (1, 1), in_memory=True)
    state.unsaid_sinks["q"] = 7
    plan = Plan(state)
    for transaction_id in (1, 2):
        plan.commit("put", 0, transaction_id)
    first, second = (entry.record.seen for entry in plan.entries)
    assert (first["sinks"], list(first["producers"])) == ({"q": 7}, ["p"])
    assert second.keys() == {"next", "groups"}


def test_a_producer_that_was_pushed_out_is_not_said_on_disk() -> None:
    producers = Producers()
    for i in range(1_500):
        producers.note(f"{PASSING}{i}", (1, 1), (i, i), in_memory=True)
    assert len(producers.unsaid) == len(producers.image()["producers"]["unsaid"]) <= 1_000
