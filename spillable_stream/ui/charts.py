"""The lines over time of one channel, for Apache ECharts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spillable_stream.channel.figures import age_text, rate_text
from spillable_stream.observe.history import Sample
from spillable_stream.ui.style import DISK, MEMORY

__all__ = ["CHARTS", "Chart"]

_AXIS, _GRID = "#8791a0", "rgba(128,128,128,.18)"  # both read on white and on black


class Chart:
    """One chart.

    Args:
        title: its title.
        lines: the name, the colour and the value of each line.
        text: returns in words what a value is.
        stacked: whether the lines are areas, one on the other.
    """

    def __init__(
        self,
        title: str,
        lines: Sequence[tuple[str, str, Callable[[Sample], float]]],
        text: Callable[[float], str],
        *,
        stacked: bool = False,
    ) -> None:
        self.title = title
        self._lines = lines
        self._text = text
        self._stacked = stacked

    def options(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """Return the options of the chart."""
        return {
            "animation": False,
            "grid": {"left": 8, "right": 30, "top": 34, "bottom": 4, "containLabel": True},
            "legend": {"top": 0, "left": 0, "textStyle": {"color": _AXIS}, "itemHeight": 8},
            "tooltip": {"trigger": "axis", "confine": True},
            "xAxis": {"type": "time", "axisLabel": {"color": _AXIS, "hideOverlap": True}, "splitLine": {"show": False}},
            "yAxis": {
                "type": "value",
                "min": 0,
                "splitNumber": 3,
                "axisLabel": {"color": _AXIS},
                "splitLine": {"lineStyle": {"color": _GRID}},
            },
            "series": [self._series(name, colour, value, samples) for name, colour, value in self._lines],
        }

    def _series(
        self, name: str, colour: str, value: Callable[[Sample], float], samples: Sequence[Sample]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "color": colour,
            "lineStyle": {"width": 1.5},
            "data": [[round(s.at * 1000), round(value(s), 2)] for s in samples],
        }
        return {**found, "stack": "all", "areaStyle": {"opacity": 0.45}} if self._stacked else found

    def words(self, samples: Sequence[Sample]) -> str:
        """Return in words what the chart shows last."""
        if not samples:
            return f"{self.title}: nothing yet"
        last = ", ".join(f"{name} {self._text(value(samples[-1]))}" for name, _, value in self._lines)
        return f"{self.title}, now: {last}"


CHARTS = (
    Chart(
        "Events put and taken a second",
        [("put", MEMORY, lambda m: m.puts), ("taken by the fastest group", DISK, lambda m: m.takes)],
        rate_text,
    ),
    Chart("Seconds that the oldest event has waited", [("oldest event", "#b0508e", lambda m: m.age_seconds)], age_text),
    Chart(
        "Events in each tier",
        [("memory", MEMORY, lambda m: m.memory_events), ("disk", DISK, lambda m: m.disk_events)],
        lambda count: f"{count:,.0f}",
        stacked=True,
    ),
)
