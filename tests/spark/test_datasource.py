"""What the format refuses, when, and how Spark shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import spillable_stream as ss
from spillable_stream.channel import stored_schema
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark import explain
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.source_channel import START_FIRST

pytestmark = pytest.mark.spark
Put = Callable[..., Path]


def stream(spark: SparkSession, path: Path, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.readStream.format("spillable").options(**{k: str(v) for k, v in options.items()})
    return (reader.schema(schema) if schema else reader).load(str(path))


# ── a channel that is missing ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inside", ["logs", "data"])
def test_where_the_error_says_what_to_do_nobody_is_told_to_create_a_channel(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "c"
    ss.Channel(path, minimum_required_space=0).close()
    (path / inside).mkdir(exist_ok=True)
    with pytest.raises(NotAChannelError) as raised:
        SpillableDataSource({"path": str(path / inside)}).schema()
    assert str(raised.value).endswith(f": give {path}")


def test_where_no_channel_is_a_user_is_told_to_check_the_path_first(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    for path, why in ((tmp_path / "none", "it is missing"), (tmp_path / "orders", "it has no channel.json")):
        with pytest.raises(NotAChannelError) as raised:
            SpillableDataSource({"path": str(path)}).schema()
        assert str(raised.value) == f"{path} is not a channel: {why}. {START_FIRST}"


def test_above_channels_nobody_is_told_to_create_one(tmp_path: Path) -> None:
    ss.Channel(tmp_path / "orders", minimum_required_space=0).close()
    with pytest.raises(NotAChannelError, match=f"is above a channel: give {tmp_path}/orders, or another one there$"):
        SpillableDataSource({"path": str(tmp_path)}).schema()


@pytest.mark.parametrize("by", ["columns", "schema of a batch", "schema of a stream"])
def test_an_error_of_the_columns_says_which_channel_it_is(tmp_path: Path, by: str) -> None:
    path = tmp_path / "c"
    ss.Channel(path, schema=pa.schema([("put_time", pa.int64())]), minimum_required_space=0).close()
    given = {"path": str(path), "metadata": "true"}
    wanted = StructType([StructField("n", LongType())])
    what = "the channel has a column 'put_time' of its own"
    if by != "columns":
        given, what = {"path": str(path)}, "the channel has no column 'n'"
    source = SpillableDataSource(given)
    with pytest.raises(SchemaError, match=f"^{path}: {what}"):
        if by == "columns":
            source.schema()
        elif by == "schema of a batch":
            source.reader(wanted).partitions()
        else:
            source.streamReader(wanted).initialOffset()


@pytest.mark.parametrize("creates", ["false", "true"])
@pytest.mark.parametrize("kind", ["of objects", "of a disk", "file"])
def test_where_something_else_is_nobody_is_told_to_create_a_channel(tmp_path: Path, kind: str, creates: str) -> None:
    path, says = tmp_path / "c", "open it "
    if kind == "file":
        path.touch()
        says = "give the directory"
    elif kind == "of a disk":
        ss.Channel(path, minimum_required_space=0).close()
    else:
        ss.Channel(f"object+file://{path}").close()
    given = f"object+file://{path}" if kind == "of a disk" else str(path)
    source = SpillableDataSource({"path": given, "createIfMissing": creates})
    for attempt in (source.schema, lambda: source.streamReader(struct_type(EVENT_SCHEMA)).initialOffset()):
        with pytest.raises(NotAChannelError, match=says) as raised:
            attempt()
        assert START_FIRST not in str(raised.value)
        assert kind == "file" or f"holds a channel {kind}" in str(raised.value)


def test_batch_read_that_asks_for_a_new_channel_is_refused_and_creates_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    reader = spark.read.format("spillable").option("createIfMissing", "true")
    with pytest.raises(PySparkException, match="createIfMissing is not an option of a Spark batch read"):
        reader.load(str(tmp_path / "typo")).collect()
    assert not (tmp_path / "typo").exists()


def test_stream_creates_its_channel_when_it_starts_and_not_before(spark: SparkSession, tmp_path: Path) -> None:
    df = stream(spark, tmp_path / "a", createIfMissing=True, metadata=True)
    assert df.columns == ["headers", "body", "write_order_id", "transaction_id", "put_time"]
    assert not (tmp_path / "a").exists()
    query = df.writeStream.format("memory").queryName("made").trigger(availableNow=True).start()
    query.awaitTermination()
    with ss.Channel(tmp_path / "a", create=False) as channel:
        assert not channel.typed


@pytest.mark.parametrize("creates", ["false", "true"])
@pytest.mark.parametrize("paths", ["a", "a,b"])
def test_a_read_with_a_schema_of_no_columns_is_refused(tmp_path: Path, paths: str, creates: str) -> None:
    """Spark would find no events in it, however many there are."""
    ss.Channel(tmp_path / "a", minimum_required_space=0).close()
    given = {"path": ",".join(str(tmp_path / name) for name in paths.split(","))}
    with pytest.raises(SchemaError, match="a schema without columns reads no events: name some, or leave it out"):
        SpillableDataSource(given).reader(StructType())
    reader = SpillableDataSource({**given, "createIfMissing": creates}).streamReader(StructType())
    for call in (reader.initialOffset, lambda: reader.latestOffset({}, None)):
        with pytest.raises(SchemaError, match="a schema without columns reads no events"):
            call()
    assert not (tmp_path / "b").exists()


# ── tables ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(600)
@pytest.mark.parametrize("made", ["OPTIONS (path '{}')", "LOCATION '{}'"])
def test_table_is_refused_when_it_is_created_and_a_view_named_instead(spark: SparkSession, put: Put, made: str) -> None:
    path = put("a", b"x")
    with pytest.raises(PySparkException) as e:
        spark.sql(f"CREATE TABLE refused USING spillable {made.format(path)}")
    view = f"CREATE TEMPORARY VIEW name USING spillable OPTIONS (path '{path}')"
    assert explain(e.value).endswith(f"Make a view: {view}")
    assert not spark.catalog.tableExists("refused")
    spark.sql(view.replace("name", "instead"))
    spark.sql("INSERT INTO instead SELECT map(), CAST('y' AS BINARY)")
    spark.sql(view.replace("name", "instead").replace("CREATE", "CREATE OR REPLACE"))
    assert spark.sql("SELECT * FROM instead").count() == 2
    spark.catalog.dropTempView("instead")


@pytest.mark.timeout(600)
def test_table_that_a_stream_makes_has_to_be_told_its_path(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    path = tmp_path / "b"
    writer = stream(spark, put("a", b"x")).writeStream.format("spillable").option("minimumRequiredSpace", 0)
    writer = writer.option("checkpointLocation", str(tmp_path / "ck")).option("path", str(path))
    try:
        assert writer.trigger(availableNow=True).toTable("a_table").awaitTermination(500)
        with pytest.raises(PySparkException) as e:
            spark.sql("SELECT * FROM a_table").collect()
        assert "of a table's path Spark tells nothing" in explain(e.value)
        assert "SELECT * FROM name WITH (`path` = '/data/orders')" in explain(e.value)
        with_path = f"WITH (`path` = '{path}')"
        spark.sql(f"INSERT INTO a_table {with_path} SELECT map(), CAST('y' AS BINARY)")
        assert spark.sql(f"SELECT * FROM a_table {with_path}").count() == 2
    finally:
        spark.sql("DROP TABLE IF EXISTS a_table")
    assert spark.read.format("spillable").load(str(path)).count() == 2  # the channel is not the table's


# ── options ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("", {"endingOffsets": 5}, "endingOffsets is not an option of a Spark stream's source but of a batch read"),
        pytest.param(
            "body BINARY",
            {"endingOffsets": 5},
            "endingOffsets is not an option of a Spark stream's source but of a bat",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "body BINARY",
            {"maxEventPerTrigger": 5},
            "'maxeventpertrigger' is not an option of a Spark stream's source;",
            marks=pytest.mark.slow,
        ),
        ("body BINARY", {"maxEventsPerTrigger": 0}, "maxEventsPerTrigger must be an integer of at least 1, not '0'"),
    ],
)
def test_wrong_option_is_the_last_error_of_a_stream(
    spark: SparkSession, put: Put, tmp_path: Path, schema: str, options: dict[str, Any], message: str
) -> None:
    df = stream(spark, put("a", b"x"), schema, **options)
    for trigger in ({"availableNow": True}, {"processingTime": "1 second"}):
        query = df.writeStream.format("noop").trigger(**trigger).start()
        with pytest.raises(PySparkException) as e:
            query.awaitTermination(60)
        last = [line for line in str(e.value).splitlines() if "Error: " in line][-1]
        assert f"OptionError: {message}" in last
        assert "UnboundLocalError" not in str(e.value)


@pytest.mark.slow
def test_path_of_a_stream_that_is_not_local_is_the_last_error(spark: SparkSession) -> None:
    query = stream(spark, Path("s3://x"), "body BINARY").writeStream.format("noop").start()  # Path makes it s3:/x
    with pytest.raises(PySparkException, match="a channel needs the path of a local directory") as e:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(e.value)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a b/%20", "/a b/%20"),
        ("a/b", "a/b"),
        ("file:/a%20b/x", "/a b/x"),
        ("file:///a", "/a"),
        ("file:////a", "/a"),
        ("FILE://localhost/a", "/a"),
        ("file://LocalHost/a#b?c", "/a#b?c"),
    ],
)
def test_path_is_of_this_host(path: str, expected: str) -> None:
    assert SpillableDataSource({"path": path})._path() == expected


@pytest.mark.parametrize(
    "path", ["", " ", "\t", "file:", "file://", "file:a/b", "file://host/a", "file://localhost", "dbfs:/x"]
)
def test_path_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(OptionError, match="a channel needs the path of a local directory"):
        SpillableDataSource({"path": path})._path()


@pytest.mark.parametrize("path", [" ", ",", " , "])
def test_a_path_of_nothing_but_spaces_and_commas_is_refused(path: str) -> None:
    columns = StructType([StructField("id", LongType())])
    for use in (SpillableDataSource.schema, lambda source: source.writer(columns, overwrite=False)):
        with pytest.raises(OptionError, match=r"a channel needs the path of a local directory|has a comma"):
            use(SpillableDataSource({"path": path}))


@pytest.mark.parametrize("place", ["s3://b/c", "az://b/c/d", "gs://b/c", "object+file:///c"])
def test_a_place_in_a_store_is_a_path(place: str) -> None:
    assert SpillableDataSource({"path": place})._path() == place


def test_a_list_of_paths_is_a_set_of_channels(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    for name in ("a", "b", "c,d"):
        put(name, b"x", b"y")
    paths = [f"file:{tmp_path}/a", f"{tmp_path}/[bx]", str(tmp_path / "c,d"), str(tmp_path / "a")]
    events = spark.read.format("spillable").option("metadata", "true").load(paths)
    assert Counter(row.channel for row in events.collect()) == {str(tmp_path / n): 2 for n in ("a", "b", "c,d")}


def test_braces_are_refused_by_name_unless_a_channel_has_them(tmp_path: Path) -> None:
    given = f"{tmp_path}/orders-{{a,b}}"
    with pytest.raises(
        OptionError, match=r"orders-\{a,b\}: braces don't make a pattern here; write all of the paths, with comm"
    ):
        SpillableDataSource({"path": given}).schema()
    ss.Channel(given, minimum_required_space=0).close()
    assert SpillableDataSource({"path": given}).schema() == struct_type(EVENT_SCHEMA)


@pytest.mark.parametrize("paths", ["", "/a,/b", "[]", "[1]", '{"/a": 1}'])
def test_what_is_not_a_list_of_paths_is_refused(paths: str) -> None:
    with pytest.raises(
        OptionError, match=r"^paths must be a list of paths, as Spark makes it of load\(\[...\]\), not "
    ):
        SpillableDataSource({"paths": paths}).schema()


@pytest.mark.parametrize("place", ["s3a://b/c", "abfss://b@c/d"])
def test_another_spelling_of_a_store_is_refused_and_the_right_one_is_named(place: str) -> None:
    with pytest.raises(OptionError, match=r"write (s3|az)://"):
        SpillableDataSource({"path": place})._path()


@pytest.mark.parametrize("use", ["writer", "streamWriter"])
@pytest.mark.parametrize("shards", [{}, {"shards": "2", "shardBy": "id"}], ids=["one", "shards"])
@pytest.mark.parametrize("name", ["orders-*", "orders-?", "orders-[12]", "a,b"])
def test_write_to_what_a_read_takes_for_several_channels_is_refused_and_creates_none(
    tmp_path: Path, use: str, shards: dict[str, str], name: str
) -> None:
    source = SpillableDataSource({"path": f"{tmp_path}/{name}", **shards})
    with pytest.raises(OptionError, match="has a comma or a wildcard, with which a path names several channels to re"):
        getattr(source, use)(StructType([StructField("id", LongType())]), overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_write_to_a_channel_that_has_such_a_name_is_one_to_it(tmp_path: Path) -> None:
    columns = StructType([StructField("id", LongType())])
    ss.Channel(tmp_path / "a,[b]", schema=columns, minimum_required_space=0).close()
    SpillableDataSource({"path": f"{tmp_path}/a,[b]"}).streamWriter(columns, overwrite=False)
    assert [child.name for child in tmp_path.iterdir()] == ["a,[b]"]


@pytest.mark.parametrize("use", ["writer", "streamWriter"])
def test_write_without_path_and_with_a_wrong_option_reports_the_option(use: str) -> None:
    source = SpillableDataSource({"maxInlineByte": "5"})
    with pytest.raises(OptionError, match="'maxInlineByte' is not an option of a Spark sink"):
        getattr(source, use)(StructType([StructField("id", LongType())]), overwrite=False)


def test_stream_without_path_and_with_a_wrong_option_reports_the_path() -> None:
    reader = SpillableDataSource({"maxEventPerTrigger": "5"}).streamReader(StructType())
    with pytest.raises(OptionError, match="a channel needs the path of a local directory"):
        reader.initialOffset()


# ── the sink's schema ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("schema", ["a BIGINT", "body BINARY, headers MAP<STRING, STRING>"])
def test_write_checks_its_schema_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    checked: list[pa.Schema] = []
    merge = stored_schema.merge_schemas
    monkeypatch.setattr(stored_schema, "merge_schemas", lambda had, new: checked.append(new) or merge(had, new))
    source = SpillableDataSource({"path": str(tmp_path / "c"), "minimumRequiredSpace": "0"})
    rows = spark.createDataFrame([], schema).schema
    for times in (1, 2):
        source.writer(rows, overwrite=False)
        assert len(checked) == times
    with ss.Channel(tmp_path / "c", create=False) as channel:
        assert set(channel.schema.names) == set(rows.fieldNames())
        assert channel.typed == ("a" in channel.schema.names)
