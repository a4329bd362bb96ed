"""Reports of queries in a notebook."""

from __future__ import annotations

from dataclasses import replace

from spillable_stream.spark.progress.query_report import QueryReport
from spillable_stream.spark.progress.report_html import reports_html

REPORT = QueryReport("<orders>", "q1", "r1", "c1", "/data/orders", "billing", True, 7, 100, 1234, 56.0, 90.0)


def test_a_report_is_a_row_with_lag_age_and_speed() -> None:
    html = reports_html([REPORT])
    for text in ("&lt;orders&gt;", "/data/orders", "billing", ">1,234<", ">1.5 min<", ">56/s<", ">7<"):
        assert text in html
    assert "<orders>" not in html and "ended" not in html


def test_unknown_is_said_so_and_ended_queries_come_last() -> None:
    unknown = replace(REPORT, query=None, path=None, group=None, last_batch=-1)
    unknown = unknown.with_lag(None)
    html = reports_html([replace(unknown, active=False), REPORT])
    assert html.index("billing") < html.index("q1") < html.index("ended")
    assert html.count(">-<") == 4 and ">c1<" in html


def test_without_a_query_it_says_so() -> None:
    assert "no query" in reports_html([])
