"""What one handle of a log of objects asks for, and what its threads do to each other."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    NotAChannelError,
    ReadonlyChannelError,
)
from spillable_stream.engine.store import channel_presence, object_appends, object_log, object_looks
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.slots import slot_key
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import OwnersClock, Watched, collect_now, in_thread, log_of, store_of
from tests.support.object_logs import FakeTime

Open = Callable[..., Channel]

LONG_SECONDS = 30


# ── what it costs ───────────────────────────────────────────────────────────────────────────────


def test_a_handle_waits_and_gives_up_as_the_channels_options_say(open_handle: Open) -> None:
    log = log_of(open_handle(poll_interval=5_000, commit_timeout="2m"))
    assert (log.poll_seconds[1], log._appending.backoff.timeout_seconds) == (5.0, 120.0)
    other = open_handle()
    assert (log_of(other).poll_seconds[1], other.port().least_pause_seconds()) == (5.0, 5.0)
    open_handle(poll_interval=1_000, commit_timeout=30)
    other.engine().follow()
    assert (log_of(other).poll_seconds[1], log_of(other)._appending.backoff.timeout_seconds) == (1.0, 30.0)


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
    assert requests(lambda: channel.drop_group("other")) == total(LOOK, APPEND, APPEND, {"delete": 2}, APPEND), (
        "given up, owned, what a worker said of itself and which query read, dropped"
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
    log._lock._lock = watched = Watched(log._lock._lock)  # type: ignore[assignment]

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


def test_a_handle_that_finds_anothers_slot_waits_for_others_from_then_on(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(other, b"theirs")
    assert log_of(channel).pace._others_at == float("-inf")
    put(channel, b"mine, behind it")
    assert log_of(channel).pace._others_at > float("-inf")


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 4, 8])
def test_writers_share_a_channel_fairly(open_handle: Open, writers: int) -> None:
    """Without a pause after each slot, whoever won the last one wins the next, and some hardly get any.

    Each pauses once it knows of the others: one that loses every slot until then shows at the next whole turn.
    """
    channels = [open_handle() for _ in range(writers)]
    done, most = [0] * writers, 40 * writers

    def answer_late(request: Request) -> None:
        time.sleep(0.02 if request.kind == "create" else 0.008)

    def know_each_other() -> bool:
        return all(log_of(channel).pace._others_at > float("-inf") for channel in channels)

    def commit(number: int) -> None:
        while not know_each_other():
            put(channels[number], b"first")
        while sum(done) < most:
            put(channels[number], b"x")
            done[number] += 1

    for channel in channels:
        store_of(channel).schedule = answer_late  # type: ignore[assignment]
    threads = [threading.Thread(target=commit, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for channel in channels:
        store_of(channel).schedule = None
    assert min(done) >= 40 / 4, done


# ── after a pause ─────────────────────────────────────────────────────────────────────


def test_a_put_of_a_handle_that_was_idle_while_slots_were_collected_counts(
    open_handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks first. Else its slot would be created in a hole, and nobody could tell whether it counts."""
    clock = FakeTime()
    for module in (object_appends, object_log, object_looks, channel_presence):
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
    for module in (object_appends, object_log, object_looks, channel_presence):
        monkeypatch.setattr(module, "time", clock)
    channel = open_handle(gc_delay=40)
    store = store_of(channel)
    for call in (lambda: put(channel, b"mine"), channel.engine().follow, channel.checkpoint):
        call()
        clock.now += idle_seconds
        store.forget_counts()
        put(channel, b"mine")
        assert store.counts["get"] + store.counts["get_range"] == reads


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


def test_a_channel_that_is_removed_while_its_state_is_loaded_is_gone_and_not_damaged(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle(gc_delay=0)
    put(other, b"0")
    assert take(other) == [b"0"]
    collect_now(other)
    store = store_of(channel)

    def removed(request: Request) -> None:
        if request.key == IDENTITY:
            store.inner.objects.clear()  # type: ignore[attr-defined]

    store.after = removed
    for _ in range(2):
        with pytest.raises(NotAChannelError, match="it was removed, or another one is there"):
            channel.engine().follow()
