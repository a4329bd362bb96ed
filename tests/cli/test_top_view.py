"""What ``top`` draws, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from spillable_stream import Channel, ChannelStats, GroupStats
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.cli.top_view import block, block_height, overview
from spillable_stream.observe.observation import Observation, Rates
from tests.support.events import numbered, put

Open = Callable[..., Channel]

RATES = Rates(1.0, 1134.0, 900.4, {"billing": 900.4, "audit": 0.25}, 20.0, 2.0, 31.0)


def drawn(view: RenderableType, width: int) -> list[str]:
    """Return the lines of a view as a terminal of a width shows them."""
    console = Console(width=width, height=50, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return captured.get().splitlines()


@pytest.fixture
def stats(open_channel: Open, tmp_path: Path) -> ChannelStats:
    """A channel with 10 events in memory, the first to be taken, and 30 on disk."""
    options = {"memory_capacity": 10, "overflow_timeout": 0, "overflow_capacity": 100, "memory_dir": str(tmp_path)}
    channel = open_channel(**options)
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 30))
    groups = {"billing": GroupStats(4, 36, 2, oldest_age_seconds=90.0), "audit": GroupStats(0, 40, 0)}
    return replace(channel.stats(), groups=groups, overflow_active=True)


def test_a_channel_has_bars_its_drain_order_its_pace_and_its_groups(stats: ChannelStats) -> None:
    lines = drawn(block(Observation("/data/orders", 1.0, stats, rates=RATES), 80), 80)
    assert lines[0].startswith("/data/orders ") and lines[0].endswith(" 36% full")
    assert lines[1].startswith("  memory █") and "10 of 10 · " in lines[1] and "·· 10" not in lines[1]
    assert lines[2].startswith("  disk   ▒") and "30 of 100 · " in lines[2]
    assert len(set(map(len, (line.partition(" 10 of")[0].partition(" 30 of")[0] for line in lines[1:3])))) == 1
    strip = lines[3].removeprefix("  drain  ")
    assert (strip.count("█"), strip.count("▒")) == (18, 53) and strip == "█" * 18 + "▒" * 53
    assert lines[4] == "  put 1,134/s · take 900/s · spills 1 (2.0/s) · syncs 31/s"
    assert lines[5].split() == ["group", "lag", "age", "taken", "in", "flight"]
    assert lines[6].split() == ["audit", "40", "-", "0.2/s", "-"]
    assert lines[7].split() == ["billing", "36", "1.5", "min", "900/s", "2"]
    assert lines[8].startswith("  ! Memory has no room")


def test_a_narrow_screen_shows_the_names_of_groups_and_fewer_figures(stats: ChannelStats) -> None:
    lines = drawn(block(Observation("/data/orders", 1.0, stats, rates=RATES), 40), 40)
    assert lines[5].split() == ["group", "lag", "age"]
    assert lines[7].split() == ["billing", "36", "1.5", "min"]


def test_each_groups_worker_has_a_line_those_in_trouble_first(stats: ChannelStats) -> None:
    well = WorkerStats("audit", "running", True, 1204, 0, 1, 3, 0, 1, 0, last_error="ValueError: no amount")
    died = WorkerStats("billing", "died", False, 7, 0, 0, 0, 0, 0, 0, trouble="its process is gone")
    seen = Observation("/data/orders", 1.0, replace(stats, workers=(well, died)), rates=RATES)
    lines = drawn(block(seen, 120), 120)
    assert lines[8] == "  worker billing died · 7 done · its process is gone"
    assert lines[9] == (
        "  worker audit running · 1,204 done · 3 failed calls · 1 dead-lettered · last error: ValueError: no amount"
    )
    assert drawn(block(seen, 40), 40)[8:10] == [
        "  worker billing died · 7 done · its pr…",
        "  worker audit running · 1,204 done · 3…",
    ]


@pytest.mark.parametrize("width", [40, 60, 72, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_the_height_is_known(stats: ChannelStats, width: int) -> None:
    many = {f"group-{i}-with-quite-a-long-name": GroupStats(0, i, 0) for i in range(20)}
    path = "/a/long/path/that/says/little/until/its/end/" + "orders" * 6
    for seen in (
        Observation(path, 1.0, stats, rates=RATES),
        Observation(path, 1.0, replace(stats, groups=many)),
        Observation(path, 1.0, replace(stats, groups={})),
        Observation(path, 1.0, replace(stats, workers=(WorkerStats("g", "ended", False, *[0] * 7),) * 12)),
        Observation(path, 1.0, replace(stats, workers=(WorkerStats("g" * 90, "running", True, *[0] * 7),))),
        Observation(path, 1.0, problem="NotAChannelError: " + "it is missing and more " * 5),
    ):
        lines = drawn(block(seen, width), width)
        assert max(map(cell_len, lines)) <= width
        assert len(lines) == block_height(seen, width)
        assert "orders" in lines[0], "the end of a path tells channels apart"


def test_each_cell_of_the_strip_is_of_the_tier_that_has_most_of_its_share(stats: ChannelStats) -> None:
    alternating = replace(stats, drain_order=[3, -1] * 500)
    strip = drawn(block(Observation("c", 1.0, alternating), 80), 80)[3].removeprefix("  drain  ")
    assert set(strip) == {"█"} and len(strip) == 71
    half = replace(stats, drain_order=[*[1, -3] * 250, *[3, -1] * 250])
    strip = drawn(block(Observation("c", 1.0, half), 80), 80)[3].removeprefix("  drain  ")
    assert strip.startswith("▒" * 35) and strip.endswith("█" * 35)


def test_without_two_looks_there_are_no_rates_rather_than_zeros(stats: ChannelStats) -> None:
    assert drawn(block(Observation("c", 1.0, stats), 80), 80)[4] == "  put - · take - · spills 1 (-) · syncs -"


def test_many_channels_have_a_line_each_and_a_narrow_terminal_fewer_columns(stats: ChannelStats) -> None:
    seen = [Observation("/data/orders", 1.0, stats, rates=RATES), Observation("/data/gone", 1.0, problem="gone")]
    wide, narrow = drawn(overview(seen, 80), 80), drawn(overview(seen, 60), 60)
    assert wide[0].split() == ["channel", "fill", "events", "put", "take", "lag", "age", "spills", "syncs"]
    assert wide[1].split()[:3] == ["/data/orders", "36%", "40"] and "31/s" in wide[1]
    assert narrow[0].split() == ["channel", "fill", "events", "put", "take", "lag", "age"]
    assert wide[2].split() == ["/data/gone", "down"]
    assert max(map(len, narrow)) <= 60
