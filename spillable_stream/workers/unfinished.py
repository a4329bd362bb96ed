"""What a worker leaves behind: what it was doing when its process was killed, and which events have failed how often.

It is a part of the note about the group's owner, so it is there wherever the channel is::

    a worker of up to 1002 events; calls 5-9,12 20; suspects 7x2 30-40x0; failed 50x2 51-53x1
    a worker that stopped; failed 50x2

Whoever finds the first one comes after a process that was killed, and one of the events that it had may be why. A
worker that ends in order, and for which no event has failed that it leaves, leaves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spillable_stream.engine.worker_statuses import WORKER_MARK
from spillable_stream.state.ranges import Range, RangeSet, count_of
from spillable_stream.workers.work import halves

__all__ = ["Suspect", "Unfinished", "suspects_after"]

_NOTE = re.compile(
    rf", (?:{WORKER_MARK}(\d+) events|a worker that stopped)"
    r"(?:; calls ([\d, -]+))?(?:; suspects ([\dx, -]+))?(?:; failed ([\dx, -]+))?$",
    re.ASCII,
)
_MOST_LETTERS = 1500
_MOST_LETTERS_OF_FAILED = 1500
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
    """What a worker had in hand, and what it knew of events that it has not done.

    Args:
        most: how many events it may have had at once; 0 if it has ended in order.
        calls: the events of the calls under way, if they were written down.
        suspects: the events that are called alone.
        failed: how often the function has failed for an event that was alone, by the event.
    """

    most: int
    calls: list[list[Range]]
    suspects: list[Suspect]
    failed: Mapping[int, int] = field(default_factory=dict)

    def note(self) -> str:
        """Return it as the group's owner says it.

        What does not fit is said less exactly. Of very many events that have failed, those are left out that failed
        least often, so the others come to their end, and then these.
        """
        return self._in_hand() + _failed_text(self.failed)

    def _in_hand(self) -> str:
        calls, suspects = self.calls, self.suspects
        while True:
            said = f"{WORKER_MARK}{self.most} events" if self.most else "a worker that stopped"
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
        """Return what a group's last owner says it left; None if that is not a worker, or one that left nothing."""
        found = _NOTE.search(note)
        if found is None:
            return None
        most, calls, suspects, failed = found.groups()
        try:
            return cls(
                int(most or 0),
                [_ranges(text) for text in (calls or "").split()],
                [Suspect(ranges, attempts) for ranges, attempts in _counted(suspects or "")],
                {
                    i: n
                    for ranges, n in _counted(failed or "")
                    for first, last in ranges
                    for i in range(first, last + 1)
                },
            )
        except ValueError:  # it was killed while it wrote
            return cls(int(most or 0), [], [])


def _text(ranges: Iterable[Range]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _failed_text(failed: Mapping[int, int]) -> str:
    """Return which events have failed how often, those first that did so most often; "" if none has."""
    by_attempts: dict[int, RangeSet] = {}
    for event, attempts in sorted(failed.items(), key=lambda item: (-item[1], item[0])):
        by_attempts.setdefault(attempts, RangeSet()).add(event, event)
    said = ""
    for attempts, events in by_attempts.items():
        for ranges in events:
            more = f" {_text([ranges])}x{attempts}"
            if len(said) + len(more) > _MOST_LETTERS_OF_FAILED:
                return f"; failed{said}"
            said += more
    return said and f"; failed{said}"


def _counted(text: str) -> Iterator[tuple[list[Range], int]]:
    """Yield the events, and how often they were tried, that a note says."""
    for part in text.split():
        ranges, _, attempts = part.partition("x")
        yield _ranges(ranges), int(attempts)


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
