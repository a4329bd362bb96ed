"""Measuring: contestants that take turns, round by round, and what is made of their figures.

Every round runs each contestant of a group once, in an order that turns, so that a slow moment of the machine hits
all of them. Figures are medians over the rounds; a ratio is the median of the rounds' own ratios.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "BURST",
    "Comparison",
    "Contestant",
    "Figures",
    "Group",
    "Plan",
    "durations_us",
    "measure",
    "percentiles",
    "rate",
    "rates_in_turn",
]

Figures = dict[str, float]  # a figure's name, with ", " and a unit of its own if that is not the group's → its value
Contestant = Callable[[Path], Figures]  # gets an empty directory of its own
BURST = 32  # transactions that are put before they are taken, in a steady state, at most
_OWN_UNITS = ("s", "ms", "µs", "kB", "x")
_WARM_UP_PART = 0.1
_TURN_PART = 1 / 16  # of the time: for so long there may be puts, and takes of them, before there are twice as many
_TRACEBACK = "Traceback (most recent call last):"  # frames follow, indented, and then the error


class _Timed(NamedTuple):
    """How many events were done, and in how many seconds."""

    events: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Args:
        rounds: how often each contestant runs.
        seconds: for how long, each time.
        full: whether to measure all combinations.
        limit_seconds: after so long, every group gets a single round.
        sustained_seconds: for how long a contestant runs in all its rounds together, where durable puts continue.
        backlogs_events: backlogs of transactions of 1,000 events to open.
        large_backlog_events: a backlog of large batches to open.
    """

    rounds: int = 3
    seconds: float = 0.25
    full: bool = False
    limit_seconds: float = 1500.0
    sustained_seconds: float = 30.0
    backlogs_events: tuple[int, ...] = (1_000_000, 4_000_000, 10_000_000, 20_000_000)
    large_backlog_events: int = 100_000_000


@dataclass(frozen=True)
class Group:
    """What a comparison is of.

    Args:
        name: its name in the JSON file, and for targets.
        title: its title in the document.
        unit: the unit of the figures that name none.
        floor: the contestant that is the machine's own limit; "" if there is none.
        contestants: by name.
        rounds: how often each runs at most; None for as often as the plan says.
        warm_ups: how many rounds come before, and do not count.
    """

    name: str
    title: str
    unit: str
    floor: str
    contestants: Mapping[str, Contestant]
    rounds: int | None = None
    warm_ups: int = 0


@dataclass
class Comparison:
    """What a group reached: its figures in every round.

    Args:
        name: the group's.
        title: the group's.
        unit: the group's.
        floor: the group's.
        rounds: for each round what each contestant reached.
        failures: what could not be measured, and why.
    """

    name: str
    title: str
    unit: str
    floor: str
    rounds: list[dict[str, Figures]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def contestants(self) -> list[str]:
        """Everybody who was measured."""
        return [name for name in self.rounds[0] if name not in self.failures] if self.rounds else []

    @property
    def figures(self) -> list[str]:
        """The names of all figures, in the order in which they first came."""
        return list(dict.fromkeys(f for name in self.contestants for f in self.rounds[0][name]))

    def unit_of(self, figure: str) -> str:
        """Return the unit of a figure."""
        own = figure.rpartition(", ")[2]
        return own if own in _OWN_UNITS else self.unit

    def has(self, contestant: str, figure: str) -> bool:
        """Tell whether somebody has a figure."""
        return contestant in self.contestants and figure in self.rounds[0][contestant]

    def median(self, contestant: str, figure: str) -> float:
        """Return the median of a figure over the rounds."""
        return statistics.median(r[contestant][figure] for r in self.rounds)

    def ratio(self, contestant: str, figure: str, base: str) -> float:
        """Return the median over the rounds of the ratio to ``base`` in the same round."""
        pairs = self._pairs(contestant, figure, base)
        return statistics.median(a / b if b else float("inf") for a, b in pairs)

    def above(self, contestant: str, figure: str, base: str) -> float:
        """Return the median over the rounds of how much more it is than ``base``'s in the same round."""
        return statistics.median(a - b for a, b in self._pairs(contestant, figure, base))

    def _pairs(self, contestant: str, figure: str, base: str) -> Iterator[tuple[float, float]]:
        return ((r[contestant][figure], r[base][figure]) for r in self.rounds)

    @classmethod
    def from_dict(cls, name: str, kept: Mapping[str, Any]) -> Comparison:
        """Return what `as_dict` was made of.

        Args:
            name: the group's.
            kept: what the JSON file keeps.
        """
        return cls(name, kept["title"], kept["unit"], kept["floor"], kept["rounds"], kept.get("failures", {}))

    def as_dict(self) -> dict[str, Any]:
        """Return what the JSON file keeps."""
        rounded = [{c: {f: float(f"{v:.5g}") for f, v in fs.items()} for c, fs in r.items()} for r in self.rounds]
        kept = {"title": self.title, "unit": self.unit, "floor": self.floor, "rounds": rounded}
        return {**kept, "failures": self.failures} if self.failures else kept


def measure(group: Group, rounds: int, directory: Path, say: Callable[[str], None], deadline: float) -> Comparison:
    """Run every contestant once a round, in an order that turns; one that fails is left out, and why is said.

    Args:
        group: the contestants.
        rounds: how often, at most.
        directory: where each gets a directory of its own, which is removed at once.
        say: is told about each round.
        deadline: from then on (`time.monotonic`) there is only a first round.
    """
    found = Comparison(group.name, group.title, group.unit, group.floor)
    names = list(group.contestants)
    count = min(rounds, group.rounds or rounds)
    for i in range(-group.warm_ups, count):
        if i > 0 and time.monotonic() > deadline:
            break
        say(f"{group.title}: round {i + 1} of {count}" if i >= 0 else f"{group.title}: a round that does not count")
        figures: dict[str, Figures] = {}
        for name in names[i % len(names) :] + names[: i % len(names)]:
            if name in found.failures:
                continue
            try:
                with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
                    figures[name] = group.contestants[name](Path(place))
            except Exception as e:
                found.failures[name] = _why(e)
        if i >= 0:
            found.rounds.append({name: figures[name] for name in names if name in figures})
    return found


def _why(error: Exception) -> str:
    """Return in a line why something failed: the last error of the tracebacks in a message of Spark's workers."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    tracebacks = [i for i, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    ends = [line for line in lines[tracebacks[-1] + 1 :] if line[:1].strip()] if tracebacks else []
    return (ends or lines)[0]


def rate(step: Callable[[], int], seconds: float, threads: int = 1, *, warm_up: bool = True) -> float:
    """Return how many events a second ``step`` does, called again and again by so many threads.

    Args:
        step: does some events and returns how many; 0 if there are none left.
        seconds: for how long.
        threads: how many threads call it.
        warm_up: whether it is called for a tenth of that before.
    """
    if threads == 1:
        warm = _reached(step, seconds * _WARM_UP_PART) if warm_up else 0.0
        return _reached(step, seconds) or warm  # which may have done all that there was
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: _repeat(step, seconds * _WARM_UP_PART), range(threads)))
        started = time.perf_counter()
        done = sum(pool.map(lambda _: _repeat(step, seconds), range(threads)))
        return done / (time.perf_counter() - started)


def _reached(step: Callable[[], int], seconds: float) -> float:
    """Return how many events a second one thread does."""
    started = time.perf_counter()
    return _repeat(step, seconds) / (time.perf_counter() - started)


def rates_in_turn(
    put: Callable[[], int], take: Callable[[], int], seconds: float, warm_up_seconds: float, most_at_once: int = BURST
) -> Figures:
    """Return how many events a second ``put`` and ``take`` do, while what is put is taken soon: a steady state.

    One put is taken, then twice as many, and so on, while that takes a small part of the time: so somebody whose takes
    get slower with what is waiting is measured with as little as can be taken in time.

    Args:
        put: puts some events and returns how many.
        take: takes some of them and returns how many.
        seconds: for how long each of them is called, at most; it ends with the one that is slower.
        warm_up_seconds: for how long that is done before.
        most_at_once: how many puts there are in a row at most.
    """
    left = 0

    def turns(most_seconds: float) -> Figures:
        nonlocal left
        putting = taking = 0.0
        stored = taken = 0
        at_once = 1
        while max(putting, taking) < most_seconds:
            puts = _in_time(put, most_seconds - putting, at_once)
            stored, left, putting = stored + puts.events, left + puts.events, putting + puts.seconds
            takes = _in_time(take, most_seconds - taking, left=left)
            taken, left, taking = taken + takes.events, left - takes.events, taking + takes.seconds
            if puts.seconds + takes.seconds < most_seconds * _TURN_PART:
                at_once = min(2 * at_once, most_at_once)
        return {"put": stored / putting, "take": taken / taking}

    if warm_up_seconds:
        turns(warm_up_seconds)
    return turns(seconds)


def _in_time(step: Callable[[], int], seconds: float, most: float = math.inf, left: float = math.inf) -> _Timed:
    """Call ``step`` once, and on until the time is up, it was called ``most`` times, or nothing is left."""
    began, done, calls = time.perf_counter(), 0, 0
    while True:
        count = step()
        done, calls = done + count, calls + 1
        took = time.perf_counter() - began
        if not count or done >= left or calls >= most or took >= seconds:
            return _Timed(done, took)


def _repeat(step: Callable[[], int], seconds: float) -> int:
    """Call ``step`` at least once, until the time is up or nothing is left, and return how many events it did."""
    end, done = time.perf_counter() + seconds, 0
    while count := step():
        done += count
        if time.perf_counter() >= end:
            break
    return done


def durations_us(step: Callable[[], object], seconds: float, most: int) -> list[float]:
    """Return how many microseconds ``step`` took, each time, until the time is up, ``most`` times at most."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < most:
        started = time.perf_counter()
        step()
        ended = time.perf_counter()
        found.append((ended - started) * 1e6)
        if ended >= end:
            break
    return found


def percentiles(values: Sequence[float]) -> Figures:
    """Return p50, p99 and p99.9."""
    ordered = sorted(values)

    def at(part: float) -> float:
        return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]

    return {"p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999)}
