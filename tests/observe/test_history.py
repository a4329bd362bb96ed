"""The recent past of channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spillable_stream import Channel, GroupStats
from spillable_stream.observe.history import History, Sample, Spill
from spillable_stream.observe.observation import Observation, Rates

Open = Callable[..., Channel]


def rates(spills: float = 0.0, seconds: float = 1.0) -> Rates:
    return Rates(seconds, 20.0, 10.0, {}, 2.0, spills, 2.0)


def test_moments_are_what_was_seen_in_order(open_channel: Open) -> None:
    groups = {"a": GroupStats(0, 1, 0, oldest_age_seconds=3.0), "b": GroupStats(0, 2, 0, oldest_age_seconds=7.0)}
    stats, history = replace(open_channel().stats(), groups=groups), History()
    history.add([Observation("c", 1.0, stats), Observation("d", 1.0, problem="gone")])
    assert history.samples("c") == history.samples("d") == []
    for at in (2.0, 3.0, 3.0):
        history.add([Observation("c", at, stats, rates=rates())])
    assert history.samples("c") == [Sample(at, 0, 0, 20.0, 10.0, 7.0) for at in (2.0, 3.0)]


def test_spills_are_counted_between_two_looks_the_latest_first(open_channel: Open) -> None:
    stats, history = open_channel().stats(), History()
    for at, a_second in ((2.0, 1.5), (4.0, 0.0), (6.0, 2.0)):
        history.add([Observation("c", at, stats, rates=rates(a_second, 2.0))])
    assert history.spills("c") == [Spill(6.0, 4), Spill(2.0, 3)]


def test_ten_minutes_are_kept(open_channel: Open) -> None:
    stats, history = open_channel().stats(), History()
    for at in range(700):
        history.add([Observation("c", float(at), stats, rates=rates(1.0))])
    assert len(history.samples("c")) == 600 and history.samples("c")[-1].at == 699
    assert len(history.spills("c")) == 50
