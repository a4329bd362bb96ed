"""The metadata columns, which a read has with the option metadata."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

import spillable_stream as ss
from spillable_stream.errors import SchemaError
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.spark.metadata import (
    METADATA_COLUMNS,
    METADATA_TYPES,
    SET_METADATA_TYPES,
    batch_with_metadata,
    check_names_are_free,
    metadata_types,
    with_metadata,
    without_metadata,
)
from tests.support.spark.sources import nine_events, read

pytestmark = pytest.mark.spark


Put = Callable[..., Path]


@pytest.fixture
def path(put: Put) -> Path:
    return nine_events(put)


def test_metadata_columns_say_what_python_says(spark: SparkSession, path: Path) -> None:
    df = read(spark, path, metadata=True)
    assert df.columns == ["headers", "body", "write_order_id", "transaction_id", "put_time"]
    rows = df.select("body", "write_order_id", "transaction_id", F.unix_micros("put_time").alias("us")).collect()
    with ss.Channel(path) as channel, channel.take_transaction("python") as tx:
        events = tx.take_many(9)
    assert [(r.body, r.write_order_id, r.transaction_id, r.us) for r in rows] == [
        (e.body, e.write_order_id, e.transaction_id, round(e.timestamp * 1e6)) for e in events
    ]


def test_metadata_column_alone_may_be_read(spark: SparkSession, path: Path) -> None:
    schema = "put_time TIMESTAMP, body BINARY, write_order_id LONG"
    df = spark.read.format("spillable").schema(schema).option("metadata", "true").load(str(path))
    assert [(bytes(r.body), r.write_order_id) for r in df.collect()] == [(b"%d" % i, i) for i in range(1, 10)]
    df = spark.read.format("spillable").schema("write_order_id LONG").option("metadata", "true").load(str(path))
    assert [r.write_order_id for r in df.collect()] == list(range(1, 10))


def test_metadata_column_without_the_option_is_refused_with_a_hint(spark: SparkSession, path: Path) -> None:
    with pytest.raises(PySparkException, match="set the option metadata to true for it"):
        spark.read.format("spillable").schema("write_order_id LONG").load(str(path)).collect()


def test_metadata_column_of_another_type_is_refused(spark: SparkSession, path: Path) -> None:
    reader = spark.read.format("spillable").schema("write_order_id INT").option("metadata", "true")
    with pytest.raises(PySparkException, match="the metadata column 'write_order_id' has the type bigint"):
        reader.load(str(path)).collect()


def test_channel_with_a_column_of_that_name_has_no_metadata(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("SELECT 1 AS Transaction_ID")
    df.write.format("spillable").option("minimumRequiredSpace", 0).mode("append").save(str(tmp_path / "c"))
    with pytest.raises(PySparkException, match="has a column 'transaction_id' of its own"):
        read(spark, tmp_path / "c", metadata=True)


@pytest.mark.parametrize("schema", ["transaction_id BIGINT", "Transaction_ID INT", "write_order_id BIGINT"])
def test_given_schema_does_not_hide_a_channels_own_column_of_that_name(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    df = spark.sql("SELECT 1 AS Transaction_ID")
    df.write.format("spillable").option("minimumRequiredSpace", 0).mode("append").save(str(tmp_path / "c"))
    reader = spark.read.format("spillable").schema(schema).option("metadata", "true")
    with pytest.raises(PySparkException, match="has a column 'transaction_id' of its own"):
        reader.load(str(tmp_path / "c")).collect()


@pytest.mark.slow
def test_stream_has_metadata_columns_too(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("spillable").option("metadata", "true").load(str(path))
    query = stream.writeStream.format("memory").queryName("with_metadata").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table("with_metadata").orderBy("write_order_id").collect()
    assert [(bytes(r.body), r.write_order_id) for r in rows] == [(b"%d" % i, i) for i in range(1, 10)]
    assert len({r.transaction_id for r in rows}) == len({r.put_time for r in rows}) == 3


OWN = StructType([StructField("n", LongType()), StructField("put_by", StringType())])
READ = ReadBatch(7, 3, 1_500_000, 0, pa.record_batch({"n": [10, 20], "put_by": ["a", None]}))


def test_every_column_has_a_type() -> None:
    names = {"write_order_id", "transaction_id", "put_time"}
    assert METADATA_TYPES.keys() == names
    assert METADATA_COLUMNS.keys() == SET_METADATA_TYPES.keys() == names | {"channel"}
    assert [type(t) for t in SET_METADATA_TYPES.values()] == [LongType, LongType, TimestampType, StringType]
    assert metadata_types(is_wanted=False, of_set=True) == {}
    assert metadata_types(is_wanted=True, of_set=True) == SET_METADATA_TYPES
    assert metadata_types(is_wanted=True, of_set=False) == METADATA_TYPES


def test_the_metadata_columns_come_after_the_channels_own_and_are_never_null() -> None:
    schema = with_metadata(OWN, METADATA_TYPES)
    assert schema.fieldNames() == ["n", "put_by", "write_order_id", "transaction_id", "put_time"]
    assert [f.nullable for f in schema.fields] == [True, True, False, False, False]
    assert without_metadata(schema, METADATA_TYPES) == OWN
    assert without_metadata(schema, {}) == schema


@pytest.mark.parametrize("name", ["write_order_id", "Put_Time", "TRANSACTION_ID"])
def test_a_channels_own_column_of_such_a_name_is_refused_whatever_its_case(name: str) -> None:
    with pytest.raises(SchemaError, match=f"the channel has a column '{name.lower()}' of its own"):
        check_names_are_free(["n", name], METADATA_TYPES)
    with pytest.raises(SchemaError):
        with_metadata(StructType([*OWN.fields, StructField(name, LongType())]), METADATA_TYPES)
    check_names_are_free(["n", "put_by"], METADATA_TYPES)


def test_a_batch_has_exactly_the_columns_that_are_wanted_in_their_order() -> None:
    schema = pa.schema(
        {
            "put_time": pa.timestamp("us", "UTC"),
            "n": pa.int64(),
            "write_order_id": pa.int64(),
            "transaction_id": pa.int64(),
        }
    )
    found = batch_with_metadata(READ, schema, frozenset(METADATA_TYPES))
    found.validate(full=True)
    assert found.schema == schema
    time = datetime.fromtimestamp(1.5, UTC)
    assert found.to_pylist() == [
        {"put_time": time, "n": 10, "write_order_id": 7, "transaction_id": 3},
        {"put_time": time, "n": 20, "write_order_id": 8, "transaction_id": 3},
    ]


def test_the_channel_of_a_set_is_named_in_each_row() -> None:
    found = batch_with_metadata(READ, pa.schema({"channel": pa.string()}), frozenset({"channel"}), "/data/orders-1")
    assert found.to_pylist() == [{"channel": "/data/orders-1"}] * 2
    check_names_are_free(["channel"], METADATA_TYPES)
    with pytest.raises(SchemaError, match="a column 'channel' of its own"):
        check_names_are_free(["Channel"], SET_METADATA_TYPES)


def test_without_metadata_a_batch_is_fitted_to_the_schema() -> None:
    schema = pa.schema({"put_by": pa.string(), "more": pa.int8()})
    assert batch_with_metadata(READ, schema, frozenset()).to_pylist() == [
        {"put_by": "a", "more": None},
        {"put_by": None, "more": None},
    ]


def test_of_no_events_there_is_an_empty_batch() -> None:
    schema = pa.schema({"write_order_id": pa.int64(), "n": pa.int64()})
    empty = READ._replace(batch=READ.batch.slice(0, 0))
    assert batch_with_metadata(empty, schema, frozenset({"write_order_id"})).num_rows == 0
