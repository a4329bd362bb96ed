"""Side files that can't be read, or that contradict the log, hold nobody back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.engine import delay_plan
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.delayed_index import DelayedIndex
from tests.support.delays import clock_of, deliveries_of, put_late
from tests.support.events import put, take

Open = Callable[..., Channel]
pytestmark = pytest.mark.usefixtures("no_second_passes")


def test_a_file_that_can_t_be_read_holds_nobody_back(
    open_channel: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 1, b"a")
    file = path / "data" / "delayed-000001"
    file.write_bytes(bytes(file.stat().st_size))
    clock.pass_by(2)
    with caplog.at_level(logging.ERROR):
        put(channel, b"b")
        assert take(channel) == [b"b"]
    assert [r.message for r in caplog.records if "can't be delivered" in r.message] == [
        "delayed events can't be delivered: a frame of delayed events is damaged; see spillable verify "
        f"[{file}, offset 0]"
    ]
    with channel.take_transaction() as tx:
        assert tx.take(0.05) is None
    assert channel.stats().delayed.events == 1


def test_a_file_that_contradicts_the_log_is_left_alone(open_channel: Open, caplog: pytest.LogCaptureFixture) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 10, b"a")
    delays = channel.engine().state.delays
    delays.files[1] = delays.files[1]._replace(next_ms=clock.now_ms)
    delays.apply([], [])
    with caplog.at_level(logging.ERROR):
        assert not deliveries_of(channel).deliver()
    assert "can't be delivered" in caplog.text
    assert not deliveries_of(channel).wait_for(lambda state: state.last_id > 0, 0.05)


def test_events_that_are_due_at_once_keep_the_order_of_their_puts_over_files(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_plan, "FULL_BYTES", 1000)
    channel, bodies = open_channel(), [b"%d" % i for i in range(10)]
    clock = clock_of(channel)
    for body in bodies:
        put_late(channel, 10_000, body)
    assert len(channel.engine().state.delays.files) > 2
    clock.pass_by(10_000)
    assert take(channel) == bodies


def test_a_file_that_the_file_system_refuses_holds_no_other_back(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    clock, deliveries = clock_of(channel), deliveries_of(channel)
    put_late(channel, 10, b"a")
    put_late(channel, 10_000, b"b")
    clock.pass_by(10_001)
    opened = DelayedFiles._opened
    with monkeypatch.context() as failing:
        failing.setattr(DelayedFiles, "_opened", lambda self, of: _refuse() if of.number == 1 else opened(self, of))
        assert take(channel) == [b"b"]
        assert 0 < (deliveries._due_seconds() or 0) <= 3600
    deliveries._set_aside.clear()  # a second later
    assert take(channel) == [b"a"]


def test_a_file_with_events_of_a_schema_that_is_lost_holds_nobody_back(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 1, b"a")
    clock.pass_by(2)
    monkeypatch.setattr(channel.engine().follower, "schemas", list)
    assert deliveries_of(channel).deliver()
    assert not deliveries_of(channel).deliver()
    assert channel.stats().delayed.events == 1


def test_a_file_with_fewer_events_than_the_log_says_keeps_nobody_busy(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 1, b"a")
    clock.pass_by(2)
    monkeypatch.setattr(DelayedIndex, "due", lambda *_: [])
    assert not deliveries_of(channel).deliver()
    assert "can't be delivered" in caplog.text
    assert deliveries_of(channel)._due_seconds() is None


def test_what_fails_is_tried_again_later(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    clock, deliveries = clock_of(channel), deliveries_of(channel)
    put_late(channel, 1, b"a")
    clock.pass_by(2)
    with monkeypatch.context() as failing:
        failing.setattr(DelayedFiles, "puts", _refuse)
        put(channel, b"b")
        assert not deliveries.deliver()
    assert not deliveries.deliver()  # a moment later
    deliveries._set_aside.clear()
    assert deliveries.deliver()
    assert take(channel) == [b"b", b"a"]


def _refuse(*_: object) -> NoReturn:
    raise StorageError("the disk is not there")
