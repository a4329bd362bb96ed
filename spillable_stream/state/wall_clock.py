"""The age of events where the wall clock may jump: what its jumps, seen against the clock of the boot, did to it.

The times of events are the wall clock's. Somebody may set it, or NTP may: without care an hour forward would let an
hour's events go. The clock of the boot can't be set, and runs while a machine sleeps. Whoever looks after the channel
reads both at once, and finds a jump where they disagree the next time. Of an event that was stamped before a jump the
time is then read as if the clock had had its new setting. Times only rise from event to event, so that they tell which
events these are; where they don't, an event is taken for younger than it is, never for older.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["ClockReading", "Jump", "WallClock"]

_TOLERANCE_US = 2_000_000
_DRIFT_PARTS = 1000  # NTP slews a clock by up to 1/2000
_MOST_JUMPS = 64


class ClockReading(NamedTuple):
    """Both clocks at one moment.

    Args:
        boot: the boot's ID, in hexadecimal digits.
        since_boot_us: the clock of the boot, in microseconds.
        wall_us: the wall clock, in microseconds since 1970.
        last_us: the time of the last event that was there.
    """

    boot: str
    since_boot_us: int
    wall_us: int
    last_us: int = 0


class Jump(NamedTuple):
    """A jump of the wall clock.

    Args:
        until_us: the greatest time of an event from before it.
        by_us: how far the clock jumped, in microseconds; negative if it was set back.
        latest_us: what the clock said after it: no event from before it has a later time.
    """

    until_us: int
    by_us: int
    latest_us: int


@dataclass(slots=True)
class WallClock:
    """A channel's wall clock, as far as it is known.

    Args:
        reading: the last reading that was noted; None if there was none.
        jumps: its jumps, oldest first.
    """

    reading: ClockReading | None = None
    jumps: list[Jump] = field(default_factory=list)

    def jump_to(self, now: ClockReading) -> Jump | None:
        """Return the jump between the last reading and this one; None if there was none, or another boot's clock ran.

        Args:
            now: the clocks now.
        """
        before = self.reading
        if before is None or before.boot != now.boot:
            return None
        passed_us = now.since_boot_us - before.since_boot_us
        expected_us = before.wall_us + passed_us
        by_us = now.wall_us - expected_us
        if abs(by_us) <= max(_TOLERANCE_US, abs(passed_us) // _DRIFT_PARTS):
            return None
        if by_us < 0:  # of events since the last reading nothing tells whether they came before it
            return Jump(before.last_us, by_us, now.wall_us)
        until_us = expected_us + _TOLERANCE_US
        # The clock was set back, or began at its zero as that of a board without a battery does, and has not passed
        # the last event's time yet: what came since has hardly a later one.
        if before.last_us > before.wall_us + _TOLERANCE_US:
            until_us = max(until_us, now.last_us)
        return Jump(until_us, by_us, now.wall_us)

    def record(self, reading: ClockReading | None, jump: Jump | None) -> None:
        """Record a reading, and the jump that it showed."""
        if reading is not None:
            self.reading = reading
        if jump is not None:
            self.jumps = [*self.jumps, jump]
            if len(self.jumps) > _MOST_JUMPS:
                self.jumps[:2] = [_both(*self.jumps[:2])]

    def now_of(self, time_us: int) -> int:
        """Return the time of an event as the clock's setting now would have stamped it, in microseconds since 1970."""
        stamped_us = time_us
        for until_us, by_us, latest_us in self.jumps:
            if stamped_us <= until_us:
                time_us = min(time_us + by_us, latest_us)
        return time_us


def _both(first: Jump, second: Jump) -> Jump:
    """Return one jump for two, by which no event gets older than by both."""
    by_us = max(first.by_us, second.by_us, first.by_us + second.by_us)
    latest_us = max(first.latest_us + max(0, second.by_us), second.latest_us)
    return Jump(max(first.until_us, second.until_us), by_us, latest_us)
