"""Whose fault it is that a group has an owner, and what a source says of that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

import spillable_stream as ss
from spillable_stream.channel.consumer import Consumer
from spillable_stream.spark import explain
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.source import load_identity as module
from spillable_stream.spark.source.load_identity import LoadIdentity, load_name
from spillable_stream.spark.source.query_group import QueryGroup

Put = Callable[..., Path]

pytestmark = pytest.mark.timeout(600)
WRITE = 'Write a load() for each use, each with its own .option("group", …)'


@pytest.fixture
def path(put: Put) -> Path:
    return put("a", b"x")


def own(load: LoadIdentity, channel: ss.Channel, waits: list[float] | None = None) -> Consumer:
    """Make a source the owner of the group, and note how long it would have waited."""

    def take(timeout_seconds: float) -> Consumer:
        if waits is not None:
            waits.append(timeout_seconds)
        return channel.consumer("g", 0, note=load.note)

    return load.own(take, QueryGroup("g"), 7.5)


def refused(load: LoadIdentity, path: Path, waits: list[float] | None = None) -> ss.GroupOwnedError:
    with ss.Channel(path) as channel, pytest.raises(ss.GroupOwnedError) as e:
        own(load, channel, waits)
    return e.value


# ── what a source says ──────────────────────────────────────────────────────────────────────


def test_source_says_beside_its_group_what_it_is(path: Path) -> None:
    load = LoadIdentity(str(path), "f00d")
    with ss.Channel(path) as channel:
        owner = own(load, channel).owner
        assert owner.startswith(f"pid {os.getpid()} on {os.uname().nodename} since ")
        assert owner.endswith(f", for a Spark query (driver pid {os.getppid()}, load f00d)")
        assert refused(LoadIdentity(str(path), "other"), path).owner == owner


def test_a_take_of_a_querys_group_is_told_that_a_query_has_it(path: Path) -> None:
    with ss.Channel(path) as channel, ss.Channel(path) as another:
        own(LoadIdentity(str(path), "f00d"), channel)
        with pytest.raises(
            ss.GroupOwnedError, match=r"is owned by pid .*, for a Spark query \(driver pid \d+, load f00d\)"
        ):
            another.consumer("g", 0)


def test_second_use_of_one_load_is_refused_at_once_where_both_are_of_now(path: Path) -> None:
    name = load_name()
    first, second = LoadIdentity(str(path), name), LoadIdentity(str(path), name)
    waits: list[float] = []
    with ss.Channel(path) as channel:
        own(first, channel)
        error = refused(second, path, waits)
    assert waits == [3]
    assert str(error) == (
        f"one load() of {path} is used twice, in one query (a self-join) or in two, and the group 'g' has one reader "
        f"at a time. {WRITE}"
    )


def test_query_that_was_there_before_is_waited_for(path: Path) -> None:
    name = load_name()
    waits: list[float] = []
    with ss.Channel(path) as channel:
        own(LoadIdentity(str(path), name), channel)
        error = refused(LoadIdentity(str(path), name), path, waits)
    assert waits == [3, 7.5]
    assert str(error).startswith(f"a query of this load() has the group 'g' of {path} since ")
    assert "; waited 7.5 s. " in str(error)
    assert f"{WRITE}; or stop that query. If none runs, its start failed: try again in a minute" in str(error)


def test_query_that_goes_meanwhile_leaves_the_group_to_the_next(path: Path) -> None:
    name = load_name()
    with ss.Channel(path) as channel:
        former = ss.Channel(path)
        own(LoadIdentity(str(path), name), former)
        load = LoadIdentity(str(path), name)

        def take(timeout_seconds: float) -> Consumer:
            if timeout_seconds:
                former.close()
            return channel.consumer("g", 0, note=load.note)

        assert load.own(take, QueryGroup("g"), 7.5).owner.endswith(load.note)


def test_query_of_another_load_is_named_so(path: Path) -> None:
    with ss.Channel(path) as channel:
        own(LoadIdentity(str(path), "f00d"), channel)
        error = refused(LoadIdentity(str(path), "beef"), path)
    assert str(error).startswith(f"a query of another load() has the group 'g' of {path} since ")
    assert "try again in a minute" in str(error)


def test_query_of_another_spark_is_named_by_its_driver(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ss.Channel(path) as channel:
        own(LoadIdentity(str(path), "f00d"), channel)
        driver = os.getppid()  # 1 in a container
        monkeypatch.setattr(module.os, "getppid", lambda: driver + 1)
        error = refused(LoadIdentity(str(path), "beef"), path)
    here = f"pid {driver} on {os.uname().nodename}"
    assert str(error).startswith(f"a query of the Spark driver {here} has the group 'g' of {path} since ")
    assert str(error).endswith(f"{WRITE}; or stop that query")


def test_owner_of_a_querys_own_position_may_be_the_worker_of_a_query_that_was_just_stopped(path: Path) -> None:
    """Whoever used a new checkpoint then would have everything twice."""
    with ss.Channel(path) as channel:
        own(LoadIdentity(str(path), "f00d"), channel)

        def take(timeout_seconds: float) -> Consumer:
            with ss.Channel(path) as other:
                return other.consumer("g", 0)

        with pytest.raises(ss.GroupOwnedError) as error:
            LoadIdentity(str(path), "beef").own(take, QueryGroup(None), 0)
    assert str(error.value).endswith(
        "; waited 0 s. If it was just stopped, its worker is still closing: try again in a minute. If it runs, its "
        "checkpoint has the same position as this query's, so one is a copy: use a new checkpointLocation; or stop "
        "that query"
    )


def test_consumer_in_a_program_of_its_own_is_what_there_is_to_stop(path: Path) -> None:
    with ss.Channel(path) as channel:
        channel.consumer("g")
        error = refused(LoadIdentity(str(path), "beef"), path)
    assert f"is owned by pid {os.getpid()} on {os.uname().nodename} since " in str(error)
    assert str(error).endswith("Close that handle first, take with it, or use another group")


def test_each_load_has_a_name_that_its_queries_share() -> None:
    schema = StructType([StructField("body", BinaryType())])
    source = SpillableDataSource({"path": "/c"})
    readers: list[Any] = [source.streamReader(schema), source.streamReader(schema)]
    other: Any = SpillableDataSource({"path": "/c"}).streamReader(schema)
    notes = [reader._query.load.note for reader in (*readers, other)]
    assert notes[0] == notes[1] != notes[2]


# ── real Spark ──────────────────────────────────────────────────────────────────────────────


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("spillable").options(**options).load(str(path))


@pytest.mark.slow
@pytest.mark.spark
def test_self_join_is_told_at_once_to_load_twice(spark: SparkSession, path: Path) -> None:
    events = load(spark, path, group="g", ownerTimeout=1000)
    query = events.alias("x").join(events.alias("y"), "body").writeStream.format("noop").start()
    with pytest.raises(PySparkException) as e:
        query.awaitTermination(500)
    assert explain(e.value).startswith(f"one load() of {path} is used twice, in one query (a self-join) or in two, ")


@pytest.mark.slow
@pytest.mark.spark
def test_self_join_without_a_group_has_a_position_for_each_side(spark: SparkSession, put: Put, path: Path) -> None:
    put("a", b"y")
    events = load(spark, path)
    joined = events.alias("x").join(events.alias("y"), "body").select("body")
    query = joined.writeStream.format("memory").queryName("sides").trigger(availableNow=True).start()
    assert query.awaitTermination(500)
    assert sorted(bytes(row.body) for row in spark.table("sides").collect()) == [b"x", b"y"]


@pytest.mark.slow
@pytest.mark.spark
def test_two_loads_with_two_groups_are_joined_and_one_load_with_itself_united(
    spark: SparkSession, put: Put, path: Path
) -> None:
    put("a", b"y")
    events = load(spark, put("b", b"x", b"y"))
    joined = load(spark, path, group="left").join(load(spark, path, group="right").select("body"), "body")
    united = events.union(events)
    for name, frame, found in [("joined", joined, [b"x", b"y"]), ("united", united, [b"x", b"x", b"y", b"y"])]:
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        assert query.awaitTermination(500)
        assert sorted(bytes(row.body) for row in spark.table(name).collect()) == found


@pytest.mark.slow
@pytest.mark.spark
def test_second_query_of_one_load_says_what_to_write(spark: SparkSession, path: Path) -> None:
    events = load(spark, path, group="g", ownerTimeout=5)  # so long the first one's worker may take to end
    first = events.writeStream.format("noop").start()
    try:
        first.processAllAvailable()
        second = events.writeStream.format("noop").start()
        with pytest.raises(PySparkException) as e:
            second.awaitTermination(500)
        assert explain(e.value).startswith(f"a query of this load() has the group 'g' of {path} since ")
        assert WRITE in explain(e.value)
        assert first.isActive
    finally:
        first.stop()
    third = events.writeStream.format("noop").trigger(availableNow=True).start()  # of the same load(), after the first
    third.awaitTermination(500)
    assert third.exception() is None
