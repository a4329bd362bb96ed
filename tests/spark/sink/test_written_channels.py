"""A channel that is deleted under its query does not begin anew, with the later rows only."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillable_stream as ss
from spillable_stream.archive.backup import backup
from spillable_stream.archive.restore import restore
from spillable_stream.errors import NotAChannelError
from spillable_stream.flow.bulkhead import LateCallError
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark import explain
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink import optional_channels
from spillable_stream.spark.sink import written_channels as module
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from spillable_stream.spark.sink.sharded_plan import ShardedPlan, plan_sharded_sink
from spillable_stream.spark.sink.sharded_writer import ShardedStaged, ShardedStreamWriter
from spillable_stream.spark.sink.sink_plan import SinkOptions, SinkPlan
from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint
from spillable_stream.spark.sink.spark_writers import StreamWriter
from spillable_stream.spark.sink.writer import SpillableStreamWriter
from spillable_stream.spark.sink.written_channels import NOTE, WrittenChannels
from tests.spark.sink.test_flow_plan import CONF, plan, plan_of, write_conf
from tests.spark.sink.test_flow_writer import OK_IS_NOT_THE_SOURCES, OK_MAY
from tests.spark.sink.test_sink_plan import sink_plan
from tests.spark.test_channel_pool import close_parked

Put = Callable[..., Path]


@pytest.fixture(autouse=True)
def other_process() -> Iterator[Callable[[], None]]:
    """Forget what this process knows, as another one does not know it."""
    yield module._known.clear
    module._known.clear()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


def test_a_run_may_write_to_the_same_channels_again_and_to_more(checkpoint: Path) -> None:
    written = WrittenChannels("run", checkpoint)
    for channels in ({"a": "1"}, {"a": "1", "b": "2"}, {"b": "2"}):
        written.require_same(channels, 7)
        written.note(channels, {})
    with pytest.raises(NotAChannelError):
        written.require_same({"a": "3", "b": "2"}, 8)


def test_the_refusal_says_what_happened_and_what_to_do() -> None:
    written = WrittenChannels("run", None)
    written.note({"/data/a": "1"}, {})
    with pytest.raises(NotAChannelError) as refused:
        written.require_same({"/data/b": "5", "/data/a": "2"}, 8)
    assert str(refused.value) == (
        "/data/a was removed or replaced while the query ran: the rows of earlier batches are in the channel 1, and 2 "
        "is there now. The batch 8 is not stored: put the earlier channel back, or start the query again, which "
        "continues with the one that is there"
    )


def test_another_process_knows_it_from_the_checkpoint(checkpoint: Path, other_process: Callable[[], None]) -> None:
    WrittenChannels("run", checkpoint).note({"a": "1"}, {})
    other_process()
    with pytest.raises(NotAChannelError):
        WrittenChannels("run", checkpoint).require_same({"a": "2"}, 1)
    assert [path.name for path in checkpoint.iterdir()] == [NOTE]


@pytest.mark.parametrize("checkpoint_is_here", [True, False])
def test_a_query_that_is_started_again_may_find_another_channel(checkpoint: Path, checkpoint_is_here: bool) -> None:
    where = checkpoint if checkpoint_is_here else None
    WrittenChannels("run", where).note({"a": "1"}, {})
    again = WrittenChannels("another run", where)
    again.require_same({"a": "2"}, 1)
    again.note({"a": "2"}, {})
    again.require_same({"a": "2"}, 2)


def test_two_queries_may_write_to_one_path_at_different_times() -> None:
    WrittenChannels("run", None).note({"a": "1"}, {})
    WrittenChannels("run of another query", None).note({"a": "2"}, {})
    WrittenChannels("run", None).require_same({"a": "1"}, 2)


def test_nothing_is_known_of_a_run_that_spark_does_not_name(checkpoint: Path) -> None:
    WrittenChannels("", checkpoint).note({"a": "1"}, {})
    WrittenChannels("", checkpoint).require_same({"a": "2"}, 1)
    assert list(checkpoint.iterdir()) == []


@pytest.mark.parametrize("found", ["", "{", "[]", "{}", '{"run": "run"}', '{"run": "run", "channels": 3}'])
def test_a_note_that_was_cut_says_nothing_and_is_written_again(
    checkpoint: Path, found: str, other_process: Callable[[], None]
) -> None:
    (checkpoint / NOTE).write_text(found)
    written = WrittenChannels("run", checkpoint)
    written.require_same({"a": "1"}, 0)
    written.note({"a": "1"}, {})
    other_process()
    with pytest.raises(NotAChannelError):
        written.require_same({"a": "2"}, 1)


def failing(failed: int, name: str = "") -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(failed, os.strerror(failed), name)

    return fail


STEPS = ["open", "fsync", "replace", "fsync of the directory"]


def fail_to_note(patch: pytest.MonkeyPatch, step: str, failed: int) -> None:
    """Let one of the steps fail in which a note is written."""
    if step == "open":
        patch.setattr(module, "open", failing(failed), raising=False)
    elif step == "replace":
        patch.setattr(Path, "replace", failing(failed))
    else:
        fsync, of_directory = os.fsync, step != "fsync"

        def sync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode) == of_directory:
                failing(failed)()
            fsync(descriptor)

        patch.setattr(os, "fsync", sync)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("failed", [errno.EACCES, errno.EROFS])
def test_a_checkpoint_that_this_process_may_not_write_is_no_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, step: str, failed: int
) -> None:
    fail_to_note(monkeypatch, step, failed)
    written = WrittenChannels("run", checkpoint)
    written.note({"a": "1"}, {})
    with pytest.raises(NotAChannelError):
        written.require_same({"a": "2"}, 1)


def test_a_checkpoint_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    written = WrittenChannels("run", tmp_path / "away")
    written.note({"a": "1"}, {})
    with pytest.raises(NotAChannelError):
        written.require_same({"a": "2"}, 1)
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("failed", [errno.EIO, errno.ENOSPC])
def test_no_channel_gets_a_batch_if_the_disk_of_the_checkpoint_fails_or_is_full(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, step: str, failed: int
) -> None:
    """A run that is started again would not know where this one has stored the batch."""
    where = SparkCheckpoint(str(checkpoint))
    writer = WAYS["a path"](tmp_path, where)
    with monkeypatch.context() as patch:
        fail_to_note(patch, step, failed)
        with pytest.raises(ss.StorageError, match=rf"can't note in {checkpoint} .*\({os.strerror(failed)}\)"):
            commit(writer, 1, "run 1")
    assert bodies(tmp_path / "one") == []
    commit(WAYS["a path"](tmp_path, where), 1, "run 1")
    assert bodies(tmp_path / "one") == ROWS
    assert json.loads((checkpoint / NOTE).read_text())["run"] == "run 1"


def test_a_note_that_the_disk_does_not_give_back_is_not_taken_for_none(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = SparkCheckpoint(str(checkpoint))
    monkeypatch.setattr(Path, "read_text", failing(errno.EIO))
    with pytest.raises(ss.StorageError, match=f"can't read {checkpoint / NOTE}"):
        commit(WAYS["a path"](tmp_path, where), 1, "run 1")
    assert bodies(tmp_path / "one") == []


def test_files_of_processes_that_died_while_they_wrote_go_with_a_note_an_hour_later(
    checkpoint: Path, other_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dies)
            patch.setattr(Path, "unlink", dies)
            with pytest.raises(KeyboardInterrupt):
                WrittenChannels("run", checkpoint).note({"a": "1"}, {})
        other_process()
    old, young = checkpoint.iterdir()
    os.utime(old, (0, 0))
    WrittenChannels("run", checkpoint).note({"a": "1"}, {})
    assert sorted(checkpoint.iterdir()) == sorted([young, checkpoint / NOTE])


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_note_that_fails_leaves_no_file(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    fail_to_note(monkeypatch, step, errno.EIO)
    with pytest.raises(ss.StorageError):
        WrittenChannels("run", checkpoint).note({"a": "1"}, {})
    assert list(checkpoint.iterdir()) == []


def test_processes_that_note_at_once_do_not_take_each_others_files(
    checkpoint: Path, other_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, first = Path.replace, list[Path]()

    def other_is_faster(source: Path, to: Path) -> Path:
        if not first:
            first.append(source)
            WrittenChannels("another run", checkpoint).note({"b": "2"}, {})
        return replace(source, to)

    monkeypatch.setattr(Path, "replace", other_is_faster)
    WrittenChannels("run", checkpoint).note({"a": "1"}, {})
    other_process()
    assert json.loads((checkpoint / NOTE).read_text())["run"] == "run"
    assert [path.name for path in checkpoint.iterdir()] == [NOTE]


def test_a_file_that_another_process_took_before_it_was_the_note_is_written_once_more(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, taken = Path.replace, list[Path]()

    def take_first(source: Path, to: Path) -> Path:
        if not taken:
            taken.append(source)
            source.unlink()
        return replace(source, to)

    monkeypatch.setattr(Path, "replace", take_first)
    WrittenChannels("run", checkpoint).note({"a": "1"}, {})
    assert json.loads((checkpoint / NOTE).read_text())["channels"] == {"a": "1"}


def test_what_a_process_knows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_RUNS", 3)
    for run in range(9):
        WrittenChannels(f"{run}", None).note({"a": f"{run}"}, {})
    assert list(module._known) == ["6", "7", "8"]


# ── a batch that comes again by other options ───────────────────────────────────────────────────

FEWER = (
    CONF.replace("a1.channels = ok errors may dead", "a1.channels = errors dead")
    .replace("r1.channels = ok errors may", "r1.channels = errors")
    .replace("default = ok", "default = errors")
    .replace("a1.sources.r1.selector.optional.INFO = may\n", "")
)
"""The file without two of its channels, one of them optional."""

EVENTS = struct_type(EVENT_SCHEMA)


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


def commit(writer: StreamWriter[Any], batch_id: int, run: str) -> None:
    """Stage rows in a task of a query's run, and commit them."""
    message: Any = writer._stage(iter([as_event_batch([ss.Event(body) for body in ROWS])]), "query", batch_id)
    for found in message.of_shards.values() if isinstance(message, ShardedStaged) else [message]:
        found.run = run
    writer.commit([message], batch_id)


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


# ── on Spark ────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def running(spark: SparkSession, tmp_path: Path, target: Path, **options: str) -> Iterator[StreamingQuery]:
    """Run a query from the channel ``a`` within the block."""
    stream = spark.readStream.format("spillable").load(str(tmp_path / "a"))
    writer = stream.writeStream.format("spillable").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.option("minimumRequiredSpace", 0).options(**options).start(str(target))
    try:
        yield query
    finally:
        query.stop()


def bodies(*paths: Path) -> list[bytes]:
    found = []
    for path in paths:
        with ss.Channel(path, create=False) as channel:
            found += [body for batch in channel.read() for body in batch["body"].to_pylist()]
    return sorted(found)


@pytest.mark.spark
def test_a_query_whose_channel_is_deleted_fails_and_continues_when_it_is_started_again(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    put("a", b"1")
    with running(spark, tmp_path, tmp_path / "b") as query:
        query.processAllAvailable()
        shutil.rmtree(tmp_path / "b")
        put("a", b"2")
        with pytest.raises(PySparkException) as failed:
            query.processAllAvailable()
        assert f"{tmp_path}/b was removed or replaced while the query ran" in explain(failed.value)
        assert bodies(tmp_path / "b") == []
    with running(spark, tmp_path, tmp_path / "b") as again:
        again.processAllAvailable()
    assert bodies(tmp_path / "b") == [b"2"]


@pytest.mark.spark
def test_a_shard_that_is_deleted_fails_the_query_before_any_shard_has_the_batch(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    shards = [tmp_path / f"b-{n}" for n in range(3)]
    put("a", *[b"%d" % n for n in range(10)])
    with running(spark, tmp_path, tmp_path / "b", shards="3", shardBy="body") as query:
        query.processAllAvailable()
        left = bodies(*shards[1:])
        shutil.rmtree(shards[0])
        put("a", *[b"%d" % n for n in range(10, 20)])
        with pytest.raises(PySparkException) as failed:
            query.processAllAvailable()
        assert f"{shards[0]} was removed or replaced while the query ran" in explain(failed.value)
        assert bodies(*shards) == left


@pytest.mark.spark
def test_a_channel_that_is_restored_from_a_backup_under_its_query_is_the_same_one(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    put("a", b"1")
    with running(spark, tmp_path, tmp_path / "b") as query:
        query.processAllAvailable()
        backup(tmp_path / "b", tmp_path / "saved")
        shutil.rmtree(tmp_path / "b")
        restore(tmp_path / "saved", tmp_path / "b")
        put("a", b"2")
        query.processAllAvailable()
    assert bodies(tmp_path / "b") == [b"1", b"2"]


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


@pytest.mark.spark
def test_a_query_that_is_started_again_may_write_to_another_path(spark: SparkSession, put: Put, tmp_path: Path) -> None:
    for name, body in (("b", b"1"), ("c", b"2")):
        put("a", body)
        with running(spark, tmp_path, tmp_path / name) as query:
            query.processAllAvailable()
    assert (bodies(tmp_path / "b"), bodies(tmp_path / "c")) == ([b"1"], [b"2"])


@pytest.mark.spark
def test_a_batch_write_in_foreach_batch_is_a_write_of_its_own_that_creates_what_is_missing(
    spark: SparkSession, put: Put, tmp_path: Path
) -> None:
    def write(df: DataFrame, batch_id: int) -> None:
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        df.write.format("spillable").option("minimumRequiredSpace", 0).mode("append").save(str(tmp_path / "b"))

    put("a", b"1")
    stream = spark.readStream.format("spillable").load(str(tmp_path / "a"))
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        put("a", b"2")
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(tmp_path / "b") == [b"2"]
