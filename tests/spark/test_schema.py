"""What Spark reads as what: equal values, or a refusal when the read starts. No Spark session is needed to show it."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import spillable_stream as ss
from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import fit_batch
from spillable_stream.format.types import stored_schema
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.schema import arrow_schema, check_read_schema, struct_type
from tests.support.arrow_values import ACCEPTED, LEAVES, nested
from tests.support.spark.versions import SPARK

# Of what is accepted, what Spark does not have.
REFUSED = {"timestamp[ns]", "duration[ns]", "interval", "decimal256", "runs"}
NESTED = ["itself", "struct", "list", "large list", "fixed list", "map", "list in a struct in a list"]
HINT = r"Spark has no nanoseconds: give the read a schema in which that is a BIGINT"


def is_read(leaf: str) -> bool:
    t = LEAVES[leaf].type
    if isinstance(t, pa.BaseExtensionType) or leaf in REFUSED or "list_view" in leaf:
        return False
    return SPARK >= (4, 1) or not pa.types.is_time(t)


@pytest.mark.parametrize("leaf", ACCEPTED)
def test_a_column_is_read_with_equal_values_or_refused_when_the_read_starts(leaf: str) -> None:
    for kind, column in [(kind, column) for kind, column in nested(LEAVES[leaf]) if kind in NESTED]:
        channel = stored_schema(pa.schema([("c", column.type)]))
        try:
            spark = struct_type(channel)
        except SchemaError as e:
            assert not is_read(leaf), kind
            assert str(e).startswith(f"the column 'c' has the type {channel.field(0).type}, ")
            continue
        assert is_read(leaf), kind
        check_read_schema(spark, channel, {})
        found = fit_batch(pa.record_batch({"c": column}), arrow_schema(spark))
        assert found.column(0).to_pylist() == column.to_pylist(), kind


@pytest.mark.parametrize(
    ("precision", "scale", "in_spark"),
    [(3, -2, T.DecimalType(5, 0)), (3, 5, T.DecimalType(5, 5)), (38, 0, T.DecimalType(38, 0)), (36, -3, None)],
)
@pytest.mark.parametrize("kind", ["itself", "list in a struct in a list"])
def test_a_decimal_whose_scale_spark_does_not_have_is_read_with_as_many_digits_or_refused(
    precision: int, scale: int, in_spark: T.DecimalType | None, kind: str
) -> None:
    values = pa.array([Decimal(f"123E{-scale}"), None], pa.decimal128(38, scale)).cast(pa.decimal128(precision, scale))
    column = dict(nested(values))[kind]
    channel = pa.schema([("c", column.type)])
    if in_spark is None:
        with pytest.raises(
            SchemaError, match=r"^the column 'c' has the type .*decimal128\(36, -3\).*, for which this ver"
        ):
            struct_type(channel)
        return
    spark = struct_type(channel)
    assert in_spark.simpleString() in spark["c"].dataType.simpleString()
    check_read_schema(spark, channel, {})
    found = fit_batch(pa.record_batch({"c": column}), arrow_schema(spark))
    assert found.column(0).to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    "of",
    [
        T.YearMonthIntervalType(),
        T.ArrayType(T.NullType(), containsNull=False),  # of array()
        T.MapType(T.NullType(), T.NullType(), valueContainsNull=False),  # of map()
        T.StructType([T.StructField("x", T.ArrayType(T.NullType(), containsNull=False))]),
    ],
    ids=lambda of: of.simpleString(),
)
@pytest.mark.parametrize("how", [arrow_schema, lambda s: ss.Channel("never/made", schema=s)], ids=["sink", "Channel"])
def test_a_type_of_spark_that_arrow_does_not_have_is_refused_with_its_column(
    how: Callable[[T.StructType], object], of: T.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = T.StructType([T.StructField("n", T.LongType()), T.StructField("v", of)])
    with pytest.raises(
        SchemaError, match=rf"the column 'v' has the type {re.escape(of.simpleString())}, which Spark can't exchange"
    ):
        how(schema)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("of", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")], ids=str)
@pytest.mark.parametrize("kind", ["itself", "struct", "list", "map", "list in a struct in a list"])
def test_nanoseconds_are_refused_when_the_read_starts_and_read_as_numbers(of: pa.DataType, kind: str) -> None:
    numbers = pa.array([1, None, 1_700_000_000_000_000_001], pa.int64())
    column, wanted = (dict(nested(values))[kind] for values in (numbers.cast(of), numbers))
    channel = pa.schema([("c", column.type)])
    with pytest.raises(SchemaError, match=HINT):
        struct_type(channel)
    spark = struct_type(pa.schema([("c", wanted.type)]))
    check_read_schema(spark, channel, {})
    found = fit_batch(pa.record_batch({"c": column}), arrow_schema(spark))
    assert found.column(0).to_pylist() == wanted.to_pylist()
    coarser = pa.duration("us") if pa.types.is_duration(of) else pa.timestamp("us", of.tz)
    with pytest.raises(SchemaError, match=HINT):
        as_times = dict(nested(pa.nulls(3, coarser)))[kind].type
        check_read_schema(struct_type(pa.schema([("c", as_times)])), channel, {})


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        (pa.int64(), T.IntegerType(), "int64 does not fit into int32"),
        (pa.string(), T.LongType(), "string does not fit into int64"),
        (pa.struct([("a", pa.int8())]), T.StructType([T.StructField("b", T.ByteType())]), "its field 'a' is unknown"),
        (
            pa.struct([("a", pa.int8())]),
            T.StructType([T.StructField("a", T.ByteType()), T.StructField("b", T.ByteType())]),
            "the field 'b' is missing",
        ),
        (pa.timestamp("us"), T.TimestampType(), "does not fit"),
    ],
)
def test_a_read_that_would_lose_or_invent_something_is_refused_with_both_schemas(
    mine: pa.DataType, theirs: T.DataType, why: str
) -> None:
    schema = T.StructType([T.StructField("c", theirs)])
    with pytest.raises(SchemaError, match=why) as caught:
        check_read_schema(schema, pa.schema([("c", mine)]), {})
    assert f"The channel has (c: {mine}); the read wants (c: {arrow_schema(schema).field(0).type})" in str(caught.value)


def test_a_read_may_widen_and_reorder_what_the_channel_has() -> None:
    channel = pa.schema([("c", pa.struct([("a", pa.int8()), ("b", pa.float32())]))])
    wanted = T.StructType().add("c", T.StructType().add("b", T.DoubleType()).add("a", T.LongType()))
    check_read_schema(wanted, channel, {})
    found = fit_batch(
        pa.record_batch([pa.array([{"a": 1, "b": 0.5}, None], channel.field(0).type)], schema=channel),
        arrow_schema(wanted),
    )
    assert found.to_pylist() == [{"c": {"b": 0.5, "a": 1}}, {"c": None}]


# ── writes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (pa.timestamp("ms", "UTC"), T.TimestampType()),
        (pa.timestamp("s"), T.TimestampNTZType()),
        (pa.timestamp("ns", "UTC"), T.TimestampType()),
        (pa.duration("ms"), T.DayTimeIntervalType()),
        (pa.date64(), T.TimestampType()),
        (pa.int32(), T.LongType()),
        (pa.int64(), T.StringType()),
        (pa.list_(pa.timestamp("ms", "UTC")), T.ArrayType(T.TimestampType())),
        (pa.map_(pa.string(), pa.timestamp("ms")), T.MapType(T.StringType(), T.TimestampNTZType())),
        (
            pa.struct([("x", pa.int64()), ("y", pa.int64())]),
            T.StructType().add("X", T.LongType()).add("y", T.LongType()),
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_a_write_that_could_lose_something_is_refused_when_it_starts(
    tmp_path: Path, mine: pa.DataType, theirs: T.DataType, stream: bool
) -> None:
    ss.Channel(tmp_path / "c", schema=pa.schema([("c", mine)]), minimum_required_space=0).close()
    source, schema = SpillableDataSource({"path": str(tmp_path / "c")}), T.StructType().add("c", theirs)
    with pytest.raises(SchemaError, match=r"has another type: .*The channel has \(c: .*what is given has \(c: "):
        (source.streamWriter if stream else source.writer)(schema, overwrite=False)


def test_a_write_may_be_narrower_in_another_order_and_without_fields(tmp_path: Path) -> None:
    mine = pa.schema(
        [("s", pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.date64())])), ("n", pa.float64())]
    )
    ss.Channel(tmp_path / "c", schema=mine, minimum_required_space=0).close()
    fields = T.StructType().add("z", T.DateType()).add("x", T.IntegerType())
    writer = SpillableDataSource({"path": str(tmp_path / "c")}).writer(T.StructType().add("s", fields), overwrite=False)
    rows = pa.array([{"z": None, "x": 1}, None], pa.struct([("z", pa.date32()), ("x", pa.int32())]))
    writer.commit([writer.write(iter([pa.record_batch({"s": rows})]))])
    with ss.Channel(tmp_path / "c") as channel, channel.take_transaction() as tx:
        assert tx.take_many(9) == [{"s": {"x": 1, "y": None, "z": None}, "n": None}, {"s": None, "n": None}]
