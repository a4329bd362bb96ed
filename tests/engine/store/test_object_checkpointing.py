"""When a checkpoint of a log of objects is created, and what may go after it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.engine.store import object_checkpointing
from spillable_stream.engine.store.object_checkpointing import Trim
from spillable_stream.errors import TransactionStateError
from spillable_stream.format.record import TrimRecord
from spillable_stream.objects.checkpoints import CHECKPOINTS
from spillable_stream.objects.parallel import MOST_AT_ONCE
from spillable_stream.objects.slots import LOG
from spillable_stream.state import block_index
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, Request, once
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import (
    URL,
    collect_now,
    make_two_checkpoints,
    require_told_once,
    store_of,
    stores_in_memory,
)
from tests.support.object_checkpoints import by_clock, checkpointing_of, keys, trimmed_through
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]


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
    first, last = _after_seconds(channel, monkeypatch, [4000, 8000], is_taken=is_taken)
    assert last.blocks <= (5 if is_taken else 6500) and last.checkpoint_bytes <= 2000 + 60 * last.blocks
    before, after = first.objects, last.objects
    assert after["log"] <= max(before["log"] + 100, 4500) and after["checkpoints"] == 2
    assert after["segments"] <= 2 and set(after) <= {"channel.json", "hint", "log", "checkpoints", "segments"}
    another = open_handle()
    most = 30 + MOST_AT_ONCE + 8
    assert store_of(another).counts.total() <= most, "more than the last half minute, what may follow, and a few"
    assert another.stats().channel_size == (0 if is_taken else 8000)


@pytest.mark.parametrize("is_taken", [True, False])
def test_twice_as_many_commits_add_no_more_to_the_state_and_to_a_checkpoint_than_at_any_time(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits, is_taken: bool
) -> None:
    """With small limits, so that a month is minutes.

    A block spans a part of the backlog's time, so their number grows with its logarithm; and by one for each object
    that slots were copied into, since a block is in one: a commit a second makes 634 of these in a month.
    """
    slots, parts = 32, 32
    set_limits(many_slots=slots, worth_a_trim=slots, quiet_seconds=10)
    monkeypatch.setattr(block_index, "_SPAN_PARTS", parts)
    channel = open_handle(gc_delay="20s", checkpoint_interval="5s")
    found = _after_seconds(channel, monkeypatch, [200, 400, 800], is_taken=is_taken)
    for one, twice in pairwise(found):
        copies = twice.objects["segments"] - one.objects["segments"]
        assert twice.blocks - one.blocks <= (0 if is_taken else parts + copies)
    assert all(size.checkpoint_bytes <= 2000 + 100 * size.blocks for size in found)


class _Size(NamedTuple):
    """How large a channel is: its objects of each kind, the blocks of its state, and its newest checkpoint."""

    objects: Counter[str]
    blocks: int
    checkpoint_bytes: int


def _after_seconds(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, looks: Sequence[int], *, is_taken: bool
) -> list[_Size]:
    """Put an event a second, take ten at once or none, and return how large the channel is after so many seconds."""
    clock, began_ns, found = by_clock(channel), time.time_ns(), list[_Size]()
    monkeypatch.setattr(time, "time_ns", lambda: began_ns + int(clock.now * 1e9))
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    take(channel)
    for second in range(1, looks[-1] + 1):
        clock.now += 1
        put(channel, b"x" * 100)
        if is_taken and second % 10 == 0:
            take(channel)
        if second in looks:
            newest = max(key for key in objects if key.startswith(CHECKPOINTS))
            kinds = Counter(key.split("/")[0] for key in objects)
            found.append(_Size(kinds, len(channel.engine().state.blocks), len(objects[newest])))
    return found


@pytest.mark.parametrize(("every_seconds", "most_slots", "most_rounds"), [(86_400, 600, 4), (600, 1_800, 16)])
def test_a_channel_that_is_open_for_a_moment_now_and_then_stays_small(
    every_seconds: float, most_slots: int, most_rounds: int
) -> None:
    """No handle lives for `gcDelay`: that it has passed since the last ones is told by the clock of the store."""
    with stores_in_memory() as stores:
        store = stores[URL] = MemoryStore(URL)
        for _ in range(20):
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
        assert counts["log"] < most_slots and counts["checkpoints"] <= most_rounds
        assert 0 < counts["segments"] <= 3 * most_rounds
