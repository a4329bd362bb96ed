"""Checkpoints of a channel in a store that is removed, created again or put back under its handle."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import count, takewhile
from typing import Any

import pytest

from spillable_stream import Channel, Event, NotAChannelError, StorageError, UnsafeStoreError
from spillable_stream.errors import DataLossError
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.objects.checkpoints import HINT, checkpoint_key
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.slots import LOG
from spillable_stream.objects.void_slots import void_slots
from tests.support.events import peek, put, take
from tests.support.faulty_store import FaultyStore, Request
from tests.support.object_channels import (
    URL,
    asked,
    collect_now,
    log_of,
    lose_slots,
    store_of,
    stores_in_memory,
)
from tests.support.object_checkpoints import by_clock, checkpointing_of, keys, trimmed_through
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]


def filled(open_handle: Open) -> Channel:
    """Return a handle of a channel with slots, a segment and checkpoints that a collection deletes."""
    channel = open_handle(max_inline_bytes=100)
    for number in range(6):
        put(channel, b"%d" % number, bytes(200))
        take(channel, 2)
        channel.checkpoint()
    return channel


def replaced_behind(number: int, *, is_pause: bool) -> bool | None:
    """Put another channel in the place of one that is collected, behind a request, and look that nothing of it goes.

    Args:
        number: the request.
        is_pause: whether that takes long, by the clock of the handle that collects.

    Returns:
        Whether it was done, which it is not where a pause is too short to matter; None if there is no such request.
    """
    with stores_in_memory(FaultyStore), ExitStack() as stack:

        def open_handle(**options: Any) -> Channel:
            options = {"commit_interval": 0, "gc_delay": 0, "checkpoint_on_close": False, **options}
            return stack.enter_context(Channel(URL, **options))

        old = filled(open_handle)
        clock, store, made, before = by_clock(old), store_of(old), list[Channel](), dict[str, bytes]()
        clock.now = time.monotonic()  # as it was for the trims that it has seen
        objects: dict[str, bytes] = store.inner.objects  # type: ignore[attr-defined]
        store.forget_counts()

        def replace(request: Request) -> None:
            is_seen = is_pause or (request.kind != "delete" and request.key != IDENTITY)
            if len(store.requests) == number and is_seen:
                objects.clear()
                made.append(filled(open_handle))
                before.update(objects)
                clock.now += 3600 if is_pause else 0

        store.after = replace
        with suppress(NotAChannelError, StorageError):
            old.checkpoint()
        if number > len(store.requests):
            return None
        assert before.keys() <= objects.keys(), f"behind request {number}, {store.requests[number - 1]}"
        for channel in made:
            put(channel, b"next")
            assert peek(channel) == [b"next"]
            assert all(finding.severity == "note" for finding in verify(URL).findings)
        return bool(made)


@pytest.mark.parametrize("is_pause", [False, True])
def test_a_collection_that_is_paused_deletes_nothing_of_a_channel_that_was_created_in_that_place(
    is_pause: bool, set_limits: SetLimits
) -> None:
    """But for a pause too short to be seen between the question whether the channel is there and a deletion."""
    set_limits(worth_a_trim=1)
    done = list(takewhile(lambda each: each is not None, map(partial(replaced_behind, is_pause=is_pause), count(1))))
    assert sum(map(bool, done)) > (10 if is_pause else 5)


@pytest.mark.parametrize("is_another", [False, True], ids=["nothing is there", "another one is there"])
def test_a_checkpoint_where_the_channel_was_removed_leaves_nothing_there(open_handle: Open, is_another: bool) -> None:
    """As a close makes one: in the channel that is created there, none of that slot could be created or read."""
    channel = open_handle(checkpoint_on_close=True)
    for number in range(20):
        put(channel, b"%d" % number)
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    objects.clear()
    if is_another:
        put(open_handle(), b"theirs")
    before = dict(objects)
    channel.close()
    assert objects == before


def test_own_checkpoints_that_a_pause_left_go_with_the_next_one(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_handle()
    clock, collector = by_clock(channel), checkpointing_of(channel).collector

    def checkpoints(number: int) -> list[int]:
        for _ in range(number):
            put(channel, b"x")
            channel.checkpoint()
        return keys(channel, "checkpoints/")

    def pause() -> None:
        clock.now += 5

    with monkeypatch.context() as paused:
        paused.setattr(collector, "_require_there", pause)
        assert len(checkpoints(4)) == 4
    assert len(checkpoints(1)) == 2


def test_a_checkpoint_that_was_there_before_stays_where_no_channel_is_found(open_handle: Open) -> None:
    """Its identity alone is gone: a repair rewrites it, and begins with the checkpoint."""
    channel = open_handle()
    put(channel, b"0")
    channel.checkpoint()
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    del objects[IDENTITY]
    log_of(channel)._presence.is_proven = False
    with pytest.raises(NotAChannelError):
        channel.checkpoint()
    assert keys(channel, "checkpoints/") == [1]


def test_checkpoints_that_a_removed_channel_left_do_not_count_as_the_two_that_stay(
    open_handle: Open, set_limits: SetLimits
) -> None:
    """A channel opens with the older one that can be read where the newest is damaged."""
    channel = open_handle(gc_delay=0)
    set_limits(worth_a_trim=1)
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    for number in range(12):
        put(channel, b"%d" % number)
        take(channel)
        tail = log_of(channel).tail.number
        places = [tail, tail - 1, 1000] if number in (5, 6) else [tail - 1]
        for place in places:
            objects.setdefault(checkpoint_key(place), b"a removed channel's")
        with pytest.raises(StorageError) if number in (5, 6) else nullcontext():
            channel.checkpoint()
    older, newest = [n for n in keys(channel, "checkpoints/") if log_of(channel).checkpoints.at(n)][-2:]
    assert trimmed_through(channel) == older - 1 == keys(channel, "log/")[0] - 1
    objects[checkpoint_key(newest)] = b"damaged"
    assert open_handle().stats().last_id == 12


def test_a_bucket_that_is_put_back_under_a_handle_is_trimmed_up_to_the_older_of_two_checkpoints_that_are_there(
    open_handle: Open,
    set_limits: SetLimits,
) -> None:
    channel = open_handle(gc_delay=0)
    set_limits(worth_a_trim=1)

    def put_and_take(times: int) -> None:
        for _ in range(times):
            put(channel, b"x")
            take(channel)
            channel.checkpoint()

    put_and_take(2)
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        put_and_take(5)
    with pytest.raises(UnsafeStoreError):
        channel.engine().follow()
    for _ in range(3):
        put_and_take(1)
        older, newest = keys(channel, "checkpoints/")[-2:]
        assert log_of(channel).checkpoints.at(older) and log_of(channel).checkpoints.at(newest)
        assert trimmed_through(channel) < older, "others would delete the slots behind it"


@pytest.mark.parametrize("has_older", [False, True])
def test_a_checkpoint_that_a_handle_creates_before_it_notices_that_the_bucket_was_put_back_is_refused_until_a_repair(
    open_handle: Open, has_older: bool
) -> None:
    channel = open_handle()
    put(channel, b"0")
    if has_older:
        channel.checkpoint()
    lose_slots(channel)
    channel.checkpoint()
    assert keys(channel, "checkpoints/")[-1] > keys(channel, "log/")[-1]
    for use in (open_handle, partial(peek, channel), partial(put, channel, b"1")):
        with pytest.raises(DataLossError, match="is of slot 3, which is not in the log"):
            use()
    assert not repair(URL).healthy
    again = open_handle()
    assert peek(again) == [b"0"]
    assert put(again, b"1") == (4, 4), "no other event gets an ID of those that are lost"
    assert verify(URL).healthy


def idle(channel: Channel) -> None:
    """Let a handle have seen its newest slot some seconds ago: so late a commit need not look first."""
    presence = log_of(channel)._presence
    presence.keep_fresh_for(900)  # as with the default gcDelay
    presence._seen_at = time.monotonic() - 10


def test_a_handle_that_was_idle_looks_before_it_creates_a_checkpoint_and_one_that_has_just_committed_does_not(
    open_handle: Open,
) -> None:
    channel = open_handle()
    store = store_of(channel)
    creation = [("create", "checkpoints/"), ("get", "checkpoints/"), ("get", IDENTITY), ("replace", "hint")]
    for is_idle, look in ((False, []), (True, [("get", "log/"), ("get_range", "log/")])):
        put(channel, b"0")
        if is_idle:
            idle(channel)
        store.forget_counts()
        channel.checkpoint()
        assert [(kind, key.rstrip("0123456789")) for kind, key in asked(store)] == [*look, *creation]


@pytest.mark.parametrize("trims", [False, True])
def test_an_idle_handle_whose_bucket_was_put_back_creates_no_checkpoint_and_no_slot(
    open_handle: Open, caplog: pytest.LogCaptureFixture, set_limits: SetLimits, trims: bool
) -> None:
    """Its next checkpoint may trim: that slot would lie behind those that are lost, and need a repair."""
    channel = open_handle()
    if trims:
        set_limits(worth_a_trim=1)
        for _ in range(2):
            put(channel, b"taken")
            take(channel)
            channel.checkpoint()
    lose_slots(channel)
    idle(channel)
    before = dict(store_of(channel).inner.objects)  # type: ignore[attr-defined]
    with pytest.raises(UnsafeStoreError, match="Acknowledged events are lost"):
        channel.checkpoint()
    assert store_of(channel).inner.objects == before  # type: ignore[attr-defined]
    channel.checkpoint()
    put(open_handle(), b"1")
    assert peek(channel)[-1] == b"1"
    assert not caplog.records


def test_an_idle_handle_whose_slot_was_collected_creates_a_checkpoint_of_what_is_there(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    assert take(other) == [b"0"]
    collect_now(other)
    idle(channel)
    channel.checkpoint()
    assert log_of(channel).checkpoint_number == log_of(other).tail.number


def test_a_handle_that_is_loaded_anew_while_it_creates_a_checkpoint_trims_no_slot_that_another_checkpoint_needs(
    open_handle: Open,
    set_limits: SetLimits,
) -> None:
    """Another thread of it found meanwhile that other handles went far ahead."""
    channel, other = open_handle(gc_delay=0), open_handle()
    set_limits(worth_a_trim=1)
    put(channel, b"x")
    ahead = list[int]()

    def go_ahead(request: Request) -> None:
        if request.kind == "create" and request.key.startswith("checkpoints/") and not ahead:
            ahead.append(request.number)
            for _ in range(4):
                put(other, b"x")
                take(other)
                other.checkpoint()
            channel.engine().follow()

    store_of(channel).after = go_ahead
    channel.checkpoint()
    assert ahead
    older, _ = keys(channel, "checkpoints/")[-2:]
    assert trimmed_through(channel) < older, "others would delete the slots behind it"


def test_a_trim_that_notices_that_the_bucket_was_put_back_leaves_a_void_slot_and_the_next_call_tells_the_loss(
    open_handle: Open, set_limits: SetLimits
) -> None:
    """It came back between the checkpoint and the trim. The commit before them has succeeded."""
    channel = open_handle()
    set_limits(worth_a_trim=1)
    for _ in range(2):
        put(channel, b"taken")
        take(channel)
        channel.checkpoint()
    store, checkpointing = store_of(channel), checkpointing_of(channel)
    objects: dict[str, bytes] = store.inner.objects  # type: ignore[attr-defined]
    before = dict(objects)
    put(channel, b"lost")
    put(channel, b"lost, too")

    def put_back(request: Request) -> None:
        if request.kind == "replace" and request.key == HINT:
            objects.clear()
            objects.update(before)

    store.after = put_back
    checkpointing.create_soon()
    checkpointing.create_if_due()
    store.after = lambda _: None
    (left, void) = sorted({key for key in objects if key.startswith(LOG)} - set(before))
    assert void_slots([void]) == {(int(left.removeprefix(LOG)), log_of(channel).slots.token(int(left[-20:])))}
    with pytest.raises(UnsafeStoreError, match="Acknowledged events are lost"):
        put(channel, b"not stored")
    for _ in range(4):
        put(channel, b"stored")
    channel.close()
    assert left in objects and peek(open_handle()) == [b"stored"] * 4


def test_a_handle_whose_bucket_was_put_back_refuses_no_object_that_is_younger_than_its_staging_ttl(
    open_handle: Open, set_limits: SetLimits
) -> None:
    """The slots that it knew long ago had greater numbers than those that there are now."""
    channel = open_handle(staging_ttl="1h")
    clock = by_clock(channel)
    set_limits(worth_a_trim=1)

    def go_on() -> None:
        put(channel, b"x")
        take(channel)
        clock.now += 60
        channel.checkpoint()

    go_on()
    with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
        for _ in range(5):
            go_on()
    clock.now += 3600
    with pytest.raises(UnsafeStoreError):
        channel.engine().follow()
    for _ in range(2):
        go_on()
    with channel.put_transaction() as tx:
        tx.put(Event(b"later"), deliver_after="1h")
    assert channel.stats().delayed.events == 1
