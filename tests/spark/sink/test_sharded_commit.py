"""The commit to several channels: what is there once it died, was refused or failed in between."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.local.local_port import LocalPort
from spillable_stream.engine.port import Put
from spillable_stream.spark import channel_pool
from spillable_stream.spark.sink.channel_commit import OpenCommit
from tests.spark.sink.test_sharded_channels import sharded_plan
from tests.spark.sink.test_sharded_writer import (
    ARROW,
    SHARDS,
    STORES,
    expected,
    segments,
    shard_of,
    staged_for_batch,
    staged_for_stream,
    stored,
)
from tests.spark.test_channel_pool import close_parked


@STORES
@pytest.mark.parametrize("inline", [1 << 20, 0])
def test_batch_whose_driver_died_between_two_shards_is_completed_by_its_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, inline: int
) -> None:
    base = f"{store}{tmp_path}/orders"
    writer, messages = staged_for_stream(base, range(100), range(100, 200), maxInlineBytes=inline)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OpenCommit, "publish", dying_in(f"{base}-1"))
        writer.commit(messages, 7)
    assert [bool(found) for found in stored(base)] == [True, False, True]
    writer, messages = staged_for_stream(base, range(100), range(100, 200), maxInlineBytes=inline)  # all tasks again
    writer.commit(messages, 7)
    assert stored(base) == expected(range(200))


def dying_in(path: str) -> Any:
    real = OpenCommit.publish

    def publish(commit: Any, sink: Any) -> None:
        if commit._commit.path == path:
            raise KeyboardInterrupt
        real(commit, sink)

    return publish


def test_batch_of_a_stream_that_one_shard_refuses_says_which_and_is_completed_later(tmp_path: Path) -> None:
    base = tmp_path / "orders"
    sharded_plan(base, SHARDS)
    with ss.Channel(tmp_path / "orders-1", create=False, overflow_capacity=10):
        last = [n for n in range(100) if shard_of(n) == 2]
        tasks = last, [n for n in range(100) if n not in last]  # the first task has no rows of the first shards
        writer, messages = staged_for_stream(base, *tasks, maxInlineBytes=0)
        with pytest.raises(ss.errors.IncompleteWriteError) as failed:
            writer.commit(messages, 7)
        writer.abort(messages, 7)
    said = str(failed.value)
    where = "the shards 0, 2 have its rows, and it failed in the shard 1: "
    assert said.startswith(f"the write to {base} is incomplete: {where}")
    assert "orders-1" in said and said.endswith(
        "A repetition of the batch 7 with the same rows completes it, and stores nothing twice"
    )
    assert segments(base) == [(1, 1), (0, 0), (1, 1)]
    ss.Channel(tmp_path / "orders-1", create=False, overflow_capacity=1000).close()
    writer, messages = staged_for_stream(base, range(100))
    writer.commit(messages, 7)
    assert stored(base) == expected(range(100))


def test_batch_write_that_one_shard_refuses_says_that_a_transaction_makes_a_repetition_safe(tmp_path: Path) -> None:
    base = tmp_path / "orders"
    sharded_plan(base, SHARDS)
    with ss.Channel(tmp_path / "orders-1", create=False, overflow_capacity=10):
        for version, options in enumerate([{}, {"txnAppId": "job", "txnVersion": 1}]):
            writer, messages = staged_for_batch(base, range(100 * version, 100 * version + 100), **options)
            with pytest.raises(ss.errors.IncompleteWriteError, match="the shards 0, 2 have its rows") as failed:
                writer.commit(messages)
            writer.abort(messages)
            assert ("Give such writes a txnAppId and a txnVersion" in str(failed.value)) == (not options)
    ss.Channel(tmp_path / "orders-1", create=False, overflow_capacity=1000).close()
    writer, messages = staged_for_batch(base, range(100, 200), txnAppId="job", txnVersion=1)
    writer.commit(messages)
    found, whole = stored(base), expected(range(200))
    assert [found[0], found[2]] == [whole[0], whole[2]]
    assert found[1] == expected(range(100, 200))[1]


def test_write_that_all_shards_refuse_raises_what_the_first_says(tmp_path: Path) -> None:
    writer, messages = staged_for_batch(tmp_path / "orders", range(100), overflowCapacity=10, maxInlineBytes=0)
    with pytest.raises(ss.ChannelFullError, match="orders-0"):
        writer.commit(messages)
    writer.abort(messages)
    assert segments(tmp_path / "orders") == [(0, 0)] * SHARDS


def test_rows_for_a_channel_that_was_created_again_are_refused_before_a_shard_has_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, messages = staged_for_batch(tmp_path / "orders", range(100))
    (tmp_path / "orders-2").rename(tmp_path / "elsewhere")
    ss.Channel(tmp_path / "orders-2", schema=ARROW, minimum_required_space=0).close()
    published: list[Put] = []
    monkeypatch.setattr(LocalPort, "publish", lambda port, put, keep_alive: published.append(put))
    with pytest.raises(ss.NotAChannelError, match="it was removed and created again"):
        writer.commit(messages)
    assert published == []


def test_channels_are_kept_open_for_the_next_commit(tmp_path: Path) -> None:
    writer, messages = staged_for_stream(tmp_path / "orders", range(100))
    close_parked()
    writer.commit(messages, 7)
    paths = {f"{tmp_path}/orders-{shard}" for shard in range(SHARDS)}
    assert {path for path, _ in channel_pool._parked} == paths


def test_shards_are_committed_to_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, messages = staged_for_stream(tmp_path / "orders", range(100))
    together, real = threading.Barrier(SHARDS, timeout=60), OpenCommit.publish

    def publish(commit: Any, sink: Any) -> None:
        together.wait()
        real(commit, sink)

    monkeypatch.setattr(OpenCommit, "publish", publish)
    writer.commit(messages, 7)
    assert stored(tmp_path / "orders") == expected(range(100))


def test_write_that_was_refused_can_be_committed_later(tmp_path: Path) -> None:
    writer, messages = staged_for_stream(tmp_path / "orders", range(100), overflowCapacity=10)
    for _ in range(2):
        with pytest.raises(ss.ChannelFullError):
            writer.commit(messages, 7)
    for shard in range(SHARDS):
        ss.Channel(tmp_path / f"orders-{shard}", create=False, overflow_capacity=1000).close()
    writer.commit(messages, 7)
    assert stored(tmp_path / "orders") == expected(range(100))
