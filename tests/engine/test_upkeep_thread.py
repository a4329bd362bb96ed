"""When the thread of upkeep begins, and what is logged where it can't, or where its work fails."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spillable_stream import log_records
from spillable_stream.engine.upkeep_thread import UpkeepThread
from spillable_stream.errors import StorageError
from tests.support.no_threads import no_threads
from tests.support.object_logs import FakeTime


class Work:
    """Does nothing."""

    def period_seconds(self) -> float:
        return 3600.0

    def run_once(self) -> bool:
        return True


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    time = FakeTime()
    monkeypatch.setattr(log_records, "time", SimpleNamespace(monotonic=time.monotonic))
    return time


@pytest.fixture
def channel() -> Any:
    """What the thread asks of a channel: whether it only looks, is closed, and needs upkeep."""
    return SimpleNamespace(
        log=SimpleNamespace(path=Path("/c"), is_view=False, closed=False),
        calls=SimpleNamespace(ended=False),
        needs=True,
        work=Work(),
    )


@pytest.fixture
def thread(channel: Any) -> UpkeepThread:
    follower: Any = SimpleNamespace(state=SimpleNamespace(needs_upkeep=lambda: channel.needs))
    return UpkeepThread(channel.work, channel.log, follower, channel.calls)


def begins(thread: UpkeepThread) -> bool:
    thread.ensure()
    found = thread.is_alive()
    thread.end()
    return found


def test_it_begins_where_the_channel_needs_it_and_the_handle_may_write(channel: Any, thread: UpkeepThread) -> None:
    assert begins(thread)
    channel.log.is_view = True
    assert not begins(thread)
    channel.log.is_view, channel.needs = False, False
    assert not begins(thread)
    channel.needs, channel.calls.ended = True, True
    assert not begins(thread) and thread.is_over()
    channel.calls.ended = False
    assert begins(thread) and not thread.is_over()


def test_a_thread_that_can_not_begin_is_logged_once_a_minute_and_tried_again(
    thread: UpkeepThread, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    with no_threads() as refused:
        for expected in (1, 1, 2):
            thread.ensure()
            assert caplog.text.count("nobody looks after /c for now: ") == expected
            time.now += 31
    assert len(refused) == 3
    assert begins(thread)


def test_a_failure_is_logged_once_a_minute_or_each_time_and_not_by_a_closed_handle(
    channel: Any, thread: UpkeepThread, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for expected in (1, 1, 2):
            thread.report(StorageError("no disk"))
            assert caplog.text.count("stay in /c for now: no disk") == expected
            time.now += 31
        thread.report(StorageError("no right"), "until it is given", seldom=False)
        assert caplog.text.count("stay in /c until it is given: no right") == 1
        caplog.clear()
        channel.log.closed = True
        thread.report(StorageError("no disk"), seldom=False)
    assert not caplog.records and thread.is_over()
