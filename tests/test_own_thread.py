from __future__ import annotations

import asyncio
import threading

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.own_thread import NoThreadError, in_own_thread, start_thread
from tests.support.no_threads import no_threads


def test_a_call_runs_in_a_thread_of_its_name_and_the_loop_learns_its_end() -> None:
    names = []

    async def main() -> None:
        await in_own_thread(lambda: names.append(threading.current_thread().name), "mine")

    asyncio.run(main())
    assert names == ["mine"]


def test_what_a_call_raises_is_raised_to_whoever_waits() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await in_own_thread(fail, "mine")

    asyncio.run(main())


def test_a_call_continues_after_its_future_is_cancelled() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def call() -> None:
        may_end.wait()
        ended.set()

    async def main() -> None:
        done = in_own_thread(call, "mine")
        done.cancel()
        with pytest.raises(asyncio.CancelledError):
            await done
        may_end.set()
        while not ended.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_call_for_which_there_is_no_thread_is_not_made_and_the_error_says_what_to_do() -> None:
    made = list[int]()

    async def main() -> None:
        with no_threads(), pytest.raises(StorageError, match=r"'mine' can't start .*raise this user's limit"):
            in_own_thread(lambda: made.append(1), "mine")

    asyncio.run(main())
    assert not made


def test_what_the_handler_of_a_signal_raises_is_not_taken_for_the_lack_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise RuntimeError("of a handler")

    with no_threads(), pytest.raises(NoThreadError):
        start_thread(threading.Thread())
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(RuntimeError, match="of a handler"):
        start_thread(threading.Thread())
