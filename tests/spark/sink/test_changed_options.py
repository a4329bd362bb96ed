"""A batch that comes again by other options of its stream is refused wherever a channel has it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spillable_stream as ss
from spillable_stream.flow.bulkhead import LateCallError
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark import explain
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink import optional_channels
from spillable_stream.spark.sink import written_channels as module
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from spillable_stream.spark.sink.sharded_channels import plan_sharded_sink
from spillable_stream.spark.sink.sharded_plan import ShardedPlan
from spillable_stream.spark.sink.sharded_writer import ShardedStaged, ShardedStreamWriter
from spillable_stream.spark.sink.sink_options import SinkOptions
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint
from spillable_stream.spark.sink.spark_writers import StreamWriter
from spillable_stream.spark.sink.writer import SpillableStreamWriter
from spillable_stream.spark.sink.written_channels import NOTE
from tests.spark.sink.test_flow_plan import CONF, plan, plan_of, write_conf
from tests.spark.sink.test_flow_writer import OK_IS_NOT_THE_SOURCES, OK_MAY
from tests.spark.sink.test_sink_plan import sink_plan
from tests.spark.test_channel_pool import close_parked

pytestmark = pytest.mark.usefixtures("other_process")

FEWER = (
    CONF.replace("a1.channels = ok errors may dead", "a1.channels = errors dead")
    .replace("r1.channels = ok errors may", "r1.channels = errors")
    .replace("default = ok", "default = errors")
    .replace("a1.sources.r1.selector.optional.INFO = may\n", "")
)
"""The file without two of its channels, one of them optional."""

EVENTS = struct_type(EVENT_SCHEMA)


def bodies(*paths: Path) -> list[bytes]:
    found = []
    for path in paths:
        with ss.Channel(path, create=False) as channel:
            found += [body for batch in channel.read() for body in batch["body"].to_pylist()]
    return sorted(found)


def to_path(tmp_path: Path, name: str) -> SinkPlan:
    return sink_plan(tmp_path / name, EVENTS, stream=True)


def to_path_of_the_flow(tmp_path: Path) -> SinkPlan:
    plan(tmp_path)  # which creates the channel with directories of its own
    return to_path(tmp_path, "ok")


def to_shards(tmp_path: Path, name: str, count: int = 3) -> ShardedPlan:
    given = {"shards": f"{count}", "shardBy": "body", "minimumRequiredSpace": "0"}
    return plan_sharded_sink(str(tmp_path / name), SinkOptions.parse(given, stream=True), EVENTS)


WAYS: dict[str, Callable[[Path, SparkCheckpoint], StreamWriter[Any]]] = {
    "a path": lambda at, c: SpillableStreamWriter(to_path(at, "one"), c),
    "another path": lambda at, c: SpillableStreamWriter(to_path(at, "other"), c),
    "the path of a channel of the flow": lambda at, c: SpillableStreamWriter(to_path_of_the_flow(at), c),
    "the path of a shard": lambda at, c: SpillableStreamWriter(to_path(at, "x-1"), c),
    "shards": lambda at, c: ShardedStreamWriter(to_shards(at, "x"), c),
    "fewer shards": lambda at, c: ShardedStreamWriter(to_shards(at, "x", 2), c),
    "shards elsewhere": lambda at, c: ShardedStreamWriter(to_shards(at, "y"), c),
    "a flow": lambda at, c: FlowStreamWriter(plan(at), c),
    "a flow without some channels": lambda at, c: FlowStreamWriter(plan(at, FEWER), c),
}
ROWS = [b"INFO a", b"INFO b", b"INFO c", b"INFO d"]


def stage(writer: StreamWriter[Any], batch_id: int, run: str) -> Any:
    """Stage rows in a task of a query's run, and return its message."""
    message: Any = writer._stage(iter([as_event_batch([ss.Event(body) for body in ROWS])]), "query", batch_id)
    for found in message.of_shards.values() if isinstance(message, ShardedStaged) else [message]:
        found.run = run
    return message


def commit(writer: StreamWriter[Any], batch_id: int, run: str) -> None:
    """Stage rows in a task of a query's run, and commit them."""
    writer.commit([stage(writer, batch_id, run)], batch_id)


@pytest.mark.parametrize(
    ("before", "after"), [("a path", "another path"), ("shards", "fewer shards"), ("a path", "shards")]
)
@pytest.mark.parametrize("remembers", [True, False], ids=["in the process of its batches", "in another process"])
def test_a_driver_that_hung_stores_nothing_once_the_next_one_has_finished_its_batch(
    tmp_path: Path, checkpoint: Path, other_process: Callable[[], None], before: str, after: str, remembers: bool
) -> None:
    """The next one has other options, so what it has stored is not where the first one looks."""
    at = SparkCheckpoint(str(checkpoint))
    (checkpoint / "metadata").write_text('{"id":"query"}')
    hangs = WAYS[before](tmp_path, at)
    commit(hangs, 3, "first run")
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "3").touch()
    message = stage(hangs, 4, "first run")
    commit(WAYS[after](tmp_path, at), 4, "second run")
    (checkpoint / "commits" / "4").touch()
    if not remembers:
        other_process()
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("log-*")}
    noted = (checkpoint / NOTE).read_text()
    with pytest.raises(ss.CheckpointMismatchError, match="another driver of the query query has finished its batch 4"):
        hangs.commit([message], 4)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("log-*")} == stored
    assert (checkpoint / NOTE).read_text() == noted


def test_a_driver_that_hung_until_spark_has_cleaned_its_batch_from_the_checkpoint_stores_nothing(
    tmp_path: Path, checkpoint: Path
) -> None:
    """Spark keeps what it wrote of the last batches only (``spark.sql.streaming.minBatchesToRetain``)."""
    (checkpoint / "metadata").write_text('{"id":"query"}')
    (checkpoint / "commits").mkdir()
    for name in ("9", "10", ".10.crc", ".11.8e1c.tmp"):
        (checkpoint / "commits" / name).touch()
    writer = WAYS["a path"](tmp_path, SparkCheckpoint(str(checkpoint)))
    with pytest.raises(
        ss.CheckpointMismatchError, match="another driver of the query query has finished its batch 10:"
    ):
        commit(writer, 8, "a run")
    assert bodies(tmp_path / "one") == []
    commit(writer, 11, "a run")
    assert bodies(tmp_path / "one") == ROWS


def test_a_driver_that_hung_stores_nothing_once_its_checkpoint_is_another_querys(
    tmp_path: Path, checkpoint: Path
) -> None:
    (checkpoint / "metadata").write_text('{"id":"another"}')
    writer = WAYS["a path"](tmp_path, SparkCheckpoint(str(checkpoint)))
    with pytest.raises(ss.CheckpointMismatchError, match="the query another by now, and no longer that of query"):
        commit(writer, 0, "a run")
    assert bodies(tmp_path / "one") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a path", "another path"),
        ("a path", "shards"),
        ("a path", "a flow"),
        ("the path of a channel of the flow", "a flow"),
        ("the path of a shard", "shards"),
        ("shards", "the path of a shard"),
        ("shards", "another path"),
        ("shards", "fewer shards"),
        ("shards", "shards elsewhere"),
        ("shards", "a flow"),
        ("a flow", "a path"),
        ("a flow", "the path of a channel of the flow"),
        ("a flow", "shards"),
        ("a flow", "a flow without some channels"),
        ("a flow without some channels", "a path"),
    ],
)
def test_a_batch_that_channels_have_is_refused_by_other_options_and_the_next_one_is_not(
    tmp_path: Path, checkpoint: Path, other_process: Callable[[], None], before: str, after: str
) -> None:
    where = SparkCheckpoint(str(checkpoint))
    for batch_id in (0, 1):
        commit(WAYS[before](tmp_path, where), batch_id, "run 1")
    for run in ("run 2", "run 3"):
        other_process()
        with pytest.raises(ss.OptionError, match=r"from query, the batch 1.* the batch 1 comes again|The batch 1"):
            commit(WAYS[after](tmp_path, where), 1, run)
    other_process()
    commit(WAYS[before](tmp_path, where), 1, "run 4")
    for batch_id in (2, 3):
        commit(WAYS[after](tmp_path, where), batch_id, "run 5")
    paths = [path.parent for path in tmp_path.glob("*/channel.json")]
    copies = sum(4 if way == "a flow" else 2 for way in (before, after))  # an optional channel has each row, too
    assert bodies(*paths) == sorted(ROWS * copies)
    with pytest.raises(ss.OptionError, match="the batch 3"):
        commit(WAYS[before](tmp_path, where), 3, "run 6")


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_comes_again_by_the_same_options_asks_no_channel_of_another_write(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for of, name in ((optional_channels, "_batches"), (module, "_answer_of")):
        monkeypatch.setattr(of, name, lambda *place: pytest.fail(f"{place} was asked"))
    for run in ("run 1", "run 2"):
        commit(WAYS[way](tmp_path, SparkCheckpoint(str(checkpoint))), 1, run)


def test_a_channel_that_was_removed_or_is_another_one_by_now_keeps_no_query_from_another_path_and_a_warning_says_so(
    tmp_path: Path, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its disk may be away."""
    where = SparkCheckpoint(str(checkpoint))
    commit(WAYS["a path"](tmp_path, where), 1, "run 1")
    shutil.rmtree(tmp_path / "one")
    commit(WAYS["another path"](tmp_path, where), 1, "run 2")
    assert re.search(
        "one, to which the query query wrote before, can't say whether it has the batch 1, .*: it is missing",
        caplog.text,
    )
    shutil.rmtree(tmp_path / "other")
    to_path(tmp_path, "other")
    caplog.clear()
    commit(WAYS["a path"](tmp_path, where), 1, "run 3")
    assert bodies(tmp_path / "one") == ROWS
    assert re.search("other, to which .* can't say .*: the channel .* is gone, and .* is there now", caplog.text)


def test_a_query_that_continues_with_a_new_channel_at_its_path_says_what_the_old_one_can_not_say(
    tmp_path: Path, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = SparkCheckpoint(str(checkpoint))
    commit(WAYS["a path"](tmp_path, where), 1, "run 1")
    shutil.rmtree(tmp_path / "one")
    for run in ("run 2", "run 3"):
        caplog.clear()
        commit(WAYS["a path"](tmp_path, where), 1, run)
        assert ("can't say whether it has the batch 1" in caplog.text) == (run == "run 2")
    assert bodies(tmp_path / "one") == ROWS


def test_a_channel_that_can_not_be_read_keeps_no_query_from_another_path_and_a_warning_says_what_may_be_twice(
    tmp_path: Path, checkpoint: Path, other_process: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    where = SparkCheckpoint(str(checkpoint))
    commit(WAYS["a path"](tmp_path, where), 1, "run 1")
    other_process()
    close_parked()
    for log in (tmp_path / "one" / "data").glob("log-*"):
        log.write_bytes(b"damaged" * 100)
    commit(WAYS["another path"](tmp_path, where), 1, "run 2")
    assert "one, to which the query query wrote before, can't say whether it has the batch 1" in caplog.text


def test_another_name_of_the_same_channel_keeps_no_query_from_its_batch(tmp_path: Path, checkpoint: Path) -> None:
    where = SparkCheckpoint(str(checkpoint))
    commit(WAYS["a path"](tmp_path, where), 1, "run 1")
    (tmp_path / "alias").symlink_to(tmp_path)
    commit(WAYS["a path"](tmp_path / "alias", where), 1, "run 2")
    assert bodies(tmp_path / "one") == ROWS


def test_the_refusal_of_another_path_says_where_the_batch_is_and_what_to_do(tmp_path: Path, checkpoint: Path) -> None:
    where = SparkCheckpoint(str(checkpoint))
    commit(WAYS["a path"](tmp_path, where), 7, "run 1")
    with pytest.raises(ss.OptionError) as refused:
        commit(WAYS["another path"](tmp_path, where), 7, "run 2")
    assert str(refused.value) == (
        f"{tmp_path}/one has, from query, the batch 7, and the query has other options now, by which none of its rows "
        "go there: they would be stored twice. The batch 7 comes again: run it with the path, the shards or the flow "
        "that it had, and change that when it is done"
    )


def test_a_copy_of_a_checkpoint_is_told_to_begin_a_new_one_and_not_to_write_where_its_rows_would_be_skipped(
    tmp_path: Path, checkpoint: Path
) -> None:
    for batch_id in (5, 6):
        commit(WAYS["a path"](tmp_path, SparkCheckpoint(str(checkpoint))), batch_id, "run 1")
    shutil.copytree(checkpoint, copy := tmp_path / "copy")
    commit(WAYS["a path"](tmp_path, SparkCheckpoint(str(checkpoint))), 7, "run 1")
    fork = SparkCheckpoint(str(copy))
    with pytest.raises(ss.OptionError) as refused:
        commit(WAYS["another path"](tmp_path, fork), 6, "run 2")
    assert str(refused.value) == (
        f"{tmp_path}/one has, from query, the batch 7, and the query has other options now, by which none of its rows "
        "go there: they would be stored twice. The batch 6 is an earlier one, as from an old copy of a checkpoint: use "
        "a new checkpointLocation, or another txnAppId"
    )
    (copy / NOTE).unlink()
    for batch_id in (6, 7):
        commit(WAYS["another path"](tmp_path, fork), batch_id, "run 3")
    assert bodies(tmp_path / "other") == sorted(ROWS * 2)


@pytest.mark.parametrize("place", ["{}/x/../may", "object+file://{}/may/", "object+file://{}//may"])
def test_an_optional_channel_keeps_no_query_from_its_batch_however_the_file_spells_its_place(
    tmp_path: Path, checkpoint: Path, other_process: Callable[[], None], place: str
) -> None:
    where = SparkCheckpoint(str(checkpoint))
    conf = Path(write_conf(tmp_path))
    others = [
        line for line in conf.read_text().splitlines() if ".may.checkpointDir" not in line and ".may.data" not in line
    ]
    conf.write_text("\n".join([*others, f"a1.channels.may.path = {place.format(tmp_path)}"]))
    for run in ("run 1", "run 2"):
        commit(FlowStreamWriter(plan_of(conf), where), 1, run)
        other_process()
    assert bodies(tmp_path / "ok") == ROWS


def is_late(*_: object) -> NoReturn:
    raise LateCallError("it has not answered within a second")


@pytest.mark.parametrize(
    ("changed", "late"),
    [
        pytest.param(OK_MAY, "_open", id="a required channel is optional now"),
        pytest.param(OK_IS_NOT_THE_SOURCES, "_batches", id="a channel is another component's now"),
    ],
)
def test_a_channel_that_had_to_have_the_batch_is_asked_for_as_long_as_it_takes_whatever_the_file_says_of_it_now(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, changed: str, late: str
) -> None:
    where = SparkCheckpoint(str(checkpoint))
    text = CONF.replace("a1.sources.r1.selector.optional.INFO = may\n", "")
    commit(FlowStreamWriter(plan(tmp_path, text), where), 1, "run 1")
    monkeypatch.setattr(optional_channels, late, is_late)
    with pytest.raises(ss.OptionError, match="ok has, from query, the batch 1, and the query has other options now"):
        commit(FlowStreamWriter(plan(tmp_path, changed), where), 1, "run 2")
    assert bodies(tmp_path / "errors") == []


def test_an_optional_channel_that_is_late_and_has_the_batch_by_this_file_keeps_no_query_from_it(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had to have batches before, in the same run."""
    where = SparkCheckpoint(str(checkpoint))
    commit(FlowStreamWriter(plan(tmp_path), where), 1, "run 1")
    commit(FlowStreamWriter(plan(tmp_path, OK_MAY), where), 2, "run 1")
    monkeypatch.setattr(optional_channels, "_open", is_late)
    commit(FlowStreamWriter(plan(tmp_path, OK_MAY), where), 2, "run 2")
    assert (bodies(tmp_path / "ok"), bodies(tmp_path / "errors")) == (sorted(ROWS * 2), ROWS)


def test_a_note_of_an_earlier_version_counts(tmp_path: Path, checkpoint: Path) -> None:
    commit(WAYS["a path"](tmp_path, SparkCheckpoint()), 1, "run 1")
    (checkpoint / NOTE).write_text(json.dumps({"run": "run 1", "channels": {str(tmp_path / "one"): "uuid"}}))
    with pytest.raises(ss.OptionError, match="one has, from query, the batch 1"):
        commit(WAYS["another path"](tmp_path, SparkCheckpoint(str(checkpoint))), 1, "run 2")


@pytest.mark.spark
def test_a_batch_that_spark_repeats_since_its_driver_died_before_its_commit_log_is_not_stored_at_another_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The source is Spark's own: a channel's would refuse a batch of which its group knows that it was done."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("1")
    stream = spark.readStream.text(str(tmp_path / "in"))
    rows = stream.selectExpr("map('h', 'v') AS headers", "CAST(value AS BINARY) AS body")
    writer = rows.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.option("minimumRequiredSpace", 0).trigger(availableNow=True)
    writer.start(str(tmp_path / "b")).awaitTermination()
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    query = writer.start(str(tmp_path / "c"))
    with pytest.raises(PySparkException) as failed:
        query.awaitTermination()
    assert f"{tmp_path}/b has, from {query.id}, the batch 0, and the query has other" in explain(failed.value)
    writer.start(str(tmp_path / "b")).awaitTermination()
    (tmp_path / "in" / "2.txt").write_text("2")
    writer.start(str(tmp_path / "c")).awaitTermination()
    assert (bodies(tmp_path / "b"), bodies(tmp_path / "c")) == ([b"1"], [b"2"])
