"""Any schema that Spark can send to Arrow goes through a typed channel and comes back the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import spillable_stream as ss
from spillable_stream.spark import explain
from tests.spark.test_stream import run, stream
from tests.support.spark.versions import SPARK, needs

pytestmark = pytest.mark.spark

UTC = dt.UTC
PRIMITIVES: dict[str, tuple[T.DataType, list[Any]]] = {
    "boolean": (T.BooleanType(), [True, False]),
    "byte": (T.ByteType(), [-128, 127]),
    "short": (T.ShortType(), [-(2**15), 2**15 - 1]),
    "integer": (T.IntegerType(), [-(2**31), 2**31 - 1]),
    "long": (T.LongType(), [-(2**63), 2**63 - 1]),
    "float": (T.FloatType(), [0.5, float("-inf")]),
    "double": (T.DoubleType(), [0.1, float("inf")]),
    "string": (T.StringType(), ["", "żółw 🐢"]),
    "binary": (T.BinaryType(), [bytearray(b""), bytearray(b"\x00\xff")]),
    "date": (T.DateType(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (T.TimestampType(), [dt.datetime(2026, 3, 8, 2, 30, 0, 123456), dt.datetime(1970, 1, 1)]),
    "timestamp_ntz": (T.TimestampNTZType(), [dt.datetime(2026, 3, 8, 2, 30), dt.datetime(1960, 1, 1)]),
    "decimal": (T.DecimalType(38, 18), [Decimal("-1.5"), Decimal("99999999999999999999.999999999999999999")]),
    "small_decimal": (T.DecimalType(5, 2), [Decimal("1.25"), Decimal("-999.99")]),
    "interval": (T.DayTimeIntervalType(), [dt.timedelta(days=-1), dt.timedelta(microseconds=1)]),
}
NESTED = T.StructType(
    [
        T.StructField("s", T.StructType([T.StructField("a", T.IntegerType()), T.StructField("t", T.TimestampType())])),
        T.StructField("l", T.ArrayType(T.ArrayType(T.StringType()))),
        T.StructField("m", T.MapType(T.StringType(), T.ArrayType(T.TimestampType()))),
        T.StructField("sl", T.ArrayType(T.StructType([T.StructField("x", T.DoubleType())]))),
    ]
)


POINT = "X'0101000000000000000000F03F0000000000000040'"
LOOSE = {"ignore_nullable": True}


@pytest.fixture
def newer_types(spark: SparkSession) -> Iterator[SparkSession]:
    """Switch on the types that a version of Spark has and does not offer by itself."""
    switches = [f"spark.sql.{name}.enabled" for name in ("timeType", "geospatial")] if SPARK >= (4, 1) else []
    for switch in switches:
        spark.conf.set(switch, "true")
    yield spark
    for switch in switches:
        spark.conf.unset(switch)


def round_trip(df: DataFrame, path: Path) -> DataFrame:
    df.write.format("spillable").option("minimumRequiredSpace", "0").mode("append").save(str(path))
    return df.sparkSession.read.format("spillable").load(str(path))


def test_primitive_types_come_back_the_same(spark: SparkSession, tmp_path: Path) -> None:
    columns = PRIMITIVES.items()
    schema = T.StructType([T.StructField(name, type_) for name, (type_, _) in columns])
    rows = zip_longest(*([*values, None] for _, (_, values) in columns))
    df = spark.createDataFrame(rows, schema).coalesce(1)
    assert_df_equality(round_trip(df, tmp_path / "c"), df, allow_nan_equality=True)


def test_nested_types_come_back_the_same(spark: SparkSession, tmp_path: Path) -> None:
    at = dt.datetime(2026, 7, 1, 12)
    rows = [
        ((1, at), [["a", None], None, []], {"k": [at, None], "n": None}, [(0.5,), None]),
        (None, None, None, None),
        ((None, None), [], {}, []),
    ]
    df = spark.createDataFrame(rows, NESTED).coalesce(1)
    assert_df_equality(round_trip(df, tmp_path / "c"), df)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("parse_json('{\"a\": [1, null]}')", "to_json(v)", id="variant"),
        pytest.param("array(parse_json('1'), NULL)", "to_json(v)", id="variants in an array", marks=pytest.mark.slow),
        pytest.param("CAST(NULL AS VARIANT)", "to_json(v)", id="null variant", marks=pytest.mark.slow),
        pytest.param("TIME '12:34:56.789012'", "CAST(v AS STRING)", id="time", marks=needs(4, 1, "times of day")),
        pytest.param(f"ST_GeomFromWKB({POINT})", "ST_AsBinary(v)", id="geometry", marks=needs(4, 1, "geometries")),
        pytest.param(
            f"ST_GeogFromWKB({POINT})",
            "ST_AsBinary(v)",
            id="geography",
            marks=[needs(4, 1, "geographies"), pytest.mark.slow],
        ),
    ],
)
def test_sparks_newer_types_come_back_the_same(
    newer_types: SparkSession, tmp_path: Path, value: str, shown: str
) -> None:
    df = newer_types.sql(f"SELECT 1 AS id, {value} AS v")
    assert_df_equality(round_trip(df, tmp_path / "c").selectExpr("id", shown), df.selectExpr("id", shown), **LOOSE)
    run(stream(newer_types, tmp_path / "c"), tmp_path / "ck", tmp_path / "d")
    found = newer_types.read.format("spillable").load(str(tmp_path / "d"))
    assert found.schema["v"].dataType == df.schema["v"].dataType
    assert_df_equality(found.selectExpr("id", shown), df.selectExpr("id", shown), **LOOSE)


def test_strings_come_back_without_their_collation(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("SELECT 'Ab' COLLATE UTF8_LCASE AS v")
    found = round_trip(df, tmp_path / "c")
    assert found.schema["v"].dataType == T.StringType()
    assert [row.v for row in found.collect()] == ["Ab"]


@pytest.mark.parametrize("value", ["INTERVAL '1-2' YEAR TO MONTH", "make_interval(1, 2, 3, 4, 5, 6, 7)"])
def test_intervals_of_months_are_refused(spark: SparkSession, tmp_path: Path, value: str) -> None:
    with pytest.raises(PySparkException, match=r"has the type interval|INTERVAL"):
        round_trip(spark.sql(f"SELECT {value} AS v"), tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [("1 AS a, 2 AS A", "the columns 'a' and 'A' differ in case only"), ("NULL AS a", "'a' has the type null")],
)
def test_columns_that_spark_could_not_read_or_fill_are_refused(
    spark: SparkSession, tmp_path: Path, columns: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        round_trip(spark.sql(f"SELECT {columns}"), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_columns_that_are_not_nullable_are_stored_as_nullable(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).coalesce(1)
    assert_df_equality(round_trip(df, tmp_path / "c"), df, ignore_nullable=True)


def test_timestamps_are_instants_whatever_the_session_zone(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
        df = spark.sql("SELECT TIMESTAMP '2026-01-01 08:00:00' AS t")
        round_trip(df, tmp_path / "c")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    with ss.Channel(tmp_path / "c") as channel, channel.take_transaction() as tx:
        assert tx.take()["t"] == dt.datetime(2026, 1, 1, tzinfo=UTC)


def test_empty_dataframe_creates_the_channel_and_puts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([], "a INT")
    assert_df_equality(round_trip(df, tmp_path / "c"), df)


def test_later_writes_may_reorder_columns_and_add_nullable_ones(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    round_trip(spark.createDataFrame([(1, "x")], "a INT, b STRING").coalesce(1), path)
    wider = spark.createDataFrame([("y", 2.5, 2)], "b STRING, c DOUBLE, a INT")
    with pytest.raises(PySparkException) as e:
        round_trip(wider, path)
    assert explain(e.value).startswith(f"{path} does not fit the rows: it has no column 'c': check the name, ")
    wider.write.format("spillable").mode("append").option("mergeSchema", "true").save(str(path))
    found = spark.read.format("spillable").load(str(path))
    expected = spark.createDataFrame([(1, "x", None), (2, "y", 2.5)], "a INT, b STRING, c DOUBLE")
    assert_df_equality(found, expected, ignore_row_order=True)


def test_query_that_gets_a_column_is_refused_and_stores_its_batch_once_when_it_may_add_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "ck"
    round_trip(spark.createDataFrame([(1,)], "a INT"), source)
    ids = stream(spark, source)
    run(ids, checkpoint, target)
    round_trip(spark.createDataFrame([(2,)], "a INT"), source)
    doubled = ids.selectExpr("a", "a * 2 AS twice")
    with pytest.raises(PySparkException) as e:
        run(doubled, checkpoint, target)
    assert explain(e.value).startswith(f"{target} does not fit the rows: it has no column 'twice': check the name, ")
    run(doubled, checkpoint, target, mergeSchema=True)
    found = spark.read.format("spillable").load(str(target))
    assert sorted(tuple(row) for row in found.collect()) == [(1, None), (2, 4)]


def test_a_column_of_another_type_is_refused_with_both_schemas(spark: SparkSession, tmp_path: Path) -> None:
    round_trip(spark.createDataFrame([(1,)], "a INT"), tmp_path / "c")
    with pytest.raises(PySparkException, match=r"(?s)another type.*a: int32.*a: string"):
        round_trip(spark.createDataFrame([("1",)], "a STRING"), tmp_path / "c")


def test_event_channel_takes_headers_and_body(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame(
        [({"k": "v"}, bytearray(b"x")), (None, bytearray(b""))], "headers MAP<STRING, STRING>, body BINARY"
    ).coalesce(1)
    assert_df_equality(round_trip(df, tmp_path / "c"), df)
    with ss.Channel(tmp_path / "c") as channel, channel.take_transaction() as tx:
        assert not channel.typed
        assert [(e.body, dict(e.headers)) for e in tx.take_many(10)] == [(b"x", {"k": "v"}), (b"", {})]


def test_event_channel_refuses_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    ss.Channel(tmp_path / "c", minimum_required_space=0).close()
    with pytest.raises(PySparkException, match="event channel"):
        round_trip(spark.createDataFrame([(1,)], "a INT"), tmp_path / "c")


def test_read_schema_given_by_the_user_selects_and_orders_columns(spark: SparkSession, tmp_path: Path) -> None:
    round_trip(spark.createDataFrame([(1, "x", 0.5)], "a INT, b STRING, c DOUBLE"), tmp_path / "c")
    found = spark.read.schema("c DOUBLE, a INT").format("spillable").load(str(tmp_path / "c"))
    assert_df_equality(found, spark.createDataFrame([(0.5, 1)], "c DOUBLE, a INT"))


@pytest.mark.slow
def test_stream_of_nested_rows_comes_through_the_same(spark: SparkSession, tmp_path: Path) -> None:
    at = dt.datetime(2026, 7, 1, 12)
    rows = [((1, at), [["a", None], None], {"k": [at, None]}, [(0.5,), None]), (None, None, None, None)]
    df = spark.createDataFrame(rows, NESTED).coalesce(1)
    round_trip(df, tmp_path / "c")
    stream = spark.readStream.format("spillable").load(str(tmp_path / "c"))
    writer = stream.writeStream.format("spillable").option("minimumRequiredSpace", 0).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "ck")).start(str(tmp_path / "d")).awaitTermination()
    assert_df_equality(spark.read.format("spillable").load(str(tmp_path / "d")), df)


def test_times_of_every_unit_are_read_and_nanoseconds_refused_before_any_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    at, long = dt.datetime(2026, 3, 8, 2, 30), dt.timedelta(days=400)
    units = {"s": pa.timestamp("s"), "ms": pa.timestamp("ms", "UTC"), "d": pa.duration("s"), "day": pa.date64()}
    values = {"s": at, "ms": at.replace(tzinfo=UTC), "d": long, "day": at.date()}
    schema = pa.schema([*units.items(), ("deep", pa.list_(pa.struct([("t", pa.timestamp("ms"))])))])
    with ss.Channel(tmp_path / "c", schema=schema, minimum_required_space=0) as c, c.put_transaction() as tx:
        tx.put({**values, "deep": [{"t": at}]})
    rows = spark.read.format("spillable").load(str(tmp_path / "c")).collect()
    run(stream(spark, tmp_path / "c"), tmp_path / "ck", tmp_path / "d")
    rows += spark.read.format("spillable").load(str(tmp_path / "d")).collect()
    assert len(rows) == 2
    for row in rows:
        assert (row.s, row.ms.astimezone(UTC), row.d, row.day, row.deep[0].t) == (*values.values(), at)
    column = pa.table({"t": pa.array([1_001], pa.timestamp("ns"))})
    with ss.Channel(tmp_path / "n", schema=column.schema, minimum_required_space=0) as n, n.put_transaction() as tx:
        tx.put_batch(column)
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException, match="Spark has no nanoseconds: give the read a schema"):
            reader.format("spillable").load(str(tmp_path / "n"))
    read = spark.read.schema("t BIGINT").format("spillable").load(str(tmp_path / "n"))
    assert [row.t for row in read.collect()] == [1_001]
