"""The objects in which workers of a channel in a store say what they do, and what they cost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from spillable_stream import Channel
from spillable_stream.engine.store import last_requests, object_worker_statuses
from spillable_stream.engine.store.last_requests import LastRequests
from spillable_stream.engine.store.object_worker_statuses import READ_SECONDS, ObjectStatusWriter
from spillable_stream.engine.worker_statuses import WORKER_MARK
from spillable_stream.integrity.verify import verify
from spillable_stream.objects.identity import WORKERS
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault, Request
from tests.support.object_channels import store_of
from tests.support.waiting import wait_until

Open = Callable[..., Channel]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(object_worker_statuses, "time", SimpleNamespace(monotonic=found.monotonic))
    return found


def looking_at(open_handle: Open) -> Channel:
    return open_handle(create=False, readonly=True)


def asked(channel: Channel, kind: str) -> list[str]:
    """The requests of a handle about statuses."""
    return [r.key for r in store_of(channel).requests if r.kind == kind and r.key.startswith("workers/")]


def seen(channel: Channel) -> list[tuple[str, str, int]]:
    return [(w.group, w.state, w.done_events) for w in channel.stats().workers]


def test_a_read_only_handle_sees_how_each_groups_last_worker_ended(open_handle: Open) -> None:
    channel = open_handle()
    for group in ("a", "b"):
        put(channel, *numbered(0, 3))
        with channel.worker(group, lambda event: None) as worker:
            worker.run(until_empty=True)
    assert seen(looking_at(open_handle)) == [("a", "ended", 3), ("b", "ended", 3)]


def test_a_channel_without_workers_has_no_such_object_and_a_look_lists_them_once(
    open_handle: Open, clock: Clock
) -> None:
    channel = open_handle()
    put(channel, *numbered(0, 3))
    take(channel, 1, "g")
    looking = looking_at(open_handle)
    for _ in range(5):
        assert seen(looking) == []
        clock.now += READ_SECONDS
    assert (asked(looking, "list"), asked(looking, "get")) == (["workers/"], [])
    assert asked(channel, "replace") == asked(channel, "list") == asked(channel, "get") == []


def test_a_handle_that_may_write_reads_none(open_handle: Open) -> None:
    channel, other = open_handle(), open_handle()
    put(channel, *numbered(0, 3))
    with channel.worker("g", lambda event: None) as worker:
        worker.run(until_empty=True)
    assert other.stats().workers == ()
    assert asked(other, "list") == asked(other, "get") == []


def test_an_object_is_read_while_a_worker_owns_the_group_now_and_then_and_once_after(
    open_handle: Open, clock: Clock
) -> None:
    channel, begun, goes_on = open_handle(), threading.Event(), threading.Event()
    put(channel, *numbered(0, 3))
    looking = looking_at(open_handle)
    assert seen(looking) == []

    def work(event: object) -> None:
        begun.set()
        assert goes_on.wait(30)

    worker = channel.worker("g", work)
    thread = threading.Thread(target=lambda: worker.run(until_empty=True))
    thread.start()
    assert begun.wait(30)
    for _ in range(3):
        looking.stats()
    assert len(asked(looking, "get")) == 1
    clock.now += READ_SECONDS
    looking.stats()
    assert len(asked(looking, "get")) == 2
    goes_on.set()
    thread.join(30)
    for _ in range(3):
        assert seen(looking) == [("g", "ended", 3)]
        clock.now += READ_SECONDS
    assert len(asked(looking, "get")) == 3 and asked(looking, "list") == ["workers/"]
    assert len(asked(channel, "replace")) <= 2, "one when it began, and one when it ended"


def test_another_thread_may_follow_while_the_objects_are_read(open_handle: Open, clock: Clock) -> None:
    channel = open_handle()
    put(channel, *numbered(0, 3))
    looking = looking_at(open_handle)
    assert seen(looking) == []
    consumers = [channel.consumer(group, note=f"{WORKER_MARK}5 events") for group in "ab"]
    looking.engine().follow()

    def follow(request: Request) -> None:
        if request.key.startswith(WORKERS) and len(consumers) < 3:
            consumers.append(channel.consumer("c"))
            looking.engine().follow()

    store_of(looking).schedule = follow
    assert seen(looking) == []
    assert len(consumers) == 3


def test_a_worker_that_lost_its_group_does_not_write_over_the_next_ones_object(open_handle: Open) -> None:
    first, second = open_handle(), open_handle()
    put(first, *numbered(0, 3))
    owned = first.engine().owners.own("g", 1.0, "")
    old = first.engine().worker_statuses.open("g")
    assert old is not None
    owned.close()
    with second.worker("g", lambda event: None) as worker:
        worker.run(until_empty=True)
    first.engine().follow()
    old.close(b"mine")
    assert seen(looking_at(open_handle)) == [("g", "ended", 3)]


def test_where_the_store_refuses_the_worker_works_and_nothing_is_said(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, *numbered(0, 3))
    store_of(channel).schedule = lambda request: Fault.REFUSED if request.key.startswith("workers/") else None
    with channel.worker("g", lambda event: None) as worker:
        worker.run(until_empty=True)
    looking = looking_at(open_handle)
    store_of(looking).schedule = lambda request: Fault.REFUSED if request.key.startswith("workers/") else None
    for _ in range(3):
        assert seen(looking) == []
    assert asked(looking, "list") == ["workers/"], "whoever may not look asks once"


def test_where_the_store_refuses_the_object_stays_and_the_group_is_dropped(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, *numbered(0, 3))
    with channel.worker("g", lambda event: None) as worker:
        worker.run(until_empty=True)
    store_of(channel).schedule = lambda asked: Fault.REFUSED if asked.kind == "delete" else None
    channel.drop_group("g")
    assert "g" not in channel.stats().groups


def test_what_is_said_while_a_request_is_under_way_comes_with_the_next(open_handle: Open) -> None:
    written: list[bytes] = []
    under_way, goes_on = threading.Event(), threading.Event()

    def write_now(value: bytes) -> None:
        under_way.set()
        assert goes_on.wait(30)
        written.append(value)

    writer = ObjectStatusWriter(write_now, lambda: True, LastRequests())
    writer.write(b"one")
    assert under_way.wait(30)
    writer.write(b"two")
    goes_on.set()
    writer.close(b"three")
    assert written[0] == b"one" and written[-1] == b"three"


def test_a_close_does_not_wait_for_a_silent_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_requests, "LAST_REQUEST_SECONDS", 0.01)
    silence, asked = threading.Event(), list[bytes]()

    def write_now(value: bytes) -> None:
        asked.append(value)
        assert silence.wait(30)

    writer = ObjectStatusWriter(write_now, lambda: True, LastRequests())
    writer.write(b"one")
    wait_until(lambda: asked == [b"one"])
    writer.close(b"two")
    assert asked == [b"one"], "which might come after it, and stay"
    ObjectStatusWriter(write_now, lambda: True, LastRequests()).close(b"three")
    silence.set()


def test_a_forked_child_writes_nothing() -> None:
    written: list[bytes] = []
    ObjectStatusWriter(written.append, lambda: True, LastRequests()).close(None)
    assert written == []


def test_verify_knows_the_objects(open_handle: Open) -> None:
    channel = open_handle()
    put(channel, *numbered(0, 3))
    with channel.worker("g", lambda event: None) as worker:
        worker.run(until_empty=True)
    channel.close()
    assert verify(str(channel.path)).findings == ()
