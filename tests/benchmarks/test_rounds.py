"""Contestants that take turns, medians, ratios and percentiles."""

from __future__ import annotations

import math
from pathlib import Path
from threading import Lock

import pytest

from benchmarks import rounds
from benchmarks.rounds import (
    BURST,
    Comparison,
    Figures,
    Group,
    durations_us,
    measure,
    percentiles,
    rate,
    rates_in_turn,
)

FOREVER = math.inf


def silent(_: str) -> None:
    pass


def comparison(rounds_: list[dict[str, Figures]]) -> Comparison:
    return Comparison("name", "title", "events/s", "floor", rounds_)


def test_the_order_turns_and_each_has_an_empty_directory(tmp_path: Path) -> None:
    seen: list[str] = []

    def contestant(name: str):
        def run(directory: Path) -> Figures:
            assert list(directory.iterdir()) == []
            (directory / "file").touch()
            seen.append(name)
            return {"put": len(seen)}

        return run

    group = Group("g", "G", "events/s", "a", {name: contestant(name) for name in "abc"})
    found = measure(group, 3, tmp_path, silent, FOREVER)
    assert seen == list("abc" + "bca" + "cab")
    assert [list(r) for r in found.rounds] == [list("abc")] * 3
    assert list(tmp_path.iterdir()) == []


def test_rounds_that_warm_up_do_not_count(tmp_path: Path) -> None:
    calls = []

    def run(_: Path) -> Figures:
        calls.append(1)
        return {"put": len(calls)}

    found = measure(Group("g", "G", "rows/s", "a", {"a": run}, warm_ups=2), 1, tmp_path, silent, FOREVER)
    assert found.rounds == [{"a": {"put": 3}}]


def test_a_difference_is_the_median_of_the_rounds_own() -> None:
    found = comparison([{"us": {"p50": 9}, "floor": {"p50": 1}}, {"us": {"p50": 5}, "floor": {"p50": 4}}])
    assert found.above("us", "p50", "floor") == 4.5


def test_who_fails_is_left_out_with_the_reason(tmp_path: Path) -> None:
    calls = []

    def fail(_: Path) -> Figures:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("no room\nat all")
        return {"put": 1.0}

    group = Group("g", "G", "events/s", "a", {"a": lambda _: {"put": 2.0}, "b": fail})
    found = measure(group, 3, tmp_path, silent, FOREVER)
    assert (found.contestants, found.failures, len(calls)) == (["a"], {"b": "OSError: no room"}, 2)
    assert found.median("a", "put") == 2.0 and not found.has("b", "put")


def test_of_a_failure_in_sparks_workers_the_reason_is_their_last_error(tmp_path: Path) -> None:
    def fail(_: Path) -> Figures:
        raise ValueError(
            "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
            '  File "a.py", line 1, in f\n    f()\nKeyError: 1\n\n'
            "The above exception was the direct cause of the following exception:\n\n"
            'Traceback (most recent call last):\n  File "a.py", line 2, in g\n    g()\n'
            "errors.StoreError: no credentials\n SQLSTATE: 38000"
        )

    group = Group("g", "G", "events/s", "a", {"a": fail})
    assert measure(group, 1, tmp_path, silent, FOREVER).failures == {"a": "errors.StoreError: no credentials"}


def test_past_the_deadline_there_is_a_single_round(tmp_path: Path) -> None:
    group = Group("g", "G", "events/s", "a", {"a": lambda _: {"put": 1.0}})
    assert len(measure(group, 5, tmp_path, silent, deadline=0.0).rounds) == 1
    assert len(measure(Group(*vars(group).values()), 5, tmp_path, silent, FOREVER).rounds) == 5
    few = Group("g", "G", "events/s", "a", {"a": lambda _: {"put": 1.0}}, rounds=2)
    assert len(measure(few, 5, tmp_path, silent, FOREVER).rounds) == 2


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    pairs = [(1.0, 10.0), (20.0, 10.0), (30.0, 60.0)]
    found = comparison([{"us": {"put": a}, "floor": {"put": b}} for a, b in pairs])
    assert found.median("us", "put") == 20.0
    assert found.median("floor", "put") == 10.0
    assert found.ratio("us", "put", "floor") == 0.5
    assert comparison([{"us": {"x": 1.0}, "floor": {"x": 0.0}}]).ratio("us", "x", "floor") == math.inf


def test_a_figure_that_only_some_have() -> None:
    found = comparison([{"us": {"put": 1.0, "take": 2.0}, "floor": {"put": 3.0}}])
    assert found.figures == ["put", "take"]
    assert found.has("us", "take") and not found.has("floor", "take") and not found.has("peer", "put")
    assert comparison([]).contestants == []


def test_percentiles() -> None:
    assert percentiles(range(1001)) == {"p50": 500, "p99": 990, "p99.9": 999}
    assert percentiles([7.0]) == {"p50": 7.0, "p99": 7.0, "p99.9": 7.0}


def test_a_rate_ends_when_nothing_is_left() -> None:
    left, lock = [3] * 10, Lock()

    def step() -> int:
        with lock:
            return left.pop() if left else 0

    assert rate(step, 60.0, threads=2) == 0.0  # all of it was the warm-up
    assert left == []
    for warm_up in (False, True):  # one thread's warm-up counts where it did all that there was
        left += [3] * 10
        assert rate(step, 60.0, warm_up=warm_up) > 0
        assert left == []


def test_durations_are_as_many_as_asked_for() -> None:
    assert len(durations_us(lambda: None, 60.0, 5)) == 5
    assert len(durations_us(lambda: None, 0.0, 5)) == 1


def test_the_json_has_every_round() -> None:
    found = comparison([{"us": {"put": 123456.789}}])
    assert found.as_dict() == {
        "title": "title",
        "unit": "events/s",
        "floor": "floor",
        "rounds": [{"us": {"put": 123460.0}}],
    }
    found.failures["peer"] = "missing"
    assert found.as_dict()["failures"] == {"peer": "missing"}
    assert Comparison.from_dict("name", found.as_dict()).as_dict() == found.as_dict()


class Clock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds


class Queue:
    """A queue whose puts and takes take some seconds an event each, by a clock."""

    def __init__(self, clock: Clock, put_seconds: float, take_seconds: float, events: int = 10) -> None:
        self.clock, self.put_seconds, self.take_seconds, self.events = clock, put_seconds, take_seconds, events
        self.waiting = self.most_waiting = 0

    def put(self) -> int:
        self.clock.seconds += self.put_seconds * self.events
        self.waiting += self.events
        self.most_waiting = max(self.most_waiting, self.waiting)
        return self.events

    def take(self) -> int:
        assert self.waiting, "nobody waits for the end of the queue"
        self.clock.seconds += self.take_seconds * self.events
        self.waiting -= self.events
        return self.events


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(rounds, "time", found)
    return found


@pytest.mark.parametrize(("put_seconds", "take_seconds"), [(1e-6, 0.05), (0.05, 1e-6), (2.0, 1e-6), (1e-6, 2.0)])
def test_who_is_slow_is_measured_for_its_seconds_and_one_step(
    clock: Clock, put_seconds: float, take_seconds: float
) -> None:
    queue = Queue(clock, put_seconds, take_seconds)
    found = rates_in_turn(queue.put, queue.take, 1.0, 0.25)
    assert found["put"] == pytest.approx(1 / put_seconds) and found["take"] == pytest.approx(1 / take_seconds)
    step = 10 * max(put_seconds, take_seconds)
    assert clock.seconds < 2 * (1.0 + 0.25 + step) + 0.01


def test_who_is_quick_has_many_puts_in_a_row_and_who_is_slow_as_many_as_it_takes_in_time(clock: Clock) -> None:
    quick, slow = Queue(clock, 1e-5, 1e-5), Queue(clock, 1e-5, 5e-3)
    rates_in_turn(quick.put, quick.take, 1.0, 0.25)
    rates_in_turn(slow.put, slow.take, 1.0, 0.25)
    assert quick.most_waiting == BURST * quick.events
    assert slow.most_waiting == 2 * slow.events
