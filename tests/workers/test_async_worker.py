from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, WorkerTimeoutError
from spillable_stream.workers.async_worker import CoroutineCall
from tests.support.events import peek, put


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    channel = Channel(tmp_path / "c", minimum_required_space=0)
    put(channel, *(b"%d" % i for i in range(10)))
    return channel


def test_a_coroutine_function_gets_every_event_once_several_at_a_time(channel: Channel) -> None:
    seen, at_once, most = [], 0, 0

    async def work(event: Event) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        while most < 3:
            await asyncio.sleep(0)
        seen.append(event.body)
        at_once -= 1

    worker = channel.async_worker("g", work, threads=3)
    asyncio.run(worker.run(until_empty=True))
    assert sorted(seen) == [b"%d" % i for i in range(10)] and most == 3
    assert worker.stats().done_events == 10
    assert channel.stats().groups["g"].lag == 0


def test_an_event_that_keeps_failing_becomes_a_dead_letter(channel: Channel, tmp_path: Path) -> None:
    async def work(event: Event) -> None:
        if event.body == b"3":
            raise ValueError("three")

    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        worker = channel.async_worker("g", work, max_attempts=2, backoff=0, dead_letter=dead)
        asyncio.run(worker.run(until_empty=True))
        assert peek(dead) == [b"3"]


def test_a_call_that_takes_too_long_is_cancelled_and_counts_as_failed(channel: Channel, tmp_path: Path) -> None:
    cancelled = []

    async def work(event: Event) -> None:
        if event.body == b"3":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(event.body)
                raise

    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        worker = channel.async_worker("g", work, max_attempts=2, backoff=0, timeout=0.02, dead_letter=dead)
        asyncio.run(worker.run(until_empty=True))
        (letter,) = [e for batch in dead.read() for e in batch.to_pylist()]
    assert dict(letter["headers"])["dead_letter_error_code"] == WorkerTimeoutError.__name__
    assert cancelled == [b"3"] * 2 and worker.stats().left_calls == 0


def test_a_time_out_inside_of_the_function_is_an_error_like_any_other(channel: Channel, tmp_path: Path) -> None:
    async def work(event: Event) -> None:
        raise TimeoutError("of a socket")

    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        worker = channel.async_worker("g", work, max_attempts=1, timeout=60, dead_letter=dead)
        asyncio.run(worker.run(until_empty=True))
        letters = [e for batch in dead.read() for e in batch.to_pylist()]
    assert {dict(x["headers"])["dead_letter_error_message"] for x in letters} == {"of a socket"}


def test_cancelling_the_run_gives_back_what_is_under_way(channel: Channel) -> None:
    async def main() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def work(event: Event) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        worker = channel.async_worker("g", work)
        running = asyncio.create_task(worker.run(stop_timeout_seconds=0.0))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(cancelled.wait(), 30)
        assert worker.stats().state == "ended"

    asyncio.run(main())
    assert channel.stats().groups["g"].lag == 10


def test_a_call_that_a_thread_begins_after_the_cancel_is_not_made() -> None:
    made: list[Event] = []

    async def work(event: Event) -> None:
        made.append(event)

    async def main() -> None:
        call = CoroutineCall(work, None)
        call.begin()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.to_thread(call, Event(b"late"))
        call.begin()
        await asyncio.to_thread(call, Event(b"again"))

    asyncio.run(main())
    assert [event.body for event in made] == [b"again"]


def test_sigterm_lets_the_calls_under_way_end(channel: Channel) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        async def work(event: Event) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)

        worker = channel.async_worker("g", work)
        await worker.run()
        assert worker.stats().done_events >= 1

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) == before
    assert channel.stats().groups["g"].lag < 10
