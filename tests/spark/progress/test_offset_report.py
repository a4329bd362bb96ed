"""What a source tells a listener by way of Spark."""

from __future__ import annotations

import json

import pytest

from spillable_stream.spark.progress.lag import Lag
from spillable_stream.spark.progress.offset_report import OffsetReport


@pytest.mark.parametrize(("owner", "lag"), [(None, Lag(0, None)), ("pid 1", Lag(3, 1_700_000_000_000_000))])
def test_listener_reads_what_the_source_told(owner: str | None, lag: Lag) -> None:
    told = OffsetReport("c", 7, "/c", "g", owner, lag)
    assert OffsetReport.of(json.loads(json.dumps(told.to_json()))) == told


def test_listener_reads_of_a_restored_channel_what_the_source_told() -> None:
    told = OffsetReport("c", 7, "/c", "g", None, Lag(0, None), "token")
    assert OffsetReport.of(json.loads(json.dumps(told.to_json()))) == told
    assert list(told.to_json()) == sorted(told.to_json())


def test_keys_are_sorted_and_the_lag_is_there_in_kafkas_words() -> None:
    told = OffsetReport("c", 7, "/c", "g", None, Lag(3, None)).to_json()
    assert list(told) == sorted(told)
    assert {told[f"{name}OffsetsBehindLatest"] for name in ("min", "max", "avg")} == {3}


def test_offset_of_a_batch_tells_nothing_of_the_channels_end() -> None:
    assert OffsetReport.of({"channel": "c", "writeOrderId": 7}) is None
    assert OffsetReport.of({}) is None
