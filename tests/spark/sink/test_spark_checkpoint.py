"""What Spark wrote of a micro-batch is durable before a sink has the batch."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import spillable_stream as ss
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.query_task import QueryTask
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink.sharded_writer import ShardedStreamWriter
from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint
from spillable_stream.spark.sink.writer import SpillableStreamWriter
from tests.spark.sink.test_flow_plan import CONF, write_conf
from tests.support.events import peek, put

pytestmark = pytest.mark.spark


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record the path of each file and directory that is synced."""
    paths: list[str] = []
    for name in ("fsync", "fdatasync"):
        real_sync = getattr(os, name)

        def sync(descriptor: int, real: Callable[[int], None] = real_sync) -> None:
            real(descriptor)
            paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))

        monkeypatch.setattr(os, name, sync)
    yield paths


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Create the checkpoint of a query, as Spark has it when its batch 3 is written to a sink."""
    path = tmp_path / "queries" / "one"
    (path / "offsets").mkdir(parents=True)
    (path / "metadata").write_text('{"id":"query"}')
    (path / "offsets" / "3").write_text("v1\n{}\n{}")
    return path


def writer(path: Path, checkpoint: str, **options: str) -> SpillableStreamWriter | ShardedStreamWriter:
    place = {} if "flow" in options else {"path": str(path)}
    given = {**place, "checkpointLocation": checkpoint, **options}
    return SpillableDataSource(given).streamWriter(struct_type(EVENT_SCHEMA), False)


def commit(writer: SpillableStreamWriter | ShardedStreamWriter, batch_id: int = 3) -> None:
    rows = pa.record_batch([[[]], [b"INFO x"]], schema=EVENT_SCHEMA)
    writer.commit([writer._stage(iter([rows]), "query", batch_id)], batch_id)


@pytest.mark.parametrize("kind", ["one channel", "shards", "flow"])
def test_a_batchs_offsets_and_its_querys_id_are_on_the_medium_before_the_sink_has_it(
    tmp_path: Path, checkpoint: Path, synced: list[str], kind: str
) -> None:
    """A query of several sources plans a batch that it lost with other rows, which the sink would skip."""
    flow = {"flow": str(write_conf(tmp_path, CONF)), "agent": "a1", "source": "r1"} if kind == "flow" else {}
    shards = {"shards": "2", "shardBy": "body"} if kind == "shards" else {}
    sink = writer(tmp_path / "sink", str(checkpoint), **flow, **shards)
    synced.clear()
    commit(sink)
    first_put = next(i for i, path in enumerate(synced) if Path(path).name.startswith("log-"))
    needed = [checkpoint / "offsets" / "3", checkpoint / "offsets", checkpoint / "metadata"]
    assert {str(path) for path in (*needed, checkpoint, checkpoint.parent, tmp_path)} <= set(synced[:first_put])


def test_what_stays_the_same_is_synced_once_for_each_query(checkpoint: Path, synced: list[str]) -> None:
    spark = SparkCheckpoint(str(checkpoint))
    spark.sync_batch(3, "")
    synced.clear()
    spark.sync_batch(3, "")
    assert synced == [str(checkpoint / "offsets" / "3"), str(checkpoint / "offsets")]
    (checkpoint / "metadata").write_text('{"id":"2"}')  # another query, at the same place
    spark.sync_batch(3, "")
    assert str(checkpoint / "metadata") in synced


@pytest.mark.parametrize("place", ["{}", "file:{}", "file://{}"])
def test_a_checkpoint_on_this_host_is_found_by_its_path_and_its_uri(
    tmp_path: Path, checkpoint: Path, synced: list[str], place: str
) -> None:
    commit(writer(tmp_path / "sink", place.format(checkpoint)))
    assert str(checkpoint / "offsets" / "3") in synced


@pytest.mark.parametrize(
    ("option", "query", "of_session", "found"),
    [
        ("/queries/one", "", "", "/queries/one"),
        ("file:/my%20queries/one", "", "", "/my%20queries/one"),  # to Spark, and so it is here
        ("/queries/one", "two", "/elsewhere", "/queries/one"),
        ("", "two", "/elsewhere", "/elsewhere/two"),
        ("", "two", "file:/elsewhere", "/elsewhere/two"),
        ("", "", "/elsewhere", None),  # Spark makes up a name that no other start has
        ("", "two", "", None),  # in a directory of its own for temporary ones
        ("", "two", "s3a://bucket", None),
    ],
)
def test_the_querys_option_says_where_its_checkpoint_is_or_its_name_where_the_session_keeps_them(
    option: str, query: str, of_session: str, found: str | None
) -> None:
    assert SparkCheckpoint(option, query).directory(of_session) == (Path(found) if found else None)


@pytest.mark.parametrize("kind", ["one channel", "shards"])
def test_the_offsets_where_the_session_keeps_checkpoints_are_synced(
    tmp_path: Path, checkpoint: Path, synced: list[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = {"shards": "2", "shardBy": "body"} if kind == "shards" else {}
    sink = writer(tmp_path / "sink", "", queryName=checkpoint.name, **shards)
    monkeypatch.setattr(QueryTask, "here", lambda: QueryTask("query", "run", 3, str(checkpoint.parent)))
    commit(sink)
    assert str(checkpoint / "offsets" / "3") in synced


@pytest.mark.parametrize("place", ["s3a://bucket/queries", "hdfs://name/queries", "", "/no/such/directory"])
def test_a_checkpoint_elsewhere_is_left_to_its_store(tmp_path: Path, place: str) -> None:
    commit(writer(tmp_path / "sink", place))
    with ss.Channel(tmp_path / "sink", create=False) as channel:
        assert peek(channel) == [b"INFO x"]


@pytest.mark.parametrize(
    ("failed", "kind", "advice"),
    [(errno.EIO, ss.StorageError, "check the disk"), (errno.ENOSPC, ss.DiskSpaceError, "make room")],
    ids=["fails", "is full"],
)
def test_a_batch_is_not_stored_if_its_offsets_cannot_be_kept(
    tmp_path: Path,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    failed: int,
    kind: type[ss.StorageError],
    advice: str,
) -> None:
    sink, real = writer(tmp_path / "sink", str(checkpoint)), os.fsync

    def fails(descriptor: int) -> None:
        if "/offsets/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(failed, os.strerror(failed))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    said = rf"^the batch is not stored: can't sync .*/offsets/3, .*\({os.strerror(failed)}\); {advice}"
    with pytest.raises(ss.StorageError, match=said) as caught:
        commit(sink)
    assert type(caught.value) is kind
    with ss.Channel(tmp_path / "sink", create=False) as channel:
        assert peek(channel) == []


@pytest.mark.parametrize("what", ["offsets/3", "metadata"])
def test_a_batch_is_not_stored_while_the_disk_cannot_look_at_what_spark_needs(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Since Python 3.14, `Path.is_file` says no then, and nothing was synced."""
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith(what):
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)
    monkeypatch.setattr(Path, "is_file", os.path.isfile)
    with pytest.raises(ss.StorageError, match=rf"^the batch is not stored: can't look at .*/{what} .*; check the disk"):
        SparkCheckpoint(str(checkpoint)).sync_batch(3, "")


@pytest.mark.parametrize("file", ["offsets/3", "metadata"])
def test_a_sync_that_failed_is_not_believed_the_next_time(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The kernel takes what it could not write for clean, so only what is written again is synced again."""
    spark, real, content = SparkCheckpoint(str(checkpoint)), os.fsync, (checkpoint / file).read_bytes()

    def fails(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(file):
            raise OSError(5, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as failing, pytest.raises(ss.StorageError):
        failing.setattr(os, "fsync", fails)
        spark.sync_batch(3, "")
    os.utime(checkpoint / file, ns=(0, 0))
    spark.sync_batch(3, "")
    assert (checkpoint / file).stat().st_mtime_ns > 0, "it was synced, and not written"
    assert (checkpoint / file).read_bytes() == content


def test_a_file_system_that_cannot_sync_stops_no_query(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def can_not(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
        if str(checkpoint) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(22, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", can_not)
    commit(writer(tmp_path / "sink", str(checkpoint)))
    with ss.Channel(tmp_path / "sink", create=False) as channel:
        assert peek(channel) == [b"INFO x"]


# ── on Spark ────────────────────────────────────────────────────────────────────────────────────


class TellingCheckpoint(SparkCheckpoint):
    """Says what is in the offsets that a sink's commit syncs, in a file beside the checkpoint."""

    def sync_batch(self, batch_id: int, checkpoints: str) -> None:
        directory = self.directory(checkpoints)
        assert directory is not None
        directory.with_name("told").write_text(" ".join(os.listdir(directory / "offsets")))


class TellingDataSource(SpillableDataSource):
    """Writes with a `TellingCheckpoint`."""

    @classmethod
    def name(cls) -> str:
        return "spillable_telling"

    def streamWriter(self, schema: StructType, overwrite: bool) -> SpillableStreamWriter | ShardedStreamWriter:
        found = super().streamWriter(schema, overwrite)
        found._checkpoint = TellingCheckpoint(found._checkpoint.location, found._checkpoint.query)
        return found


@pytest.mark.parametrize("says", ["query", "session"])
def test_spark_tells_the_sinks_commit_where_the_checkpoint_is(spark: SparkSession, tmp_path: Path, says: str) -> None:
    with ss.Channel(tmp_path / "source") as channel:
        put(channel, b"x")
    spark.dataSource.register(TellingDataSource)
    events = spark.readStream.format("spillable").load(str(tmp_path / "source"))
    query = events.writeStream.format("spillable_telling").trigger(availableNow=True)
    if says == "query":
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    else:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
        query = query.queryName("by name")
    try:
        query.start(str(tmp_path / "sink")).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "0" in (tmp_path / "told").read_text().split()
