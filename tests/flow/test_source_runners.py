"""Sources are asked again when Flume would ask them, and end when they are told to."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import ChannelFullError
from spillable_stream.flow import source_runners
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.source_runners import EventRunner, PolledRunner, source_runner
from spillable_stream.flow.sources.base import (
    BatchProcessor,
    EventSource,
    PolledSource,
    SourceBase,
    Status,
)
from spillable_stream.flow.sources.event_columns import events_of
from spillable_stream.flow.sources.held import put_held
from spillable_stream.flow.sources.spooldir import SpoolDir
from spillable_stream.flow.sources.taildir import TailDir
from spillable_stream.flow.supervisor import Supervisor
from tests.support.events import take
from tests.support.flow_processors import KeptBatches
from tests.support.no_threads import no_threads
from tests.support.told_clock import told_clock
from tests.support.waiting import wait_until


class Told(PolledSource):
    """Does what it is told, one thing a round."""

    def __init__(self, *rounds: Status | Exception | SystemExit) -> None:
        super().__init__(backoff_sleep_increment=1000, max_backoff_sleep=5000)
        self.rounds = list(rounds)
        self.calls: list[str] = []

    def open(self, processor: BatchProcessor) -> None:
        self.calls.append("open")

    def poll(self, processor: BatchProcessor) -> Status:
        found = self.rounds.pop(0) if self.rounds else Status.BACKOFF
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        self.calls.append("close")


B, R = Status.BACKOFF, Status.READY


def test_the_counters_of_a_source_that_cannot_be_closed_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ValueError("a fault of the user's")

    source = Told()
    monkeypatch.setattr(source, "close", refuse)
    runner = PolledRunner(source, KeptBatches(), "a1.r1")
    runner.start()
    assert runner.stop(60) and runner.trouble == "ValueError: a fault of the user's"
    assert int(source.counters.flume_counters()["StopTime"]) > 0


@pytest.mark.parametrize(
    ("rounds", "waits"),
    [
        ([B] * 7, [1, 2, 3, 4, 5, 5, 5]),
        ([B, B, R, B], [1, 2, 0, 1]),
        ([B, RuntimeError("x"), B], [1, 5, 2]),
        ([ChannelFullError("x")] * 7 + [R, ChannelFullError("x")], [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4, 0, 0.1]),
    ],
)
def test_a_polled_source_waits_as_in_flume(rounds: list[Status | Exception], waits: list[float]) -> None:
    runner = PolledRunner(Told(*rounds), KeptBatches(), "a1.r1")
    assert [runner.round() for _ in rounds] == pytest.approx(waits)


@pytest.mark.parametrize(
    ("source", "waits"),
    [
        (TailDir({"g": "/logs/.*"}), [1, 2, 4, 5, 5]),
        (TailDir({"g": "/logs/.*"}, max_backoff_sleep=10), [0.01, 0.01]),
        (SpoolDir("/in"), [0.25, 0.5, 1, 2, 4, 4]),
        (SpoolDir("/in", max_backoff=600), [0.25, 0.5, 0.6]),
    ],
)
def test_a_channel_that_refuses_is_tried_again_in_flumes_time(
    source: PolledSource, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[Exception | Status] = [*[ChannelFullError("x")] * len(waits), R, ChannelFullError("x")]
    monkeypatch.setattr(source, "poll", Told(*rounds).poll)
    runner = PolledRunner(source, KeptBatches(), "a1.r1")
    assert [runner.round() for _ in rounds] == pytest.approx([*waits, 0, waits[0]])


def test_a_spool_directory_without_files_is_listed_again_after_the_poll_delay() -> None:
    runner = PolledRunner(SpoolDir("/none", poll_delay=300), KeptBatches(), "a1.r1")
    assert [runner.round() for _ in range(3)] == pytest.approx([0.3] * 3)


def test_a_refusal_is_trouble_until_a_round_goes_well(caplog: pytest.LogCaptureFixture) -> None:
    runner = PolledRunner(Told(ChannelFullError("full"), ChannelFullError("full"), R), KeptBatches(), "a1.r1")
    runner.round()
    runner.round()
    assert runner.trouble == "ChannelFullError: full"
    assert runner.source.counters.pauses.flume_counters()["Paused"] == 1
    assert caplog.text.count("a batch waits") == 1
    runner.round()
    assert runner.trouble == ""
    assert runner.source.counters.pauses.flume_counters()["Paused"] == 0


def test_an_error_of_a_source_that_fails_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    runner = PolledRunner(Told(ValueError("x"), ValueError("x"), R, ValueError("x")), KeptBatches(), "a1.r1")
    for logged in (1, 1, 1, 2):
        runner.round()
        assert sum(r.levelname == "ERROR" for r in caplog.records) == logged
        assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_a_source_rests_where_there_is_nothing_and_not_where_a_channel_refuses() -> None:
    class Resting(Told):
        def rest(self, seconds: float, stopping: threading.Event) -> None:
            self.calls.append(f"rest {seconds:g}")
            if self.calls[-1] == "rest 2":
                stopping.set()

    source = Resting(ChannelFullError("full"), R, B, R, B, B)
    source.first_refused_wait = 0
    runner = PolledRunner(source, KeptBatches(), "a1.r1")
    runner.start()
    wait_until(lambda: not runner.alive)
    assert source.calls == ["open", "rest 1", "rest 1", "rest 2", "close"]


def test_a_polled_source_is_opened_polled_and_closed_in_its_thread() -> None:
    source = Told(R)
    runner = PolledRunner(source, KeptBatches(), "a1.r1")
    assert not runner.alive
    runner.start()
    wait_until(lambda: not source.rounds)
    assert runner.alive
    assert runner.stop(30)
    assert not runner.alive
    assert source.calls == ["open", "close"]
    assert source.counters.stop_time > 0


class Waits(EventSource):
    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.is_alive = False

    def start(self, processor: BatchProcessor) -> None:
        self.is_alive = True

    def stop(self) -> None:
        self.release.wait(30)
        self.is_alive = False

    @property
    def alive(self) -> bool:
        return self.is_alive


class Putting(Waits):
    """Puts one batch in a thread of its own."""

    def start(self, processor: BatchProcessor) -> None:
        super().start(processor)
        batch = events_of([b"x"], [{}])
        self.putting = threading.Thread(target=put_held, args=(self, processor, batch, self.release), daemon=True)
        self.putting.start()


def test_a_refusal_is_trouble_of_a_source_with_threads_of_its_own_until_its_batch_is_stored(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", overflow_capacity=1, keep_alive=0, minimum_required_space=0) as channel:
        with channel.put_transaction() as transaction:
            transaction.put(Event(b"before"))
        supervisor = Supervisor()
        source = Putting()
        supervisor.start(EventRunner(source, ChannelProcessor({"c": channel}), "a1.r1"))
        wait_until(lambda: bool(supervisor.troubles()))
        assert "of overflow_capacity 1 event" in supervisor.troubles()["a1.r1"]
        assert not supervisor.has_failed()
        assert take(channel) == [b"before"]
        source.putting.join(30)
        assert supervisor.troubles() == {}


def test_a_stop_that_takes_too_long_says_so() -> None:
    source = Waits()
    runner = EventRunner(source, KeptBatches(), "a1.r1")
    runner.start()
    assert runner.alive
    assert not runner.stop(0.01)
    source.release.set()
    assert runner.stop(30)
    assert not runner.alive


@pytest.mark.parametrize("refused", [1, 3])
def test_a_stop_for_which_there_is_no_thread_is_tried_again_and_no_start_comes_meanwhile(
    caplog: pytest.LogCaptureFixture, refused: int
) -> None:
    source = Waits()
    source.release.set()
    runner = EventRunner(source, KeptBatches(), "a1.r1")
    runner.start()
    with no_threads(refused, "a1.r1-stop"):
        runner.begin_stop()
        source.is_alive = False
        runner.start()
        assert not runner.alive
        assert runner.stop(60)
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("a1.r1: it can't be stopped yet: the thread 'a1.r1-stop' can't start")


def test_a_source_for_whose_stop_there_is_no_thread_keeps_no_other_one_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, source, polled = Supervisor(), Waits(), PolledRunner(Told(), KeptBatches(), "a1.r2")
    runner = EventRunner(source, KeptBatches(), "a1.r1")
    supervisor.start(runner, polled)
    with no_threads(named="a1.r1-stop"):
        told_clock(monkeypatch, source_runners, lambda: not polled.alive)
        assert supervisor.stop([runner, polled], 60) == [runner]
        assert not polled.alive and supervisor.late() == [runner]
    assert "a1.r1 did not end within 60 s" in caplog.text
    source.release.set()
    wait_until(lambda: supervisor.late() == [])


class HangsAtStart(Waits):
    """Hangs as it is started."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def start(self, processor: BatchProcessor) -> None:
        self.calls.append("start")
        self.release.wait(60)
        super().start(processor)

    def stop(self) -> None:
        self.calls.append("stop")
        super().stop()


class HangsAtOpen(Told):
    """Hangs as it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def open(self, processor: BatchProcessor) -> None:
        super().open(processor)
        self.release.wait(60)

    def poll(self, processor: BatchProcessor) -> Status:
        self.calls.append("poll")
        return B


@pytest.mark.parametrize(("source", "calls"), [(HangsAtStart(), ["start", "stop"]), (HangsAtOpen(), ["open", "close"])])
def test_a_source_that_is_stopped_while_its_start_hangs_ends_when_that_comes_back(
    source: HangsAtStart | HangsAtOpen, calls: list[str]
) -> None:
    runner = source_runner(source, KeptBatches(), "a1.r1")
    starting = threading.Thread(target=runner.start, daemon=True)
    starting.start()
    wait_until(lambda: bool(source.calls))
    runner.begin_stop()
    assert not runner.stop(0.0)
    source.release.set()
    assert runner.stop(60)
    assert source.calls == calls and not runner.alive
    runner.start()  # as late as that
    assert source.calls == calls and not runner.alive


def test_only_sources_can_be_run() -> None:
    assert isinstance(source_runner(Told(), KeptBatches(), "x"), PolledRunner)
    assert isinstance(source_runner(Waits(), KeptBatches(), "x"), EventRunner)
    with pytest.raises(TypeError, match="neither"):
        source_runner(SourceBase(), KeptBatches(), "x")


def test_a_source_or_its_interceptor_that_exits_has_failed_and_is_asked_again_in_its_thread() -> None:
    runner = PolledRunner(Told(SystemExit("a mistake"), R), KeptBatches(), "a1.r1")
    assert runner.round() == 5
    assert runner.trouble == "SystemExit: a mistake"
    assert runner.round() == 0 and runner.trouble == ""
