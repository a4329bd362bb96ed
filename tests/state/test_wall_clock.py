"""What a wall clock that jumps does to the age of events: nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.wall_clock import ClockReading, Jump, WallClock

SECOND = 1_000_000
HOUR = 3600 * SECOND
BOOT = "0a" * 16


class Machine:
    """A machine with both clocks, and events that are stamped by its wall clock."""

    def __init__(self) -> None:
        self.boot = BOOT
        self.since_boot_us = 10 * SECOND
        self.wall_us = 1_000 * HOUR
        self.clock = WallClock()
        self.events: list[tuple[int, int]] = []  # when it was put, by the clock of the boot, and its stamp

    def run(self, us: int) -> None:
        self.since_boot_us += us
        self.wall_us += us

    def put(self) -> None:
        """Stamp an event as an append does: later than the last one, whatever the wall clock says."""
        last_us = self.events[-1][1] if self.events else 0
        self.events.append((self.since_boot_us, max(self.wall_us, last_us + 1)))

    def look(self) -> Jump | None:
        now = ClockReading(self.boot, self.since_boot_us, self.wall_us)
        jump = self.clock.jump_to(now, self.events[-1][1] if self.events else 0)
        self.clock.note(now, jump)
        return jump

    def ages(self) -> list[tuple[int, int]]:
        """Return of each event its true age, and the age that its stamp tells."""
        return [(self.since_boot_us - put, self.wall_us - self.clock.now_of(stamp)) for put, stamp in self.events]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_clock_that_runs_on_has_not_jumped(machine: Machine) -> None:
    machine.put()
    for _ in range(10):
        assert machine.look() is None
        machine.run(60 * SECOND)
    assert machine.ages() == [(600 * SECOND, 600 * SECOND)]


def test_the_first_look_says_nothing_of_a_jump(machine: Machine) -> None:
    assert machine.look() is None
    assert machine.clock.reading == ClockReading(BOOT, machine.since_boot_us, machine.wall_us)


def test_a_clock_that_is_slewed_has_not_jumped(machine: Machine) -> None:
    machine.look()
    machine.run(10 * HOUR)
    machine.wall_us += 10 * HOUR // 2000
    assert machine.look() is None


@pytest.mark.parametrize("by_us", [HOUR, 24 * HOUR, 3 * SECOND])
def test_an_event_is_no_older_when_the_clock_is_set_forward(machine: Machine, by_us: int) -> None:
    machine.look()
    machine.put()
    machine.run(60 * SECOND)
    machine.wall_us += by_us
    jump = machine.look()
    assert jump is not None and jump.by_us == by_us
    machine.put()
    machine.run(SECOND)
    assert machine.ages() == [(61 * SECOND, 61 * SECOND), (SECOND, SECOND)]


def test_an_event_is_no_younger_when_the_clock_is_set_back(machine: Machine) -> None:
    machine.look()
    machine.put()
    machine.run(60 * SECOND)
    machine.wall_us -= HOUR
    assert machine.look() == Jump(machine.events[-1][1], -HOUR)
    machine.run(SECOND)
    assert machine.ages() == [(61 * SECOND, 61 * SECOND)]


def test_jumps_there_and_back_cancel_each_other(machine: Machine) -> None:
    machine.look()
    machine.put()
    machine.run(SECOND)
    machine.wall_us += HOUR
    machine.look()
    machine.run(SECOND)
    machine.wall_us -= HOUR
    machine.look()
    assert machine.ages() == [(2 * SECOND, 2 * SECOND)]


def test_between_two_boots_nothing_is_said_of_a_jump(machine: Machine) -> None:
    machine.look()
    machine.boot, machine.since_boot_us = "0b" * 16, 0
    machine.wall_us += 100 * HOUR
    assert machine.look() is None


def test_only_the_latest_jumps_are_remembered(machine: Machine) -> None:
    machine.look()
    for _ in range(100):
        machine.run(SECOND)
        machine.wall_us += HOUR
        machine.look()
    assert len(machine.clock.jumps) == 64


@given(st.lists(st.tuples(st.sampled_from(["put", "run", "jump"]), st.integers(3, 5 * 3600)), max_size=40))
def test_no_jump_forward_makes_an_event_older_than_it_is(steps: list[tuple[str, int]]) -> None:
    """Each jump is seen at the next look, and looks are as often as events here."""
    machine = Machine()
    machine.look()
    for what, amount in steps:
        if what == "put":
            machine.put()
        elif what == "run":
            machine.run(amount * SECOND)
        else:
            machine.wall_us += amount * SECOND
        machine.look()
    assert all(abs(told - true) <= len(machine.events) for true, told in machine.ages())
