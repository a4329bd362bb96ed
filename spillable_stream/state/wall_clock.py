"""The age of events where the wall clock may jump: what its jumps, seen against the clock of the boot, did to it.

The times of events are the wall clock's. Somebody may set it, or NTP may: without care an hour forward would let an
hour's events go. The clock of the boot can't be set, and goes on while a machine sleeps. Whoever looks after the
channel notes both at once, and finds a jump where they disagree the next time. Of an event that was stamped before a
jump the time is then read as if the clock had had its new setting.
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
    """

    boot: str
    since_boot_us: int
    wall_us: int


class Jump(NamedTuple):
    """A jump of the wall clock.

    Args:
        until_us: the last time, by the old setting, that an event can have.
        by_us: how far the clock jumped, in microseconds; negative if it was set back.
    """

    until_us: int
    by_us: int


@dataclass(slots=True)
class WallClock:
    """What is known of a channel's wall clock.

    Args:
        reading: the last reading that was noted; None if there was none.
        jumps: its jumps, oldest first.
    """

    reading: ClockReading | None = None
    jumps: list[Jump] = field(default_factory=list)

    def jump_to(self, now: ClockReading, last_event_us: int) -> Jump | None:
        """Return the jump between the last reading and this one; None if there was none, or another boot's clock ran.

        Args:
            now: the clocks now.
            last_event_us: the time of the last event.
        """
        before = self.reading
        if before is None or before.boot != now.boot:
            return None
        passed_us = now.since_boot_us - before.since_boot_us
        expected_us = before.wall_us + passed_us
        by_us = now.wall_us - expected_us
        if abs(by_us) <= max(_TOLERANCE_US, abs(passed_us) // _DRIFT_PARTS):
            return None
        # After a clock was set back, events get the last event's time, or hardly more, until it has passed that again.
        return Jump(expected_us if by_us > 0 else last_event_us, by_us)

    def note(self, reading: ClockReading | None, jump: Jump | None) -> None:
        """Note a reading, and the jump that it showed."""
        if reading is not None:
            self.reading = reading
        if jump is not None:
            self.jumps = [*self.jumps, jump][-_MOST_JUMPS:]

    def now_of(self, time_us: int) -> int:
        """Return the time of an event as the clock's setting now would have stamped it, in microseconds since 1970."""
        for until_us, by_us in self.jumps:
            if time_us <= until_us:
                time_us += by_us
        return time_us
