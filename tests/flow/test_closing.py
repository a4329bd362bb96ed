"""Something that hangs as it is closed holds up nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from spillable_stream import Channel, flow
from spillable_stream.flow import closing
from spillable_stream.flow.closing import channels_of, close_at_once, closes
from spillable_stream.flow.sink_runner import SinkRunner
from spillable_stream.flow.sinks.written import WrittenEvents
from spillable_stream.flow.source_runners import source_runner
from tests.support.flow_processors import KeptBatches
from tests.support.no_threads import no_threads
from tests.support.producers import Mute
from tests.support.told_clock import told_clock


def has_gone(name: str) -> bool:
    return not any(thread.name == name for thread in threading.enumerate())


def test_what_is_not_closed_in_time_is_named_and_closed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, closed = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        go_on.wait()
        closed.release()

    began = threading.Event()

    def close() -> None:
        began.set()
        closed.release()

    told_clock(monkeypatch, closing, lambda: began.is_set() and has_gone("b-close"))
    assert close_at_once({"b": close, "a": hang, "c": hang}, 60) == ["a", "c"]
    assert closed.acquire(timeout=60)
    go_on.set()
    assert closed.acquire(timeout=60) and closed.acquire(timeout=60)


def test_what_cannot_be_closed_is_logged_and_is_not_late(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise OSError(5, "Input/output error")

    assert close_at_once({"c1": fails}, 60.0) == []
    assert "c1 could not be closed: [Errno 5] Input/output error" in caplog.text


def test_what_exits_as_it_is_closed_is_logged_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its thread ended, and it counted as closed."""
    assert close_at_once({"c1": lambda: sys.exit("a mistake")}, 60.0) == []
    assert "c1 could not be closed: a mistake" in caplog.text


def test_an_error_whose_text_raises_is_logged_anyway(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise Mute

    assert not closes("c1", fails)
    assert "c1 could not be closed: (its text can't be told: ValueError)" in caplog.text


def test_the_channels_of_sources_and_sinks_are_known(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    source = source_runner(flow.Seq(), flow.ChannelProcessor({"c1": channel}), "r1")
    sink = SinkRunner([(flow.Null(), channel, WrittenEvents())], None, "k1")
    assert channels_of([source]) == channels_of([sink]) == [channel]
    assert channels_of([source_runner(flow.Seq(), KeptBatches(), "r1")]) == []


def test_where_there_is_no_thread_the_rest_is_closed_and_the_others_wait_for_one() -> None:
    closed: list[str] = []
    with no_threads(times=3, named="-close"):
        assert close_at_once({"a": lambda: closed.append("a"), "b": lambda: closed.append("b")}, 60) == []
    assert sorted(closed) == ["a", "b"]


def test_what_gets_no_thread_in_time_is_named_and_the_rest_is_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    told_clock(monkeypatch, closing, lambda: bool(closed) and has_gone("a-close"))
    with no_threads(named="b-close"):
        assert close_at_once({"a": lambda: closed.append("a"), "b": lambda: closed.append("b")}, 60) == ["b"]
    assert closed == ["a"]
    assert "b could not be closed: the thread 'b-close' can't start" in caplog.text


def test_nothing_is_closed_twice_where_the_handler_of_a_signal_raises_as_a_thread_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it raised was taken for the lack of threads, and what the thread closed was closed once more."""
    begin, closed = threading.Thread.start, list[str]()

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        thread.join()
        raise RuntimeError("of a handler")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(RuntimeError, match="of a handler"):
        close_at_once({"a": lambda: closed.append("a")}, 0.0)
    assert closed == ["a"]
