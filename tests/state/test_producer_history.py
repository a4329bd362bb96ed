"""A producer's batch that is committed again is not stored again, and gets the same answer."""

from __future__ import annotations

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
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import MemoryLossWarning, ProducerSequenceError
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state import producer_history as producers_module
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.producer_history import NOT_KNOWN, PASSING, Answer, ProducerHistory, ProducerState
from tests.support import pythons
from tests.support.damage import kill, lose_memory
from tests.support.events import numbered, peek, put
from tests.support.state_log import Log

Open = Callable[..., Channel]


def commit(
    channel: Channel, sequence: int, *bodies: bytes, producer: str = "p", fingerprint: int | None = None
) -> CommitResult:
    """Commit a producer's batch."""
    tx = channel.put_transaction()
    tx.begin()
    tx.producer = NumberedBatch(producer, Numbers(sequence, sequence, fingerprint))
    tx.put_many(Event(b) for b in bodies)
    tx.commit()
    tx.close()
    return tx.committed


def numbered_as(sequence: int, fingerprint: int | None = None) -> Numbers:
    return Numbers(sequence, sequence, fingerprint)


def ids(committed: CommitResult) -> tuple[int, int]:
    return committed.first_id, committed.last_id


# ── what is remembered ──────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(1, 300), max_size=200))
def test_a_batch_is_known_or_new_as_a_set_of_all_says_or_nobody_knows(sequences: list[int]) -> None:
    state, model = ProducerState(), dict[int, Answer]()
    for i, sequence in enumerate(sequences):
        try:
            answer = state.answer("p", numbered_as(sequence))
        except ProducerSequenceError:
            assert sequence <= state.forgotten
            continue
        assert (answer is None) == (sequence not in model)
        assert answer in (None, NOT_KNOWN, model.get(sequence))
        if answer is None:
            model[sequence] = Answer(i, i + 1)
            state.record(Numbers(sequence, sequence), (i, i + 1))
        assert state.last == max(model)
    again = ProducerState()
    again.merge(state.image())
    assert again.image() == state.image()


def test_numbers_in_order_are_one_range_however_many() -> None:
    state = ProducerState()
    for sequence in range(1, 10_001):
        state.record(Numbers(sequence, sequence), (sequence, sequence))
    assert list(state.committed) == [(1, 10_000)]
    assert len(state.answers) == 64
    assert (
        state.answer("p", numbered_as(10_000)),
        state.answer("p", numbered_as(1)),
        state.answer("p", numbered_as(10_001)),
    ) == (Answer(10_000, 10_000), NOT_KNOWN, None)


def test_a_batch_that_takes_the_numbers_before_it_leaves_no_gap() -> None:
    state = ProducerState()
    for end in range(100, 100_100, 100):
        state.record(Numbers(end - 99, end), (end, end))
    assert (list(state.committed), state.forgotten) == ([(1, 100_000)], 0)
    assert (
        state.answer("p", numbered_as(100)),
        state.answer("p", numbered_as(5050)),
        state.answer("p", numbered_as(100_000)),
    ) == (NOT_KNOWN, NOT_KNOWN, Answer(100_000, 100_000))


@given(st.sets(st.integers(1, 300), max_size=200), st.integers(1, 310))
def test_a_number_that_a_later_batch_used_up_is_told_from_one_that_is_there(sent: set[int], number: int) -> None:
    history, last = ProducerHistory(), 0
    for sequence in sorted(sent):
        history.record("p", Numbers(last + 1, sequence, BY_PRODUCER), (1, 1), in_memory=False)
        last = sequence
    history = ProducerHistory(history.image()["producers"]) if sent else history
    oldest_known = min(sorted(sent)[-64:], default=0) if len(sent) >= 64 else 0
    assert history.was_skipped("p", number) is (oldest_known < number < last and number not in sent)


def test_beyond_the_most_gaps_what_is_older_is_refused_and_not_stored_twice() -> None:
    state = ProducerState()
    for sequence in range(10, 760, 10):  # 75 of them, with gaps
        state.record(Numbers(sequence, sequence), (1, 1))
    assert len(state.committed) == 64 and state.forgotten == 110
    for unknown in (5, 10, 105, 110):
        with pytest.raises(ProducerSequenceError, match="continue after the last one, 750"):
            state.answer("p", numbered_as(unknown))
    assert (state.answer("p", numbered_as(115)), state.answer("p", numbered_as(120))) == (None, Answer(1, 1))


def test_as_many_producers_are_remembered_as_committed_last_and_names_outlive_the_nameless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers_module, "_MAX_PRODUCERS", 3)
    producers = ProducerHistory()
    for name in ("a", "b", "c", *(f"{PASSING}{i}" for i in range(9)), "a", "d"):
        producers.record(name, Numbers(1, 1), (1, 1), in_memory=False)
    assert list(producers) == ["c", "~6", "~7", "~8", "a", "d"]
    assert (producers.last("b"), producers.answer("b", numbered_as(1))) == (0, None)


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


def test_one_append_that_contains_a_batch_twice_stores_it_once(open_channel: Open) -> None:
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
        "from spillable_stream.format.numbered_batch import NumberedBatch, Numbers\n"
        "with Channel(sys.argv[1]) as c:\n"
        "    for sequence in 1, 2:\n"
        "        tx = c.put_transaction(); tx.begin()\n"
        "        tx.producer = NumberedBatch('p', Numbers(sequence, sequence))\n"
        "        tx.put(Event(b'%d of a child' % sequence)); tx.commit()\n"
    )
    pythons.run([sys.executable, "-c", program, path], check=True)
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
    log.state.producers.record("p", Numbers(5, 5), (1, 1), in_memory=True)
    seen = log.state.producers.memory_only_image()
    assert list(seen) == ["p"]
    log.commit(1, "put", 2, 0, seen={"next": 2, "groups": {}, "producers": seen})
    assert log.state.producers.memory_only_image() == {} and log.state.producers.last("p") == 5


def test_what_a_commit_on_disk_saw_of_memory_does_not_undo_the_one_before_it() -> None:
    """Both were planned from one state: the second one says what memory had said before the first."""
    log = Log()
    log.state.producers.record("p", Numbers(5, 5), (1, 1), in_memory=True)
    seen = {"next": 2, "groups": {}, "producers": log.state.producers.memory_only_image()}
    log.commit(1, "put", 2, 0, producer=NumberedBatch("p", Numbers(6, 6)), seen=seen)
    log.commit(2, "put", 2, 0, seen=seen)
    assert log.state.producers.last("p") == 6


@given(st.lists(st.integers(1, 30), max_size=20, unique=True), st.data())
def test_what_nobody_knows_any_more_never_becomes_new_again(batches: list[int], data: st.DataObject) -> None:
    """Not by an older image, as each COMMIT on disk may have one of what memory's log said before it."""
    with mock.patch.object(producers_module, "_MAX_RANGES", 2):
        state, images = ProducerState(), []
        for sequence in batches:
            with suppress(ProducerSequenceError):
                if state.answer("p", numbered_as(sequence)) is None:
                    state.record(Numbers(sequence, sequence), (1, 1))
            images.append(state.image())
            before = state.forgotten
            state.merge(data.draw(st.sampled_from(images)))
            assert state.forgotten >= before
            for old in batches[: batches.index(sequence)]:
                assert _is_known_or_refused(state, old)


def _is_known_or_refused(state: ProducerState, sequence: int) -> bool:
    try:
        return state.answer("p", numbered_as(sequence)) is not None
    except ProducerSequenceError:
        return True


def test_of_an_append_the_first_commit_says_what_memory_said() -> None:
    state = ChannelState(ChannelOptions(), [])
    state.memory.open = True
    state.producers.record("p", Numbers(1, 1), (1, 1), in_memory=True)
    state.memory_only_sinks["q"] = 7
    plan = AppendPlan(state)
    for transaction_id in (1, 2):
        plan.commit("put", 0, transaction_id)
    first, second = (record.seen for _, _, record in plan.entries)
    assert (first["sinks"], list(first["producers"])) == ({"q": 7}, ["p"])
    assert second.keys() == {"next", "groups"}


def test_a_producer_that_was_pushed_out_is_not_said_on_disk() -> None:
    producers = ProducerHistory()
    for i in range(1_500):
        producers.record(f"{PASSING}{i}", Numbers(1, 1), (i, i), in_memory=True)
    assert len(producers.memory_only) == len(producers.image()["producers"]["unsaid"]) <= 1_000


# ── batches that the application numbers ────────────────────────────────────────────────────────


def of_the_application(state: ProducerState, sequence: int, fingerprint: int) -> None:
    state.record(Numbers(state.last + 1, sequence, fingerprint), (sequence, sequence))


def test_a_batch_of_the_application_is_known_by_its_number_and_its_events() -> None:
    state = ProducerState()
    of_the_application(state, 10, 7)
    assert state.answer("p", numbered_as(10, 7)) == Answer(10, 10, 7)
    with pytest.raises(ProducerSequenceError, match="batch 10 of the producer 'p' is stored with other events"):
        state.answer("p", numbered_as(10, 8))
    assert state.answer("p", numbered_as(11, 7)) is None


def test_a_number_of_the_application_that_is_neither_new_nor_among_the_latest_is_refused() -> None:
    state = ProducerState()
    for i in range(1, 101):
        of_the_application(state, 10 * i, i)
    for sequence in (1, 5, 10, 360, 999):  # 10 and 360 were stored, and nobody knows with which events
        with pytest.raises(ProducerSequenceError, match="not one of the latest 64 that are stored"):
            state.answer("p", numbered_as(sequence, 1))
    assert state.answer("p", numbered_as(370, 37)) == Answer(370, 370, 37)


@pytest.mark.parametrize(("first", "then"), [(BY_PRODUCER, 5), (5, BY_PRODUCER)])
@pytest.mark.parametrize("sequence", [1, 2])
def test_who_numbers_the_batches_is_remembered_and_another_one_is_refused(first: int, then: int, sequence: int) -> None:
    state = ProducerState()
    state.record(numbered_as(1, first), (1, 1))
    again = ProducerState()
    again.merge(state.image())
    with pytest.raises(ProducerSequenceError, match=r"are numbered by .* in this channel, and .* numbered batch"):
        again.answer("p", numbered_as(sequence, then))


def test_of_what_an_earlier_version_wrote_nobody_knows_who_numbered_it() -> None:
    for fingerprint in (BY_PRODUCER, 5):
        state = ProducerState()
        state.merge([[(1, 10)], 0, [[10, 1, 4]]])
        assert state.answer("p", numbered_as(10, fingerprint)) == Answer(1, 4)
        assert state.answer("p", numbered_as(11, fingerprint)) is None


@pytest.mark.parametrize("how", ["replay", "checkpoint", "memory"])
def test_other_events_under_a_number_are_refused_after_a_crash(path: Path, open_channel: Open, how: str) -> None:
    options = {"memory_capacity": 10, "overflow_timeout": 0} if how == "memory" else {}
    channel = open_channel(**options)
    first = commit(channel, 10, b"a", fingerprint=77)
    if how == "checkpoint":
        channel.checkpoint()
    kill(channel)
    channel = open_channel()
    assert ids(commit(channel, 10, b"a", fingerprint=77)) == ids(first)
    for sequence, fingerprint in ((10, 78), (9, 77), (11, BY_PRODUCER)):
        with pytest.raises(ProducerSequenceError):
            commit(channel, sequence, b"b", fingerprint=fingerprint)
    assert peek(channel) == [b"a"]


def test_one_append_refuses_other_events_under_a_number_that_is_in_it(open_channel: Open) -> None:
    plan = AppendPlan(ChannelState(ChannelOptions(), []))
    plan.batches["p", 1] = Answer(1, 1, 5)
    put = Put([], producer=NumberedBatch("p", numbered_as(1, 6)))
    with pytest.raises(ProducerSequenceError, match="with other events"):
        put.done(plan)
