"""A report in Kafka's words, and with a lag that is known or not."""

from __future__ import annotations

import time

from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.query_report import QueryReport

REPORT = QueryReport("q", "id", "run", "uuid", None, None, True, 3, 10, None, 2.5, None)


def test_one_channel_is_one_partition_in_kafkas_words() -> None:
    report = REPORT.with_lag(Lag(7, None))
    assert report.lag_events == report.min_offsets_behind_latest == report.max_offsets_behind_latest == 7
    assert report.avg_offsets_behind_latest == 7.0 and report.oldest_age_seconds is None


def test_a_lag_that_cannot_be_told_is_none_and_not_0() -> None:
    report = REPORT.with_lag(Lag(7, int(time.time() * 1e6))).with_lag(None)
    assert (report.lag_events, report.avg_offsets_behind_latest, report.oldest_age_seconds) == (None, None, None)
