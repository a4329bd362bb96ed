"""What becomes of the events of a worker after a call: they wait, are taken, or become dead letters."""

from __future__ import annotations

import errno
import os
import threading
from itertools import count
from pathlib import Path

import pytest

from spillable_stream import Channel, DeadLetter, Drop, Event, Retry
from spillable_stream.workers.settling import Settling
from spillable_stream.workers.work import Deferred
from tests.lab.children import wait_until
from tests.support.events import peek, put, take
from tests.support.workers import Clock, fails_on_three, lag, letters, made


def test_an_event_that_fails_is_called_again_later_and_the_others_do_not_wait(channel: Channel) -> None:
    clock, calls = Clock(), list[tuple[float, bytes]]()

    def work(event: Event) -> None:
        calls.append((clock.now, event.body))
        if event.body == b"3" and clock.now < 3:
            raise ValueError
        if event.body == b"9":
            clock.now = 1.0  # of its first wait

    worker = made(channel, work, clock=clock, backoff=1.0)
    thread = threading.Thread(target=lambda: worker.run(until_empty=True))
    thread.start()
    assert wait_until(lambda: len(calls) == 11 and worker.stats().waiting_events == 1)  # from 1.0 on
    clock.now = 2.9
    assert wait_until(lambda: worker.stats().waiting_events == 1) and len(calls) == 11
    clock.now = 3.0  # twice as long
    thread.join(60)
    assert [body for _, body in calls] == [*(b"%d" % i for i in range(10)), b"3", b"3"]
    assert calls[-2:] == [(1.0, b"3"), (3.0, b"3")] and lag(channel) == 0


def test_a_batch_that_fails_is_bisected_and_only_the_event_at_fault_is_given_up(
    channel: Channel, dead: Channel
) -> None:
    calls: list[list[bytes]] = []

    def work(events: list[Event]) -> None:
        calls.append([e.body for e in events])
        if b"6" in calls[-1]:
            raise ValueError("six")

    worker = made(channel, work, dead, batch_size=8)
    worker.run(until_empty=True)
    assert calls[0] == [b"%d" % i for i in range(8)]
    assert calls[1:5] == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"4", b"5"], [b"6", b"7"]]
    assert calls.count([b"6"]) == 3
    (letter,) = letters(dead)
    assert letter["body"] == b"6" and letter["headers"]["dead_letter_attempts"] == "3"
    assert letter["headers"]["dead_letter_write_order_id"] == "7"
    stats = worker.stats()
    assert (stats.done_events, stats.dead_letter_events, stats.failed_calls) == (9, 1, 6)
    assert lag(channel) == 0


def test_the_function_may_drop_an_event_or_give_it_up_at_once(channel: Channel, dead: Channel) -> None:
    def work(event: Event) -> None:
        if event.body == b"1":
            raise Drop("old")
        if event.body == b"2":
            raise DeadLetter("unknown")

    worker = made(channel, work, dead)
    worker.run(until_empty=True)
    stats = worker.stats()
    assert (stats.done_events, stats.dropped_events, stats.dead_letter_events, stats.failed_calls) == (8, 1, 1, 0)
    (letter,) = letters(dead)
    assert (letter["body"], letter["headers"]["dead_letter_error_message"]) == (b"2", "unknown")
    assert letter["headers"]["dead_letter_attempts"] == "1" and lag(channel) == 0


def test_a_batch_may_be_given_up_whole(channel: Channel, dead: Channel) -> None:
    def work(events: list[Event]) -> None:
        raise DeadLetter

    made(channel, work, dead, batch_size=5).run(until_empty=True)
    found = letters(dead)
    assert [x["body"] for x in found] == [b"%d" % i for i in range(10)]
    assert [x["headers"]["dead_letter_write_order_id"] for x in found] == [str(i) for i in range(1, 11)]


def test_a_retry_keeps_the_batch_whole_and_is_not_an_attempt(channel: Channel) -> None:
    calls: list[int] = []

    def work(events: list[Event]) -> None:
        calls.append(len(events))
        if len(calls) < 20:
            raise Retry(after=0)

    worker = made(channel, work, batch_size=10, max_attempts=1)
    worker.run(until_empty=True)
    assert calls == [10] * 20 and worker.stats().failed_calls == 0 and lag(channel) == 0


def test_a_dead_letter_channel_without_room_makes_its_events_wait_and_no_call_is_repeated(
    channel: Channel, tmp_path: Path
) -> None:
    with Channel(tmp_path / "small", overflow_capacity=1, keep_alive=0, minimum_required_space=0) as dead:
        put(dead, b"full")
        clock, calls = Clock(), []

        def work(event: Event) -> None:
            calls.append(event.body)
            if event.body == b"0":
                raise DeadLetter
            if event.body == b"9":
                assert "does not fit" in worker.stats().trouble and not worker.stats().is_healthy
                take(dead, 1)
                clock.now = 1.0

        worker = made(channel, work, dead, clock)
        worker.run(until_empty=True)
        assert calls.count(b"0") == 1 and peek(dead)[-1:] == [b"0"] and worker.stats().trouble == ""


def test_a_take_that_finds_the_disk_full_is_committed_once_there_is_room_and_no_call_is_repeated(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, calls, real = Clock(), [], os.pwritev

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def work(event: Event) -> None:
        calls.append(event.body)
        if event.body == b"0":
            monkeypatch.setattr(os, "pwritev", refuse)
        if event.body == b"1":
            assert "No space left" in worker.stats().trouble and not worker.stats().is_healthy
            monkeypatch.setattr(os, "pwritev", real)
            clock.now = 1.0

    worker = made(channel, work, None, clock)
    worker.run(until_empty=True)
    assert calls == [b"%d" % i for i in range(10)]
    assert (worker.stats().done_events, worker.stats().trouble, lag(channel)) == (10, "", 0)


def test_a_lane_that_let_an_event_wait_leaves_it_to_the_lane_that_called_it_again(
    channel: Channel, dead: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Settling._wait

    def wait(self: Settling, waiting: list[Deferred]) -> None:
        real(self, waiting)
        if waiting:
            assert wait_until(lambda: worker.stats().dead_letter_events == 1), "another thread gives it up meanwhile"

    monkeypatch.setattr(Settling, "_wait", wait)
    worker = made(channel, fails_on_three, dead, batch_size=1, threads=2, max_attempts=2)
    worker.run(until_empty=True)
    assert (worker.stats().done_events, worker.stats().dead_letter_events) == (9, 1)
    assert len(letters(dead)) == 1


def test_the_errors_of_events_that_wait_do_not_keep_the_events(channel: Channel) -> None:
    clock, found = Clock(), []

    def work(events: list[Event]) -> None:
        if clock.now == 0:
            raise Retry(after=1)

    worker = made(channel, work, clock=clock, batch_size=10)
    thread = threading.Thread(target=lambda: worker.run(until_empty=True))
    thread.start()
    assert wait_until(lambda: worker.stats().waiting_events > 0)
    found += [entry[-1].error.__traceback__ for entry in worker._shared.queue._heap]
    clock.now = 1.0
    thread.join()
    assert found == [None]


def test_what_becomes_of_events_is_logged_with_fields(
    channel: Channel, dead: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: Event) -> None:
        raise ValueError("no")

    with caplog.at_level("INFO"):
        channel.worker("g", fail, max_attempts=1, dead_letter=dead).run(until_empty=True)
    about = [
        (record.levelname, *(getattr(record, name, None) for name in ("channel", "group", "first_id", "last_id")))
        for record in caplog.records
        if record.name.startswith("spillable_stream.workers")
    ]
    path = str(channel.path)
    assert about[-2:] == [("INFO", path, None, 10, 10), ("WARNING", path, "g", 10, 10)]


def test_dead_letters_that_never_fit_together_are_stored_in_parts(channel: Channel, tmp_path: Path) -> None:
    def give_up(events: list[Event]) -> None:
        raise DeadLetter("all of them")

    with Channel(tmp_path / "small", minimum_required_space=0, overflow_capacity=4, keep_alive=0) as small:
        seconds = count()
        worker = made(channel, give_up, small, lambda: next(seconds), batch_size=10)
        thread = threading.Thread(target=lambda: worker.run(until_empty=True))
        thread.start()
        found: list[bytes] = []
        assert wait_until(lambda: bool(found.extend(take(small, 4)) or not thread.is_alive()), 20)
        worker.stop()
        thread.join()
        found += take(small, 4)
    assert sorted(found) == [b"%d" % i for i in range(10)]
    assert worker.stats().dead_letter_events == 10 and lag(channel) == 0
