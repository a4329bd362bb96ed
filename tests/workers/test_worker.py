from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    DataLossError,
    Drop,
    Event,
    GroupOwnedError,
    Retry,
    WorkerError,
    WorkerFailedError,
    WorkerTimeoutError,
    dead_letters,
)
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.objects.identity import WORKERS
from spillable_stream.state.ranges import Range
from spillable_stream.workers import reporting
from spillable_stream.workers import worker as worker_module
from spillable_stream.workers.transfer import Transfer, transfer_name
from tests.lab.children import wait_until
from tests.support.delays import clock_of, put_late
from tests.support.events import peek, put, take
from tests.support.interrupts import Interrupts
from tests.support.object_channels import stores_in_memory
from tests.support.one_module import replace_in
from tests.support.producers import Speechless
from tests.support.workers import Clock, fails_on_three, lag, letters, made

# ── what the function gets ──────────────────────────────────────────────────────────────────────


def test_the_function_gets_one_event_at_a_time_in_order(channel: Channel) -> None:
    seen: list[Event] = []
    channel.worker("g", seen.append).run(until_empty=True)
    assert [e.body for e in seen] == [b"%d" % i for i in range(10)]
    assert [e.write_order_id for e in seen] == list(range(1, 11))
    assert lag(channel) == 0


def test_with_a_batch_size_it_gets_lists_of_events(channel: Channel) -> None:
    sizes: list[int] = []
    worker = channel.worker("g", lambda events: sizes.append(len(events)), batch_size=4)
    worker.run(until_empty=True)
    assert sizes == [4, 4, 2] and worker.stats().done_events == 10


def test_in_a_typed_channel_it_gets_tables(tmp_path: Path) -> None:
    with Channel(tmp_path / "t", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many({"n": i} for i in range(3))
        found: list[pa.Table] = []
        channel.worker("g", found.append, batch_size=10).run(until_empty=True)
    assert found[0].to_pydict() == {"n": [0, 1, 2], "write_order_id": [1, 2, 3]}


def test_one_that_ends_when_nothing_is_left_has_delivered_what_was_due(channel: Channel) -> None:
    clock, seen = clock_of(channel), list[Event]()
    channel.worker("g", lambda _: None).run(until_empty=True)
    put_late(channel, 5, b"late")
    clock.pass_by(6)
    channel.worker("g", seen.append).run(until_empty=True)
    assert [event.body for event in seen] == [b"late"]


# ── failures ────────────────────────────────────────────────────────────────────────────────────


def test_without_a_dead_letter_channel_an_event_that_keeps_failing_stops_the_worker(channel: Channel) -> None:
    def work(event: Event) -> None:
        if event.body == b"2":
            raise ValueError("two")

    worker = made(channel, work)
    with pytest.raises(
        WorkerFailedError, match=r"failed 3 times for the event 3 of .*ValueError: two.* no dead_letter"
    ):
        worker.run(until_empty=True)
    assert worker.stats().state == "failed" and not worker.stats().is_healthy
    assert b"2" in take(channel, 10, "g"), "the event is back in the queue"


def test_a_worker_claims_no_more_while_very_many_events_wait(tmp_path: Path) -> None:
    with Channel(tmp_path / "many", minimum_required_space=0) as channel:
        put(channel, *[b"x"] * 3000)
        clock, calls = Clock(), []

        def work(events: list[Event]) -> None:
            calls.append(len(events))
            if clock.now == 0:
                raise Retry(after=10)

        worker = made(channel, work, clock=clock, batch_size=500)
        thread = threading.Thread(target=lambda: worker.run(until_empty=True))
        thread.start()
        assert wait_until(lambda: worker.stats().waiting_events == 1000)
        assert not threading.Event().wait(0.1) and calls == [500, 500]
        clock.now = 10.0
        thread.join()
        assert sum(calls[2:]) == 3000


def test_events_that_expire_while_they_wait_are_passed_over(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Consumer.read
    calls: list[bytes] = []

    def gone(consumer: Consumer, ranges: list[Range]) -> list[ReadBatch]:
        if calls and ranges == [(1, 1)]:
            raise DataLossError("the event 1 has left the channel")
        return read(consumer, ranges)

    def work(event: Event) -> None:
        calls.append(event.body)
        if event.body == b"0":
            channel.port().report_lost(1, 1)
            raise ValueError

    monkeypatch.setattr(Consumer, "read", gone)
    made(channel, work).run(until_empty=True)
    assert calls == [b"%d" % i for i in range(10)] and lag(channel) == 0


def test_events_that_are_gone_and_were_not_taken_end_the_worker(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(consumer: Consumer, ranges: list[Range]) -> list[ReadBatch]:
        raise DataLossError("somebody removed the file")

    monkeypatch.setattr(Consumer, "read", gone)
    with pytest.raises(DataLossError, match="somebody"):
        made(channel, lambda _: None).run(until_empty=True)


# ── dead letters, each once ─────────────────────────────────────────────────────────────────────


def test_a_dead_letter_that_a_killed_worker_stored_is_taken_without_a_call(channel: Channel, dead: Channel) -> None:
    killed = Consumer(channel.engine(), "g", resume=True)
    name = transfer_name("worker", channel.uuid, "g")
    Transfer(killed, dead, name).store(killed.claim(1), batch_from_events([Event(b"0")]))
    killed.close()
    calls: list[bytes] = []
    made(channel, lambda event: calls.append(event.body), dead).run(until_empty=True)
    assert calls == [b"%d" % i for i in range(1, 10)] and peek(dead) == [b"0"]


def test_a_typed_row_becomes_a_dead_letter_and_a_row_again(tmp_path: Path, dead: Channel) -> None:
    with Channel(tmp_path / "t", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many({"n": i} for i in range(4))

        def work(table: pa.Table) -> None:
            if 2 in table["n"].to_pylist():
                raise ValueError

        made(channel, work, dead, batch_size=4).run(until_empty=True)
        assert len(letters(dead)) == 1
        assert dead_letters.replay(dead, channel) == 1
        with channel.take_transaction("g") as tx:
            assert [row["n"] for row in tx.take_many(10)] == [2]


# ── threads, timeouts, ends ─────────────────────────────────────────────────────────────────────


def test_several_threads_call_at_once_and_each_event_once(channel: Channel) -> None:
    together, calls, seen = threading.Barrier(3, timeout=60), itertools.count(), []

    def work(event: Event) -> None:
        if next(calls) < 3:
            together.wait()
        seen.append(event.body)

    made(channel, work, threads=3).run(until_empty=True)
    assert sorted(seen) == [b"%d" % i for i in range(10)]


def test_a_call_that_does_not_return_counts_as_failed_and_its_thread_is_left_behind(
    channel: Channel, dead: Channel
) -> None:
    clock, forever = Clock(), threading.Event()

    def work(event: Event) -> None:
        if event.body == b"3":
            clock.now += 1
            forever.wait()

    worker = made(channel, work, dead, clock, max_attempts=2, timeout=1)
    worker.run(until_empty=True)
    stats = worker.stats()
    assert (stats.left_calls, stats.failed_calls, stats.dead_letter_events, stats.done_events) == (2, 2, 1, 9)
    (letter,) = letters(dead)
    assert letter["headers"]["dead_letter_error_code"] == "WorkerTimeoutError"
    assert "did not return within 1 s for the event 4" in letter["headers"]["dead_letter_error_message"]
    forever.set()
    assert wait_until(lambda: not worker.stats().left_calls)
    assert lag(channel) == 0 and len(letters(dead)) == 1, "what such a call does later changes nothing"


def test_ten_calls_that_do_not_return_stop_the_worker(channel: Channel, dead: Channel) -> None:
    forever = threading.Event()
    worker = channel.worker("g", lambda _: forever.wait(), max_attempts=2, backoff=0, timeout=0.01, dead_letter=dead)
    with pytest.raises(WorkerTimeoutError, match=r"10 calls of .* have not returned.*End the process"):
        worker.run(stop_timeout_seconds=5.0)
    assert worker.stats().left_calls == 10 and lag(channel) == 10 - len(letters(dead))
    forever.set()


def test_calls_that_return_late_are_no_reason_to_stop(channel: Channel) -> None:
    clock, numbers = Clock(), count(1)

    def work(event: Event) -> None:
        if (number := next(numbers)) <= 12:
            clock.now += 2
            assert wait_until(lambda: worker.stats().failed_calls >= number)

    worker = made(channel, work, clock=clock, max_attempts=100, timeout=1)
    worker.run(until_empty=True)
    assert worker.stats().failed_calls == 12 and worker.stats().done_events == 10 and lag(channel) == 0


def test_stop_lets_the_call_under_way_end_and_then_frees_the_group(channel: Channel) -> None:
    def work(event: Event) -> None:
        if event.body == b"2":
            worker.stop()
            assert worker.stats().state == "stopping"

    worker = made(channel, work)
    worker.run()
    assert worker.stats().done_events == 3 and worker.stats().state == "ended"
    assert take(channel, 1, "g") == [b"3"]


def test_a_call_that_outlasts_the_stop_is_left_behind_and_its_event_is_back(channel: Channel) -> None:
    go_on = threading.Event()

    def work(event: Event) -> None:
        worker.stop()
        go_on.wait()

    worker = made(channel, work)
    worker.run(stop_timeout_seconds=0.01)
    assert worker.stats().left_calls == 1 and take(channel, 1, "g") == [b"0"]
    go_on.set()
    assert worker.stats().done_events == 0


@pytest.mark.parametrize("does", [None, Drop])
def test_what_is_settled_when_a_stop_times_out_is_counted_by_all_who_ask(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, does: type[Exception] | None
) -> None:
    commit = Consumer.commit

    def slow(consumer: Consumer, ranges: list[Range], *more: Any) -> int:
        wait_until(lambda: worker.stats().left_calls > 0, 0.5)  # which is never so
        return commit(consumer, ranges, *more)

    def work(event: Event) -> None:
        worker.stop()
        if does is not None:
            raise does

    monkeypatch.setattr(Consumer, "commit", slow)
    worker = made(channel, work)
    worker.run(stop_timeout_seconds=0)
    with Channel(channel.path, create=False, readonly=True) as other:
        (seen,) = other.stats().workers
    found = [(stats.done_events + stats.dropped_events, stats.left_calls) for stats in (worker.stats(), seen)]
    assert found == [(1, 0), (1, 0)] and lag(channel) == 9


def test_a_log_that_raises_ends_no_worker(channel: Channel, dead: Channel) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise ValueError("a filter's trouble")

    logs = [logging.getLogger(f"spillable_stream.workers.{name}") for name in ("judge", "settling", "calls", "worker")]
    for log in logs:
        log.setLevel(logging.DEBUG)
        log.addFilter(refuse)
    try:
        channel.worker("g", fails_on_three, batch_size=4, backoff=0, dead_letter=dead).run(until_empty=True)
    finally:
        for log in logs:
            log.setLevel(logging.NOTSET)
            log.removeFilter(refuse)
    assert lag(channel) == 0 and [letter["body"] for letter in letters(dead)] == [b"3"]


def test_sigterm_stops_a_worker_in_the_main_thread_and_the_old_handler_is_back(channel: Channel) -> None:
    before = signal.getsignal(signal.SIGTERM)
    worker = made(channel, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    worker.run()
    assert 1 <= worker.stats().done_events <= 10 and signal.getsignal(signal.SIGTERM) == before


def test_an_interrupt_ends_the_run_and_the_group_is_free(channel: Channel) -> None:
    worker = made(channel, lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    put(channel, b"later")  # the others may be done
    assert take(channel, 1, "g")


def test_a_worker_waits_for_events_until_it_is_stopped(channel: Channel) -> None:
    seen = threading.Semaphore(0)
    worker = made(channel, lambda _: seen.release(), threads=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    for _ in range(10):
        assert seen.acquire(timeout=60)
    put(channel, b"later")
    assert seen.acquire(timeout=60)
    worker.stop()
    thread.join(60)
    assert not thread.is_alive() and worker.stats().done_events == 11


def test_a_worker_owns_its_group_while_it_runs_and_runs_once(channel: Channel) -> None:
    refused: list[type[Exception]] = []

    def work(event: Event) -> None:
        if not refused:
            with pytest.raises(GroupOwnedError) as e:
                channel.seek("g", "latest")
            refused.append(e.type)

    worker = made(channel, work)
    worker.run(until_empty=True)
    assert refused == [GroupOwnedError] and worker.stats().done_events == 10
    with pytest.raises(WorkerError, match="runs once"):
        worker.run()


def test_a_channel_that_is_closed_under_a_worker_ends_it(channel: Channel) -> None:
    worker = made(channel, lambda _: channel.close())
    with pytest.raises(ChannelClosedError):
        worker.run()
    assert worker.stats().state == "failed"


async def _ship(_: object) -> None: ...


@pytest.mark.parametrize("lazy", [_ship, lambda e: (x for x in [e])], ids=["coroutine", "generator"])
def test_a_call_that_returns_what_has_done_nothing_ends_the_worker_and_takes_nothing(
    channel: Channel, dead: Channel, lazy: Callable[[Any], Any]
) -> None:
    """A lambda does not show that it will."""
    worker = made(channel, lambda event: lazy(event), dead)
    with pytest.raises(WorkerError, match=r"returned a (coroutine|generator), so it has done nothing"):
        worker.run(until_empty=True)
    assert (lag(channel), letters(dead)) == (10, [])


def test_a_worker_of_a_channel_that_was_closed_says_that_it_is_closed(channel: Channel) -> None:
    worker = made(channel, lambda _: None)
    channel.close()
    with pytest.raises(ChannelClosedError, match=r"the channel .* is closed; open it again"):
        worker.run(until_empty=True)


def test_a_worker_that_was_created_before_a_fork_runs_in_the_child(channel: Channel) -> None:
    worker = made(channel, lambda _: None)
    child = os.fork()
    if child == 0:
        try:
            worker.run(until_empty=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert channel.stats().groups["g"].lag == 0


def test_the_channels_stats_show_its_workers(channel: Channel) -> None:
    assert channel.stats().workers == ()
    worker = made(channel, lambda _: None)
    worker = channel.worker("g", lambda _: None)
    assert [w.state for w in channel.stats().workers] == ["new"] and channel.stats().workers[0].is_healthy
    worker.run(until_empty=True)
    assert channel.stats().workers == (worker.stats(),)


def test_a_worker_that_cannot_own_its_group_says_so_and_has_failed(
    channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "Consumer", partial(Consumer, owner_timeout_seconds=0.0))
    consumer = channel.consumer("g")
    with Channel(tmp_path / "c") as another:
        worker = made(another, lambda _: None)
        with pytest.raises(GroupOwnedError):
            worker.run()
    assert worker.stats().state == "failed" and consumer.position() == 0


def test_a_forked_child_leaves_the_worker_to_its_parent(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    left: list[Consumer] = []
    monkeypatch.setattr(Consumer, "leave", lambda consumer: left.append(consumer))

    def work(event: Event) -> None:
        if not seen:
            child = os.fork()
            if not child:
                os._exit(int(worker._consumer not in left or bool(channel.stats().workers)))
            assert os.waitpid(child, 0)[1] == 0
        seen.append(event.body)

    worker = channel.worker("g", work)
    worker.run(until_empty=True)
    assert seen == [b"%d" % i for i in range(10)] and lag(channel) == 0


# ── wherever the channels are ───────────────────────────────────────────────────────────────────


def worked_and_replayed(channel: Channel, dead: Channel) -> None:
    """Prove that a bad event becomes a dead letter, and is put back and done."""
    put(channel, *(b"%d" % i for i in range(10)))
    worker = made(channel, fails_on_three, dead, batch_size=4, threads=2)
    worker.run(until_empty=True)
    assert (worker.stats().done_events, worker.stats().dead_letter_events) == (9, 1)
    assert dead_letters.replay(dead, channel) == 1 and dead_letters.replay(dead, channel) == 0
    seen: list[bytes] = []
    made(channel, lambda event: seen.append(event.body)).run(until_empty=True)
    assert seen == [b"3"] and lag(channel) == 0


def test_it_works_the_same_in_an_object_store() -> None:
    with (
        stores_in_memory(),
        Channel("s3://bucket/orders", commit_interval=0) as channel,
        Channel("s3://bucket/dead", commit_interval=0) as dead,
    ):
        worked_and_replayed(channel, dead)


def test_it_works_the_same_with_a_memory_tier(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "m", memory_capacity=6, overflow_timeout=0, minimum_required_space=0) as channel,
        Channel(tmp_path / "dead", memory_capacity=100, minimum_required_space=0) as dead,
    ):
        worked_and_replayed(channel, dead)


def test_it_works_the_same_where_kept_events_stay(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "k", retention_ms=3_600_000, minimum_required_space=0) as channel,
        Channel(tmp_path / "dead", minimum_required_space=0) as dead,
    ):
        worked_and_replayed(channel, dead)


def test_an_idle_worker_looks_at_a_store_no_more_often_than_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    with stores_in_memory(), Channel("s3://bucket/orders", commit_interval=0) as channel:
        put(channel, b"a")
        worker = made(channel, lambda _: None, threads=8)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert wait_until(lambda: worker.stats().done_events == 1)
        assert wait_until(lambda: any(channel.engine().log.store.list(WORKERS)))  # type: ignore[attr-defined]
        assert wait_until(lambda: all(t.name != "spillable worker status" for t in threading.enumerate()))
        began = time.monotonic()
        replace_in(monkeypatch, reporting, "time", monotonic=lambda: began)  # it says no more
        before = channel.stats().store
        threading.Event().wait(1.0)
        after, seconds = channel.stats().store, time.monotonic() - began
        worker.stop()
        thread.join()
        assert before is not None and after is not None
        assert after.writes == before.writes and after.reads - before.reads < 30 * seconds


def test_an_interrupt_as_a_worker_ends_leaves_the_group_to_the_next_one(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # of interrupts while something is freed
    for number in count(1, 3):
        worker = channel.worker("g", lambda event: None)
        interrupts = Interrupts(number, "/channel/consumer.py", "/engine/local_owners.py", "/storage/lock.py")
        close = worker._close
        monkeypatch.setattr(worker, "_close", lambda i=interrupts, close=close: i.run(close))
        worker.run(until_empty=True)
        channel.another().consumer("g", owner_timeout_seconds=0).close()
        if not interrupts.hit:
            break
    assert number > 20


def test_an_error_whose_text_raises_makes_a_dead_letter_like_any_other(channel: Channel, dead: Channel) -> None:
    def fail(event: Event) -> None:
        if event.body == b"3":
            raise Speechless

    worker = made(channel, fail, dead)
    worker.run(until_empty=True)
    (letter,) = letters(dead)
    assert letter["headers"]["dead_letter_error_code"] == "Speechless"
    assert letter["headers"]["dead_letter_error_message"] == "(its text can't be told: SystemExit)"
    assert worker.stats().last_error == "Speechless: (its text can't be told: SystemExit)" and lag(channel) == 0


def test_an_error_whose_text_raises_ends_a_worker_without_dead_letters_with_its_name(channel: Channel) -> None:
    def fail(event: Event) -> None:
        raise Speechless

    with pytest.raises(WorkerFailedError, match="Speechless"):
        made(channel, fail).run()
