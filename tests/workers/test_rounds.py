"""What each thread of a worker does, in the thread of the test."""

from __future__ import annotations

from spillable_stream import Channel, Event
from spillable_stream.workers.rounds import Rounds
from spillable_stream.workers.worker import Worker
from spillable_stream.workers.worker_threads import WorkerThread
from tests.support.workers import lag, made


def begun(worker: Worker) -> Rounds:
    """Return the rounds of a worker that has its group, and no thread."""
    worker._shared.until_empty = True
    return worker._own()


def test_a_thread_gets_work_until_nothing_is_left(channel: Channel) -> None:
    seen = list[bytes]()

    def work(event: Event) -> None:
        seen.append(event.body)
        if len(seen) == 4:
            raise ValueError("once")

    worker = made(channel, work)
    begun(worker).run(WorkerThread())
    worker._close()
    assert sorted(seen) == sorted([b"%d" % i for i in range(10)] + [b"3"]) and lag(channel) == 0


def test_a_thread_that_is_left_behind_gets_no_work_and_its_error_ends_nothing(channel: Channel) -> None:
    thread = WorkerThread()

    def work(event: Event) -> None:
        thread.is_left = True
        raise SystemExit

    worker = made(channel, work)
    rounds = begun(worker)
    rounds.run(thread)
    assert worker._shared.error is None and not worker._shared.is_stopping
    rounds.run(thread)
    worker._close()
    assert lag(channel) == 10


def test_a_function_that_exits_ends_the_worker(channel: Channel) -> None:
    def work(event: Event) -> None:
        raise SystemExit

    worker = made(channel, work)
    begun(worker).run(WorkerThread())
    worker._close()
    assert isinstance(worker._shared.error, SystemExit) and worker.stats().state == "failed"
