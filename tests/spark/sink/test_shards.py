"""How rows are divided among channels."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.options import PRODUCER, defaults
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.routing import Sharded
from spillable_stream.spark.sink import shards as module
from spillable_stream.spark.sink.shards import SEPARATOR, Shards
from tests.support.fake_targets import FakeTarget


def divided(shards: Shards, batch: pa.RecordBatch, column: str = "n") -> dict[int, list[Any]]:
    """Return the values of a column in each shard."""
    return {shard: rows[column].to_pylist() for shard, rows in shards.split(batch)}


def numbered(**columns: Any) -> pa.RecordBatch:
    """Return columns and the rows' numbers."""
    arrays = {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    return pa.record_batch({**arrays, "n": pa.array(range(len(next(iter(arrays.values())))), pa.int64())})


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=3), st.sampled_from("abc")), min_size=1, max_size=40)


@given(TEXTS, st.integers(1, 256), st.sampled_from([pa.string(), pa.large_string()]))
def test_each_row_is_in_one_shard_in_order_and_where_a_producer_puts_its_key(
    texts: list[str | None], count: int, kind: pa.DataType
) -> None:
    batch = numbered(key=pa.array(texts, kind))
    found = divided(Shards.of(count, ["key"], batch.schema), batch)
    assert sorted(n for rows in found.values() for n in rows) == list(range(len(texts)))
    assert all(rows == sorted(rows) and rows for rows in found.values())
    destinations = [Destination(FakeTarget(name=f"{i}"), "p", 0) for i in range(count)]
    buckets = defaults(PRODUCER)["buckets"] if count <= 64 else 512
    producer = Sharded(destinations, buckets, defaults(PRODUCER)["adjust_shard_hash"])
    for shard, rows in found.items():
        assert all(producer.to(texts[n] or "") is destinations[shard] for n in rows)


@given(TEXTS, TEXTS, st.integers(1, 256))
def test_rows_with_equal_keys_share_a_shard_in_all_batches(
    first: list[str | None], second: list[str | None], count: int
) -> None:
    shard_of: dict[str, int] = {}
    for texts in (first, second):
        batch = numbered(key=pa.array(texts, pa.string()))
        for shard, rows in divided(Shards.of(count, ["key"], batch.schema), batch).items():
            assert all(shard_of.setdefault(texts[n] or "", shard) == shard for n in rows)


@given(st.data())
def test_slices_are_divided_as_copies_are(data: st.DataObject) -> None:
    batch = numbered(key=[f"{i % 7}" for i in range(50)], more=[[i] * (i % 3) for i in range(50)])
    start = data.draw(st.integers(0, 49))
    part = batch.slice(start, data.draw(st.integers(1, 50 - start)))
    shards = Shards.of(5, ["key"], batch.schema)
    for shard, rows in shards.split(part):
        rows.validate(full=True)
        kept = set(rows["n"].to_pylist())
        whole = dict(shards.split(batch))[shard]
        assert rows.to_pylist() == [row for row in whole.to_pylist() if row["n"] in kept]


def test_a_batch_of_one_shard_is_not_copied_and_one_without_rows_has_none() -> None:
    batch = numbered(key=["a"] * 3)
    shards = Shards.of(4, ["key"], batch.schema)
    ((_, rows),) = shards.split(batch)
    assert rows is batch
    assert list(shards.split(batch.slice(0, 0))) == []


UTC = dt.UTC
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 600_000)


@pytest.mark.parametrize(
    ("column", "key"),
    [
        (pa.array(["ä"]), "ä".encode()),
        (pa.array([b"\xff\0"]), b"\xff\0"),
        (pa.array([b"\xff"], pa.large_binary()), b"\xff"),
        (pa.array([None], pa.string()), b""),
        (pa.array([None], pa.int64()), b""),
        (pa.array([-7], pa.int8()), b"-7"),
        (pa.array([-7], pa.int64()), b"-7"),
        (pa.array([True]), b"true"),
        (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), b"1.50"),
        (pa.array([0.5]), b"0.5"),
        (pa.array([dt.date(2026, 1, 2)]), b"2026-01-02"),
        (pa.array([MOMENT], pa.timestamp("us")), b"2026-01-02 03:04:05.600000"),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), b"2026-01-02 03:04:05.600000Z"),
        (pa.array([MOMENT], pa.timestamp("us", "America/New_York")), b"2026-01-02 03:04:05.600000Z"),
    ],
    ids=str,
)
def test_text_of_a_value_is_forever(column: pa.Array, key: bytes) -> None:
    """In whatever width, and whatever the session's zone: a later query must find the same shard."""
    batch = numbered(key=column)
    assert Shards.of(4, ["key"], batch.schema).keys(batch).to_pylist() == [key]


def test_several_columns_are_joined_by_a_separator_in_the_order_of_the_option() -> None:
    batch = numbered(a=["x", "x\x1f", None], b=[1, None, 2])
    schema = batch.schema
    assert Shards.of(4, ["a", "b"], schema).keys(batch).to_pylist() == [b"x\x1f1", b"x\x1f\x1f", b"\x1f2"]
    assert Shards.of(4, ["b", "a"], schema).keys(batch).to_pylist()[0] == b"1" + SEPARATOR + b"x"


def test_only_distinct_keys_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []
    real = module.shard_of_key
    monkeypatch.setattr(module, "shard_of_key", lambda key, *more: hashed.append(key) or real(key, *more))
    rng = random.Random(7)
    batch = numbered(key=[rng.choice("abc") for _ in range(1000)])
    list(Shards.of(4, ["key"], batch.schema).split(batch))
    assert sorted(hashed) == [b"a", b"b", b"c"]


def test_column_that_the_rows_lack_is_refused_with_those_that_they_have() -> None:
    with pytest.raises(OptionError, match="shardBy names the column 'Key', and the rows have key, n; name one"):
        Shards.of(4, ["key", "Key"], numbered(key=["a"]).schema)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),  # a variant, too
        pa.map_(pa.string(), pa.string()),
        pa.month_day_nano_interval(),
        pa.null(),
    ],
    ids=str,
)
def test_column_whose_type_has_no_text_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(OptionError, match=r"the column 'c' of the type .* which has no text to hash"):
        Shards.of(4, ["c"], pa.schema([("c", kind)]))


def test_division_is_named_by_its_count_and_its_columns_in_order() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    made = [Shards.of(n, columns, schema) for n in (4, 5) for columns in (["a"], ["b"], ["a", "b"], ["b", "a"])]
    assert len({shards.name for shards in made}) == len(made)
    assert made[0].name == "4-4cc8c418"  # the channels remember it
    other = Shards.of(4, ["a"], pa.schema([("a", pa.int64())]))
    assert other.name != made[0].name, "another type has other texts"
    assert pickle.loads(pickle.dumps(made)) == made


def test_zero_is_one_key_whatever_its_sign() -> None:
    rows = pa.record_batch({"x": pa.array([0.0, -0.0, 1.5, None])})
    assert Shards.of(4, ["x"], rows.schema).keys(rows).to_pylist() == [b"0", b"0", b"1.5", b""]
