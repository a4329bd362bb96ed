from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spillable_stream import Channel, Event, Retry, StorageError, WorkerError, WorkerTimeoutError
from spillable_stream.workers.async_worker import CoroutineCall
from tests.support.events import peek, put
from tests.support.fake_targets import PATIENCE_SECONDS
from tests.support.no_threads import no_threads
from tests.support.workers import letters


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


def test_a_call_that_outlasts_the_stop_is_cancelled_and_not_left_behind(
    channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def work(event: Event) -> None:
            worker.stop()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        worker = channel.async_worker("g", work)
        await worker.run(stop_timeout_seconds=0.01)
        await asyncio.wait_for(cancelled.wait(), 30)

    asyncio.run(main())
    assert channel.stats().groups["g"].lag == 10 and "did not end within" not in caplog.text


def test_the_group_is_owned_while_calls_that_outlast_the_stop_clean_up(channel: Channel) -> None:
    async def main() -> None:
        async def work(event: Event) -> None:
            worker.stop()
            try:
                await asyncio.Event().wait()
            finally:
                states.append(await changed(lambda: worker.stats().state, 0.2))

        states = list[str]()
        worker = channel.async_worker("g", work)
        await worker.run(stop_timeout_seconds=0.01)
        assert states == ["stopping"]

    asyncio.run(main())
    assert channel.stats().groups["g"].lag == 10


async def changed(look: Callable[[], str], seconds: float) -> str:
    """Return what changes within a time, or what has not."""
    before, end = look(), time.monotonic() + seconds
    while (found := look()) == before and time.monotonic() < end:
        await asyncio.sleep(0.001)
    return found


def test_a_call_that_returns_though_it_is_cancelled_is_done(channel: Channel) -> None:
    async def main() -> None:
        async def work(event: Event) -> None:
            worker.stop()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        worker = channel.async_worker("g", work)
        await worker.run(stop_timeout_seconds=0.01)
        assert worker.stats().done_events == 1

    asyncio.run(main())
    assert channel.stats().groups["g"].lag == 9


@pytest.mark.parametrize("end", [CoroutineCall.cancel, CoroutineCall.leave])
def test_a_call_that_the_loop_has_yet_to_begin_can_be_cancelled(end: Callable[[CoroutineCall], None]) -> None:
    async def work(event: Event) -> None:
        raise AssertionError("it was cancelled")

    async def main() -> None:
        call = CoroutineCall(work, None)
        call.begin()
        calling = asyncio.ensure_future(asyncio.to_thread(call, Event(b"late")))
        await asyncio.sleep(0)
        while not call._waited_for:  # the loop begins nothing meanwhile
            time.sleep(0.001)
        end(call)
        with pytest.raises(Retry):
            await calling

    asyncio.run(main())


def test_a_call_that_a_thread_begins_after_the_cancel_is_not_made() -> None:
    made: list[Event] = []

    async def work(event: Event) -> None:
        made.append(event)

    async def main() -> None:
        call = CoroutineCall(work, None)
        call.begin()
        call.cancel()
        with pytest.raises(Retry):
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


def test_sigterm_ends_all_workers_of_the_loop_in_whatever_order_they_end(channel: Channel, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main(other: Channel) -> None:
        async def work(event: Event) -> None:
            pass

        first, second = channel.async_worker("g", work), other.async_worker("g", work)
        third = channel.async_worker("short", work)  # which may come when the others have taken all that there is
        running = [asyncio.ensure_future(worker.run()) for worker in (first, second)]
        await third.run(until_empty=True)
        while (first.stats().done_events, second.stats().done_events) != (10, 1):
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*running), PATIENCE_SECONDS)

    channel.consumer("g").close()  # a group gets what is there when it is created: the short one may take it before
    with Channel(tmp_path / "other", minimum_required_space=0) as other:
        put(other, b"x")
        asyncio.run(main(other))
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_worker_takes_no_thread_of_the_executor_that_its_function_uses(channel: Channel) -> None:
    async def work(event: Event) -> None:
        await asyncio.to_thread(lambda: None)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        worker = channel.async_worker("g", work)
        running = asyncio.ensure_future(worker.run(until_empty=True, stop_timeout_seconds=0))
        await asyncio.wait([running], timeout=PATIENCE_SECONDS)
        worker.stop()
        await running
        assert worker.stats().done_events == 10

    asyncio.run(main())


def test_a_second_run_is_refused_and_disturbs_no_call_of_the_first(channel: Channel) -> None:
    async def main() -> None:
        again = asyncio.Event()

        async def work(event: Event) -> None:
            await again.wait()

        worker = channel.async_worker("g", work, max_attempts=1)
        running = asyncio.ensure_future(worker.run(until_empty=True))
        while not worker.stats().busy_threads:
            await asyncio.sleep(0.001)
        with pytest.raises(WorkerError, match="runs once"):
            await worker.run()
        again.set()
        await running
        assert (worker.stats().done_events, worker.stats().failed_calls) == (10, 0)

    asyncio.run(main())


def test_a_call_that_the_end_of_the_loop_cancels_is_not_an_attempt(channel: Channel, tmp_path: Path) -> None:
    async def main(dead: Channel) -> None:
        async def work(event: Event) -> None:
            began.set()
            await asyncio.Event().wait()

        began = asyncio.Event()
        worker = channel.async_worker("g", work, max_attempts=1, dead_letter=dead)
        tasks.append(asyncio.ensure_future(worker.run()))
        await began.wait()

    tasks: list[asyncio.Future[None]] = []
    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        asyncio.run(main(dead))
        assert tasks[0].cancelled() and letters(dead) == []
    assert channel.stats().groups["g"].lag == 10


def test_a_run_that_is_cancelled_twice_cancels_its_calls_and_they_are_not_attempts(
    channel: Channel, tmp_path: Path
) -> None:
    async def main(dead: Channel) -> None:
        began = asyncio.Event()

        async def work(event: Event) -> None:
            began.set()
            await asyncio.Event().wait()

        worker = channel.async_worker("g", work, max_attempts=1, dead_letter=dead)
        running = asyncio.ensure_future(worker.run())
        await began.wait()
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while worker.stats().state != "ended":
            await asyncio.sleep(0.001)

    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        asyncio.run(main(dead))
        assert letters(dead) == []
    assert channel.stats().groups["g"].lag == 10


def test_a_cancellation_that_the_function_lets_out_by_itself_is_an_attempt(channel: Channel, tmp_path: Path) -> None:
    async def work(event: Event) -> None:
        other = asyncio.get_running_loop().create_future()
        other.cancel("of another task")
        await other

    with Channel(tmp_path / "dead", minimum_required_space=0) as dead:
        worker = channel.async_worker("g", work, max_attempts=2, backoff=0, dead_letter=dead)
        asyncio.run(worker.run(until_empty=True))
        assert {
            (x["headers"]["dead_letter_error_code"], x["headers"]["dead_letter_attempts"]) for x in letters(dead)
        } == {("CancelledError", "2")}


def test_a_call_to_a_loop_that_is_closed_is_not_an_attempt() -> None:
    async def work(event: Event) -> None:
        pass

    loop = asyncio.new_event_loop()
    call = CoroutineCall(work, None)

    async def begin() -> None:
        call.begin()

    loop.run_until_complete(begin())
    loop.close()
    with pytest.raises(Retry):
        call(Event(b"late"))


def test_a_worker_for_which_there_is_no_thread_has_not_run_and_can_run_later(channel: Channel) -> None:
    seen = list[bytes]()

    async def work(event: Event) -> None:
        seen.append(event.body)

    worker = channel.async_worker("g", work)
    with no_threads(), pytest.raises(StorageError, match="'worker-g-async' can't start"):
        asyncio.run(worker.run(until_empty=True))
    assert worker.stats().state == "new"
    asyncio.run(worker.run(until_empty=True))
    assert len(seen) == 10
