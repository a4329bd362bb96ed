"""How workers end: stops, signals, interrupts, forks, channels that are closed, and calls that do not return."""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    Drop,
    Event,
    GroupOwnedError,
    LockTimeoutError,
    StorageError,
    WorkerError,
    WorkerTimeoutError,
)
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine import active_calls
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.local.local_owners import LocalOwnership
from spillable_stream.engine.local.local_worker_statuses import LocalStatusWriter
from spillable_stream.engine.requests import Request
from spillable_stream.state.ranges import Range
from spillable_stream.workers import worker as worker_module
from tests.lab.children import wait_until
from tests.support.events import put, take
from tests.support.no_threads import no_threads
from tests.support.workers import Clock, fails_on_three, lag, letters, made


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


def test_a_worker_that_can_have_no_thread_says_so_and_frees_the_group(channel: Channel) -> None:
    worker = made(channel, print)
    with no_threads(), pytest.raises(StorageError, match=r"'worker-g' can't start .*raise this user's limit"):
        worker.run(until_empty=True)
    assert worker.stats().state == "failed" and take(channel, 1, "g") == [b"0"]


def test_the_threads_that_a_worker_can_have_do_the_work_of_all(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[bytes]()

    def work(event: Event) -> None:
        is_refused.wait(60)
        seen.append(event.body)
        if len(seen) == 10:  # the others may begin now
            may_begin.set()

    is_refused, may_begin = threading.Event(), threading.Event()
    begun, start = list[threading.Thread](), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "worker-g":
            if begun and not may_begin.is_set():
                is_refused.set()
                raise RuntimeError("can't start new thread")
            begun.append(thread)
        start(thread)

    worker = made(channel, work, threads=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        running = threading.Thread(target=worker.run, name="running")
        start(running)
        assert wait_until(lambda: len(begun) == 3)
        worker.stop()
        running.join()
    assert seen == [b"%d" % i for i in range(10)] and worker.stats().done_events == 10
    assert caplog.text.count("does without 2 threads for now: the thread 'worker-g' can't start") == 1


def test_a_worker_whose_only_thread_is_left_behind_ends_where_it_can_have_no_other(channel: Channel) -> None:
    clock, forever, until = Clock(), threading.Event(), ExitStack()

    def work(event: Event) -> None:
        until.enter_context(no_threads(named="worker-g"))
        clock.now += 1
        forever.wait()

    worker = made(channel, work, clock=clock, timeout=1)
    with until, pytest.raises(StorageError, match="can't start"):
        worker.run(until_empty=True)
    assert take(channel, 1, "g") == [b"0"]
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


def test_a_worker_that_was_closed_before_its_run_says_so(channel: Channel) -> None:
    worker = made(channel, print)
    worker.close()
    with pytest.raises(WorkerError, match="or was closed; create another one"):
        worker.run()


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


def test_calls_that_outlast_the_stop_and_can_be_cancelled_are_so_while_the_group_is_owned(channel: Channel) -> None:
    is_cancelled = threading.Event()

    def cancel() -> None:
        with pytest.raises(GroupOwnedError):
            channel.another().consumer("g", owner_timeout_seconds=0)
        is_cancelled.set()

    def work(event: Event) -> None:
        worker.stop()
        is_cancelled.wait(60)

    worker = made(channel, work)
    worker.begun(until_empty=False, stop_timeout_seconds=0.01, cancel=cancel)()
    assert (worker.stats().done_events, worker.stats().left_calls) == (1, 0) and lag(channel) == 9


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


def test_a_stop_waits_for_no_commit_whose_disk_hangs_forever(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a commit can't be left behind: what it takes may count. The error names it."""
    for module in (active_calls, worker_module):
        monkeypatch.setattr(module, "LONG_SECONDS", 0.01)
    channel.engine().lock_timeout_seconds = 0.01
    hangs, may_end, commit = threading.Event(), threading.Event(), channel.engine().commit

    def hanging(request: Request) -> CommitResult:
        if threading.current_thread().name == "worker-g":
            hangs.set()
            may_end.wait(60)
        return commit(request)

    monkeypatch.setattr(channel.engine(), "commit", hanging)
    worker, errors = made(channel, print), list[BaseException]()

    def run() -> None:
        try:
            with worker:
                worker.run(stop_timeout_seconds=0.01)
        except BaseException as e:
            errors.append(e)

    running = threading.Thread(target=run)
    running.start()
    assert hangs.wait(60)
    worker.stop()
    running.join(5)
    is_stuck = running.is_alive()
    may_end.set()
    running.join(60)
    assert not is_stuck and [type(e) for e in errors] == [LockTimeoutError]
    assert "for a commit of another thread" in str(errors[0])
    assert errors[0].__context__ is None, "the end of the block has not waited again"
    assert wait_until(lambda: worker.stats().done_events)
    worker.close()
    assert take(channel, 1, "g") == [b"1"], "the group is free"


@pytest.mark.parametrize("write", [(LocalOwnership, "leave_note"), (LocalStatusWriter, "close")])
def test_a_stop_waits_for_no_last_word_whose_disk_hangs_forever(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, write: tuple[type, str]
) -> None:
    for module in (active_calls, worker_module):
        monkeypatch.setattr(module, "LONG_SECONDS", 0.01)
    channel.engine().lock_timeout_seconds = 0.01
    may_end, end = threading.Event(), getattr(*write)
    monkeypatch.setattr(*write, lambda *given: may_end.wait(60) and end(*given))
    worker, errors = made(channel, lambda _: None), list[BaseException]()

    def run() -> None:
        try:
            with worker:
                worker.run(until_empty=True)
        except BaseException as e:
            errors.append(e)

    running = threading.Thread(target=run)
    running.start()
    running.join(5)
    is_stuck = running.is_alive()
    with pytest.raises(GroupOwnedError):
        channel.another().consumer("g", owner_timeout_seconds=0)
    may_end.set()
    running.join(60)
    assert not is_stuck and [type(e) for e in errors] == [LockTimeoutError]
    assert "to write down how it ended" in str(errors[0])
    assert errors[0].__context__ is None, "the end of the block has not waited again"
    assert worker._last_words is not None and worker._last_words.ends_within(60)
    worker.close()
    channel.another().consumer("g", owner_timeout_seconds=0).close()
    with Channel(channel.path, create=False, readonly=True) as other:
        (seen,) = other.stats().workers
    assert (seen.state, seen.done_events) == ("ended", 10)


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


def test_whoever_wants_the_group_of_a_worker_of_this_process_is_told_to_stop_that(channel: Channel) -> None:
    """It is of the same handle: to close that, or to take with it, would not help."""
    said: list[str] = []

    def work(event: Event) -> None:
        for call in (lambda: channel.seek("g", "latest"), lambda: channel.consumer("g", owner_timeout_seconds=0)):
            with pytest.raises(GroupOwnedError) as e:
                call()
            said.append(str(e.value))
        worker.stop()

    worker = made(channel, work)
    worker.run()
    here = f"a worker, which is this process: the thread {threading.current_thread().name!r} runs it. Stop it first"
    assert len(said) == 2 and all(text.endswith(here) for text in said), said


def test_a_channel_that_is_closed_under_a_worker_ends_it(channel: Channel) -> None:
    worker = made(channel, lambda _: channel.close())
    with pytest.raises(ChannelClosedError):
        worker.run()
    assert worker.stats().state == "failed"


async def _ship(_: object) -> None: ...


async def _yield(event: object) -> AsyncIterator[object]:
    yield event


@pytest.mark.parametrize("lazy", [_ship, lambda e: (x for x in [e]), _yield], ids=["coroutine", "generator", "async"])
def test_a_call_that_returns_what_has_done_nothing_ends_the_worker_and_takes_nothing(
    channel: Channel, dead: Channel, lazy: Callable[[Any], Any]
) -> None:
    """A lambda does not show that it will."""
    worker = made(channel, lambda event: lazy(event), dead)
    with pytest.raises(WorkerError, match=r"returned a (coroutine|generator|async_generator), so it has done nothing"):
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
