"""The channels of a sharded write: created and widened together, or not at all; no Spark is needed to show it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

import spillable_stream as ss
from spillable_stream.spark.sink.sharded_channels import plan_sharded_sink, shard_path
from spillable_stream.spark.sink.sharded_plan import ShardedPlan
from spillable_stream.spark.sink.sink_options import SinkOptions

ORDERS = StructType([StructField("customer", StringType()), StructField("n", LongType())])


def sharded_plan(
    base: object, shards: object = 3, by: str | None = "customer", schema: StructType = ORDERS, **options: Any
) -> ShardedPlan:
    given = {"shards": shards, "shardBy": by, **options}
    if "://" not in str(base):
        given = {"minimumRequiredSpace": 0, **given}
    parsed = SinkOptions.parse({k: str(v) for k, v in given.items() if v is not None}, stream="txnAppId" not in given)
    return plan_sharded_sink(str(base), parsed, schema)


@pytest.mark.parametrize("store", ["", "object+file://"])
def test_channels_are_created_beside_each_other_with_the_writes_options(tmp_path: Path, store: str) -> None:
    base = f"{store}{tmp_path}/orders"
    plan = sharded_plan(base, 11, transactionCapacity=77)
    assert [channel.path for channel in plan.channels] == [f"{base}-{i}" for i in range(11)]
    assert sorted(os.listdir(tmp_path)) == sorted(f"orders-{i}" for i in range(11))
    for i in (0, 10):
        with ss.Channel(shard_path(base, i), create=False) as channel:
            assert channel.schema.names == ["customer", "n"] and channel.options["transaction_capacity"] == 77
            assert plan.channels[i].stage.channel == channel.uuid


def test_slash_at_the_end_of_a_path_changes_nothing(tmp_path: Path) -> None:
    assert sharded_plan(f"{tmp_path}/orders/", 1).channels[0].path == f"{tmp_path}/orders-0"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"by": None}, "shards and shardBy belong together"),
        ({"shards": None}, "shards and shardBy belong together"),
        ({"shards": 0}, "shards must be an integer, 1 to 256, not '0'"),
        ({"shards": 257}, "shards must be an integer, 1 to 256, not '257'"),
        ({"by": "customer,"}, "shardBy must be names of columns, separated by commas"),
        ({"by": "n, n"}, "shardBy must be names of columns, separated by commas"),
        ({"by": "region"}, "shardBy names the column 'region', and the rows have customer, n; name one of these"),
        ({"by": "items", "schema": StructType([StructField("items", ArrayType(LongType()))])}, "has no text to hash"),
        ({"dataDirs": "/d0,/d1"}, "dataDirs is for a single channel, and each shard needs directories of its own"),
        ({"backupCheckpointDir": "/d0"}, "backupCheckpointDir is for a single channel"),
    ],
)
def test_wrong_options_are_refused_and_create_no_channel(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ss.OptionError, match=why):
        sharded_plan(tmp_path / "orders", **options)
    assert os.listdir(tmp_path) == []


def test_channels_that_were_created_before_may_have_directories_of_their_own(tmp_path: Path) -> None:
    schema = pa.schema([("customer", pa.string()), ("n", pa.int64())])
    for i in range(3):
        path, data = tmp_path / f"orders-{i}", tmp_path / f"data-{i}"
        ss.Channel(path, schema=schema, data_dirs=[data], minimum_required_space=0).close()
    assert len(sharded_plan(tmp_path / "orders").channels) == 3


def test_rows_that_do_not_fit_one_of_the_channels_are_refused_with_its_path(tmp_path: Path) -> None:
    ss.Channel(tmp_path / "orders-1", schema=pa.schema([("n", pa.string())]), minimum_required_space=0).close()
    with pytest.raises(ss.SchemaError, match=r"orders-1 does not fit the rows: .*'?n'?"):
        sharded_plan(tmp_path / "orders")


@pytest.mark.parametrize("store", ["", "object+file://"])
def test_no_channel_is_created_if_another_one_does_not_fit_or_cannot_be_created(tmp_path: Path, store: str) -> None:
    base = f"{store}{tmp_path}/orders"
    (tmp_path / "orders-2").mkdir()
    (tmp_path / "orders-2" / ("channel.json" if store else "stranger")).write_text("{}")
    with pytest.raises(ss.SpillableError):
        sharded_plan(base, 4)
    assert sorted(os.listdir(tmp_path)) == ["orders-2"]
    (tmp_path / "orders-2" / ("channel.json" if store else "stranger")).unlink()
    with ss.Channel(shard_path(base, 2), schema=pa.schema([("customer", pa.int64())])):
        pass
    with pytest.raises(ss.SchemaError, match="orders-2 does not fit the rows"):
        sharded_plan(base, 4)
    assert sorted(os.listdir(tmp_path)) == ["orders-2"]


@pytest.mark.parametrize("store", ["", "object+file://"])
def test_no_channel_is_widened_if_another_one_does_not_fit(tmp_path: Path, store: str) -> None:
    base = f"{store}{tmp_path}/orders"
    small, other = pa.schema([("customer", pa.string())]), pa.schema([("customer", pa.string()), ("n", pa.string())])
    for i, schema in enumerate((small, small, other)):
        ss.Channel(shard_path(base, i), schema=schema).close()
    with pytest.raises(ss.SchemaError, match="orders-2 does not fit the rows"):
        sharded_plan(base, 4, mergeSchema=True)
    with pytest.raises(ss.SchemaError, match="orders-0 does not fit the rows: it has no column 'n'"):
        sharded_plan(base, 2)
    for i, schema in enumerate((small, small, other)):
        with ss.Channel(shard_path(base, i), create=False) as channel:
            assert channel.schema == schema
    assert len(os.listdir(tmp_path)) == 3
    assert len(sharded_plan(base, 2, mergeSchema=True).channels) == 2
    with ss.Channel(shard_path(base, 1), create=False) as channel:
        assert channel.schema.names == ["customer", "n"]


def test_no_channel_has_another_option_if_another_one_refuses_its_own(tmp_path: Path) -> None:
    schema = pa.schema([("customer", pa.string()), ("n", pa.int64())])
    for i, memory_capacity in enumerate((100, 100, 0)):
        path = tmp_path / f"orders-{i}"
        ss.Channel(path, schema=schema, memory_capacity=memory_capacity, minimum_required_space=0).close()
    with pytest.raises(ss.OptionError, match="orders-2 are both 0"):
        sharded_plan(tmp_path / "orders", overflowCapacity=0)
    for i in range(3):
        with ss.Channel(tmp_path / f"orders-{i}", create=False) as channel:
            assert channel.options["overflow_capacity"] > 0, i
    sharded_plan(tmp_path / "orders", overflowCapacity=200)
    for i in range(3):
        with ss.Channel(tmp_path / f"orders-{i}", create=False) as channel:
            assert channel.options["overflow_capacity"] == 200, i
