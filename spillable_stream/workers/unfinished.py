"""What a worker leaves behind when its process ends in the middle of its work.

It is a part of the note about the group's owner, so it is there wherever the channel is::

    a worker of up to 1002 events; calls 5-9,12 20; suspects 7x2 30-40x0

A worker that ends in order leaves nothing. So whoever finds it there comes after a process that was killed, and one of
the events that it had may be why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spillable_stream.engine.worker_notes import WORKER_MARK
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.workers.work import halves

__all__ = ["Suspect", "Unfinished", "suspects_after"]

_NOTE = re.compile(rf", {WORKER_MARK}(\d+) events(?:; calls ([\d, -]+))?(?:; suspects ([\dx, -]+))?$", re.ASCII)
_MOST_LETTERS = 1500
_HALVINGS = 4  # of events that ended a process together: each part may end another one


class Suspect(NamedTuple):
    """Events that may have ended a worker's process.

    Args:
        ranges: the events.
        attempts: of a single event, how many processes have ended while nothing but it was under way.
    """

    ranges: list[Range]
    attempts: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a worker that has not ended in order had in hand.

    Args:
        most: how many events it may have had at once.
        calls: the events of the calls under way, if they were written down.
        suspects: the events that are called alone.
    """

    most: int
    calls: list[list[Range]]
    suspects: list[Suspect]

    def note(self) -> str:
        """Return it as the group's owner says it; what does not fit a note is said less exactly."""
        calls, suspects = self.calls, self.suspects
        while True:
            said = f"{WORKER_MARK}{self.most} events"
            if calls:
                said += f"; calls {' '.join(map(_text, calls))}"
            if suspects:
                said += f"; suspects {' '.join(f'{_text(s.ranges)}x{s.attempts}' for s in suspects)}"
            if len(said) <= _MOST_LETTERS:
                return said
            counted = [s for s in suspects if s.attempts][: _MOST_LETTERS // 60]
            together = [r for s in suspects if s not in counted for r in s.ranges]
            suspects = [*counted, *([Suspect(_hull(together), 0)] if together else [])]
            calls = [_hull(r for call in part for r in call) for part in (calls[:1], calls[1:]) if part]

    @classmethod
    def parse(cls, note: str) -> Unfinished | None:
        """Return what a group's last owner says it left; None if that is not a worker, or one that ended in order."""
        found = _NOTE.search(note)
        if found is None:
            return None
        most, calls, suspects = found.groups()
        try:
            said = [text.partition("x") for text in (suspects or "").split()]
            return cls(
                int(most),
                [_ranges(text) for text in (calls or "").split()],
                [Suspect(_ranges(text), int(attempts)) for text, _, attempts in said],
            )
        except ValueError:  # it was killed while it wrote
            return cls(int(most), [], [])


def _text(ranges: Iterable[Range]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _ranges(text: str) -> list[Range]:
    bounds = [part.partition("-") for part in text.split(",")]
    return [(int(first), int(last or first)) for first, _, last in bounds]


def _hull(ranges: Iterable[Range]) -> list[Range]:
    bounds = list(ranges)
    return [(min(first for first, _ in bounds), max(last for _, last in bounds))]


def suspects_after(left: Unfinished, untaken: Callable[[int, int], list[Range]]) -> list[Suspect]:
    """Return the events that a worker must call alone, after the process of the former one has ended.

    An event that was alone under way has one attempt more. Events that were under way by themselves, as one batch, come
    in smaller parts. Of several calls nobody knows which one it was.

    Args:
        left: what the former worker left.
        untaken: returns which events between two IDs the group has yet to take.
    """
    calls = [[r for first, last in call for r in untaken(first, last)] for call in left.calls]
    calls = [call for call in calls if call]
    known = [Suspect([r for first, last in s.ranges for r in untaken(first, last)], s.attempts) for s in left.suspects]
    found: list[Suspect] = []
    for call in calls:
        if len(calls) == 1 and count_of(call) == 1:
            found.append(Suspect(call, 1 + max((s.attempts for s in known if s.ranges == call), default=0)))
        elif len(calls) == 1:
            found += [Suspect(part, 0) for part in _parts(call)]
        else:
            found.append(Suspect(call, max((s.attempts for s in known if s.ranges == call), default=0)))
    begun = RangeSet(r for call in calls for r in call)
    others = [Suspect([r for a, b in s.ranges for r in begun.gaps(a, b)], s.attempts) for s in known]
    return [*found, *(suspect for suspect in others if suspect.ranges)]


def _parts(ranges: list[Range]) -> list[list[Range]]:
    parts = [ranges]
    for _ in range(_HALVINGS):
        parts = [half for part in parts for half in halves(part) if half]
    return parts
