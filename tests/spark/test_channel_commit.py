"""The driver's commit to one channel, beside what tests/spark/test_writer.py shows of whole writes."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import ChannelFullError
from spillable_stream.spark import channel_commit as module
from spillable_stream.spark.channel_commit import ChannelCommit
from spillable_stream.spark.task_stage import Staged, staging
from tests.support.expiry import WallClock

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = pa.record_batch([pa.array(range(5), pa.int64())], SCHEMA)


def commit_to(path: Path | str, keep_alive_seconds: float = 0.0, **options: int) -> ChannelCommit:
    if "://" not in str(path):
        options["minimum_required_space"] = 0
    with ss.Channel(path, schema=SCHEMA, **options) as channel:
        return ChannelCommit(str(path), channel.port().plan_stage(), keep_alive_seconds)


def staged(commit: ChannelCommit, numbers: range, limit: int = 1 << 20) -> Staged:
    with staging([commit.stage], lambda task: limit, "query", 7) as task:
        task.add(0, pa.record_batch([pa.array(numbers, pa.int64())], SCHEMA))
        return task.finish()[0]


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
        with commit.opened(messages, 7) as opened:
            opened.publish(SinkBatch("query", 7))
    assert numbers(tmp_path / "c") == list(range(6))


@pytest.mark.parametrize("store", ["", "object+file://"], ids=["disk", "store"])
@pytest.mark.parametrize("limit", [1 << 20, 0], ids=["inline", "staged"])
def test_rows_that_are_due_later_are_committed_once_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, store: str
) -> None:
    path = f"{store}{tmp_path}/c"
    clock, commit = WallClock(monkeypatch), commit_to(path)
    due_ms = clock.now_ns // 1_000_000 + 5000
    with staging([commit.stage], lambda task: limit, "query", 7) as task:
        task.add(0, ROWS.slice(0, 3), RowTimes(0, pa.array([0, due_ms, 0])))
        first = task.finish()[0]
    with staging([commit.stage], lambda task: limit, "query", 7) as task:
        task.add(0, ROWS.slice(3, 2), RowTimes(0, due_ms))
        messages = [first, *task.finish()]
    for _ in range(2):  # a repetition stores nothing
        with commit.opened(messages, 7) as opened:
            opened.publish(SinkBatch("query", 7))
    assert numbers(path) == [0, 2]
    with ss.Channel(path, create=False) as channel:
        assert channel.stats().delayed.events == 3
        clock.pass_by(5)
        with channel.take_transaction() as tx:
            assert [row["n"] for row in tx.take_many(2)] == [0, 2]
        with channel.take_transaction() as tx:
            assert [row["n"] for row in tx.take_many(9)] == [1, 3, 4]
        assert channel.stats().delayed.events == 0


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
    commit = commit_to(tmp_path / "c", keep_alive, overflow_capacity=2)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ChannelFullError),
        commit.opened([message := staged(commit, range(3))], 7) as opened,
    ):
        assert message.has_rows
        opened.publish(None)
    assert ("the sink waits up to 0.1 s more for room" in caplog.text) == (keep_alive > 0.2)
