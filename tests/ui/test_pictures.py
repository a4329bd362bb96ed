"""The pictures of the page, as HTML: right, escaped, and said in words, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spillable_stream import Channel, ChannelStats, Event, GroupStats, KeptStats, verify
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.observe.advice import Advice, Urgency
from spillable_stream.observe.history import Spill
from spillable_stream.observe.observation import Observation, Rates
from spillable_stream.ui import pictures
from spillable_stream.ui.changes import changeable_options
from tests.support.channels import three_puts
from tests.support.damage import flip, log_file
from tests.support.events import numbered, put

Open = Callable[..., Channel]

RATES = Rates(1.0, 1134.0, 900.4, {"billing": 900.4}, 20.0, 2.0, 31.0)
EVIL = "<script>alert(1)</script>\"'&"


class _Html(HTMLParser):
    """The text and the attributes of HTML whose tags are all closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.attributes: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "

    def values(self, name: str) -> list[str]:
        return [value for found, value in self.attributes if found == name]


@pytest.fixture
def stats(open_channel: Open, tmp_path: Path) -> ChannelStats:
    """A channel with 10 events in memory and 30 on disk."""
    channel = open_channel(memory_capacity=10, overflow_timeout=0, overflow_capacity=100, memory_dir=str(tmp_path))
    put(channel, *numbered(0, 10))
    put(channel, *numbered(10, 30))
    return channel.stats()


def test_tiers_are_meters_with_their_figures(stats: ChannelStats) -> None:
    html = _Html(pictures.tiers(replace(stats, kept=KeptStats(40, 1024, 1, 5.0))))
    assert html.values("role") == ["meter"] * 3 and html.values("aria-label") == ["memory", "disk", "kept"]
    assert html.values("aria-valuenow") == ["100", "30", "50"]
    assert "10 of 10" in html.text and "30 of 100" in html.text and "40 events · 1.0 KiB" in html.text


def test_a_tier_with_little_in_it_is_seen_and_one_that_is_missing_says_so(stats: ChannelStats) -> None:
    tiny = replace(stats.disk, events=1, event_capacity=10**8)
    html = pictures.tiers(replace(stats, disk=tiny, memory=replace(stats.memory, events=0, event_capacity=0)))
    assert "width:max(3px, 1e-06%)" in html and "width:0" in html and "none" in html


def test_the_drain_order_is_a_strip_and_said_in_words() -> None:
    html = _Html(pictures.drain_order([10, -30]))
    assert html.values("aria-label") == ["drain order: 10 events in memory, then 30 events on disk"]
    assert re.findall(r"(memory|disk)\" style=\"flex:(\d+)", pictures.drain_order([10, -30])) == [
        ("memory", "10"),
        ("disk", "30"),
    ]
    many = _Html(pictures.drain_order([1, -3] * 500))
    assert many.tags.count("span") < 70 and many.values("aria-label")[0].endswith("then 995 more runs")
    assert "no events" in pictures.drain_order([])


def test_figures_and_groups_show_rates_lag_and_age(stats: ChannelStats) -> None:
    groups = {"billing": GroupStats(4, 36, 2, oldest_age_seconds=90.0), "auto": GroupStats(0, 40, 0, is_automatic=True)}
    seen = Observation("c", 1.0, replace(stats, groups=groups, without_owner=("auto",)), rates=RATES)
    text = _Html(pictures.figures(seen)).text
    assert "1,134/s" in text and "1.5 min" in text and "31/s" in text
    table = _Html(pictures.groups(seen))
    assert table.text.index("auto") < table.text.index("billing"), "most to take first"
    assert "without an owner" in table.text and "900/s" in table.text and table.values("scope") == ["col"] * 6
    assert pictures.figures(Observation("c", 1.0, problem="gone")) == ""


def test_workers_are_a_table_those_in_trouble_first(stats: ChannelStats) -> None:
    well = WorkerStats("audit", "running", True, 1204, 0, 1, 3, 0, 1, 0, last_error=EVIL)
    died = WorkerStats("billing", "died", False, 7, 0, 0, 0, 0, 0, 0, trouble="it is gone", process="pid 1 on h")
    table = _Html(pictures.workers(Observation("c", 1.0, replace(stats, workers=(well, died)))))
    assert table.text.index("billing") < table.text.index("audit")
    assert "1,204" in table.text and "<script>" in table.text and "script" not in table.tags
    assert (
        "it is gone" in table.text and "pid 1 on h" in table.text and table.values("class").count("s-badge warn") == 1
    )
    assert (
        pictures.workers(Observation("c", 1.0, stats)) == "" == pictures.workers(Observation("c", 1.0, problem="gone"))
    )


def test_of_very_many_groups_and_workers_those_that_need_a_look_are_shown(stats: ChannelStats) -> None:
    groups = {f"g{i:05}": GroupStats(0, i, 0) for i in range(10_000)}
    workers = [WorkerStats(f"w{i}", "running", True, i, 0, 0, 0, 0, 0, 0) for i in range(10_000)]
    workers[-1] = replace(workers[-1], state="died", is_healthy=False)
    seen = Observation("c", 1.0, replace(stats, groups=groups, workers=tuple(workers)))
    for html, first in ((pictures.groups(seen), "g09999"), (pictures.workers(seen), "w9999")):
        shown = _Html(html)
        assert shown.tags.count("tr") == 101 and first in shown.text and "and 9,900 more" in shown.text


def test_advice_and_spills_are_lists(stats: ChannelStats) -> None:
    html = _Html(pictures.advice([Advice(Urgency.ERROR, EVIL, "Do it.")]))
    assert (
        html.values("class") == ["s-advice", "error"] and "Error: <script>" in html.text and "script" not in html.tags
    )
    assert pictures.advice([]) == ""
    assert "7" in pictures.spills([Spill(1000.0, 7)]) and "No put" in pictures.spills([])


def test_options_show_value_meaning_and_what_was_changed(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=4000)
    html = _Html(pictures.options(changeable_options(), {**channel.options}))
    assert "memoryCapacity" in html.text and "4,000" in html.text and "changed" in html.text
    assert all(option.name in html.text for option in changeable_options())
    assert "`" not in html.text


def test_events_are_text_json_and_hexadecimal_digits_and_never_markup(open_channel: Open) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b'{"a": ["\xc3\xa9"]}', {"source": EVIL}), Event(EVIL.encode()), Event(bytes(range(256)))])
    html = _Html(pictures.events(channel.head()))
    assert "script" not in html.tags and EVIL in html.text
    assert '{\n  "a": [\n    "é"\n  ]\n}' in html.text
    assert "000000  00 01 02 03" in html.text and "0000f0  f0 f1" in html.text
    assert html.values("tabindex") == ["0"], "a table that scrolls can be reached with the keyboard"
    assert "no events" in pictures.events(channel.head(1, start="latest"))


def test_a_large_body_is_cut(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"x" * 1_000_000)
    html = pictures.events(channel.head())
    assert len(html) < 200_000 and "976.6 KiB" in html


def test_a_report_says_what_is_wrong_and_what_a_repair_would_lose(path: Path) -> None:
    at = three_puts(path)
    assert "healthy" in pictures.report(verify(path))
    flip(log_file(path), at[1] + 60)
    html = _Html(pictures.report(verify(path)))
    assert "damaged" in html.text and "would lose 2 events, 3 to 4" in html.text and str(log_file(path)) in html.text
