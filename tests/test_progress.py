"""How far long work is."""

from __future__ import annotations

import pytest

from spillable_stream.progress import Meter, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_tells_at_the_beginning_now_and_then_and_at_the_end() -> None:
    told: list[Progress] = []
    clock = Clock()
    meter = Meter("verify", "bytes", told.append, clock)
    meter.begin(100)
    for _ in range(10):
        meter.add(4)
        clock.now += 0.03
    meter.end()
    assert [(p.what, p.total, p.unit) for p in told[:-1]] == [("verify", 100, "bytes")] * (len(told) - 1)
    assert [p.done for p in told] == [0, 20, 36, 40]
    assert (told[-1].total, told[-1].fraction) == (40, 1.0)


def test_what_is_done_is_never_more_than_the_total() -> None:
    told: list[Progress] = []
    meter = Meter("verify", "bytes", told.append, Clock())
    meter.begin(10)
    meter.expect(5)
    meter._due = 0
    meter.add(20)
    assert told[-1] == ("verify", 20, 20, "bytes")


def test_an_unknown_total_has_no_fraction_and_nothing_to_do_is_done() -> None:
    assert Progress("open", 5, None, "bytes").fraction is None
    assert Progress("open", 0, 0, "bytes").fraction == 1.0
    assert Progress("open", 1, 4, "bytes").fraction == 0.25


def test_what_is_told_may_end_the_work() -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Meter("verify", "bytes", stop).begin(1)
    Meter("verify", "bytes", None).begin(1)
