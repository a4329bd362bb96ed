from __future__ import annotations

from spillable_stream.errors import StorageError
from spillable_stream.flow.lifecycle import Supervisor


class Told:
    """A runner whose starts go as they are told."""

    name = "a1.k1"
    finished = False
    trouble = ""

    def __init__(self, *starts: bool) -> None:
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


def test_what_is_forgotten_is_left_alone() -> None:
    runner = Told(True)
    supervisor = Supervisor(now=lambda: 1e9)
    supervisor.start(runner)
    supervisor.forget(runner)
    runner.alive = False
    supervisor.look()
    assert runner.tries == 1 and supervisor.troubles() == {}


def test_a_runner_says_its_own_trouble() -> None:
    runner, supervisor = Told(True), Supervisor()
    supervisor.start(runner)
    runner.trouble = "ChannelFullError: full"
    assert supervisor.troubles() == {"a1.k1": "ChannelFullError: full"}
    assert not supervisor.has_failed()
    supervisor.begin()
    supervisor.end()
