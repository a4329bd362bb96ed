"""A runner waits longer and longer, and its thread ends when it is asked to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.runner import Backoff, RoundsRunner, doubled_seconds
from tests.support.no_threads import no_threads
from tests.support.waiting import wait_until


def test_waits_grow_and_begin_again() -> None:
    backoff = Backoff(500, 1200)
    assert [backoff.nothing() for _ in range(4)] == [0.5, 1.0, 1.2, 1.2]
    backoff.ready()
    assert backoff.nothing() == 0.5


def test_waits_double_and_stay_at_the_longest_however_often_something_failed() -> None:
    assert [doubled_seconds(3.0, failures, 60.0) for failures in (0, 1, 4, 5, 2_000)] == [3, 6, 48, 60, 60]


class Held(RoundsRunner):
    """Hangs in a round, or as it is started."""

    def __init__(self) -> None:
        super().__init__("x")
        self.go_on, self.calls, self.hangs_in = threading.Event(), list[str](), "round"

    def _do(self, what: str) -> None:
        self.calls.append(what)
        if what == self.hangs_in:
            self.go_on.wait(60)

    def _prepare(self) -> None:
        self._do("prepare")

    def round(self) -> float:
        self._do("round")
        return 0.5

    def _rest(self, seconds: float) -> None:
        self._do(f"rest {seconds} {self.wait_seconds}")

    def _close(self) -> None:
        self._do(f"close {self.wait_seconds}")


def test_a_thread_ends_in_time_or_says_that_it_did_not() -> None:
    runner = Held()
    runner.start()
    assert runner.alive and not runner.stop(0.01)
    runner.go_on.set()
    assert runner.stop(30) and not runner.alive
    assert runner.calls == ["prepare", "round", "rest 0.5 0.5", "close 0.0"]


def test_a_runner_that_was_stopped_before_does_not_start() -> None:
    runner = Held()
    assert not runner.alive and runner.stop(0.0)
    runner.start()
    assert not runner.alive and runner.calls == []


def test_a_runner_without_a_thread_closes_what_it_opened_and_can_be_stopped() -> None:
    runner = Held()
    with no_threads(), pytest.raises(StorageError, match="raise this user's limit"):
        runner.start()
    assert not runner.alive and runner.stop(0.0)
    assert runner.calls == ["prepare", "close 0.0"]


def test_a_runner_that_is_stopped_while_its_start_hangs_ends_without_a_round() -> None:
    runner = Held()
    runner.hangs_in = "prepare"
    starting = threading.Thread(target=runner.start, daemon=True)
    starting.start()
    wait_until(lambda: runner.calls)
    assert not runner.stop(0.0)
    runner.go_on.set()
    assert runner.stop(60)
    assert runner.calls == ["prepare", "close 0.0"]


@pytest.mark.parametrize("failing", ["round", "close 0.0"])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_an_error_that_ends_a_thread_is_logged_and_is_its_trouble(
    failing: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Held):
        def _do(self, what: str) -> None:
            super()._do(what)
            if what == failing:
                raise error("a fault of the user's")

    runner = Failing()
    runner.go_on.set()
    runner.start()
    wait_until(lambda: "rest 0.5 0.5" in runner.calls or not runner.alive)
    assert runner.stop(60)
    assert runner.calls[-1] == "close 0.0" and runner.trouble == f"{error.__name__}: a fault of the user's"
    assert "x: its thread ends" in caplog.text


class Unrested(Held):
    """Each round works, and asks for a rest of so many seconds. Rests fail until ``works`` is true."""

    works = False
    seconds = 0.01

    def round(self) -> float:
        self._works()
        return self.seconds

    def _rest(self, seconds: float) -> None:
        self._do("rest")
        if not self.works:
            raise ValueError("a fault of the user's")


@pytest.fixture
def unrested() -> Iterator[Unrested]:
    runner = Unrested()
    yield runner
    assert runner.stop(60)


def test_a_rest_that_fails_is_trouble_until_one_works_is_logged_once_and_the_rounds_continue(
    unrested: Unrested, caplog: pytest.LogCaptureFixture
) -> None:
    unrested.start()
    wait_until(lambda: unrested.calls.count("rest") >= 3)
    assert unrested.alive and unrested.trouble == "ValueError: a fault of the user's"
    unrested.works = True
    wait_until(lambda: unrested.trouble == "")
    assert caplog.text.count("a fault of the user's") == 1


def test_the_trouble_of_a_rest_ends_with_a_round_that_finds_work(
    unrested: Unrested, caplog: pytest.LogCaptureFixture
) -> None:
    unrested.start()
    for _ in range(2):
        unrested.seconds = 0.01
        wait_until(lambda: unrested.trouble == "ValueError: a fault of the user's")
        unrested.seconds = 0.0
        wait_until(lambda: unrested.trouble == "")
    assert caplog.text.count("x: its rest between two rounds fails") == 1, "no rest has worked since"
