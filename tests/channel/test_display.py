from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelClosedError, MemoryLossWarning
from spillable_stream.channel.display import plot_samples, stats_html
from spillable_stream.channel.stats import GroupStats, WorkerStats
from spillable_stream.engine.telemetry import Sample
from tests.support.events import numbered, put, take

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Open = Callable[..., Channel]


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    import matplotlib  # here: each process of a run imports this module, and one runs its tests

    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


class _Page(HTMLParser):
    """The text, the tooltips and the tags of a piece of HTML, each tag closed where it should be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.titles: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.titles += [value or "" for name, value in attrs if name == "title"]
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.text += "\n" if tag in ("div", "tr") else "" if tag == "b" else " "

    def handle_data(self, data: str) -> None:
        self.text += data


def page(channel: Channel) -> _Page:
    return _Page(channel._repr_html_())


def spilling(open_channel: Open, tmp_path: Path) -> Channel:
    """Open a channel with 10 events in memory and 25 on disk."""
    channel = open_channel(
        memory_capacity=30, overflow_timeout=0, overflow_capacity=100, memory_dir=str(tmp_path), byte_capacity=1 << 20
    )
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 25))
    assert channel.stats().drain_order == [10, -25]
    return channel


# ── HTML ────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_channel_shows_that_it_is(open_channel: Open, path: Path) -> None:
    shown = page(open_channel(overflow_capacity=50))
    assert "Event channel" in shown.text and str(path) in shown.text
    for text in ("0 of 50 events", "overflow not active · 0 transactions spilled", "no events", "no groups"):
        assert text in shown.text
    assert "oldest" not in shown.text and "lost" not in shown.text and shown.titles == []


def test_a_filled_channel_shows_its_fill_and_its_groups(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=50)
    put(channel, *numbered(0, 20))
    take(channel, 5, "a")
    shown = page(channel)
    assert "15 of 50 events" in shown.text and "width:30%" in channel._repr_html_()
    assert shown.titles == ["15 events on disk"]
    assert re.search(r"oldest event \d+ s old", shown.text)
    assert [line.split() for line in shown.text.splitlines()[-3:-1]] == [
        ["group", "position", "lag", "in", "flight"],
        ["a", "5", "15", "0"],
    ]


def test_of_very_many_groups_those_with_most_to_take_are_shown(open_channel: Open) -> None:
    stats = replace(open_channel().stats(), groups={f"g{i:05}": GroupStats(0, i, 0) for i in range(10_000)})
    html = stats_html(Path("c"), False, stats)
    assert html.count("<tr>") == 101 and "g09999" in html and "and 9,900 more groups" in html


def test_a_spilling_channel_shows_both_tiers_and_the_drain_order(open_channel: Open, tmp_path: Path) -> None:
    channel = spilling(open_channel, tmp_path)
    shown, html = page(channel), channel._repr_html_()
    for text in ("10 of 30 events", "of 819.2 KiB", "25 of 100 events", "overflow active · 1 transaction spilled"):
        assert text in shown.text
    assert shown.titles == ["10 events in memory", "25 events on disk"]
    assert html.index("flex:10 1 0") < html.index("flex:25 1 0")


def test_a_typed_channel_is_called_one(open_channel: Open) -> None:
    assert "Typed channel" in page(open_channel(schema=pa.schema({"n": pa.int64()}))).text


def test_what_went_with_a_memory_tier_is_warned_of(open_channel: Open, path: Path, tmp_path: Path) -> None:
    spilling(open_channel, tmp_path).close(flush=False)
    shutil.rmtree((path / "memory").resolve())
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    shown = page(channel)
    assert "10 events lost with a memory tier: IDs 1 to 10" in shown.text
    assert shown.titles == ["25 events on disk"]


def test_many_losses_are_cut_short(open_channel: Open, path: Path) -> None:
    lost = tuple((n, n) for n in range(1, 31, 2))
    stats = replace(open_channel().stats(), lost=lost, doubtful=((40, 1050),))
    shown = _Page(stats_html(path, False, stats)).text
    assert "15 events lost with a memory tier: IDs 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, and 5 more ranges" in shown
    assert "perhaps lost, if they were ever put: IDs 40 to 1050" in shown


def test_a_closed_channel_shows_just_that(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    put(channel, b"one")
    channel.close()
    assert page(channel).text.split() == ["Channel", str(path), "closed"]


def test_a_removed_channel_shows_what_is_wrong_instead_of_raising(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    shutil.rmtree(path)
    assert "was removed" in page(channel).text


def test_every_text_is_escaped(open_channel: Open) -> None:
    stats = replace(open_channel().stats(), groups={"<script>&": GroupStats(1, 2, 3)})
    shown = _Page(stats_html(Path('/tmp/<b>"&amp;'), False, stats))
    assert "script" not in shown.tags
    assert "<script>&" in shown.text and '/tmp/<b>"&amp;' in shown.text


def test_it_has_no_scripts_and_needs_no_other_file(open_channel: Open, tmp_path: Path) -> None:
    channel = spilling(open_channel, tmp_path)
    take(channel, 1)
    assert page(channel).tags <= {"div", "span", "b", "code", "br", "table", "tr", "th", "td"}
    assert "url(" not in channel._repr_html_()


def test_the_strip_is_bounded(open_channel: Open, path: Path) -> None:
    stats = open_channel().stats()
    runs = [3, -1] * 50
    all_shown = _Page(stats_html(path, False, replace(stats, drain_order=runs)))
    assert all_shown.titles == ["3 events in memory", "1 event on disk"] * 50
    cut = _Page(stats_html(path, False, replace(stats, drain_order=[*runs, 7, *[-1, 2] * 10_000])))
    assert cut.titles == [*all_shown.titles, "… 20,001 more runs: 30,007 events"]
    assert "… 20,001 more runs" in cut.text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (90, "1.5 min"), (7200, "2.0 h"), (864_000, "10.0 d")]
)
def test_an_age_is_told_in_its_unit(open_channel: Open, path: Path, seconds: float, text: str) -> None:
    stats = replace(open_channel().stats(), oldest_age_seconds=seconds)
    assert f"oldest event {text} old" in stats_html(path, False, stats)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (7 << 50, "7,168.0 TiB")],
)
def test_a_size_is_told_in_its_unit(open_channel: Open, path: Path, size: int, text: str) -> None:
    stats = open_channel().stats()
    memory = replace(stats.memory, event_capacity=1, byte_capacity=size)
    assert f"0 bytes of {text}" in stats_html(path, False, replace(stats, memory=memory))


# ── the plot ────────────────────────────────────────────────────────────────────────────────────


def samples(*rows: tuple[float, int, int, bool]) -> list[Sample]:
    return [Sample(1_700_000_000 + time, memory, disk, overflow, 0) for time, memory, disk, overflow in rows]


def outline(ax: Axes, area: int) -> set[tuple[float, float]]:
    """Return the corners of one of the stacked areas."""
    (path,) = ax.collections[area].get_paths()
    return {(round(float(x), 6), round(float(y), 6)) for x, y in path.vertices}


def labels(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def test_a_plot_stacks_disk_on_memory_and_steps_where_the_fill_did() -> None:
    ax = plot_samples(samples((0, 4, 0, False), (1, 30, 25, False), (3, 10, 20, False)), "orders")
    assert outline(ax, 0) == {(0, 0), (1, 0), (3, 0), (0, 4), (1, 4), (1, 30), (3, 30), (3, 10)}
    assert outline(ax, 1) == {(0, 4), (1, 4), (1, 30), (3, 30), (3, 10), (1, 55), (3, 55)}
    assert labels(ax) == ["memory", "disk"]
    assert (ax.get_title(loc="left"), ax.get_ylabel()) == ("orders", "events stored")
    assert ax.get_xlabel().startswith("seconds since 2023-11-1")


def test_it_is_shaded_where_overflow_was_active() -> None:
    active = [False, True, True, False, False, False]
    ax = plot_samples(samples(*((i, 1, 1, overflow) for i, overflow in enumerate(active))), "orders")
    spans = [(patch.get_extents().transformed(ax.transData.inverted())) for patch in ax.patches]
    assert [(round(s.x0, 6), round(s.x1, 6)) for s in spans] == [(1, 3)]
    assert labels(ax) == ["memory", "disk", "overflow active"]


@pytest.mark.parametrize(
    ("span_seconds", "unit", "end"), [(179, "seconds", 179), (180, "minutes", 3), (14_400, "hours", 4)]
)
def test_its_time_is_in_a_fitting_unit(span_seconds: int, unit: str, end: float) -> None:
    ax = plot_samples(samples((0, 1, 0, False), (span_seconds, 1, 0, False)), "orders")
    assert ax.get_xlabel().startswith(f"{unit} since ") and ax.get_xlim() == (0, end)


def test_one_sample_is_drawn_as_a_level() -> None:
    ax = plot_samples(samples((0, 4, 6, True)), "orders")
    assert outline(ax, 1) == {(0, 4), (1, 4), (0, 10), (1, 10)}


def test_no_sample_is_said() -> None:
    ax = plot_samples([], "orders")
    assert [text.get_text() for text in ax.texts] == ["no samples"] and not ax.collections


def test_a_channel_plots_what_its_handle_saw_up_to_now(open_channel: Open, tmp_path: Path) -> None:
    from matplotlib import pyplot

    channel = spilling(open_channel, tmp_path)
    _, given = pyplot.subplots()
    ax = channel.plot(given)
    assert ax is given and ax.get_title(loc="left") == "channel"
    assert max(y for _, y in outline(ax, 0)) == 10 and max(y for _, y in outline(ax, 1)) == 35
    assert channel.plot() is not given


def test_what_came_right_after_a_sample_is_drawn_from_when_it_came(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(seconds: float) -> None:
        clock = SimpleNamespace(time=lambda: 1000 + seconds, monotonic=lambda: seconds)
        monkeypatch.setattr("spillable_stream.engine.telemetry.time", clock)

    at(0)
    channel = open_channel()
    at(0.5)
    put(channel, *numbered(0, 7))
    at(60)
    put(channel, b"later")
    at(60.5)
    put(channel, b"and later")
    at(80)
    channel.plot()
    drawn = [(s.time - 1000, s.disk_events) for s in channel.engine().samples.all()]
    assert drawn == [(0, 0), (0.5, 7), (60, 8), (60.5, 9), (80, 9)]


def test_a_closed_channel_has_no_plot(open_channel: Open) -> None:
    channel = open_channel()
    channel.close()
    with pytest.raises(ChannelClosedError):
        channel.plot()


def test_without_matplotlib_the_error_says_what_to_install(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'spillable-stream[plot]'")):
        open_channel().plot()
    assert "Event channel" in page(open_channel()).text


def test_tiers_have_the_same_colours_in_both(open_channel: Open, tmp_path: Path) -> None:
    from matplotlib import colors

    channel = spilling(open_channel, tmp_path)
    areas = channel.plot().collections
    assert len(areas) == 2
    for area in areas:
        assert f"background:{colors.to_hex(area.get_facecolor()[0])}" in channel._repr_html_()


def test_a_channel_that_keeps_events_shows_what_is_kept_beside_what_is_not_taken(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=50, retention_ms=3_600_000)
    put(channel, *numbered(0, 20))
    assert "kept" not in page(channel).text
    take(channel, 15, "a")
    shown = page(channel)
    assert re.search(r"kept +15 events \(\d+ bytes\) since ID 1 ", shown.text)
    assert "5 of 50 events" in shown.text and "width:75%" in channel._repr_html_()


def test_events_that_were_removed_before_a_group_took_them_are_warned_of(open_channel: Open) -> None:
    stats = open_channel().stats()
    groups = {f"<{i}>": GroupStats(10, 0, 0, removed=((1, 3), (5, 5))) for i in range(5)}
    shown = _Page(stats_html(Path("c"), False, replace(stats, groups=groups))).text
    assert "4 events were removed before <0> took them: IDs 1 to 3, 5" in shown and "<3> took" not in shown
    assert "events were removed for 2 more groups" in shown


def test_a_worker_of_the_handle_is_shown_with_what_is_wrong(open_channel: Open) -> None:
    worker = WorkerStats("bill<ing", "running", False, 1200, 1, 2, 9, 7, 3, 4, "no <room>")
    shown = stats_html(Path("c"), False, replace(open_channel().stats(), workers=(worker,)))
    text = _Page(shown).text
    assert "running: 1,200 done · 9 failed calls · 2 dead-lettered · 1 dropped · 7 waiting to be tried again" in text
    assert "worker of bill<ing" in text and "no <room>" in text and "no <room>" not in shown
