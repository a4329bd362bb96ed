"""What a look asks for, and what it shares with those of other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from spillable_stream import (
    Channel,
    CommitOutcomeUnknownError,
    CorruptionError,
    DataLossError,
    StorageError,
    repair,
    verify,
)
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.identity import create_identity
from spillable_stream.objects.slots import slot_key
from tests.support.events import peek, put, take
from tests.support.faulty_store import Fault, FaultyStore, Request, once
from tests.support.object_channels import (
    URL,
    Watched,
    asked,
    collect_now,
    cut_off,
    in_thread,
    log_of,
    put_with_an_older_hint,
    store_of,
)
from tests.support.object_logs import FakeTime, new_state

Open = Callable[..., Channel]

LONG_SECONDS = 30


class PausedRequest:
    """Lets the first request of a kind wait, from now on, until it may go on.

    Args:
        store: the store that is asked.
        kind: the kind.
    """

    def __init__(self, store: FaultyStore, kind: str) -> None:
        self._kind = kind
        self._came, self._may_go_on = threading.Event(), threading.Event()
        store.schedule = self._pause  # type: ignore[assignment]

    def _pause(self, request: Request) -> None:
        if request.kind == self._kind and not self._came.is_set():
            self._came.set()
            assert self._may_go_on.wait(LONG_SECONDS)

    def wait_for(self) -> None:
        """Return when it has come."""
        assert self._came.wait(LONG_SECONDS)

    def go_on(self) -> None:
        self._may_go_on.set()


def test_a_look_at_an_idle_channel_is_two_reads(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    store = store_of(channel)
    store.forget_counts()
    channel.engine().follow()
    assert asked(store) == [("get", slot_key(2)), ("get_range", slot_key(1))]


def test_a_look_waits_for_the_append_of_another_thread_before_it_changes_anything(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    log, store = log_of(channel), store_of(channel)
    log._lock._lock = watched = Watched(log._lock._lock)  # type: ignore[assignment]
    creation = PausedRequest(store, "create")
    append = in_thread(lambda: put(channel, b"2"))
    creation.wait_for()
    assert watched.came.acquire(timeout=LONG_SECONDS)
    put(other, b"1")
    look = in_thread(channel.engine().follow)
    assert watched.came.acquire(timeout=LONG_SECONDS)  # it found slot 2, and waits
    assert (log.tail.number, channel.engine().state.last_id) == (1, 1)
    creation.go_on()
    append.join()
    look.join()
    assert peek(channel) == [b"0", b"1", b"2"]
    assert log.tail.number == 3 + 2  # the owner of the group, and the group


def test_threads_that_come_during_a_look_share_the_next_one(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    log, store = log_of(channel), store_of(channel)
    log._looks._looking = watched = Watched(log._looks._looking)  # type: ignore[assignment]
    first = PausedRequest(store, "get")
    store.forget_counts()
    threads = [in_thread(log.position)]
    first.wait_for()
    threads += [in_thread(log.position) for _ in range(6)]
    for _ in range(7):
        assert watched.came.acquire(timeout=LONG_SECONDS)
    first.go_on()
    for thread in threads:
        thread.join()
    assert store.counts == {"get": 2, "get_range": 2}


def test_what_a_maker_that_slept_created_in_the_place_of_slot_0_is_passed_over_like_any_slot_that_is_gone(
    open_handle: Open,
) -> None:
    """A creator that is paused between its last look and slot 0 fills the place of one that was collected meanwhile."""
    sleeper, channel = open_handle(), open_handle(gc_delay=0)
    put(channel, b"0")
    assert take(channel) == [b"0"]
    collect_now(channel)
    store = store_of(channel).inner
    assert slot_key(0) not in store.objects  # type: ignore[attr-defined]
    assert create_identity(store, new_state().small(), "a creator that slept", Backoff(0)) == channel.uuid
    assert slot_key(0) in store.objects  # type: ignore[attr-defined]
    put(channel, b"1")
    assert sleeper.engine().follow().last_id == 2
    put(sleeper, b"2")
    assert peek(channel) == [b"1", b"2"]


def test_a_look_that_began_before_is_not_shared(open_handle: Open) -> None:
    """It may have been answered before the other's commit, which the caller has heard of."""
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    log, store = log_of(channel), store_of(channel)
    log._looks._looking = watched = Watched(log._looks._looking)  # type: ignore[assignment]
    proof = PausedRequest(store, "get_range")  # after it has missed what comes
    first = in_thread(log.position)
    proof.wait_for()
    put(other, b"1")
    seen = list[int]()
    second = in_thread(lambda: seen.append(channel.engine().follow().last_id))
    for _ in range(2):
        assert watched.came.acquire(timeout=LONG_SECONDS)
    proof.go_on()
    first.join()
    second.join()
    assert seen == [2]


# ── a hint that is older than the newest checkpoint ─────────────────────────────────────────────


WRITES = [
    lambda channel: put(channel, b"behind the loss"),
    take,
    Channel.checkpoint,
    lambda channel: channel.engine().upkeep._owners.own("upkeep:", 0, "upkeep"),
]


@pytest.mark.parametrize("write", WRITES, ids=["put", "take", "checkpoint", "upkeep"])
@pytest.mark.parametrize("continued", [0, 1])
def test_a_handle_that_began_with_an_older_checkpoint_refuses_to_append_where_later_slots_are_lost(
    open_handle: Open, write: Callable[[Channel], object], continued: int
) -> None:
    """Whether an earlier version, which does not look, has put others in their places."""
    channel = open_handle()
    put_with_an_older_hint(channel)
    cut_off(channel)
    channel.close()
    if continued:
        earlier = open_handle()
        log_of(earlier)._known.unlisted = None
        put(earlier, b"in its place")
        earlier.close()
    again = open_handle()
    assert again.stats().last_id == 2 + continued, "an open trusts the hint"
    before = dict(store_of(again).inner.objects)  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"the newest checkpoint is of .*slot 3.*events are missing") as caught:
            write(again)
        assert "spillable repair" in str(caught.value)
    assert store_of(again).inner.objects == before  # type: ignore[attr-defined]
    again.close()
    repair(URL)
    assert put(open_handle(), b"next")[0] > 3, "no other event gets the ID of one that is lost"
    assert verify(URL).healthy


def test_the_first_append_of_a_handle_that_began_with_a_hint_lists_the_checkpoints_and_no_other_one_does(
    open_handle: Open,
) -> None:
    channel = open_handle()
    put(channel, b"0")
    channel.checkpoint()
    for handle, asks in ((open_handle(), True), (channel, False)):
        store = store_of(handle)
        for listed in ([("list", "checkpoints/")] if asks else [], []):
            handle.engine().follow()
            tail = log_of(handle).tail.number
            store.forget_counts()
            put(handle, b"x")
            assert asked(store) == [*listed, ("create", slot_key(tail + 1)), ("get_range", slot_key(tail))]


def test_a_handle_that_only_looks_lists_nothing(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    channel.checkpoint()
    other = open_handle()
    other.stats()
    assert [bytes(body) for batch in other.read() for body in batch.column("body").to_pylist()] == [b"0"]
    assert "list" not in store_of(other).counts


def test_a_handle_that_began_with_an_older_checkpoint_continues_where_nothing_is_lost(open_handle: Open) -> None:
    channel = open_handle()
    put_with_an_older_hint(channel)
    again = open_handle()
    store_of(again).forget_counts()
    assert put(again, b"3") == (4, 4)
    assert store_of(again).counts["list"] == 2, "the first append's, and that of the load"
    store_of(again).forget_counts()
    assert put(again, b"4") == (5, 5)
    assert peek(again) == [b"%d" % number for number in range(5)]
    assert "list" not in store_of(again).counts


def test_a_handle_whose_listing_fails_asks_again(open_handle: Open) -> None:
    channel = open_handle()
    put_with_an_older_hint(channel)
    cut_off(channel)
    again = open_handle()
    store_of(again).schedule = once("list", Fault.UNAVAILABLE)
    with pytest.raises(StorageError):
        put(again, b"not stored")
    with pytest.raises(DataLossError, match="slot 3, which is not in the log"):
        put(again, b"not stored")


# ── damage that a repair has passed ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("use", [lambda channel: put(channel, b"next"), lambda channel: channel.engine().follow()])
@pytest.mark.parametrize(
    ("slot", "damage"),
    [
        pytest.param(2, lambda data: data[:20], id="the newest slot that it knows"),
        pytest.param(3, lambda data: data[:20], id="the slot behind that"),
        pytest.param(4, lambda data: data[: len(data) // 2], id="a later one"),
        pytest.param(3, lambda _: None, id="a slot that is gone"),
    ],
)
def test_a_handle_that_was_open_raises_the_error_of_damage_and_continues_behind_a_repair(
    open_handle: Open, slot: int, damage: Callable[[bytes], bytes | None], use: Callable[[Channel], object]
) -> None:
    channel, other = open_handle(), open_handle()
    for number in range(2):
        put(channel, b"%d" % number)
    for number in range(2, 5):
        put(other, b"%d" % number)
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    damaged = damage(objects.pop(slot_key(slot)))
    if damaged is not None:
        objects[slot_key(slot)] = damaged
    log_of(channel)._appending.backoff = FakeTime().backoff()
    repair(URL)
    with pytest.raises((CorruptionError, CommitOutcomeUnknownError)):
        use(channel)
    with suppress(CorruptionError):  # a put that met the damage is settled first
        channel.engine().checkpointing.create()
    put(channel, b"5")
    left = [b"%d" % number for number in range(6) if number != slot - 1]
    assert peek(channel) == left
    assert peek(open_handle(), group="another") == left


def test_damage_that_nothing_has_passed_stays_an_error(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(other, b"0")
    objects = store_of(channel).inner.objects  # type: ignore[attr-defined]
    objects[slot_key(1)] = objects[slot_key(1)][:20]
    for _ in range(3):
        with pytest.raises(CorruptionError, match="the header of a slot is damaged"):
            channel.engine().follow()
