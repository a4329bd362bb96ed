"""What one handle of a log of objects asks for, and what its threads do to each other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    NotAChannelError,
    ReadonlyChannelError,
)
from spillable_stream.engine import channel_presence, object_log
from spillable_stream.engine.object_log import ObjectLog
from spillable_stream.errors import LockTimeoutError, TransactionStateError
from spillable_stream.objects.slots import slot_key
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, OwnersClock, Watched, collect_now, store_of
from tests.support.object_logs import FakeTime

Open = Callable[..., Channel]

LONG_SECONDS = 30


def log_of(channel: Channel) -> ObjectLog:
    log = channel.engine().log
    assert isinstance(log, ObjectLog)
    return log


def asked(store: FaultyStore) -> list[tuple[str, str]]:
    return [(request.kind, request.key) for request in store.requests]


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


# ── what it costs ───────────────────────────────────────────────────────────────────────────────


def test_a_commit_that_nobody_contends_for_is_one_create_and_one_small_read(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    store = store_of(channel)
    for number in range(2, 6):
        store.forget_counts()
        put(channel, b"x")
        assert asked(store) == [("create", slot_key(number)), ("get_range", slot_key(number - 1))]


def test_a_handle_waits_and_gives_up_as_the_channels_options_say(open_handle: Open) -> None:
    log = log_of(open_handle(poll_interval=5_000, commit_timeout="2m"))
    assert (log.poll_seconds[1], log._appending.patience.timeout_seconds) == (5.0, 120.0)
    other = open_handle()
    assert (log_of(other).poll_seconds[1], other.port().least_pause_seconds()) == (5.0, 5.0)
    open_handle(poll_interval=1_000, commit_timeout=30)
    other.engine().follow()
    assert (log_of(other).poll_seconds[1], log_of(other)._appending.patience.timeout_seconds) == (1.0, 30.0)


def test_a_look_at_an_idle_channel_is_two_reads(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    store = store_of(channel)
    store.forget_counts()
    channel.engine().follow()
    assert asked(store) == [("get", slot_key(2)), ("get_range", slot_key(1))]


LOOK = {"get": 1, "get_range": 1}
APPEND = {"create": 1, "get_range": 1}


def total(*parts: dict[str, int]) -> dict[str, int]:
    return dict(sum(map(Counter, parts), Counter[str]()))


def test_each_operation_looks_once_and_appends_once(open_handle: Open, owners_clock: OwnersClock) -> None:
    channel = open_handle()
    store = store_of(channel)

    def requests(call: Callable[[], object]) -> dict[str, int]:
        store.forget_counts()
        call()
        return dict(store.counts)

    put(channel, *numbered(0, 10))
    assert requests(lambda: take(channel, 1)) == total(LOOK, APPEND, APPEND, LOOK, APPEND), "owner, group, take"
    assert requests(lambda: take(channel, 1)) == total(LOOK, APPEND)
    assert requests(lambda: take(channel, 1, "other")) == total(LOOK, APPEND, APPEND, LOOK, APPEND)
    assert requests(channel.stats) == LOOK
    assert requests(lambda: list(channel.read())) == LOOK
    assert requests(lambda: channel.head(3)) == LOOK
    assert requests(lambda: channel.seek("other", 3)) == total(LOOK, APPEND)
    assert requests(lambda: channel.drop_group("other")) == total(LOOK, APPEND, APPEND, APPEND), (
        "given up, owned, dropped"
    )
    assert requests(channel.close) == APPEND, "the group is given up"
    idle = open_handle()
    store = store_of(idle)
    assert requests(idle.close) == {}


def test_what_a_handle_wrote_or_found_itself_is_not_fetched_to_be_taken(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"mine")
    put(other, b"another's")
    starts, get_range = list[int](), MemoryStore.get_range

    def noted(self: MemoryStore, key: str, start: int, end: int) -> bytes:
        starts.append(start)
        return get_range(self, key, start, end)

    monkeypatch.setattr(MemoryStore, "get_range", noted)
    assert take(channel) == [b"mine", b"another's"]
    assert set(starts) == {0}, "more than the headers of slots was read"


def test_a_handle_that_is_alone_does_not_wait_for_others(open_handle: Open) -> None:
    """Its own slots, which its other threads find before it has said that they are there, are no company."""
    channel = open_handle()
    log = log_of(channel)
    for number in range(3):
        put(channel, b"%d" % number)
    store, looked = store_of(channel), threading.Event()
    log._hold = watched = Watched(log._hold)  # type: ignore[assignment]

    def look_before_the_proof(request: Request) -> None:
        if request.kind == "get_range" and not looked.is_set():
            looked.set()
            threads.append(in_thread(channel.engine().follow))
            for _ in range(2):  # the append, and the look that found its slot
                assert watched.came.acquire(timeout=LONG_SECONDS)

    threads = list[threading.Thread]()
    store.schedule = look_before_the_proof  # type: ignore[assignment]
    put(channel, b"3")
    (thread,) = threads
    thread.join()
    assert looked.is_set()
    assert log.pace._others_at == float("-inf")


# ── threads of one handle ───────────────────────────────────────────────────────────────────────


def test_a_look_waits_for_the_append_of_another_thread_before_it_changes_anything(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    log, store = log_of(channel), store_of(channel)
    log._hold = watched = Watched(log._hold)  # type: ignore[assignment]
    planned, may_create = threading.Event(), threading.Event()

    def wait_to_create(request: Request) -> None:
        if request.kind == "create" and not planned.is_set():
            planned.set()
            assert may_create.wait(LONG_SECONDS)

    store.schedule = wait_to_create  # type: ignore[assignment]
    append = in_thread(lambda: put(channel, b"2"))
    assert planned.wait(LONG_SECONDS) and watched.came.acquire(timeout=LONG_SECONDS)
    put(other, b"1")
    look = in_thread(channel.engine().follow)
    assert watched.came.acquire(timeout=LONG_SECONDS)  # it found slot 2, and waits
    assert (log.tail.number, channel.engine().state.last_id) == (1, 1)
    may_create.set()
    append.join()
    look.join()
    assert peek(channel) == [b"0", b"1", b"2"]
    assert log.tail.number == 3 + 2  # the owner of the group, and the group


def test_threads_that_come_during_a_look_share_the_next_one(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, b"0")
    log, store = log_of(channel), store_of(channel)
    log._looking = watched = Watched(log._looking)  # type: ignore[assignment]
    looks, may_answer = threading.Event(), threading.Event()

    def wait(request: Request) -> None:
        looks.set()
        assert may_answer.wait(LONG_SECONDS)

    store.schedule = wait  # type: ignore[assignment]
    store.forget_counts()
    threads = [in_thread(log.position)]
    assert looks.wait(LONG_SECONDS)
    threads += [in_thread(log.position) for _ in range(6)]
    for _ in range(7):
        assert watched.came.acquire(timeout=LONG_SECONDS)
    may_answer.set()
    for thread in threads:
        thread.join()
    assert store.counts == {"get": 2, "get_range": 2}


def test_a_look_that_began_before_is_not_shared(open_handle: Open) -> None:
    """It may have been answered before the other's commit, which the caller has heard of."""
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    log, store = log_of(channel), store_of(channel)
    log._looking = watched = Watched(log._looking)  # type: ignore[assignment]
    missed, may_end = threading.Event(), threading.Event()

    def miss_what_comes(request: Request) -> None:
        if request.kind == "get_range" and not missed.is_set():
            missed.set()
            assert may_end.wait(LONG_SECONDS)

    store.schedule = miss_what_comes  # type: ignore[assignment]
    first = in_thread(log.position)
    assert missed.wait(LONG_SECONDS)
    put(other, b"1")
    seen = list[int]()
    second = in_thread(lambda: seen.append(channel.engine().follow().last_id))
    for _ in range(2):
        assert watched.came.acquire(timeout=LONG_SECONDS)
    may_end.set()
    first.join()
    second.join()
    assert seen == [2]


def test_a_look_between_an_append_and_its_effect_loads_nothing(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_handle()
    put(channel, b"0")
    engine, store, seen = channel.engine(), store_of(channel), list[int]()
    apply_own = engine.follower.apply_own

    def looked_at(*arguments: object) -> None:
        in_thread(lambda: seen.append(engine.follow().last_id)).join()
        apply_own(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.follower, "apply_own", looked_at)
    state = engine.state
    store.forget_counts()
    for number in (1, 2):
        put(channel, b"%d" % number)
    assert (seen, engine.state.last_id) == ([2, 3], 3)
    assert engine.state is state
    assert not {("get", "hint"), ("list", "checkpoints/")} & set(asked(store))


def test_a_thread_that_commits_can_not_begin_another_commit(open_handle: Open) -> None:
    log = log_of(open_handle())
    with log.hold(1), pytest.raises(TransactionStateError, match=r"commits to .* already"), log.hold(1):
        pass
    with log.hold(1):
        pass


def test_a_thread_waits_no_longer_than_it_may_for_another_ones_commit(open_handle: Open) -> None:
    log, errors = log_of(open_handle()), list[Exception]()

    def commit() -> None:
        try:
            with log.hold(0):
                pass
        except LockTimeoutError as e:
            errors.append(e)

    with log.hold(1):
        in_thread(commit).join()
    assert "has been committing to s3://bucket/orders" in str(errors[0])


# ── answers that never come ─────────────────────────────────────────────────────────────────────


def unanswered(channel: Channel, *bodies: bytes) -> None:
    """Put what nobody answers to: the requests to create its slot, and its fence, are held back."""
    store, log = store_of(channel), log_of(channel)
    log._appending.patience = FakeTime().patience()
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


def peek_by_another(open_handle: Open, channel: Channel) -> list[bytes]:
    channel.close()
    return peek(open_handle())


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


def test_a_put_of_a_handle_that_was_idle_while_slots_were_collected_counts(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks first. Else its slot would be created in a hole, and nobody could tell whether it counts."""
    clock = FakeTime()
    for module in (object_log, channel_presence):
        monkeypatch.setattr(module, "time", clock)
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    for number in range(5):
        put(other, b"%d" % number)
    take(other)
    collect_now(other)
    assert slot_key(2) not in store_of(other).inner.objects  # type: ignore[attr-defined]
    clock.now += 3600
    put(channel, b"after a pause")
    assert take(other) == [b"after a pause"]


@pytest.mark.parametrize(("idle_seconds", "reads"), [(9, 1), (11, 3)])
def test_a_handle_looks_before_it_appends_where_it_was_idle_for_a_quarter_of_the_time_that_slots_stay(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch, idle_seconds: float, reads: int
) -> None:
    clock = FakeTime()
    for module in (object_log, channel_presence):
        monkeypatch.setattr(module, "time", clock)
    channel = open_handle(gc_delay=40)
    store = store_of(channel)
    for call in (lambda: put(channel, b"mine"), channel.engine().follow, channel.checkpoint):
        call()
        clock.now += idle_seconds
        store.forget_counts()
        put(channel, b"mine")
        assert store.counts["get"] + store.counts["get_range"] == reads


def test_a_handle_that_slept_while_slots_were_collected_loads_the_state_anew(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, b"0")
    for number in range(5):
        put(other, b"%d" % number)
    take(other)
    collect_now(other)
    put(other, *numbered(5, 2))
    state, store = channel.engine().state, store_of(channel)
    store.forget_counts()
    assert channel.engine().follow().last_id == 8
    assert channel.engine().state is not state
    assert (store.counts["list"], slot_key(1)) == (0, asked(store)[1][1])  # the hint said where to begin
    assert not {("get", slot_key(number)) for number in range(2, 6)} & set(asked(store)[2:])
    put(channel, b"7")
    assert take(other) == numbered(5, 3)


# ── another channel in its place ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slots", [None, 0, 1, 2, 3, 6], ids=lambda n: "nothing" if n is None else f"{n} slots more")
def test_an_append_where_the_channel_was_removed_says_so_at_once_and_leaves_nothing(
    open_handle: Open, slots: int | None
) -> None:
    """Whatever number the next slot has in the channel that is there now, or has yet to be made there."""
    channel = open_handle()
    put(channel, b"0")
    put(channel, b"1")
    log, clock = log_of(channel), FakeTime()
    log._appending.patience = clock.patience()
    store_of(channel).inner.objects.clear()  # type: ignore[attr-defined]
    if slots is not None:
        another = open_handle()
        for number in range(slots):
            put(another, b"%d" % number)
    with pytest.raises(NotAChannelError, match="is not at s3://bucket/orders any more"):
        put(channel, b"never")
    assert clock.slept == []
    if slots is None:
        another = open_handle()
    for number in range(slots or 0, 6):
        put(another, b"%d" % number)
    assert peek(another) == numbered(0, 6)


def test_a_slot_of_another_channel_among_ones_own_is_damage_at_once(open_handle: Open) -> None:
    channel, another = open_handle(), open_handle(f"{URL}-2")
    put(channel, b"0")
    for number in range(2):
        put(another, b"%d" % number)
    key, clock = slot_key(2), FakeTime()
    mine, theirs = store_of(channel).inner, store_of(another).inner
    mine.objects[key] = theirs.objects[key]  # type: ignore[attr-defined]
    log_of(channel)._appending.patience = clock.patience()
    with pytest.raises(CorruptionError, match="is another channel's"):
        put(channel, b"1")
    assert clock.slept == []


# ── its ends ────────────────────────────────────────────────────────────────────────────────────


def test_a_handle_that_only_looks_appends_nothing(open_handle: Open) -> None:
    put(open_handle(), b"0")
    view = open_handle(readonly=True, commit_interval=None, gc_delay=None, checkpoint_on_close=None)
    with pytest.raises(ReadonlyChannelError, match="a commit would change the channel"), log_of(view).hold(1):
        pass
    assert view.engine().follow().last_id == 1
    assert store_of(view).counts["create"] == 0


def test_a_closed_handle_asks_for_nothing(open_handle: Open) -> None:
    channel = open_handle()
    engine, store = channel.engine(), store_of(channel)
    channel.close()
    store.forget_counts()
    with pytest.raises(ChannelClosedError, match="is closed; open it again"):
        engine.follow()
    assert store.requests == []
