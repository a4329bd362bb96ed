from __future__ import annotations

import sys
import threading

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.late_channel import ChannelAwayError
from spillable_stream.flow.runner import StartWaitsError
from spillable_stream.flow.supervisor import Supervisor
from tests.support.producers import Mute
from tests.support.waiting import wait_until


class Told:
    """A runner whose starts go as they are told."""

    may_start = True
    finished = False
    trouble = ""
    wait_seconds = 0.0

    def __init__(self, *starts: bool, name: str = "a1.k1") -> None:
        self.name = name
        self.components = frozenset([name])
        self.starts = list(starts)
        self.alive = False
        self.tries = 0

    def start(self) -> None:
        self.tries += 1
        if not self.starts.pop(0):
            raise StorageError("the port is in use")
        self.alive = True

    def begin_stop(self) -> None: ...

    def stop(self, timeout_seconds: float) -> bool:
        return True


def test_what_cannot_be_started_is_tried_after_3_seconds_and_then_twice_as_long() -> None:
    seconds, runner = 0.0, Told(False, False, False, False, False, False, False, True)
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    assert supervisor.troubles() == {"a1.k1": "StorageError: the port is in use"}
    at = []
    while not runner.alive:
        seconds += 1
        before = runner.tries
        supervisor.look()
        if runner.tries > before:
            at.append(seconds)
    assert at == [3, 9, 21, 45, 93, 153, 213]
    assert supervisor.troubles() == {}
    assert supervisor.has_failed()


def test_what_cannot_be_started_for_days_is_still_tried_every_minute() -> None:
    seconds, runner = 0.0, Told(*[False] * 2_000, True)
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    while not runner.alive and seconds < 2_001 * 60:
        seconds += 60
        supervisor.look()
    assert runner.alive and supervisor.troubles() == {}


def test_what_cannot_be_started_yet_does_not_count_as_trouble_and_is_started_at_the_next_look_once_it_can() -> None:
    runner = Told(True)
    runner.may_start = False
    supervisor = Supervisor(now=lambda: 0.0)
    supervisor.start(runner)
    supervisor.look()
    assert (runner.tries, supervisor.troubles()) == (0, {})
    runner.may_start = True
    supervisor.look()
    assert runner.alive and not supervisor.has_failed()


def test_what_could_not_be_started_yet_is_tried_again_once_a_start_has_failed() -> None:
    seconds, runner = 0.0, Told(False, True)
    runner.may_start = False
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    runner.may_start = True
    supervisor.look()
    assert supervisor.troubles() == {"a1.k1": "StorageError: the port is in use"} and supervisor.has_failed()
    seconds += 3
    supervisor.look()
    assert runner.alive and supervisor.restarts == 1


def test_what_has_ended_is_started_again() -> None:
    seconds, runner = 0.0, Told(True, True)
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    supervisor.look()
    assert not supervisor.has_failed()
    runner.alive = False
    supervisor.look()
    assert supervisor.troubles() == {"a1.k1": "it ended, and should not have"}
    seconds += 3
    supervisor.look()
    assert runner.alive and supervisor.restarts == 1


def test_what_was_stopped_is_left_alone() -> None:
    runner = Told(True)
    supervisor = Supervisor(now=lambda: 1e9)
    supervisor.start(runner)
    assert supervisor.stop([runner], 0.0) == supervisor.late() == []
    runner.alive = False
    supervisor.look()
    assert runner.tries == 1 and supervisor.troubles() == {}


def test_a_start_that_exits_has_failed_and_why_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Exits(Told):
        def start(self) -> None:
            sys.exit("a mistake")

    supervisor = Supervisor()
    supervisor.start(Exits())
    assert supervisor.troubles() == {"a1.k1": "SystemExit: a mistake"}
    assert "is tried again in 3 s: a mistake" in caplog.text


def test_a_start_whose_error_has_no_text_has_failed_like_another_one(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Told):
        def start(self) -> None:
            raise Mute

    supervisor = Supervisor()
    supervisor.start(Silent())
    assert supervisor.has_failed()
    assert "is tried again in 3 s: (its text can't be told: ValueError)" in caplog.text


@pytest.fixture
def no_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process can have no more threads, once."""
    refusals, start = [RuntimeError("can't start new thread")], threading.Thread.start

    def refuse_or_start(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_or_start)


@pytest.mark.usefixtures("no_thread_once")
def test_a_start_for_which_there_is_no_thread_has_failed_and_is_tried_again() -> None:
    seconds, runner = 0.0, Told(True)
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    assert "raise this user's limit of processes" in supervisor.troubles()["a1.k1"]
    seconds += 3
    supervisor.look()
    assert runner.alive and supervisor.troubles() == {}


@pytest.mark.usefixtures("no_thread_once")
def test_a_supervisor_without_a_thread_of_its_own_can_be_ended() -> None:
    supervisor = Supervisor()
    with pytest.raises(StorageError, match=r"'flow-supervisor' can't start .*raise this user's limit"):
        supervisor.begin()
    supervisor.end()


def test_a_look_that_fails_is_logged_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spillable_stream.flow.supervisor._LOOK_SECONDS", 0.001)
    supervisor, failures, looked = Supervisor(), [ValueError("a fault")], threading.Event()

    def look() -> None:
        if failures:
            raise failures.pop()
        looked.set()

    monkeypatch.setattr(supervisor, "look", look)
    supervisor.begin()
    assert looked.wait(60)
    supervisor.end()
    assert "a look at what runs failed" in caplog.text


def test_a_start_that_waits_for_another_one_has_not_failed_and_is_tried_again() -> None:
    class Waits(Told):
        def start(self) -> None:
            if not self.starts.pop(0):
                raise StartWaitsError("a1.k2 is still being opened")
            self.alive = True

    seconds, runner = 0.0, Waits(False, True)
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    assert supervisor.troubles() == {"a1.k1": "StartWaitsError: a1.k2 is still being opened"}
    seconds += 3
    supervisor.look()
    assert runner.alive and not supervisor.has_failed()


def test_a_sink_whose_optional_channel_went_away_before_its_start_is_tried_again_and_in_no_trouble() -> None:
    class Away(Told):
        def start(self) -> None:
            if not self.starts.pop(0):
                raise ChannelAwayError("the optional channel c2 is away: the store is away")
            self.alive = True

    seconds, runner = 0.0, Away(False, True, False)
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(runner)
    assert supervisor.troubles() == {}
    seconds += 3
    supervisor.look()
    assert runner.alive and not supervisor.has_failed()
    runner.alive = False
    supervisor.look()
    assert supervisor.troubles() == {"a1.k1": "it ended, and should not have"}


class Hangs(Told):
    """A runner whose start hangs, and fails when it comes back."""

    def __init__(self) -> None:
        super().__init__(False, True)
        self.hangs, self.go_on = threading.Event(), threading.Event()

    def start(self) -> None:
        self.hangs.set()
        self.go_on.wait()
        super().start()

    def stop(self, timeout_seconds: float) -> bool:
        return self.go_on.is_set()


def test_a_start_that_hangs_holds_up_neither_others_nor_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spillable_stream.flow.supervisor._START_SECONDS", 0.0)
    hangs, other, seconds = Hangs(), Told(True, name="a1.k2"), 0.0
    supervisor = Supervisor(now=lambda: seconds)
    try:
        supervisor.start(hangs)
        assert "a1.k1 is still being started" in caplog.text
        supervisor.start(other)
        wait_until(lambda: supervisor.troubles() == {"a1.k1": "it is being started"})
        supervisor.look()
        assert not supervisor.has_failed()
        supervisor.begin()
        supervisor.end()
    finally:
        hangs.go_on.set()
    wait_until(lambda: supervisor.troubles() == {"a1.k1": "StorageError: the port is in use"})
    seconds = 3.0
    supervisor.look()
    wait_until(lambda: supervisor.troubles() == {})
    assert hangs.alive and other.tries == 1


def test_what_is_stopped_while_its_start_hangs_is_late_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("spillable_stream.flow.supervisor._START_SECONDS", 0.0)
    hangs, supervisor = Hangs(), Supervisor()
    supervisor.start(hangs)
    assert hangs.hangs.wait(60)
    try:
        assert supervisor.stop([hangs], 0.0) == supervisor.late() == [hangs]
        assert "a1.k1 did not end within 0 s" in caplog.text
        after = Told(True)
        supervisor.start(after)
        wait_until(lambda: "a1.k1 was stopped, and has not ended" in supervisor.troubles().get("a1.k1", ""))
    finally:
        hangs.go_on.set()
    wait_until(lambda: not any(t.name == "a1.k1-start" for t in threading.enumerate()))
    assert (hangs.tries, after.tries, supervisor.late()) == (1, 0, [])
    assert "the port is in use" not in caplog.text


def test_a_runner_says_its_own_trouble() -> None:
    runner, supervisor = Told(True), Supervisor()
    supervisor.start(runner)
    runner.trouble = "ChannelFullError: full"
    assert supervisor.troubles() == {"a1.k1": "ChannelFullError: full"}
    assert not supervisor.has_failed()
    supervisor.begin()
    supervisor.end()


class Unsure(Told):
    """A runner that can't say whether it works."""

    is_unsure = True

    @property
    def alive(self) -> bool:
        if self.is_unsure:
            raise OSError("away")
        return True

    @alive.setter
    def alive(self, value: bool) -> None:
        pass


def test_a_runner_that_cannot_say_whether_it_works_is_trouble_and_keeps_no_other_one_from_being_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seconds, unsure, other = 0.0, Unsure(True, name="a1.k1"), Told(False, True, name="a1.k2")
    supervisor = Supervisor(now=lambda: seconds)
    supervisor.start(unsure, other)
    for _ in range(3):
        seconds += 3
        supervisor.look()
        assert supervisor.troubles() == {"a1.k1": "it can't be told whether it works: OSError: away"}
    assert other.alive and unsure.tries == 1 and supervisor.restarts == 1
    assert caplog.text.count("a1.k1: it can't be told whether it works") == 1
    unsure.is_unsure = False
    supervisor.look()
    assert supervisor.troubles() == {}
