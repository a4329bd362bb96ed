"""What a wall clock that jumps does to the age of events: nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.wall_clock import ClockReading, Jump, WallClock

SECOND = 1_000_000
HOUR = 3600 * SECOND
BOOT = "0a" * 16
STAMPS_US = 1000
"""How far the stamps of events that are put at once may be ahead of the clock: a microsecond each."""


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

    def reading(self) -> ClockReading:
        return ClockReading(self.boot, self.since_boot_us, self.wall_us, self.events[-1][1] if self.events else 0)

    def look(self) -> Jump | None:
        now = self.reading()
        jump = self.clock.jump_to(now)
        self.clock.record(now, jump)
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
    assert machine.clock.reading == machine.reading()


def test_a_clock_that_is_slewed_has_not_jumped(machine: Machine) -> None:
    machine.look()
    machine.run(10 * HOUR)
    machine.wall_us += 10 * HOUR // 2000
    assert machine.look() is None


@pytest.mark.parametrize("by_us", [HOUR, 24 * HOUR, 3 * SECOND])
def test_an_event_does_not_age_when_the_clock_is_set_forward(machine: Machine, by_us: int) -> None:
    machine.look()
    machine.put()
    machine.run(60 * SECOND)
    machine.wall_us += by_us
    jump = machine.look()
    assert jump is not None and jump.by_us == by_us
    machine.put()
    machine.run(SECOND)
    assert machine.ages() == [(61 * SECOND, 61 * SECOND), (SECOND, SECOND)]


def test_an_event_does_not_get_younger_when_the_clock_is_set_back(machine: Machine) -> None:
    machine.put()
    machine.look()
    machine.run(60 * SECOND)
    machine.wall_us -= HOUR
    assert machine.look() == Jump(machine.events[-1][1], -HOUR, machine.wall_us)
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


def test_a_machine_whose_clock_begins_at_its_zero_and_is_set_then_keeps_nothing_for_decades(machine: Machine) -> None:
    """A board without a battery: its events of the boot before are no younger than the moment of the setting."""
    machine.put()
    machine.look()
    machine.boot, machine.since_boot_us, machine.wall_us = "0b" * 16, 0, 0
    machine.look()
    machine.put()
    machine.run(60 * SECOND)
    machine.wall_us = 1_100 * HOUR
    machine.look()
    machine.run(HOUR)
    assert [told for _, told in machine.ages()] == [HOUR, HOUR]


def test_only_the_latest_jumps_are_remembered(machine: Machine) -> None:
    machine.look()
    for _ in range(100):
        machine.run(SECOND)
        machine.wall_us += HOUR
        machine.look()
    assert len(machine.clock.jumps) == 64


def test_of_jumps_that_are_forgotten_no_event_gets_older(machine: Machine) -> None:
    machine.put()
    machine.look()
    for i in range(200):
        machine.run(SECOND)
        machine.wall_us += HOUR if i % 3 else -2 * HOUR
        machine.look()
    [(true, told)] = machine.ages()
    assert told <= true


def test_events_put_while_the_clock_is_back_are_not_taken_for_old_when_it_is_set_forward(machine: Machine) -> None:
    """They have the time of the last event before, as it has not come again."""
    machine.put()
    machine.look()
    machine.wall_us -= HOUR
    machine.look()
    machine.run(60 * SECOND)
    machine.put()
    machine.look()
    machine.wall_us += 3 * HOUR
    machine.look()
    assert all(told <= true for true, told in machine.ages())


def test_an_event_between_a_setting_back_and_the_next_look_is_not_taken_for_old(machine: Machine) -> None:
    machine.put()
    machine.run(2 * HOUR)
    machine.look()
    machine.wall_us -= HOUR
    machine.put()
    machine.look()
    assert machine.ages()[1] == (0, 0)


step = st.one_of(
    st.just(("put", 0)),
    st.tuples(st.just("run"), st.integers(1, 600)),
    st.just(("look", 0)),
    st.tuples(st.just("jump"), st.integers(30, 5 * 3600)),
    st.tuples(st.just("jump"), st.integers(-5 * 3600, -30)),
)


def play(steps: list[tuple[str, int]], machine: Machine) -> None:
    """Put events, let time pass, and set the clock; there is a look between two settings."""
    jumped = False
    machine.look()
    for what, amount in steps:
        match what:
            case "put":
                machine.put()
            case "run":
                machine.run(amount * SECOND)
            case "look":
                machine.look()
                jumped = False
            case _:
                if jumped:
                    machine.look()
                machine.wall_us += amount * SECOND
                jumped = True
    machine.look()


@given(st.lists(step, max_size=30))
def test_no_event_is_ever_taken_for_older_than_it_is(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    play(steps, machine)
    assert all(told <= true + STAMPS_US for true, told in machine.ages())


@given(st.lists(step, max_size=30))
def test_settings_forward_change_no_age(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    play([(what, abs(amount)) for s in steps for what, amount in [s, ("look", 0)]], machine)
    assert all(abs(told - true) <= STAMPS_US for true, told in machine.ages())
