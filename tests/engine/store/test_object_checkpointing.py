"""When a checkpoint of a log of objects is created, and what may go after it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import count, takewhile
from typing import Any

import pytest

from spillable_stream import Channel, Event, NotAChannelError, StorageError, UnsafeStoreError
from spillable_stream.engine.store import object_checkpointing
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing, Trim
from spillable_stream.errors import DataLossError, TransactionStateError
from spillable_stream.format.record import TrimRecord
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.objects.checkpoints import HINT, checkpoint_key
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.slots import LOG
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, FaultyStore, Request, once
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import (
    URL,
    asked,
    collect_now,
    log_of,
    lose_slots,
    make_two_checkpoints,
    require_told_once,
    store_of,
    stores_in_memory,
)
from tests.support.object_logs import FakeTime
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]


def checkpointing_of(channel: Channel) -> ObjectCheckpointing:
    checkpointing = channel.engine().checkpointing
    assert isinstance(checkpointing, ObjectCheckpointing)
    return checkpointing


def by_clock(channel: Channel) -> FakeTime:
    """Return the clock by which the channel's checkpoints are due and objects go from now on."""
    checkpointing, clock = checkpointing_of(channel), FakeTime()
    checkpointing.monotonic = clock.monotonic
    checkpointing._created_at = clock.now
    return clock


def keys(channel: Channel, prefix: str) -> list[int]:
    """Return the numbers of the slots, or of the checkpoints, that are there."""
    return sorted(int(info.key.removeprefix(prefix)) for info in store_of(channel).inner.list(prefix))


def trimmed_through(channel: Channel) -> int:
    return channel.engine().follow().trimmed.through


# ── when one is created ────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_is_created_by_the_first_commit_after_its_interval(open_handle: Open) -> None:
    channel = open_handle(checkpoint_interval=5000)
    clock = by_clock(channel)
    put(channel, b"0")
    clock.now += 4.9
    put(channel, b"1")
    checkpointing_of(channel).create_if_due()
    assert keys(channel, "checkpoints/") == []
    clock.now += 0.1
    checkpointing_of(channel).create_if_due()
    assert keys(channel, "checkpoints/") == [2]
    clock.now += 60
    checkpointing_of(channel).create_if_due()
    assert keys(channel, "checkpoints/") == [2], "nothing was appended since"


def test_a_checkpoint_is_created_after_many_slots_however_young_the_last_one_is(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_checkpointing, "_MOST_SLOTS", 5)
    channel = open_handle()
    by_clock(channel)
    for number in range(1, 6):
        put(channel, b"%d" % number)
        checkpointing_of(channel).create_if_due()
        assert keys(channel, "checkpoints/") == ([5] if number == 5 else [])


def test_a_close_creates_one_if_an_open_would_have_much_to_read(open_handle: Open) -> None:
    for puts, is_worth_it in ((15, False), (1, True)):
        channel = open_handle(checkpoint_on_close=True)
        for number in range(puts):
            put(channel, b"%d" % number)
        channel.close()
        assert bool(keys(open_handle(), "checkpoints/")) == is_worth_it


def test_an_open_reads_no_slot_before_the_newest_checkpoint(open_handle: Open) -> None:
    channel = open_handle()
    for number in range(10):
        put(channel, b"%d" % number)
    channel.checkpoint()
    put(channel, b"10")
    other = open_handle()
    read = {r.key for r in store_of(other).requests if r.key.startswith("log/")}
    assert len(read) == 4  # the newest at the checkpoint, the next, the first that is not there, and the one behind
    assert peek(other) == numbered(0, 11)


def test_none_is_created_inside_of_a_look(open_handle: Open) -> None:
    channel = open_handle()
    with channel.engine().snapshot(), pytest.raises(TransactionStateError, match="a checkpoint of the channel"):
        checkpointing_of(channel).create()


def test_a_checkpoint_that_is_created_again_and_again_stays_and_frees_nothing_more(
    open_handle: Open, set_limits: SetLimits
) -> None:
    channel = open_handle(gc_delay=0)
    set_limits(worth_a_trim=1)
    put(channel, b"0")
    take(channel)
    channel.checkpoint()
    put(channel, b"1")
    take(channel)
    channel.checkpoint()
    newest = keys(channel, "checkpoints/")[-1]
    put(channel, b"2")
    for _ in range(6):  # the first appends a TRIM, so the second is of another slot
        channel.checkpoint()
        there = keys(channel, "checkpoints/")
        assert len(there) == 2 and there[-1] > newest
        assert keys(channel, "log/")[0] <= there[0]
    assert take(channel) == [b"2"] and open_handle().stats().last_id == 3


# ── failures ────────────────────────────────────────────────────────────────────────────────────


def test_a_hint_that_cannot_be_written_fails_no_checkpoint(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    store_of(channel).schedule = lambda r: Fault.REFUSED if r.kind == "replace" else None
    channel.checkpoint()
    assert keys(channel, "checkpoints/") == [1]
    assert peek(open_handle()) == [b"0"]


def test_a_checkpoint_that_fails_fails_no_commit_and_is_tried_again_later(
    open_handle: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_handle(checkpoint_interval=1000)
    clock, checkpointing = by_clock(channel), checkpointing_of(channel)
    put(channel, b"0")
    clock.now += 1
    store_of(channel).schedule = once("create", Fault.REFUSED, "checkpoints/")
    with caplog.at_level(logging.WARNING):
        checkpointing.create_if_due()
    assert "no checkpoint was created; the next open takes longer" in caplog.text
    assert channel.engine().counters.checkpoint_write_error_count == 1
    checkpointing.create_if_due()
    assert keys(channel, "checkpoints/") == []
    clock.now += 1
    checkpointing.create_if_due()
    assert keys(channel, "checkpoints/") == [1]


def test_objects_that_may_not_be_deleted_do_not_count_as_a_failed_checkpoint(
    open_handle: Open, caplog: pytest.LogCaptureFixture, set_limits: SetLimits
) -> None:
    channel = open_handle(checkpoint_interval=5000)
    checkpointing, clock = checkpointing_of(channel), by_clock(channel)
    set_limits(worth_a_trim=1)
    store_of(channel).schedule = lambda request: Fault.REFUSED if request.kind == "delete" else None
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            put(channel, b"%d" % number)
            take(channel)
            clock.now += 5
            checkpointing.create_if_due()
    assert len(keys(channel, "checkpoints/")) == 3 and channel.engine().counters.checkpoint_write_error_count == 0
    assert "no checkpoint was created" not in caplog.text
    assert (
        caplog.text.count("objects that nobody needs stay until the store lets them go, which costs storage only") == 1
    )


def test_a_loss_that_is_found_after_a_checkpoint_waits_for_the_next_call(
    open_handle: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_handle(checkpoint_interval=1000)
    clock, checkpointing = by_clock(channel), checkpointing_of(channel)
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    before = dict(objects)
    for _ in range(2):
        put(channel, b"lost")

    def is_due(_: object) -> bool:
        objects.clear()
        objects.update(before)
        return True

    monkeypatch.setattr(checkpointing.collector, "is_due", is_due)
    clock.now += 1
    checkpointing.create_if_due()
    require_told_once(channel, caplog)


def test_nothing_is_trimmed_after_a_checkpoint_that_cannot_be_read(open_handle: Open, set_limits: SetLimits) -> None:
    channel = open_handle()
    set_limits(worth_a_trim=1)
    put(channel, *numbered(0, 3))
    take(channel)
    channel.checkpoint()
    before = keys(channel, "log/")
    left = [Fault.SHORT]
    store_of(channel).schedule = lambda r: left.pop() if left and (r.kind, r.key[:3]) == ("get", "che") else None
    put(channel, b"3")
    with pytest.raises(StorageError, match="can't be read after it was written; nothing depends on it yet"):
        channel.checkpoint()
    assert set(before) <= set(keys(channel, "log/")) and trimmed_through(channel) == -1


# ── what may go ─────────────────────────────────────────────────────────────────────────────────


def test_slots_are_trimmed_when_enough_of_them_are_worth_a_record(open_handle: Open, set_limits: SetLimits) -> None:
    channel = open_handle()
    set_limits(worth_a_trim=30)
    for number in range(10):
        put(channel, b"%d" % number)
        take(channel)
    make_two_checkpoints(channel)
    assert (trimmed_through(channel), keys(channel, "log/")[0]) == (-1, 0)
    for number in range(10):
        put(channel, b"%d" % number)
        take(channel)
    make_two_checkpoints(channel)
    assert trimmed_through(channel) + 1 == keys(channel, "log/")[0] >= 30


def test_a_slot_stays_as_long_as_a_group_has_to_take_an_event_of_it(open_handle: Open) -> None:
    channel = open_handle()
    for number in range(6):
        put(channel, b"%d" % number)
    take(channel, 2, "slow")
    take(channel, 6)
    collect_now(channel)
    assert (trimmed_through(channel), keys(channel, "log/")[0]) == (2, 3)
    assert take(channel, group="slow") == numbered(2, 4)


def test_a_trim_says_nothing_of_a_slot_that_is_needed_by_the_time_of_its_append(open_handle: Open) -> None:
    channel = open_handle()
    for body in numbered(0, 5):
        put(channel, body)
    take(channel, 2)
    needed = min(channel.engine().state.blocks.disk.files)
    assert isinstance(needed, int) and needed > 1
    channel.engine().appender.commit_alone(Trim(TrimRecord(through=needed + 2, births=0, deleted=-1)))
    assert trimmed_through(channel) == needed - 1


def test_slots_stay_up_to_the_older_of_two_checkpoints(open_handle: Open, set_limits: SetLimits) -> None:
    """The newest may turn out to be damaged."""
    channel = open_handle()
    set_limits(worth_a_trim=1)
    put(channel, b"0")
    take(channel)
    channel.checkpoint()
    first = keys(channel, "checkpoints/")
    assert trimmed_through(channel) == -1
    put(channel, b"1")
    take(channel)
    channel.checkpoint()
    assert trimmed_through(channel) == first[0] - 1
    assert keys(channel, "log/")[0] == first[0]


def test_a_handle_knows_the_checkpoint_that_it_was_loaded_from_for_the_older_one(
    open_handle: Open, set_limits: SetLimits
) -> None:
    """Handles that are open for a moment, and create one checkpoint each, let objects go all the same."""
    for number in range(3):
        with open_handle() as channel:
            set_limits(worth_a_trim=1)
            put(channel, b"%d" % number)
            take(channel)
            channel.checkpoint()
    last = open_handle()
    assert trimmed_through(last) > 5
    assert keys(last, "log/")[0] == trimmed_through(last) + 1


def test_objects_go_after_the_delay_by_the_clock_of_the_handle_that_deletes_them(open_handle: Open) -> None:
    channel = open_handle(gc_delay=600)
    clock = by_clock(channel)
    put(channel, *numbered(0, 3))
    take(channel)
    collect_now(channel)
    assert trimmed_through(channel) > 0
    clock.now += 599
    channel.checkpoint()
    assert keys(channel, "log/")[0] == 0
    clock.now += 1
    through = trimmed_through(channel)
    channel.checkpoint()
    assert 0 < keys(channel, "log/")[0] <= through + 1


@pytest.mark.slow
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_channel_that_is_written_to_every_second_stays_small_and_opens_with_few_requests(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """What nobody takes is copied into few objects; what is taken goes."""
    channel = open_handle(gc_delay="100s")
    clock, began_ns, found = by_clock(channel), time.time_ns(), list[Counter[str]]()
    monkeypatch.setattr(time, "time_ns", lambda: began_ns + int(clock.now * 1e9))
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    take(channel)
    for second in range(1, 8001):
        clock.now += 1
        put(channel, b"x" * 100)
        if is_taken and second % 10 == 0:
            take(channel)
        if second % 4000 == 0:
            found.append(Counter(key.split("/")[0] for key in objects))
    before, after = found
    assert after["log"] <= max(before["log"] + 100, 4500) and after["checkpoints"] == 2
    assert after["segments"] <= 2 and set(after) <= {"channel.json", "hint", "log", "checkpoints", "segments"}
    another = open_handle()
    assert store_of(another).counts.total() <= 61, "more than a few, what came in the last half minute, and a listing"
    assert another.stats().channel_size == (0 if is_taken else 8000)


@pytest.mark.parametrize(("every_seconds", "most_slots"), [(86_400, 600), (600, 1_800)])
def test_a_channel_that_is_open_for_a_moment_now_and_then_stays_small(every_seconds: float, most_slots: int) -> None:
    """No handle lives for `gcDelay`: that it has passed since the last ones is told by the clock of the store."""
    with stores_in_memory() as stores:
        store = stores[URL] = MemoryStore(URL)
        for _ in range(25):
            store.now += every_seconds
            with Channel(URL, commit_interval=0, gc_delay="1h", staging_ttl=3600, max_inline_bytes=2000) as channel:
                for number in range(60):
                    put(channel, b"x" * (3000 if number % 20 == 0 else 1))
                assert len(take(channel, 60)) == 60
                for _ in range(59):
                    put(channel, b"x")
                    take(channel, 1)
        with Channel(URL, create=False) as channel:
            assert peek(channel) == []
        counts = Counter(key.split("/")[0] for key in store.objects)
        assert counts["log"] < most_slots and counts["checkpoints"] <= (4 if every_seconds > 3600 else 20)
        assert 0 < counts["segments"] <= 3 * (4 if every_seconds > 3600 else 16)


# ── a channel that is removed meanwhile ─────────────────────────────────────────────────────────


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


@pytest.mark.parametrize("refused", ["", "checkpoints/", LOG])
@pytest.mark.parametrize("gc_delay", [0, 3600])
def test_a_store_that_refuses_to_delete_is_a_warning_once_until_it_deletes_again(
    open_handle: Open, caplog: pytest.LogCaptureFixture, set_limits: SetLimits, refused: str, gc_delay: int
) -> None:
    """Old checkpoints come first: where these are refused, it tells it before anything was due to be collected."""
    channel = open_handle(gc_delay=gc_delay)
    time = by_clock(channel)
    set_limits(worth_a_trim=1)
    store, checkpointing = store_of(channel), checkpointing_of(channel)

    def warnings_of(checkpoints: int) -> list[str]:
        caplog.clear()
        for number in range(checkpoints):
            put(channel, b"x")
            take(channel)
            time.now += gc_delay if number == 2 else 0
            checkpointing.create_soon()
            checkpointing.create_if_due()
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    def is_refused(request: Request) -> bool:
        return request.kind == "delete" and request.key.startswith(refused)

    for _ in range(2):
        store.schedule = lambda request: Fault.REFUSED if is_refused(request) else None
        (said,) = warnings_of(6)
        assert said.startswith(f"{URL}: objects that nobody needs stay until the store lets them go, which costs")
        used = channel.stats().store
        assert used is not None and "refused" in said and "refused" in used.delete_refusal
        store.schedule = None
        assert warnings_of(2) == []
        used = channel.stats().store
        assert used is not None and used.delete_refusal == ""
    assert len(keys(channel, "checkpoints/")) == 2


def test_a_trim_that_notices_that_the_bucket_was_put_back_leaves_its_slot_and_the_next_call_tells_the_loss(
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
    (left,) = {key for key in objects if key.startswith(LOG)} - set(before)
    with pytest.raises(UnsafeStoreError, match="Acknowledged events are lost"):
        put(channel, b"not stored")
    with pytest.raises(DataLossError, match="spillable repair"):
        for _ in range(3):
            put(channel, b"in the hole")
    channel.close()
    repair(URL)
    assert left in objects and put(open_handle(), b"stored")


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
