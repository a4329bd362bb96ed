"""A buffer drains: what a query has read makes room, without a next batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.engine.committer import Committer
from spillable_stream.engine.take_requests import Takes
from spillable_stream.errors import ChannelFullError
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.events import numbered, peek, put
from tests.support.spark.sources import named_source

pytestmark = pytest.mark.spark


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ss.Channel]:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, overflow_capacity=10, keep_alive=0) as channel:
        yield channel


def planned(reader: SpillableStreamReader, *, before_4_2: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan the first batch, and return where it begins and ends."""
    start = reader.initialOffset()
    end = reader.latestOffset(None if before_4_2 else start)
    assert reader.partitions(start, end)
    return start, end


def position(channel: ss.Channel) -> int:
    return channel.stats().groups["default"].position


# ── what proves that a batch is done ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before_4_2", [False, True], ids=["4.2 and later", "4.0 and 4.1"])
def test_asking_for_the_next_batch_proves_that_the_last_one_is_done(channel: ss.Channel, before_4_2: bool) -> None:
    put(channel, *numbered(0, 10))
    reader = named_source(channel)
    _, end = planned(reader, before_4_2=before_4_2)
    assert position(channel) == 0
    with pytest.raises(ChannelFullError):
        put(channel, b"next")
    assert reader.latestOffset(None if before_4_2 else end)["writeOrderId"] == 10
    assert position(channel) == 10
    put(channel, b"next")
    reader.stop()


def test_planning_a_batch_proves_nothing_of_it(channel: ss.Channel) -> None:
    put(channel, *numbered(0, 5))
    reader = named_source(channel)
    start, end = planned(reader)
    assert reader.partitions(start, end)
    assert reader.initialOffset() == start
    reader.reportLatestOffset()
    assert position(channel) == 0
    reader.stop()


def test_a_restart_that_asks_before_it_has_done_its_batch_again_proves_nothing(channel: ss.Channel) -> None:
    """As availableNow does before Spark 4.2: there the offset that is asked for has no beginning."""
    put(channel, *numbered(0, 5))
    reader = named_source(channel)
    start, end = planned(reader, before_4_2=True)
    reader.stop()
    again = named_source(channel)
    assert again.latestOffset()["writeOrderId"] == 5
    assert position(channel) == 0
    assert again.partitions(end, end) == []
    assert again.partitions(start, end), "the batch is done again"
    assert position(channel) == 0
    again.latestOffset()
    assert position(channel) == 5
    again.stop()


def test_a_restart_after_a_batch_that_was_done_commits_it(channel: ss.Channel) -> None:
    put(channel, *numbered(0, 10))
    reader = named_source(channel)
    _, end = planned(reader)
    reader.stop()
    again = named_source(channel)
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end) == end
    assert position(channel) == 10
    again.stop()


def test_with_asynchronous_progress_only_sparks_own_word_proves_it(channel: ss.Channel) -> None:
    put(channel, *numbered(0, 5))
    reader = named_source(channel, asyncProgressTrackingEnabled=True)
    _, end = planned(reader)
    reader.latestOffset(end)
    assert position(channel) == 0
    reader.commit(end)
    assert position(channel) == 5
    reader.stop()


def test_a_checkpoint_that_does_not_fit_commits_nothing(channel: ss.Channel) -> None:
    put(channel, *numbered(0, 5))
    reader = named_source(channel)
    start = reader.initialOffset()
    with pytest.raises(ss.CheckpointMismatchError):
        reader.latestOffset({**start, "writeOrderId": 3})  # the group never took these
    assert position(channel) == 0
    reader.stop()


# ── one append ──────────────────────────────────────────────────────────────────────────────────


def test_what_is_taken_and_what_is_not_is_committed_in_one_append(
    channel: ss.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between a rollback and a take, the query would be refused, and a new checkpoint would double its rows."""
    put(channel, *numbered(0, 10))
    reader = named_source(channel)
    start = reader.initialOffset()
    for end in (3, 6):  # two batches of a query that was killed; what follows was planned by nobody
        reader.partitions(start, start := {**start, "writeOrderId": end})
    requests: list[object] = []
    real = Committer._commit

    def commit(self: Any, request: Any, *more: Any) -> Any:
        requests.append(request)
        return real(self, request, *more)

    monkeypatch.setattr(Committer, "_commit", commit)
    reader.commit({**start, "writeOrderId": 8})
    (request,) = requests
    assert isinstance(request, Takes)
    assert [take.ranges for take in request.takes] == [[(1, 3)], [(4, 6)], [(7, 8)]]
    assert position(channel) == 8
    with channel.engine().snapshot() as state:
        assert not state.taking("default")
    reader.stop()
    channel.close()
    with ss.Channel(channel.path) as again:
        assert peek(again) == numbered(8, 2)


# ── on a real Spark ─────────────────────────────────────────────────────────────────────────────


def test_a_full_channel_and_a_query_that_has_read_it_all_do_not_wait_for_each_other(
    spark: SparkSession, tmp_path: Path, channel: ss.Channel
) -> None:
    put(channel, *numbered(0, 10))
    rows: list[bytes] = []

    def keep(frame: Any, batch: int) -> None:
        rows.extend(row.body for row in frame.collect())

    query = (
        spark.readStream.format("spillable")
        .load(str(channel.path))
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for start in (10, 20):
            with ss.Channel(channel.path, keep_alive=60) as producer:
                put(producer, *numbered(start, 10))
        query.processAllAvailable()
        assert rows == numbered(0, 30)
    finally:
        query.stop()
    (group,) = channel.stats().groups.values()
    assert group.lag == 0
