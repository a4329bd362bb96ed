"""The lines over time."""

from __future__ import annotations

from spillable_stream.observe.history import Sample
from spillable_stream.ui.charts import CHARTS

SAMPLES = [Sample(1.0, 10, 30, 100.0, 90.0, 5.0), Sample(2.0, 11, 33, 120.0, 95.5, 90.0)]


def test_each_line_has_a_point_a_moment() -> None:
    rates, age, tiers = (chart.options(SAMPLES)["series"] for chart in CHARTS)
    assert [s["data"] for s in rates] == [[[1000, 100.0], [2000, 120.0]], [[1000, 90.0], [2000, 95.5]]]
    assert age[0]["data"][-1] == [2000, 90.0]
    assert [s["stack"] for s in tiers] == ["all", "all"] and tiers[1]["data"][0] == [1000, 30]


def test_a_chart_says_in_words_what_it_shows_last() -> None:
    assert CHARTS[0].words(SAMPLES) == (
        "Events put and taken a second, now: put 120/s, taken by the fastest group 96/s"
    )
    assert CHARTS[1].words(SAMPLES).endswith("oldest event 1.5 min")
    assert CHARTS[2].words([]).endswith("nothing yet")
