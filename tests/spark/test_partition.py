"""How a partition is read: the sizes of its batches."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.options import BATCH, defaults
from spillable_stream.spark import partition
from spillable_stream.spark.partition import plan_partitions, read_partition

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def batches(channel: ss.Channel) -> list[pa.RecordBatch]:
    engine = channel.engine()
    with engine.looking() as state:
        (one,) = plan_partitions(engine.layout, state, [(1, state.last_id)], defaults(BATCH))
    return list(read_partition(one, SCHEMA, defaults(BATCH)))


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


@pytest.mark.parametrize("more", range(4))
def test_a_large_batch_has_a_task_for_each_core_whatever_its_size(tmp_path: Path, more: int) -> None:
    """One task more than cores would leave all but one of them idle while it runs."""
    cores = os.cpu_count() or 1
    size = cores * (5 << 20) + more
    with ss.Channel(tmp_path / "c", schema=SCHEMA, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            texts = ["x" * (size // 1000)] * 999 + ["x" * (size % 1000)]
            tx.put_batch(pa.table({"n": range(1000), "text": texts}, SCHEMA))
        with channel.engine().looking() as state:
            assert len(plan_partitions(channel.engine().layout, state, [(1, 1000)], defaults(BATCH))) == cores
            assert len(plan_partitions(channel.engine().layout, state, [(1, 999 - more)], defaults(BATCH))) == cores
