"""The driver's commit to one channel, beside what tests/spark/sink/test_writer.py shows of whole writes."""

from __future__ import annotations

import logging
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.engine.local import staged_delays
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.engine.port import SinkBatch
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.errors import ChannelFullError, LockTimeoutError, PutTooLargeError
from spillable_stream.objects.staged_object import SEGMENTS
from spillable_stream.spark.sink import channel_commit as module
from spillable_stream.spark.sink.channel_commit import ChannelCommit
from spillable_stream.spark.sink.task_stage import Staged, staging
from tests.support.expiry import WallClock

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = pa.record_batch([pa.array(range(5), pa.int64())], SCHEMA)
STORES = pytest.mark.parametrize("store", ["", "object+file://"], ids=["disk", "store"])


def commit_to(path: Path | str, keep_alive_seconds: float = 0.0, **options: int) -> ChannelCommit:
    if "://" not in str(path):
        options["minimum_required_space"] = 0
    with ss.Channel(path, schema=SCHEMA, **options) as channel:
        return ChannelCommit(str(path), channel.port().plan_stage(), keep_alive_seconds)


def staged(commit: ChannelCommit, numbers: range, limit: int = 1 << 20) -> Staged:
    with staging([commit.stage], lambda task: limit, "query", 7) as task:
        task.add(0, pa.record_batch([pa.array(numbers, pa.int64())], SCHEMA))
        return task.finish()[0]


def publish(commit: ChannelCommit, messages: list[Staged], batch_id: int = 7, *, remembered: bool = True) -> None:
    with commit.opened(messages, batch_id) as opened:
        opened.publish(SinkBatch("query", batch_id) if remembered else None)


def numbers(path: Path | str) -> list[int]:
    with ss.Channel(path, create=False) as channel:
        return [n for batch in channel.read() for n in batch["n"].to_pylist()]


def test_commit_is_the_same_in_another_process(tmp_path: Path) -> None:
    commit = commit_to(tmp_path / "c")
    assert pickle.loads(pickle.dumps(commit)) == commit


@pytest.mark.parametrize("limits", [(1 << 20, 1 << 20), (0, 1 << 20), (1 << 20, 0), (0, 0)])
def test_rows_are_in_the_order_of_the_tasks_wherever_they_are_staged(tmp_path: Path, limits: tuple[int, int]) -> None:
    commit = commit_to(tmp_path / "c")
    messages = [staged(commit, range(3), limits[0]), staged(commit, range(3, 6), limits[1])]
    for _ in range(2):  # a repetition stores nothing
        publish(commit, messages)
    assert numbers(tmp_path / "c") == list(range(6))


@STORES
def test_small_outputs_between_large_ones_share_a_file(tmp_path: Path, store: str) -> None:
    path = f"{store}{tmp_path}/c"
    commit = commit_to(path)
    messages = [staged(commit, range(2 * n, 2 * n + 2), 0 if n == 5 else 1 << 20) for n in range(10)]
    publish(commit, messages, remembered=False)
    assert len(staged_now(path)) == 3
    assert numbers(path) == list(range(20))


@STORES
@pytest.mark.parametrize(
    "limits", [(1 << 20, 1 << 20), (0, 0), (1 << 20, 0), (0, 1 << 20)], ids=["inline", "staged", "second", "first"]
)
def test_rows_that_are_due_later_are_committed_once_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], store: str
) -> None:
    path = f"{store}{tmp_path}/c"
    clock, commit = WallClock(monkeypatch), commit_to(path)
    due_ms = clock.now_ns // 1_000_000 + 5000
    with staging([commit.stage], lambda task: limits[0], "query", 7) as task:
        task.add(0, ROWS.slice(0, 3), RowTimes(0, pa.array([0, due_ms, 0])))
        first = task.finish()[0]
    with staging([commit.stage], lambda task: limits[1], "query", 7) as task:
        task.add(0, ROWS.slice(3, 2), RowTimes(0, due_ms))
        messages = [first, *task.finish()]
    for _ in range(2):  # a repetition stores nothing
        publish(commit, messages)
    assert numbers(path) == [0, 2]
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().delayed.events == 3
        clock.pass_by(5)
        with channel.take_transaction() as tx:
            assert [row["n"] for row in tx.take_many(2)] == [0, 2]
        with channel.take_transaction() as tx:
            assert [row["n"] for row in tx.take_many(9)] == [1, 3, 4]
        assert channel.stats().delayed.events == 0


def delaying(commit: ChannelCommit, clock: WallClock, numbers: range, batch_id: int = 7, limit: int = 0) -> Staged:
    """Return what a task stages of rows that are due in five seconds, or in a day."""
    soon_ms = clock.now_ns // 1_000_000 + 5000
    with staging([commit.stage], lambda task: limit, "query", batch_id) as task:
        dues = [soon_ms if n % 2 else soon_ms + 86_400_000 for n in numbers]
        task.add(0, pa.record_batch([pa.array(numbers, pa.int64())], SCHEMA), RowTimes(0, pa.array(dues)))
        return task.finish()[0]


@STORES
def test_small_outputs_that_are_due_later_share_files_and_keep_the_order_of_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    path, clock = f"{store}{tmp_path}/c", WallClock(monkeypatch)
    commit = commit_to(path)
    messages = [delaying(commit, clock, range(2 * n, 2 * n + 2), limit=0 if n == 5 else 1 << 20) for n in range(10)]
    publish(commit, messages, remembered=False)
    files = 1 if store else 2  # a file has one stretch of time, an object both
    assert len(staged_now(path)) == 3 * files, "those before the large output, its own, and those after it"
    with ss.Channel(path, create=False) as channel:
        clock.pass_by(5)
        assert [row["n"] for row in taken(channel)] == list(range(1, 20, 2))
        clock.pass_by(86_400)
        assert [row["n"] for row in taken(channel)] == list(range(0, 20, 2))


def staged_now(path: Path | str) -> set[str]:
    """Return the names of all that is staged, or was and is the channel's by now."""
    with ss.Channel(path, create=False) as channel:
        engine = channel.engine()
        if isinstance(engine, ObjectEngine):
            return {found.key for found in engine.log.store.list(SEGMENTS)}
        return set(engine.layout.segments(engine.fs))


@STORES
def test_delayed_rows_of_an_aborted_write_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    path, clock = f"{store}{tmp_path}/c", WallClock(monkeypatch)
    commit = commit_to(path)
    message = delaying(commit, clock, range(6))
    assert staged_now(path) == set(message.staged_names()) != set()
    commit.discard([message])
    assert staged_now(path) == set()


@STORES
def test_an_abort_after_the_commit_leaves_delayed_rows_where_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    path, clock = f"{store}{tmp_path}/c", WallClock(monkeypatch)
    commit = commit_to(path)
    message = delaying(commit, clock, range(6))
    publish(commit, [message])
    commit.discard([message])
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().delayed.events == 6
        clock.pass_by(5)
        assert [row["n"] for row in taken(channel)] == [1, 3, 5]
        clock.pass_by(86_400)
        assert [row["n"] for row in taken(channel)] == [0, 2, 4]


def taken(channel: ss.Channel) -> list[Any]:
    with channel.take_transaction() as tx:
        return tx.take_many(100)


@STORES
def test_a_second_attempt_whose_batch_is_there_leaves_nothing_of_its_delayed_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    path, clock = f"{store}{tmp_path}/c", WallClock(monkeypatch)
    commit = commit_to(path)
    first, second = delaying(commit, clock, range(6)), delaying(commit, clock, range(6))
    for message in (first, second):
        publish(commit, [message])
    assert staged_now(path) == set(first.staged_names())
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().delayed.events == 6


def test_what_a_zombie_staged_of_delayed_rows_goes_with_its_batch_or_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock = tmp_path / "c", WallClock(monkeypatch)
    commit = commit_to(path)
    early, message = delaying(commit, clock, range(6)), delaying(commit, clock, range(6))
    publish(commit, [message])
    assert staged_now(path) == set(message.staged_names()), "that of an attempt of the batch is gone"
    late = delaying(commit, clock, range(6))
    assert staged_now(path) == {*message.staged_names(), *late.staged_names()}
    following = delaying(commit, clock, range(6, 8), batch_id=8)
    publish(commit, [following], batch_id=8)
    assert staged_now(path) == {*message.staged_names(), *following.staged_names()}
    assert early.runs and not staged_now(path) & set(early.staged_names())
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().delayed.events == 8


def test_side_files_that_the_driver_stages_are_removed_if_the_commit_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock = tmp_path / "c", WallClock(monkeypatch)
    commit = commit_to(path, overflow_capacity=3)
    large, due_ms = delaying(commit, clock, range(6)), clock.now_ns // 1_000_000 + 5000
    with staging([commit.stage], lambda task: 1 << 20, "query", 7) as task:
        task.add(0, ROWS, RowTimes(0, due_ms))
        small = task.finish()[0]
    assert small.delayed and not small.runs
    with pytest.raises(ChannelFullError), commit.opened([large, small], 7) as opened:
        opened.publish(None)
    assert staged_now(path) == set(large.staged_names())


def open_files(under: Path) -> list[str]:
    """Return the files of a directory that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # another thread has closed it
            found.append(os.readlink(link))
    return [name for name in found if name.startswith(f"{under}/")]


def test_a_large_task_of_delayed_rows_has_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_delays, "FULL_BYTES", 2000)
    path, clock = tmp_path / "c", WallClock(monkeypatch)
    commit = commit_to(path)
    due_ms = clock.now_ns // 1_000_000 + 5000
    with staging([commit.stage], lambda task: 0, "query", 7) as task:
        for first in range(0, 3000, 100):
            batch = pa.record_batch([pa.array(range(first, first + 100), pa.int64())], SCHEMA)
            task.add(0, batch, RowTimes(0, due_ms))
        assert len(open_files(path)) <= 4
        (message,) = task.finish()
    assert len(message.runs) == 10
    publish(commit, [message], remembered=False)
    with ss.Channel(path, create=False) as channel:
        clock.pass_by(5)
        assert [row["n"] for _ in range(30) for row in taken(channel)] == list(range(3000))


@pytest.mark.parametrize("repeated", [False, True])
def test_commit_that_has_stored_its_rows_does_not_fail_because_its_tidying_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, repeated: bool
) -> None:
    commit = commit_to(tmp_path / "c")
    for _ in range(repeated):
        publish(commit, [staged(commit, range(5), 0)])
    message = staged(commit, range(5), 0)

    def held(*_: object) -> None:
        raise LockTimeoutError("another process has held the lock for more than 30 s")

    monkeypatch.setattr(DrainedFiles, "discard" if repeated else "remove_staging", held)
    with caplog.at_level(logging.WARNING), commit.opened([message], 7) as opened:
        opened.publish(SinkBatch("query", 7))
    assert numbers(tmp_path / "c") == list(range(5))
    assert "what its tasks staged besides could not be removed: another process has held the lock" in caplog.text


def test_channel_that_was_opened_without_a_commit_has_nothing(tmp_path: Path) -> None:
    commit = commit_to(tmp_path / "c")
    message = staged(commit, range(3), 0)
    with commit.opened([message], 7):
        pass
    commit.discard([message])
    assert numbers(tmp_path / "c") == []
    with ss.Channel(tmp_path / "c", create=False) as channel:
        engine = channel.engine()
        assert list(engine.layout.segments(engine.fs)) == []


@pytest.mark.parametrize("keep_alive", [0.1, 0.3])
def test_wait_for_room_is_told_once_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, keep_alive: float
) -> None:
    monkeypatch.setattr(module, "_WARN_AFTER_SECONDS", 0.2)
    commit = commit_to(tmp_path / "c", keep_alive, overflow_capacity=3)
    with commit.opened([staged(commit, range(1))], 6) as opened:
        opened.publish(None)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ChannelFullError),
        commit.opened([message := staged(commit, range(3))], 7) as opened,
    ):
        assert message.has_rows
        opened.publish(None)
    assert ("the sink waits up to 0.1 s more for room" in caplog.text) == (keep_alive > 0.2)


def test_nobody_is_told_to_wait_where_the_rows_would_not_fit_an_empty_channel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit = commit_to(tmp_path / "c", 300.0, overflow_capacity=2)
    rows = staged(commit, range(3))
    with pytest.raises(PutTooLargeError, match="however empty the channel is"), commit.opened([rows], 7) as opened:
        opened.publish(None)
    assert "waits up to" not in caplog.text
