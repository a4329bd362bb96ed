"""A channel that is deleted under its query does not begin anew, with the later rows only."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spillable_stream as ss
from spillable_stream.archive.backup import backup
from spillable_stream.archive.restore import restore
from spillable_stream.errors import NotAChannelError
from spillable_stream.spark import explain
from spillable_stream.spark.sink import written_channels as module
from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint
from spillable_stream.spark.sink.written_channels import NOTE, WrittenChannels
from tests.spark.sink.test_changed_options import ROWS, WAYS, bodies, commit

Put = Callable[..., Path]


pytestmark = pytest.mark.usefixtures("other_process")


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
        "continues with the one that is there. That one may be of this batch's plan: if it has no events, it can be "
        "removed"
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


def test_a_checkpoint_that_the_disk_cannot_look_at_is_not_taken_for_none(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Python 3.14, `Path.is_dir` says no then, and nothing was noted."""

    def fails(*_: object, **__: object) -> os.stat_result:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fails)
        broken.setattr(Path, "is_dir", os.path.isdir)
        with pytest.raises(ss.StorageError, match=f"^the batch is not stored: can't look at {checkpoint} "):
            WrittenChannels("run", checkpoint).note({"/a": "1"}, {})
    assert not (checkpoint / NOTE).exists()


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
        said = rf"^the batch is not stored: can't note in {checkpoint} .*\({os.strerror(failed)}\)"
        with pytest.raises(ss.StorageError, match=said) as caught:
            commit(writer, 1, "run 1")
    assert isinstance(caught.value, ss.DiskSpaceError) == (failed == errno.ENOSPC)
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
