"""A notebook cell that is run again and again on a real Spark, each time with a new checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.engine.automatic_groups import AutomaticGroups
from tests.spark.test_stream import bodies, run, stream
from tests.support.events import numbered, put

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUNS = 5
LOOK_MS = 300_000


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    """A channel that keeps what was taken."""
    with ss.Channel(tmp_path / "a", minimum_required_space=0, retention_ms=3_600_000, auto_group_ttl="1h") as channel:
        yield channel


def test_each_run_has_all_that_is_kept_and_its_group_goes(
    spark: SparkSession, channel: ss.Channel, tmp_path: Path
) -> None:
    events = stream(spark, channel.path)
    for i in range(RUNS):
        put(channel, *numbered(10 * i, 10))
        run(events, tmp_path / f"checkpoint-{i}", tmp_path / f"target-{i}")
        assert bodies(tmp_path / f"target-{i}") == numbered(0, 10 * (i + 1))
    engine = channel.engine()
    assert len(engine.follow().groups) == RUNS
    engine.upkeep.stop()
    groups = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
    groups.look(0)
    for _ in range(3_600_000 // LOOK_MS):
        groups.look(LOOK_MS)
    assert len(engine.follow().groups) <= 1  # the last query's worker may live on
