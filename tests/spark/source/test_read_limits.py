"""Spark's own limits of a micro-batch."""

from __future__ import annotations

import pytest

from spillable_stream.spark.source.read_limits import ReadAllAvailable, default_limit, is_everything
from spillable_stream.spark.source.read_options import StreamOptions

pytestmark = pytest.mark.spark


def test_only_what_asks_for_everything_lifts_the_options_limits() -> None:
    assert is_everything(ReadAllAvailable())
    assert not is_everything(None) and not is_everything(object())


def test_without_a_limit_everything_is_asked_for() -> None:
    assert is_everything(default_limit(StreamOptions.of()))


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("max_events_per_trigger", "ReadMaxRows"),
        ("max_bytes_per_trigger", "ReadMaxBytes"),
        ("min_events_per_trigger", "ReadMinRows"),
    ],
)
def test_each_option_has_its_limit(option: str, name: str) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark has limits since 4.2")
    assert type(default_limit(StreamOptions.of({option: 5}))).__name__ == name
