"""What an append asks for, and what a handle makes of answers that never come."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from spillable_stream import (
    Channel,
    CommitOutcomeUnknownError,
    CorruptionError,
    Event,
    NotAChannelError,
    verify,
)
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.slots import slot_key
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, Request
from tests.support.object_channels import URL, asked, collect_now, log_of, store_of
from tests.support.object_logs import FakeTime

Open = Callable[..., Channel]


def test_a_commit_that_nobody_contends_for_is_one_create_and_one_small_read(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    store = store_of(channel)
    for number in range(2, 6):
        store.forget_counts()
        put(channel, b"x")
        assert asked(store) == [("create", slot_key(number)), ("get_range", slot_key(number - 1))]


def unanswered(channel: Channel, *bodies: bytes) -> None:
    """Put what nobody answers to: the requests to create its slot, and its fence, are held back."""
    store, log = store_of(channel), log_of(channel)
    log._appending.backoff = FakeTime().backoff()
    store.schedule = lambda request: Fault.LATE if request.kind == "create" else Fault.UNAVAILABLE
    with pytest.raises(CommitOutcomeUnknownError):
        put(channel, *bodies)
    store.schedule = None


@pytest.mark.parametrize("arrived", [True, False])
def test_the_next_commit_settles_first_whether_the_last_one_counts(open_handle: Open, arrived: bool) -> None:
    channel = open_handle()
    put(channel, b"0")
    store = store_of(channel)
    unanswered(channel, b"unknown")
    if arrived:
        store.release(0)
    put(channel, b"next")
    assert store.release() > 0
    expected = [b"0", *([b"unknown"] if arrived else []), b"next"]
    assert peek(channel) == expected
    assert peek_by_another(open_handle, channel) == expected


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("is_collected", [True, False])
def test_a_commit_that_a_look_has_settled_refuses_no_later_one(
    open_handle: Open, arrived: bool, is_collected: bool
) -> None:
    """A look finds what is in its place, and follows the log; then that place is collected."""
    channel, other = open_handle(gc_delay=0), open_handle(gc_delay=0)
    put(channel, b"0")
    unanswered(channel, b"unknown")
    if arrived:
        store_of(channel).release(0)
    for number in range(3):
        put(other, b"%d" % number)
        take(other)
    channel.engine().follow()
    if is_collected:
        collect_now(other)
        assert slot_key(2) not in store_of(other).inner.objects  # type: ignore[attr-defined]
        channel.engine().follow()
    store_of(channel).forget_counts()
    put(channel, b"next")
    assert take(other) == [b"next"]
    assert slot_key(2) not in [key for _, key in asked(store_of(channel))]


def peek_by_another(open_handle: Open, channel: Channel) -> list[bytes]:
    channel.close()
    return peek(open_handle())


def test_a_clock_that_is_behind_the_time_of_the_channel_is_a_warning_a_minute(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A host whose clock is fast drags the channel's time along: no event has an earlier time than the one before."""
    fast, right, real = open_handle(), open_handle(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 59 * 10**9)
    put(fast, b"a minute early, which is nothing")
    monkeypatch.setattr(time, "time_ns", real)
    put(right, b"x")
    assert not caplog.records
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    put(fast, b"an hour early")
    assert not caplog.records
    monkeypatch.setattr(time, "time_ns", real)
    for _ in range(3):
        put(right, b"x")
    (record,) = caplog.records
    assert "the last commit is 3,600 s ahead of the clock of this host: set the clocks" in record.getMessage()
    assert record.getMessage().startswith(URL) and record.channel == URL  # type: ignore[attr-defined]


@pytest.mark.parametrize("size_bytes", [1, 2000], ids=["inline", "staged"])
@pytest.mark.parametrize("is_done", [False, True])
def test_an_interrupt_at_any_request_of_a_commit_doubles_nothing_and_the_handle_continues(
    open_handle: Open, is_done: bool, size_bytes: int
) -> None:
    channel = open_handle(max_inline_bytes=1000)
    store, told, maybe = store_of(channel), list[bytes](), set[bytes]()
    for at in range(1, 12):
        before = store.requests[-1].number

        def interrupt(request: Request, at: int = before + at) -> None:
            if request.number == at:
                raise KeyboardInterrupt

        body = b"%d " % at + bytes(size_bytes)
        if is_done:
            store.after = interrupt
        else:
            store.schedule = interrupt  # type: ignore[assignment]
        try:
            put(channel, body)
            told.append(body)
        except KeyboardInterrupt:
            maybe.add(body)
        store.schedule, store.after = None, lambda _: None
        put(channel, b"after %d" % at)
        told.append(b"after %d" % at)
    found = peek(channel)
    assert maybe and [body for body in found if body not in maybe] == told
    assert len(found) == len(set(found))
    assert peek_by_another(open_handle, channel) == found


def test_an_append_whose_place_was_collected_is_given_up_and_the_next_one_works(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    unanswered(channel, b"unknown")
    for number in range(4):
        put(other, b"%d" % number)
    take(other)
    collect_now(other)
    assert slot_key(2) not in store_of(other).inner.objects  # type: ignore[attr-defined]
    put(channel, b"next")
    store_of(channel).release()
    assert take(other) == [b"next"]


def another_in_its_place(open_handle: Open, slots: int) -> Channel:
    """Create another channel where one was removed, and put an event in each of some slots more."""
    another = open_handle()
    for number in range(slots):
        put(another, b"%d" % number)
    return another


@pytest.mark.parametrize("slots", [None, 0, 1, 2, 3, 6], ids=lambda n: "nothing" if n is None else f"{n} slots more")
def test_an_append_where_the_channel_was_removed_says_so_at_once_and_leaves_nothing(
    open_handle: Open, slots: int | None
) -> None:
    """Whatever number the next slot has in the channel that is there now, or has yet to be created there."""
    channel = open_handle()
    put(channel, b"0")
    put(channel, b"1")
    log, clock = log_of(channel), FakeTime()
    log._appending.backoff = clock.backoff()
    store_of(channel).inner.objects.clear()  # type: ignore[attr-defined]
    another = None if slots is None else another_in_its_place(open_handle, slots)
    with pytest.raises(NotAChannelError, match="is no longer at s3://bucket/orders"):
        put(channel, b"never")
    assert clock.slept == []
    another = another or open_handle()
    for number in range(slots or 0, 6):
        put(another, b"%d" % number)
    assert peek(another) == numbered(0, 6)


@pytest.mark.parametrize("slots", [None, 0, 1, 6], ids=lambda n: "nothing" if n is None else f"{n} slots more")
def test_a_commit_in_doubt_leaves_no_fence_where_the_channel_was_removed(open_handle: Open, slots: int | None) -> None:
    channel = open_handle()
    put(channel, b"0")
    put(channel, b"1")
    unanswered(channel, b"in doubt")
    store = store_of(channel)
    store.held.clear()
    store.inner.objects.clear()  # type: ignore[attr-defined]
    another = None if slots is None else another_in_its_place(open_handle, slots)
    with pytest.raises(NotAChannelError, match="is no longer at s3://bucket/orders"):
        put(channel, b"never")
    another = another or open_handle()
    for number in range(slots or 0, 6):
        put(another, b"%d" % number)
    assert peek(another) == numbered(0, 6)
    assert verify(URL).healthy


def test_an_append_where_the_channel_was_removed_leaves_nothing_while_another_one_is_being_created(
    open_handle: Open,
) -> None:
    channel = open_handle()
    put(channel, b"0")
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    objects.clear()
    other = open_handle()
    del objects[IDENTITY]  # its creator is paused behind slot 0
    log_of(channel)._appending.backoff = FakeTime().backoff()
    with pytest.raises(NotAChannelError):
        put(channel, b"1")
    assert sorted(objects) == [slot_key(0)]
    assert open_handle().uuid == other.uuid


def test_the_first_delayed_event_where_the_channel_was_removed_leaves_the_identity_that_is_there(
    open_handle: Open,
) -> None:
    """A put of one says in `channel.json` that the channel is extended, before its slot shows that it is gone."""
    channel = open_handle(gc_delay=3600)
    put(channel, b"0")
    store_of(channel).inner.objects.clear()  # type: ignore[attr-defined]
    another = open_handle(gc_delay=3600)
    put(another, b"0")
    with pytest.raises(NotAChannelError, match="or another one is there"), channel.put_transaction() as tx:
        tx.put(Event(b"late"), deliver_after=60)
    put(another, b"1")
    assert open_handle().uuid == another.uuid
    assert peek(another) == [b"0", b"1"]


def test_a_slot_of_another_channel_among_ones_own_is_damage_at_once(open_handle: Open) -> None:
    channel, another = open_handle(), open_handle(f"{URL}-2")
    put(channel, b"0")
    for number in range(2):
        put(another, b"%d" % number)
    key, clock = slot_key(2), FakeTime()
    mine, theirs = store_of(channel).inner, store_of(another).inner
    mine.objects[key] = theirs.objects[key]  # type: ignore[attr-defined]
    log_of(channel)._appending.backoff = clock.backoff()
    with pytest.raises(CorruptionError, match="is another channel's"):
        put(channel, b"1")
    assert clock.slept == []
