"""Contestants that go on from round to round, and channels that have filled their files before they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import sustained
from benchmarks.ours import new_channel
from benchmarks.rounds import Figures
from benchmarks.sustained import kept_open, once


def counting(said: list[str]) -> sustained.Opened:
    """Return what says when it is opened and closed, and counts its measurements."""

    @contextmanager
    def opened(place: Path) -> Iterator[Callable[[], Figures]]:
        assert list(place.iterdir()) == []
        said.append("opened")
        count = 0

        def measure() -> Figures:
            nonlocal count
            count += 1
            return {"put": count}

        yield measure
        said.append("closed")

    return opened


def test_who_is_kept_open_continues_where_it_was_and_is_closed_at_the_end(tmp_path: Path) -> None:
    said: list[str] = []
    with kept_open({"us": counting(said)}, tmp_path) as contestants:
        assert said == []
        assert [contestants["us"](tmp_path) for _ in range(3)] == [{"put": 1}, {"put": 2}, {"put": 3}]
        assert said == ["opened"]
    assert said == ["opened", "closed"]
    assert list(tmp_path.iterdir()) == []


def test_who_runs_once_begins_anew_each_time(tmp_path: Path) -> None:
    said: list[str] = []
    run = once(counting(said))
    assert [run(tmp_path) for _ in range(2)] == [{"put": 1}] * 2
    assert said == ["opened", "closed"] * 2


@pytest.mark.slow
def test_a_channel_that_filled_its_files_holds_nothing_and_uses_them_again(tmp_path: Path) -> None:
    with new_channel(tmp_path) as channel:
        sustained._fill_files(channel)
        assert channel.stats().channel_size == 0
        numbers = [int(path.name.rpartition("-")[2]) for path in (tmp_path / "channel" / "data").glob("*log-*")]
        assert max(numbers) >= 5 and len(numbers) <= 3
