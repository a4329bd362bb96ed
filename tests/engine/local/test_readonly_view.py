"""A handle that only reads shows what an open for writing would find, writes nothing, and is in nobody's way."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    DataLossError,
    MemoryLossWarning,
    OtherHostError,
    StorageError,
    TornTailWarning,
)
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.format.frame import FrameType
from spillable_stream.log.head import Head
from tests.golden.test_golden import CHANNELS, HERE
from tests.support.channels import bodies_in, fill, snapshot
from tests.support.damage import age_head, flip, kill, log_file, lose_memory, memory_of, offsets, reboot, trim
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import numbered, put, take
from tests.support.fake_files import FileSystemOfOthers
from tests.support.interrupts import Interrupts

Open = Callable[..., Channel]
MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def reading(path: Path) -> Channel:
    return Channel(path, create=False, readonly=True)


def everything(engine: LocalEngine) -> object:
    """Return the state of a handle, and up to where it has read the log."""
    state = engine.follow()
    return state.image(), engine.positions


def everything_of_copy(path: Path) -> object:
    """Return what an open for writing finds in a copy of a channel that has no memory tier."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy, symlinks=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        channel = Channel(copy, create=False)
    try:
        return everything(channel.engine())
    finally:
        kill(channel)
        shutil.rmtree(copy)


# ── what it shows ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_a_channel_that_nobody_holds_is_read_to_its_end(
    path: Path, open_channel: Open, closed: bool, rebooted: bool
) -> None:
    channel = open_channel(max_file_size=2000, max_inline_bytes=1000)
    for first in range(0, 50, 10):
        put(channel, *[b"%d " % i * 30 for i in range(first, first + 10)])
    take(channel, 15)
    channel.checkpoint()
    put(channel, b"last")
    if closed:
        channel.close()
    else:
        kill(channel)
    if rebooted:
        reboot(path)
    expected = everything_of_copy(path)
    with reading(path) as readonly:
        assert everything(readonly.engine()) == expected
        assert bodies_in(readonly) == [*(b"%d " % i * 30 for i in range(15, 50)), b"last"]
        assert readonly.stats().groups["default"].lag == 36


def test_a_torn_tail_is_passed_over_wherever_it_is_torn_and_is_not_cut(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"first")
    kill(channel)
    begin = trim(path)
    channel = open_channel()
    put(channel, b"second", b"third")
    kill(channel)
    whole, end = log_file(path).read_bytes(), trim(path)
    for size in range(begin, end + 1, 8):
        log_file(path).write_bytes(whole[:size])
        reboot(path)
        before, expected = snapshot(path), everything_of_copy(path)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with reading(path) as readonly:
                assert everything(readonly.engine()) == expected
                assert bodies_in(readonly) == ([b"first", b"second", b"third"] if size == end else [b"first"])
                torn = readonly.stats().torn_bytes
        assert [w.category for w in warned] == [TornTailWarning] * bool(torn)
        assert bool(torn) == any(whole[begin:size]) * (size < end)
        assert snapshot(path) == before


def test_a_file_that_was_being_created_when_the_host_stopped_is_passed_over_and_not_removed(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    kill(channel)
    reboot(path)
    unfinished = log_file(path, 2)
    unfinished.write_bytes(log_file(path).read_bytes()[:100])
    before = snapshot(path)
    with reading(path) as readonly:
        assert bodies_in(readonly) == numbered(0, 3)
    assert snapshot(path) == before


@pytest.mark.parametrize("name", CHANNELS)
def test_channels_of_earlier_releases_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    path = tmp_path / "channel"
    shutil.copytree(HERE / name, path)
    before, expected = snapshot(path), everything_of_copy(path)
    with reading(path) as readonly:
        assert everything(readonly.engine()) == expected
    assert snapshot(path) == before


def test_a_channel_in_use_is_read_up_to_what_is_published_and_followed(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    with reading(path) as readonly:
        assert bodies_in(readonly) == [b"a"]
        published = (path / "head").read_bytes()
        put(channel, b"b")
        assert bodies_in(readonly) == [b"a", b"b"]
        (path / "head").write_bytes(published)
        with reading(path) as another:
            assert bodies_in(another) == [b"a"], "what is not published may be taken back"


def test_it_follows_when_writers_leave_and_come(path: Path, open_channel: Open) -> None:
    open_channel().close()
    with reading(path) as readonly:
        for i in range(4):
            channel = open_channel()
            put(channel, b"%d" % i)
            assert bodies_in(readonly) == numbered(0, i + 1)
            if i % 2:
                kill(channel)
            else:
                channel.close()
            assert bodies_in(readonly) == numbered(0, i + 1)


def test_a_writer_that_came_and_left_between_two_looks_is_noticed(path: Path, open_channel: Open) -> None:
    open_channel().close()
    with reading(path) as readonly:
        assert readonly.stats().channel_size == 0
        with open_channel() as channel:
            put(channel, b"a")
        assert bodies_in(readonly) == [b"a"]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_view_whose_renewal_is_interrupted_is_renewed_by_the_next_look(
    path: Path, open_channel: Open, every: int
) -> None:
    open_channel().close()
    number, hit = 1 - every, True
    while hit:
        number += every
        with reading(path) as readonly:
            readonly.stats()
            with open_channel() as channel:
                interrupts = Interrupts(
                    number, "engine/local/local_log", "engine/local/readonly_view", "engine/follower"
                )
                interrupts.run(readonly.engine().follow)
                hit = interrupts.hit
                for _ in range(3):
                    put(channel, b"a")
                    assert readonly.stats().channel_size == channel.stats().channel_size, f"interrupted at {number}"
    assert number > 50


def test_what_a_killed_writer_wrote_last_counts_as_it_does_for_the_next_open(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    published = (path / "head").read_bytes()
    put(channel, b"b")
    with reading(path) as readonly:
        (path / "head").write_bytes(published)
        kill(channel)
        assert bodies_in(readonly) == [b"a", b"b"]


def test_what_a_writer_never_published_counts_once_it_is_gone(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, b"a")
    with reading(path) as readonly:
        with monkeypatch.context() as patch:
            patch.setattr(Head, "write", _refuse)
            with pytest.raises(CommitOutcomeUnknownError):
                put(channel, b"b")
        assert bodies_in(readonly) == [b"a"]
        kill(channel)
        assert bodies_in(readonly) == [b"a", b"b"]


def _refuse(*_: object) -> None:
    raise StorageError("killed")


def test_a_writer_that_came_first_between_two_looks_is_noticed(path: Path, open_channel: Open) -> None:
    """What it found lost is not in the log that was read before, and the memory tier is another one."""
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 5))
    with reading(path) as readonly:
        assert bodies_in(readonly) == numbered(0, 5)
        before = readonly.engine().log.lock
        kill(channel)
        lose_memory(path)
        with pytest.warns(MemoryLossWarning):
            channel = open_channel()
        put(channel, b"after")
        assert bodies_in(readonly) == [b"after"]
        assert everything(readonly.engine()) == everything(channel.engine())
        assert readonly.engine().log.lock is not before, "it went on in a view of another time"


def test_files_that_a_writer_removes_under_it_are_done_without(path: Path, open_channel: Open) -> None:
    channel = open_channel(max_file_size=2000)
    put(channel, *[b"%d" % i * 200 for i in range(9)])
    with reading(path) as readonly:
        assert readonly.stats().channel_size == 9
        for first in range(100, 190, 10):
            put(channel, *[b"%d" % i * 50 for i in range(first, first + 10)])
            take(channel, 19 if first == 100 else 10)
            channel.checkpoint()
        assert not log_file(path, 1).exists()
        put(channel, b"last")
        assert bodies_in(readonly) == [b"last"]
        assert everything(readonly.engine()) == everything(channel.engine())


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_channel_that_was_moved_or_removed_under_it_is_told_without_advice_to_claim_a_directory(
    path: Path, open_channel: Open, how: str
) -> None:
    channel = open_channel()
    put(channel, b"x")
    channel.close()
    with reading(path) as readonly:
        assert bodies_in(readonly) == [b"x"]
        shutil.rmtree(path) if how == "removed" else path.rename(path.with_name("elsewhere"))
        if how == "replaced":
            open_channel().close()
        for look in (readonly.stats, lambda: bodies_in(readonly)):
            with pytest.raises(ChannelClosedError, match="was moved, removed or replaced"):
                look()


def test_events_of_a_channel_that_was_moved_under_its_handle_are_not_said_to_be_lost(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel()
    put(channel, b"x")
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(ChannelClosedError, match="was moved, removed or replaced"):
        bodies_in(channel)
    path.with_name("elsewhere").rename(path)
    assert bodies_in(channel) == [b"x"]


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("stays", [False, True], ids=["left", "there"])
def test_what_a_writer_delivers_that_comes_while_a_free_channel_is_opened_is_not_missing(
    path: Path, open_channel: Open, stays: bool, commits: int
) -> None:
    channel = open_channel()
    put_late(channel, 1000, b"late")
    channel.close()
    writers = list[Channel]()

    def come_and_deliver() -> None:
        if not writers:
            writers.append(open_channel())
            for _ in range(commits):  # the head has two slots: the view hides one of them
                put(writers[0], b"now")
            clock_of(*writers).pass_by(1001)
            deliver_all(writers[0])
            if not stays:
                kill(writers[0])

    with Channel(path, create=False, readonly=True, fs=FileSystemOfOthers(come_and_deliver)) as readonly:
        expected = [*[b"now"] * commits, b"late"]
        assert bodies_in(readonly) == expected
        assert readonly.stats().delayed.events == 0
        if stays:
            put(writers[0], b"next")
            assert bodies_in(readonly) == [*expected, b"next"]


def test_a_side_file_that_is_missing_in_a_free_channel_is_missing(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put_late(channel, 1000, b"late")
    channel.close()
    (path / "data" / "delayed-000001").unlink()
    with pytest.raises(DataLossError, match="the file delayed-000001 was removed"):
        reading(path)


def test_a_stray_or_damaged_head_stops_nobody_who_finds_the_channel_free(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    kill(channel)
    age_head(path)
    flip(path / "head", 30)
    with reading(path) as readonly:
        assert bodies_in(readonly) == numbered(0, 3)


def test_damage_is_refused_as_an_open_for_writing_refuses_it(path: Path) -> None:
    fill(path)
    flip(log_file(path, 8), offsets(path, FrameType.COMMIT, 8)[0] + 8)
    before = snapshot(path)
    with pytest.raises(CorruptionError) as found:
        reading(path)
    assert snapshot(path) == before
    with pytest.raises(CorruptionError) as expected:
        Channel(path, create=False)
    assert str(found.value) == str(expected.value)


# ── the memory tier ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("killed", [False, True], ids=["in use", "killed"])
def test_events_in_memory_are_read(path: Path, open_channel: Open, killed: bool) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 15))
    put(channel, *numbered(15, 15))
    take(channel, 3)
    memory = memory_of(path)
    if killed:
        kill(channel)
    before = snapshot(path, memory)
    with reading(path) as readonly:
        assert bodies_in(readonly) == numbered(3, 27)
        stats = readonly.stats()
        assert (stats.memory.events, stats.disk.events) == (12, 15)
    assert snapshot(path, memory) == before


def test_events_that_move_from_memory_to_disk_are_followed(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    with reading(path) as readonly:
        assert readonly.stats().memory.events == 10
        channel.flush()
        assert (bodies_in(readonly), readonly.stats().memory.events) == (numbered(0, 10), 0)
        put(channel, *numbered(10, 5))
        assert (bodies_in(readonly), readonly.stats().memory.events) == (numbered(0, 15), 5)
        channel.close()
        assert (bodies_in(readonly), readonly.stats().memory.events) == (numbered(0, 15), 0)


def test_a_lost_memory_tier_is_reported_and_not_recorded(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 15))
    put(channel, *numbered(15, 15))
    kill(channel)
    lose_memory(path)
    before = snapshot(path)
    for _ in range(2):
        with pytest.warns(MemoryLossWarning) as warned, reading(path) as readonly:
            assert bodies_in(readonly) == numbered(15, 15)
            assert readonly.stats().lost == ((1, 15),)
        assert warned[0].message.lost == ((1, 15),)  # type: ignore[union-attr]
    assert snapshot(path) == before
    with pytest.warns(MemoryLossWarning):
        assert open_channel().stats().lost == ((1, 15),)


def test_a_memory_tier_that_may_be_alive_elsewhere_is_not_treated_as_lost(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 5))
    kill(channel)
    lose_memory(path)
    place = path / "memory.json"
    place.write_text(place.read_text().replace(os.uname().nodename, "elsewhere").replace('"boot": "', '"boot": "0'))
    with pytest.raises(OtherHostError, match="elsewhere"):
        reading(path)
