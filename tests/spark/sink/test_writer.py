"""The sink: idempotent batch writes, and where small and large outputs go."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import spillable_stream as ss
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.errors import ChannelFullError, NotAChannelError, SchemaError, StorageError
from spillable_stream.format.file_names import in_memory
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.spark.datasource import SpillableDataSource
from spillable_stream.spark.sink.writer import SpillableBatchWriter
from tests.spark.sink.test_sink_plan import sink_plan
from tests.support.delays import clock_of
from tests.support.events import take
from tests.support.spark.versions import needs

pytestmark = pytest.mark.spark
Put = Callable[..., Path]


def append(df: DataFrame, path: Path, **options: Any) -> None:
    writer = df.write.format("spillable").option("minimumRequiredSpace", 0).mode("append")
    writer.options(**{k: str(v) for k, v in options.items()}).save(str(path))


def values(spark: SparkSession, path: Path) -> list[int]:
    return [row.id for row in spark.read.format("spillable").load(str(path)).collect()]


def test_write_of_a_version_that_was_written_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    append(spark.range(0, 3), path, txnAppId="job", txnVersion=5)
    append(spark.range(3, 6), path, txnAppId="job", txnVersion=5)
    append(spark.range(6, 9), path, txnAppId="job", txnVersion=4)
    assert sorted(values(spark, path)) == [0, 1, 2]
    append(spark.range(9, 10), path, txnAppId="job", txnVersion=6)
    append(spark.range(10, 11), path, txnAppId="another job", txnVersion=1)
    append(spark.range(11, 12), path)
    assert sorted(values(spark, path)) == [0, 1, 2, 9, 10, 11]


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "staged"])
def test_rows_with_a_ttl_expire(spark: SparkSession, tmp_path: Path, inline: int) -> None:
    path = tmp_path / "c"
    append(spark.range(0, 3), path, ttl="0.001ms", maxInlineBytes=inline)
    append(spark.range(3, 6), path, ttl="1d", maxInlineBytes=inline)
    assert sorted(values(spark, path)) == [3, 4, 5]
    with ss.Channel(path, create=False) as channel, channel.take_transaction("g") as tx:
        assert sorted(row["id"] for row in tx.take_many(9)) == [3, 4, 5]


@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["inline", "staged"])
def test_columns_say_for_how_long_rows_count_and_when_they_are_due(
    spark: SparkSession, tmp_path: Path, inline: int
) -> None:
    path, later = tmp_path / "c", "timestamp_millis(unix_millis(now()) + 3600000)"
    df = spark.range(0, 6).selectExpr(
        "id",
        "case when id < 2 then 0.000001 when id < 4 then 3600.0 end as seconds",
        f"case when id % 2 = 1 then {later} end as due",
    )
    append(df, path, ttlColumn="seconds", deliverAtColumn="due", ttl="1d", maxInlineBytes=inline)
    with ss.Channel(path, create=False) as channel:
        assert channel.schema.names == ["id"]
        with channel.take_transaction() as tx:
            assert sorted(row["id"] for row in tx.take_many(9)) == [2, 4]
        clock_of(channel).pass_by(3600)
        with channel.take_transaction() as tx:
            assert [tx.take(timeout_seconds=60)["id"] for _ in range(2)] == [3, 5]  # type: ignore[index]
        assert channel.stats().groups["default"].expired_events == 2


def test_rows_of_a_stream_are_delivered_after_a_while(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    for repeated in range(2):
        stream = spark.readStream.format("spillable").load(str(put("a", b"%d" % repeated)))
        writer = stream.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.option("minimumRequiredSpace", 0).trigger(availableNow=True)
        writer.option("deliverAfter", "1h").start(str(tmp_path / "b")).awaitTermination()
    with ss.Channel(tmp_path / "b", create=False) as channel:
        assert channel.stats().delayed.events == 2
        clock = clock_of(channel)
        assert take(channel) == []
        clock.pass_by(3600)
        assert sorted(take(channel)) == [b"0", b"1"]


@pytest.mark.parametrize(
    ("place", "options", "text"),
    [
        ("{}/c", {"overflowCapacity": "0", "memoryCapacity": "9"}, "no disk tier"),
        ("{}/there", {}, "no disk tier"),
    ],
)
def test_delays_are_refused_where_no_event_can_wait(
    tmp_path: Path, place: str, options: dict[str, str], text: str
) -> None:
    schema = StructType([StructField("id", LongType())])
    ss.Channel(tmp_path / "there", schema=schema, overflow_capacity=0, memory_capacity=9).close()
    source = SpillableDataSource({"path": place.format(tmp_path), "deliverAfter": "5", **options})
    with pytest.raises(ss.OptionError, match=text):
        source.writer(schema, overwrite=False)
    assert [child.name for child in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("ttl", ["0", "-1s", "soon", "nan", "true"])
def test_a_ttl_that_cannot_be_is_refused_and_creates_no_channel(tmp_path: Path, ttl: str) -> None:
    source = SpillableDataSource({"path": str(tmp_path / "c"), "ttl": ttl})
    with pytest.raises(ss.OptionError, match=r"ttl must be seconds, or a number .*; more than 0"):
        source.writer(StructType([StructField("id", LongType())]), overwrite=False)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("batch", [4, 5])
def test_skipped_write_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, batch: int) -> None:
    for version in (5, batch):
        writer, messages = staged_writer(tmp_path / "c", txnAppId="job", txnVersion=version)
        caplog.clear()
        writer.commit(messages)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"c already has, from txn:job, the batch {batch} or a later one: this write is skipped" in record.message


def test_skipped_write_leaves_no_staged_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c"
    for _ in range(2):
        append(spark.range(0, 3), path, txnAppId="job", txnVersion=1, maxInlineBytes=0)
    with ss.Channel(path, create=False) as channel:
        engine = channel.engine()
        assert set(engine.layout.segments(engine.fs)) == engine.follow().blocks.segments()


def test_tasks_that_were_retried_leave_nothing_behind_a_batch_write(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark calls it when a task fails after it has staged, and its second attempt does not."""
    df = spark.range(0, 3)
    source = SpillableDataSource({"path": str(tmp_path / "c"), "maxInlineBytes": "0", "minimumRequiredSpace": "0"})
    writer = source.writer(df.schema, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"id": pa.array([0, 1, 2], pa.int64())})
    writer.write(iter([rows]))
    writer.commit([writer.write(iter([rows]))])
    with ss.Channel(tmp_path / "c", create=False) as channel:
        engine = channel.engine()
        assert set(engine.layout.segments(engine.fs)) == engine.follow().blocks.segments()
    assert values(spark, tmp_path / "c") == [0, 1, 2]


# ── writes that fail ────────────────────────────────────────────────────────────────────────


def rows(*ids: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})])


def staged_writer(path: Path, **options: Any) -> tuple[SpillableBatchWriter, list[Any]]:
    """Return a writer and what two of its tasks staged: a few rows for the driver, and many in a file."""
    writer = SpillableBatchWriter(sink_plan(path, **{"maxInlineBytes": 2000, "keepAlive": 0, **options}))
    messages = [writer.write(rows(*range(3))), writer.write(rows(*range(3, 1003)))]
    assert messages[0].frames and messages[1].segment is not None
    return writer, messages


def segments(path: Path) -> tuple[int, int]:
    """Return how many segments there are, and how many of them the channel holds."""
    with ss.Channel(path, create=False) as channel:
        engine = channel.engine()
        return len(engine.layout.segments(engine.fs)), len(engine.follow().blocks.segments())


@pytest.mark.parametrize("memory", [0, 10])
def test_failed_batch_write_leaves_no_staged_file(tmp_path: Path, memory: int) -> None:
    writer, messages = staged_writer(tmp_path / "c", overflowCapacity=100, memoryCapacity=memory)
    with pytest.raises(ChannelFullError):
        writer.commit(messages)
    writer.abort(messages)
    assert segments(tmp_path / "c") == (0, 0)


def test_staged_file_that_a_failed_commit_moved_to_disk_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ss.Channel(tmp_path / "c", schema=pa.schema([("id", pa.int64())]), memory_capacity=10):  # which keeps the tier
        writer, messages = staged_writer(tmp_path / "c", memoryCapacity=10)
        assert in_memory(messages[1].segment.name)
        with monkeypatch.context() as patch, pytest.raises(StorageError, match="too late"):
            patch.setattr(Appender, "append", too_late)
            writer.commit(messages)
    assert segments(tmp_path / "c") == (1, 0)  # the task's
    writer.abort(messages)
    assert segments(tmp_path / "c") == (0, 0)


def test_rows_that_cannot_be_staged_by_the_driver_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, messages = staged_writer(tmp_path / "c")

    def fail(segment: StagedFileWriter) -> None:
        raise StorageError(f"syncing {segment.path} failed")

    monkeypatch.setattr(StagedFileWriter, "finish", fail)
    with pytest.raises(StorageError, match="syncing"):
        writer.commit([*messages[::-1], *messages[:1]])
    writer.abort(messages)
    assert segments(tmp_path / "c") == (0, 0)


def test_write_that_is_aborted_once_it_is_committed_keeps_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, messages = staged_writer(tmp_path / "c")
    with monkeypatch.context() as patch:
        patch.setattr(DrainedFiles, "remove_staging", too_late)
        writer.commit(messages)
    writer.abort(messages)
    assert segments(tmp_path / "c") == (2, 2)
    assert values(spark, tmp_path / "c") == list(range(1003))


def test_an_abort_that_cannot_reach_the_channel_leaves_the_error_to_the_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark says "Writing job failed" of a write whose abort fails too, and nothing else."""
    writer, messages = staged_writer(tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / "moved")
    with pytest.raises(NotAChannelError):
        writer.commit(messages)
    writer.abort(messages)
    (warning,) = (r.getMessage() for r in caplog.records if r.name.endswith("channel_commit"))
    assert warning.startswith(
        f"a write to {tmp_path / 'c'} failed, and the files that its tasks staged (1) could not be "
    )


def too_late(*_: Any) -> None:
    raise StorageError("too late")


def test_what_a_task_staged_is_the_same_in_another_process(tmp_path: Path) -> None:
    _, messages = staged_writer(tmp_path / "c")
    assert pickle.loads(pickle.dumps(messages)) == messages


@pytest.mark.parametrize("options", [{"txnAppId": "job"}, {"txnVersion": 1}])
def test_half_of_the_pair_is_refused(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(PySparkException, match="txnAppId and txnVersion belong together"):
        append(spark.range(1), tmp_path / "c", **options)


def test_pair_is_refused_on_a_stream(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    stream = spark.readStream.format("spillable").load(str(put("a", b"1")))
    writer = stream.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.options(txnAppId="job", txnVersion="1").trigger(availableNow=True).start(str(tmp_path / "b"))
    with pytest.raises(PySparkException, match="txnAppId and txnVersion are for batch writes"):
        query.awaitTermination()
    assert not (tmp_path / "b").exists()


def test_source_option_on_a_sink_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="startingOffsets is not an option of a Spark sink but of a streaming s"):
        append(spark.range(1), tmp_path / "c", startingOffsets="latest")


@needs(4, 2, "several batches of a run with a limit")
def test_foreach_batch_that_is_run_again_writes_once(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    source, target, tries = put("a", *(b"%d" % i for i in range(6))), tmp_path / "b", []

    def write(df: DataFrame, batch_id: int) -> None:
        ids = df.selectExpr("CAST(CAST(body AS STRING) AS BIGINT) AS id")
        append(ids, target, txnAppId="my query", txnVersion=batch_id)
        tries.append(batch_id)
        if len(tries) == 2:
            raise RuntimeError("after the write")

    def run() -> None:
        stream = spark.readStream.format("spillable").option("maxEventsPerTrigger", 2).load(str(source))
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="after the write"):
        run()
    run()
    assert tries == [0, 1, 1, 2]
    assert values(spark, target) == list(range(6))


@pytest.mark.parametrize(("limit", "segments"), [(0, 1), (1 << 20, 0)])
def test_max_inline_bytes_chooses_between_the_log_and_a_file(
    spark: SparkSession, tmp_path: Path, limit: int, segments: int
) -> None:
    append(spark.range(0, 3, 1, 1), tmp_path / "c", maxInlineBytes=limit)
    with ss.Channel(tmp_path / "c", create=False) as channel:
        assert len(channel.engine().follow().blocks.segments()) == segments
        assert channel.options["max_inline_bytes"] == 4 << 20  # the sink's own; the channel's is another


def test_task_with_a_high_number_stages_what_the_first_ones_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 tasks with 256 KiB each are more than Spark lets a job send."""

    class Context:
        number = 0

        def partitionId(self) -> int:
            return self.number

        def getLocalProperty(self, name: str) -> None:
            return None

    context = Context()
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    source = SpillableDataSource({"path": str(tmp_path / "c"), "minimumRequiredSpace": "0"})
    writer = source.writer(StructType([StructField("id", LongType())]), overwrite=False)
    messages = []
    for context.number in (0, 511, 3999):
        messages.append(writer.write(rows(*range(context.number * 25_000, (context.number + 1) * 25_000))))
    assert [m.segment is not None for m in messages] == [False, False, True]
    writer.commit(messages)
    with ss.Channel(tmp_path / "c") as channel, channel.take_transaction() as tx:
        table = tx.take_batch(10_000)
        assert channel.stats().channel_size == 75_000 and table is not None and table["id"][0].as_py() == 0


def test_task_refuses_text_that_is_not_utf8_and_leaves_no_staged_file(tmp_path: Path) -> None:
    """Spark casts any binary to a string, but only Spark could read it back."""
    source = SpillableDataSource({"path": str(tmp_path / "c"), "maxInlineBytes": "0", "minimumRequiredSpace": "0"})
    writer = source.writer(StructType([StructField("s", StringType())]), overwrite=False)
    batches = [pa.record_batch({"s": texts}) for texts in (pa.array(["a"]), pa.array([b"\xff"]).view(pa.string()))]
    with pytest.raises(SchemaError, match=r"the column 's' is not sound: .*UTF8"):
        writer.write(iter(batches))
    assert segments(tmp_path / "c") == (0, 0)


def test_rows_of_a_channel_that_was_created_again_meanwhile_are_refused(tmp_path: Path) -> None:
    """They would land in columns of other names, in another order."""
    path = tmp_path / "c"
    writer, messages = staged_writer(path)
    shutil.rmtree(path)
    with ss.Channel(path, schema=pa.schema([("other", pa.int64())]), minimum_required_space=0) as made_again:
        with pytest.raises(NotAChannelError, match="it was removed and created again"):
            writer.commit(messages)
        assert made_again.stats().channel_size == 0


def test_frame_without_columns_is_refused_and_creates_no_channel(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="a frame without columns has nothing that a channel could store"):
        append(spark.range(0, 3).select(), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_read_of_a_missing_channel_says_how_to_start_first(spark: SparkSession, tmp_path: Path) -> None:
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException, match="let a stream create it, with the option createIfMissing"):
            reader.format("spillable").load(str(tmp_path / "c"))
