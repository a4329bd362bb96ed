"""Handles that are kept between two of Spark's calls, and what may happen to the channel meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.local.leaving import Leaving
from spillable_stream.format.frame import FrameType
from spillable_stream.integrity.repair import repair
from spillable_stream.spark import channel_pool as module
from spillable_stream.spark.channel_pool import visit, visit_to_read
from spillable_stream.spark.side_by_side import side_by_side
from tests.support.damage import age_head, flip, kill, lose_memory, offsets, reboot
from tests.support.events import numbered, put
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly


@pytest.fixture(autouse=True)
def none_parked() -> Iterator[None]:
    close_parked()  # those of other tests
    yield
    close_parked()


def close_parked() -> None:
    while module._parked:
        module._close(module._parked.popitem()[1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with opened(tmp_path / "c") as channel:
        put(channel, *numbered(0, 3))
    return tmp_path / "c"


def opened(path: Path, **options: object) -> ss.Channel:
    return ss.Channel(path, minimum_required_space=0, checkpoint_on_close=False, **options)


def bodies(channel: ss.Channel) -> list[bytes]:
    """Return what is in the channel, as a handle reads it that owns no group."""
    engine = channel.engine()
    reader = engine.reader()
    try:
        with engine.snapshot() as state:
            extents = [e for a, b in state.gone().gaps(1, state.last_id) for e in state.blocks.extents(a, b)]
            return [b for e in extents for read in reader.read(e) for b in read.batch.column("body").to_pylist()]
    finally:
        reader.close()


def test_a_second_visit_continues_with_the_first_ones_handle_and_follows(path: Path) -> None:
    with visit(str(path)) as first:
        assert bodies(first) == numbered(0, 3)
    with opened(path) as other:
        put(other, *numbered(3, 2))
    with visit(str(path), create=False) as second:
        assert second is first
        assert bodies(second) == numbered(0, 5)


def test_nested_visits_have_handles_of_their_own(path: Path) -> None:
    with visit(str(path)) as outer, visit(str(path)) as inner:
        assert inner is not outer
        put(inner, b"3")
        assert bodies(outer) == numbered(0, 4)
    assert len(module._parked) == 1


@pytest.mark.parametrize("store", ["", "object+file://"])
def test_no_more_than_some_handles_are_kept_of_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr(module, "_MOST_PARKED_OF_STORES" if store else "_MOST_PARKED", 2)
    others = [f"{'' if store else 'object+file://'}{tmp_path}/other{i}" for i in range(3)]
    paths = [f"{store}{tmp_path}/c{i}" for i in range(4)]
    for path in (*others, *paths):
        with visit(path):
            pass
    assert {path for path, _ in module._parked} == {*others, *paths[-2:]}


def test_visits_of_many_threads_at_the_same_time_keep_a_handle_each(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"c{i}") for i in range(4)]

    def put_one(path: str) -> None:
        for _ in range(5):
            with visit(path, minimum_required_space=0) as channel:
                put(channel, b"x")

    side_by_side([partial(put_one, path) for path in paths])
    assert {path for path, _ in module._parked} == set(paths)
    for path in paths:
        with visit(path, create=False) as channel:
            assert bodies(channel) == [b"x"] * 5


def test_a_visit_that_raised_leaves_no_handle(path: Path) -> None:
    with pytest.raises(KeyError), visit(str(path)) as failed:
        raise KeyError
    with pytest.raises(ss.ChannelClosedError):
        failed.stats()
    with visit(str(path)) as channel:
        assert channel is not failed


def test_a_later_visit_can_change_options_and_the_schema(tmp_path: Path) -> None:
    import pyarrow as pa

    schema, wide = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int64()), ("b", pa.string())])
    with visit(str(tmp_path / "c"), schema=schema) as first:
        pass
    with visit(str(tmp_path / "c"), schema=wide, keep_alive=7) as second:
        assert second is first
        assert second.schema.names == ["a", "b"]
        assert second.options["keep_alive"] == 7
    with pytest.raises(ss.OptionError, match="fixed"), visit(str(tmp_path / "c"), data_dirs=str(tmp_path / "d")):
        pass


def test_a_kept_handle_keeps_nobody_from_being_the_last(tmp_path: Path) -> None:
    """The last handle that is closed moves memory to disk: one that Spark's idle worker keeps is not open."""
    path = tmp_path / "c"
    with opened(path, memory_capacity=100) as channel:
        put(channel, *numbered(0, 3))
        with visit(str(path)) as visitor:
            put(visitor, *numbered(3, 2))
        assert channel.stats().drain_order == [5]
    assert not os.path.lexists(path / "memory")
    with visit(str(path)) as visitor:
        assert visitor.stats().drain_order == [-5]
        put(visitor, *numbered(5, 2))
        assert visitor.stats().drain_order == [-5, 2]
    with opened(path) as channel:
        assert bodies(channel) == numbered(0, 7)


def test_a_visit_that_is_the_last_to_go_moves_memory_to_disk(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with visit(str(path), memory_capacity=100, minimum_required_space=0) as visitor:
        put(visitor, *numbered(0, 3))
        assert visitor.stats().drain_order == [3]
    assert not os.path.lexists(path / "memory")
    with visit(str(path)) as visitor:
        put(visitor, *numbered(3, 3))
        assert visitor.stats().drain_order == [-6]  # at once: nobody else was there last time


def test_a_visit_uses_memory_again_once_another_handle_is_open(tmp_path: Path) -> None:
    path = tmp_path / "c"
    for _ in range(2):
        with visit(str(path), memory_capacity=100, minimum_required_space=0) as visitor:
            pass
    with opened(path) as channel:
        for first in (0, 3):
            with visit(str(path)) as visitor:
                put(visitor, *numbered(first, 3))
        assert channel.stats().drain_order == [-3, 3]


def test_a_visit_that_raised_moves_memory_to_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with pytest.raises(KeyError), visit(str(path), memory_capacity=100, minimum_required_space=0) as visitor:
        put(visitor, *numbered(0, 3))
        raise KeyError
    with opened(path) as channel:
        assert channel.stats().drain_order == [-3]


def test_a_read_only_handle_of_a_channel_that_was_created_again_is_opened_anew(path: Path) -> None:
    with visit(str(path), create=False, readonly=True) as first:
        assert bodies(first) == numbered(0, 3)
    shutil.rmtree(path)
    with opened(path) as channel:
        put(channel, *numbered(3, 2))
    with visit(str(path), create=False, readonly=True) as second:
        assert second is not first and bodies(second) == numbered(3, 2)


def test_a_visit_is_not_the_last_while_another_handle_is_open(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with opened(path, memory_capacity=100) as channel:
        with visit(str(path)) as visitor:
            put(visitor, *numbered(0, 3))
        assert channel.stats().drain_order == [3]


def test_a_visit_does_what_it_is_for_though_the_move_to_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ss.StorageError("no space left")

    path = tmp_path / "c"
    with monkeypatch.context() as patched:
        patched.setattr(Leaving, "flush", fail)
        with visit(str(path), memory_capacity=100, minimum_required_space=0) as visitor:
            put(visitor, *numbered(0, 3))
    assert "was not left cleanly: no space left" in caplog.text
    with opened(path) as channel:
        assert channel.stats().drain_order == [3]


def test_what_was_in_a_memory_tier_that_is_gone_is_not_guessed(tmp_path: Path) -> None:
    """A handle that missed what happened in one memory tier does not follow into the next."""
    path = tmp_path / "c"
    channel = opened(path, memory_capacity=100)
    put(channel, *numbered(0, 3))
    with visit(str(path)) as before:
        assert bodies(before) == numbered(0, 3)
    put(channel, *numbered(3, 3))  # which the kept handle never sees
    channel.close()
    with opened(path) as channel:
        put(channel, *numbered(6, 3))
        with visit(str(path)) as after:
            assert after is not before
            assert after.stats().drain_order == [-6, 3]
            assert bodies(after) == numbered(0, 9)


def test_the_loss_of_a_memory_tier_is_seen_by_the_next_visit(tmp_path: Path) -> None:
    path = tmp_path / "c"
    channel = opened(path, memory_capacity=100)
    put(channel, *numbered(0, 3))
    with visit(str(path)):
        pass
    kill(channel)
    lose_memory(path)
    with pytest.warns(ss.MemoryLossWarning), visit(str(path)) as after:
        assert bodies(after) == []
        assert [tuple(r) for r in after.stats().lost] == [(1, 3)]


def test_a_channel_that_was_removed_is_missing(path: Path) -> None:
    with visit(str(path)):
        pass
    shutil.rmtree(path)
    with pytest.raises(ss.NotAChannelError), visit(str(path), create=False):
        pass


def test_another_channel_in_the_same_place_is_another_channel(path: Path, tmp_path: Path) -> None:
    with visit(str(path)) as first:
        pass
    path.rename(tmp_path / "moved")
    with opened(path) as channel:
        put(channel, b"new")
    with visit(str(path)) as second:
        assert second is not first
        assert bodies(second) == [b"new"]


@pytest.mark.parametrize("lose_head", [reboot, age_head])
def test_a_head_of_another_boot_is_recovered(path: Path, lose_head: object) -> None:
    with visit(str(path)) as first:
        pass
    lose_head(path)  # type: ignore[operator]
    with visit(str(path)) as second:
        assert second is not first
        assert bodies(second) == numbered(0, 3)


def test_a_channel_is_repaired_though_a_handle_is_kept(path: Path) -> None:
    with visit(str(path)) as first:
        put(first, *numbered(3, 2))
    flip(path / "data" / "log-000001", offsets(path, FrameType.PUT)[0] + 70)
    assert not repair(path).healthy
    with visit(str(path)) as second:
        assert second is not first
        assert len(bodies(second)) in (2, 3)
        put(second, b"more")
        assert bodies(second)[-1] == b"more"


def test_a_forked_child_opens_the_channel_itself(path: Path) -> None:
    with visit(str(path)) as first:
        pass
    pid = os.fork()
    if pid == 0:
        try:
            with visit(str(path)) as child:
                os._exit(0 if child is not first and bodies(child) == numbered(0, 3) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with visit(str(path)) as second:
        assert second is first


# ── channels that can't be written ──────────────────────────────────────────────────────────────


@NEEDS_MOUNTS
def test_a_visit_to_read_needs_no_directory_that_can_be_written(path: Path) -> None:
    with mounted_readonly(path):
        for _ in range(2):
            with visit_to_read(str(path)) as channel:
                assert channel.readonly and bodies(channel) == numbered(0, 3)
        with pytest.raises(ss.StorageError, match="Read-only file system"), visit(str(path), create=False):
            pass
    with visit(str(path), create=False) as channel:
        assert not channel.readonly, "a writer got the handle that only reads"
        put(channel, b"3")
    with visit_to_read(str(path)) as channel:
        assert not channel.readonly and bodies(channel) == numbered(0, 4)


def test_a_visit_to_read_of_a_store_writes_nothing_and_looks_after_nothing(tmp_path: Path) -> None:
    place = f"object+file://{tmp_path}/c"
    with ss.Channel(place, retention_ms=3_600_000) as channel:
        put(channel, *numbered(0, 3))
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        with visit_to_read(place) as channel:
            assert channel.readonly and bodies(channel) == numbered(0, 3)
            assert not channel.engine().upkeep._thread.is_alive()
    assert sorted(tmp_path.rglob("*")) == before
    with visit(place, create=False) as channel:
        assert not channel.readonly, "a writer got the handle that only reads"


def test_a_visit_to_read_raises_what_goes_wrong_inside(path: Path) -> None:
    error = ss.StorageError("inside")
    error.__cause__ = OSError(errno.EROFS, "inside")
    with pytest.raises(ss.StorageError, match="inside"), visit_to_read(str(path)):
        raise error
