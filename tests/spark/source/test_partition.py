"""How a partition is read: the sizes of its batches, and what is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.engine import engine_port
from spillable_stream.engine.local import local_plans
from spillable_stream.engine.port import PARALLELISM
from spillable_stream.engine.store import object_port
from spillable_stream.errors import DataLossError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.source import partition
from spillable_stream.spark.source.partition import check_loss, plan_partitions, read_partition
from spillable_stream.spark.source.read_options import BatchOptions
from tests.support.fake_files import FaultyFileSystem
from tests.support.faulty_store import FaultyStore
from tests.support.object_channels import URL, faulty_stores_in_memory

DEFAULTS = BatchOptions.of()
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def batches(channel: ss.Channel) -> list[pa.RecordBatch]:
    with channel.port().snapshot() as state:
        (one,) = plan_partitions(channel.port(), state, [(1, state.last_id)], DEFAULTS)
    return list(read_partition(one, SCHEMA, DEFAULTS))


@pytest.mark.parametrize("rows", [[1] * 300, [3000] * 4, [10_000] * 2, [1, 10_000, 1, 1, 3000, 10_000, 1]])
def test_small_batches_are_joined_and_large_ones_cut(tmp_path: Path, rows: list[int]) -> None:
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        first = 0
        for count in rows:
            numbers = pa.array(range(first, first + count), pa.int64())
            with channel.put_transaction() as tx:
                tx.put_batch(pa.record_batch([numbers, pa.array([f"{i:0100d}" for i in numbers.to_pylist()])], SCHEMA))
            first += count
        found = batches(channel)
    table = pa.Table.from_batches(found)
    assert table.column("n").to_pylist() == list(range(first))
    assert table.column("text").to_pylist() == [f"{i:0100d}" for i in range(first)]
    sizes = [batch.nbytes for batch in found]
    assert max(sizes) <= partition._BATCH_BYTES * 3 // 2
    assert len(sizes) <= 2 + 2 * sum(sizes) // partition._BATCH_BYTES + sum(count > 1000 for count in rows)


def test_one_event_larger_than_a_batch_is_a_batch(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_batch(pa.table({"n": [1, 2], "text": ["x" * (1 << 20), "y"]}, SCHEMA))
        assert pa.Table.from_batches(batches(channel)).column("n").to_pylist() == [1, 2]


def test_events_that_leave_before_they_are_read_are_an_error_or_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ss.Channel(tmp_path / "c", minimum_required_space=0, max_inline_bytes=0) as channel:
        for count in (5, 3):  # each in a segment of its own
            with channel.put_transaction() as tx:
                tx.put_many([ss.Event(b"x" * 2000)] * count)
        with channel.port().snapshot() as state:
            (planned,) = plan_partitions(channel.port(), state, [(1, 8)], DEFAULTS)
        with channel.take_transaction() as tx:
            tx.take_many(5)
        channel.checkpoint()
        channel.checkpoint()  # the one before may still name the segment
        with pytest.raises(DataLossError, match="the events 1 to 5 are gone"):
            list(read_partition(planned, EVENT_SCHEMA, DEFAULTS))
        found = list(read_partition(planned, EVENT_SCHEMA, BatchOptions.of({"fail_on_data_loss": False})))
    assert sum(batch.num_rows for batch in found) == 3
    assert "the read continues without them" in caplog.text


@pytest.mark.parametrize("more", range(4))
def test_a_large_batch_has_a_task_for_each_core_whatever_its_size(tmp_path: Path, more: int) -> None:
    """One task more than cores would leave all but one of them idle while it runs."""
    cores = os.cpu_count() or 1
    size = cores * (5 << 20) + more
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            texts = ["x" * (size // 1000)] * 999 + ["x" * (size % 1000)]
            tx.put_batch(pa.table({"n": range(1000), "text": texts}, SCHEMA))
        with channel.port().snapshot() as state:
            assert len(plan_partitions(channel.port(), state, [(1, 1000)], DEFAULTS)) == cores
            assert len(plan_partitions(channel.port(), state, [(1, 999 - more)], DEFAULTS)) == cores


def test_a_task_reads_nothing_of_what_is_preallocated_behind_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would read far ahead there, and make pages of all of it."""
    fs = FaultyFileSystem()
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put({"n": 1, "text": "x"})
        with channel.port().snapshot() as state:
            (one,) = plan_partitions(channel.port(), state, [(1, 1)], DEFAULTS)
        monkeypatch.setattr(local_plans, "FileSystem", lambda: fs)
        assert [batch.num_rows for batch in read_partition(one, SCHEMA, DEFAULTS)] == [1]
    assert 0 < fs.read_bytes < 2_000


def sizes(channel: ss.Channel, **options: int) -> list[tuple[int, int]]:
    """Return how many events and how many bytes each task of a read of everything has."""
    with channel.port().snapshot() as state:
        parts = plan_partitions(channel.port(), state, [(1, state.last_id)], BatchOptions.of(options))
        spans = [(part.plan.extents[0].first_id, part.plan.extents[-1].last_id) for part in parts]
        assert [a for a, _ in spans] == [1, *(b + 1 for _, b in spans[:-1])] and spans[-1][1] == state.last_id
        return [(b - a + 1, state.blocks.payload_bytes(a, b)) for a, b in spans]


@pytest.fixture
def uneven(tmp_path: Path) -> Iterator[ss.Channel]:
    """A channel with 20,000 small events, and then 40 of 1 MiB."""
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        for start in range(0, 20_000, 2000):
            with channel.put_transaction() as tx:
                tx.put_batch(pa.table({"n": range(start, start + 2000), "text": ["x"] * 2000}, SCHEMA))
        for n in range(40):
            with channel.put_transaction() as tx:
                tx.put_batch(pa.table({"n": [n], "text": ["x" * (1 << 20)]}, SCHEMA))
        yield channel


@pytest.mark.parametrize("parts", [4, 7])
def test_tasks_have_as_many_bytes_wherever_the_large_events_are(uneven: ss.Channel, parts: int) -> None:
    found = sizes(uneven, min_partitions=parts)
    assert len(found) == parts
    each = sum(size for _, size in found) / parts
    assert all(abs(size - each) <= 1 << 20 for _, size in found)


def test_no_task_has_more_events_than_it_may_nor_more_bytes_for_that(uneven: ss.Channel) -> None:
    found = sizes(uneven, min_partitions=4, max_events_per_partition=3000)
    assert max(count for count, _ in found) <= 3000
    assert max(size for _, size in found) <= 12 << 20
    assert len(found) <= 4 + 20_000 // 3000 + 1


def test_every_task_has_an_event_though_one_is_as_large_as_all_others(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        for size in (1, 1, 1 << 20, 1, 1):
            with channel.put_transaction() as tx:
                tx.put_batch(pa.table({"n": [size], "text": ["x" * size]}, SCHEMA))
        for parts in range(1, 7):
            assert len(sizes(channel, min_partitions=parts)) == min(parts, 5)


def test_events_of_one_size_are_split_evenly(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_batch(pa.table({"n": range(1001), "text": ["x"] * 1001}, SCHEMA))
        for options, most in ({"min_partitions": 7}, 143), ({"max_events_per_partition": 334}, 334):
            found = [count for count, _ in sizes(channel, **options)]
            assert max(found) == most and min(found) >= most - 1


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FaultyStore]]:
    """The stores that are opened, of a cluster that says nothing; of which a task reads 16 KiB at least."""
    monkeypatch.delenv(PARALLELISM, raising=False)
    monkeypatch.setattr(object_port, "_LEAST_BYTES_OF_MANY", 16 << 10)
    with faulty_stores_in_memory() as stores:
        yield stores


def with_segments(*kib: int) -> ss.Channel:
    """Return a channel in a store with segments of so many events, of 1 KiB each."""
    channel = ss.Channel(URL, schema=SCHEMA, commit_interval=0, max_inline_bytes=0)
    for count in kib:
        with channel.put_transaction() as tx:
            tx.put_batch(pa.table({"n": range(count), "text": ["x" * 1016] * count}, SCHEMA))
    return channel


@pytest.mark.parametrize(
    ("segments", "tasks"),
    [
        ([20, 20], [20, 20]),  # not three tasks, one of which would wait for a core, and read of both
        ([10, 10], [10, 10]),
        ([5, 5], [5, 5]),
        ([3, 3], [6]),
        ([3] * 7, [12, 9]),
        ([1, 1, 5, 1, 1], [2, 5, 2]),
        ([31, 2, 31], [31, 2, 31]),
        ([40], [14, 13, 13]),
        ([5, 60, 5], [5, 15, 15, 15, 15, 5]),
    ],
)
def test_where_the_cluster_is_not_known_tasks_end_with_segments(
    stores: list[FaultyStore], segments: list[int], tasks: list[int]
) -> None:
    with with_segments(*segments) as channel:
        found = [count for count, _ in sizes(channel)]
    assert len(found) == len(tasks)
    assert all(abs(a - b) <= 1 for a, b in zip(found, tasks, strict=True))


def test_a_read_of_more_segments_than_tasks_run_at_once_is_split_by_bytes(
    stores: list[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has its price: a read of many large segments has no more tasks than one of as many bytes."""
    monkeypatch.setattr(object_port.ObjectPort, "tasks_at_once", lambda _: 3)
    with with_segments(20, 1, 20, 1, 20) as channel:
        assert len(sizes(channel)) == 3


def test_what_the_cluster_or_the_read_says_counts_more_than_where_segments_end(
    stores: list[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_segments(20, 20) as channel:
        assert [count for count, _ in sizes(channel, min_partitions=4)] == [10] * 4
        assert [count for count, _ in sizes(channel, max_events_per_partition=15)] == [10] * 4
        monkeypatch.setattr(engine_port, "_LEAST_TASK_BYTES", 1)
        monkeypatch.setenv(PARALLELISM, "5")
        assert [count for count, _ in sizes(channel)] == [8] * 5


def test_a_task_that_has_a_segment_asks_for_nothing_else(stores: list[FaultyStore]) -> None:
    with with_segments(20, 20) as channel, channel.port().snapshot() as state:
        tasks = plan_partitions(channel.port(), state, [(1, 40)], DEFAULTS)
    for task in tasks:
        stores.clear()
        assert sum(batch.num_rows for batch in read_partition(task, SCHEMA, DEFAULTS)) == 20
        (store,) = stores
        assert store.counts == {"get": 1, "get_range": 1}, "what the channel is, and the segment"


# ── what is missing ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (
            {"retention_ms": 5000, "retention_untaken": "drop"},
            r"\(retentionMs = 5000, retentionUntaken = drop: a",
        ),
        (
            {"retention_ms": 5000, "retention_bytes": 1 << 20, "retention_untaken": "drop"},
            r"\(retentionMs = 5000, retentionBytes = 1048576, retentionUntaken = drop",
        ),
        (
            {"retention_ms": 5000, "auto_group_ttl": 60},
            r"\(no group held them for it: it was dropped, or nobody read as it for longer than .* 60 s",
        ),
        ({"retention_untaken": "drop"}, r"\(no group held them for it: .* longer than autoGroupTtl, 604800 s"),
    ],
)
def test_removed_events_are_named_with_the_option_that_let_them_go(
    tmp_path: Path, stored: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        ss.Channel(tmp_path / "c", minimum_required_space=0, **stored) as channel,
        channel.port().snapshot() as state,
    ):
        text = rf"the events 3 to 5, 9 of .*/c were removed before the query read them {why}"
        with pytest.raises(DataLossError, match=rf"{text}.*\. Set failOnDataLoss to false to continue without them"):
            check_loss(channel, state, [], BatchOptions.of(), [(3, 5), (9, 9)])
        check_loss(channel, state, [], BatchOptions.of({"fail_on_data_loss": False}), [(3, 5), (9, 9)])
        assert re.search(rf"{text}.*; the read continues without them", caplog.text)
        check_loss(channel, state, [], BatchOptions.of())
