"""A handle that only reads shows what an open for writing would find, writes nothing, and is in nobody's way."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelBusyError,
    ChannelClosedError,
    CommitOutcomeUnknownError,
    CorruptionError,
    DataLossError,
    ForeignDirectoryError,
    MemoryLossWarning,
    NotAChannelError,
    OtherHostError,
    ReadonlyChannelError,
    StorageError,
    TornTailWarning,
)
from spillable_stream.engine.local_engine import LocalEngine
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.frame import FrameType
from spillable_stream.log.head import Head
from spillable_stream.log.ownership import is_held, is_locked
from spillable_stream.storage.filesystem import FileSystem
from tests.golden.test_golden import CHANNELS, HERE
from tests.support.channels import fill, snapshot
from tests.support.damage import age_head, flip, kill, log_file, lose_memory, memory_of, offsets, reboot, trim
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem, FileSystemOfOthers
from tests.support.interrupts import Interrupts
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly

Open = Callable[..., Channel]
MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def reading(path: Path) -> Channel:
    return Channel(path, create=False, readonly=True)


def bodies(channel: Channel) -> list[bytes]:
    """Return the bodies of all events in the channel, which a handle may read that takes nothing."""
    engine = channel.engine()
    reader = engine.reader()
    try:
        with engine.snapshot() as state:
            extents = [
                e for a, b in state.gone().gaps(state.beginning(), state.last_id) for e in state.blocks.extents(a, b)
            ]
        found = [read.batch.column("body").to_pylist() for e in extents for read in reader.read(e)]
        return [body for batch in found for body in batch]
    finally:
        reader.close()


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
        assert bodies(readonly) == [*(b"%d " % i * 30 for i in range(15, 50)), b"last"]
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
                assert bodies(readonly) == ([b"first", b"second", b"third"] if size == end else [b"first"])
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
        assert bodies(readonly) == numbered(0, 3)
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
        assert bodies(readonly) == [b"a"]
        published = (path / "head").read_bytes()
        put(channel, b"b")
        assert bodies(readonly) == [b"a", b"b"]
        (path / "head").write_bytes(published)
        with reading(path) as another:
            assert bodies(another) == [b"a"], "what is not published may be taken back"


def test_it_follows_when_writers_leave_and_come(path: Path, open_channel: Open) -> None:
    open_channel().close()
    with reading(path) as readonly:
        for i in range(4):
            channel = open_channel()
            put(channel, b"%d" % i)
            assert bodies(readonly) == numbered(0, i + 1)
            if i % 2:
                kill(channel)
            else:
                channel.close()
            assert bodies(readonly) == numbered(0, i + 1)


def test_a_writer_that_came_and_left_between_two_looks_is_noticed(path: Path, open_channel: Open) -> None:
    open_channel().close()
    with reading(path) as readonly:
        assert readonly.stats().channel_size == 0
        with open_channel() as channel:
            put(channel, b"a")
        assert bodies(readonly) == [b"a"]


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
                interrupts = Interrupts(number, "engine/local_log", "engine/readonly_view", "engine/follower")
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
        assert bodies(readonly) == [b"a", b"b"]


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
        assert bodies(readonly) == [b"a"]
        kill(channel)
        assert bodies(readonly) == [b"a", b"b"]


def _refuse(*_: object) -> None:
    raise StorageError("killed")


def test_a_writer_that_came_first_between_two_looks_is_noticed(path: Path, open_channel: Open) -> None:
    """What it found lost is not in the log that was read before, and the memory tier is another one."""
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 5))
    with reading(path) as readonly:
        assert bodies(readonly) == numbered(0, 5)
        before = readonly.engine().log.lock
        kill(channel)
        lose_memory(path)
        with pytest.warns(MemoryLossWarning):
            channel = open_channel()
        put(channel, b"after")
        assert bodies(readonly) == [b"after"]
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
        assert bodies(readonly) == [b"last"]
        assert everything(readonly.engine()) == everything(channel.engine())


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
        assert bodies(readonly) == expected
        assert readonly.stats().delayed.events == 0
        if stays:
            put(writers[0], b"next")
            assert bodies(readonly) == [*expected, b"next"]


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
        assert bodies(readonly) == numbered(0, 3)


def test_damage_is_refused_as_an_open_for_writing_refuses_it(path: Path) -> None:
    fill(path)
    flip(log_file(path, 7), offsets(path, FrameType.COMMIT, 7)[0] + 8)
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
        assert bodies(readonly) == numbered(3, 27)
        stats = readonly.stats()
        assert (stats.memory.events, stats.disk.events) == (12, 15)
    assert snapshot(path, memory) == before


def test_events_that_move_from_memory_to_disk_are_followed(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    with reading(path) as readonly:
        assert readonly.stats().memory.events == 10
        channel.flush()
        assert (bodies(readonly), readonly.stats().memory.events) == (numbered(0, 10), 0)
        put(channel, *numbered(10, 5))
        assert (bodies(readonly), readonly.stats().memory.events) == (numbered(0, 15), 5)
        channel.close()
        assert (bodies(readonly), readonly.stats().memory.events) == (numbered(0, 15), 0)


def test_a_lost_memory_tier_is_reported_and_not_recorded(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 15))
    put(channel, *numbered(15, 15))
    kill(channel)
    lose_memory(path)
    before = snapshot(path)
    for _ in range(2):
        with pytest.warns(MemoryLossWarning) as warned, reading(path) as readonly:
            assert bodies(readonly) == numbered(15, 15)
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


# ── that it writes nothing, and is in nobody's way ──────────────────────────────────────────────


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_not_a_byte_name_or_time_is_changed(path: Path, open_channel: Open, held: bool) -> None:
    channel = open_channel(**MEMORY, max_file_size=2000)
    for i in range(6):
        put(channel, *numbered(10 * i, 10))
    take(channel, 3)
    if not held:
        kill(channel)
    before = snapshot(path, memory_of(path))
    with reading(path) as readonly:
        readonly.stats()
        bodies(readonly)
        assert snapshot(path, memory_of(path)) == before
    assert snapshot(path, memory_of(path)) == before


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_files_are_opened_for_reading_only(path: Path, open_channel: Open, held: bool) -> None:
    channel = open_channel()
    put(channel, b"a")
    if not held:
        kill(channel)
    fs = FaultyFileSystem()
    with Channel(path, readonly=True, fs=fs) as readonly:
        assert readonly.stats().channel_size == 1
    assert {call.name for call in fs.calls} <= {"open", "read"}


def test_neither_lock_is_held(path: Path, open_channel: Open) -> None:
    open_channel().close()
    fs = FileSystem()
    with reading(path) as readonly:
        readonly.stats()
        assert not is_held(fs, path) and not any(is_locked(fs, f) for f in path.rglob("*.lock"))
        assert not is_locked(fs, path / "lock") and not is_held(fs, path / "data")
        with open_channel() as channel:
            assert channel.engine().log.recovered, "the reader was taken for somebody who holds the channel"
            assert channel.engine().become_last()


@NEEDS_MOUNTS
@pytest.mark.parametrize("elsewhere", [False, True], ids=["over itself", "at another path"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_a_channel_on_a_readonly_mount_is_read(
    path: Path, open_channel: Open, tmp_path: Path, held: bool, elsewhere: bool
) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 15))
    put(channel, *numbered(15, 15))
    if not held:
        kill(channel)
    at = tmp_path / "mounted" if elsewhere else None
    with mounted_readonly(path, at) as mounted, reading(mounted) as readonly:
        assert bodies(readonly) == numbered(0, 30)
        if held and elsewhere:
            take(channel, 10)
            assert readonly.stats().channel_size == 20


# ── what is refused ─────────────────────────────────────────────────────────────────────────────

REFUSED: dict[str, Callable[[Channel], object]] = {
    "a put": lambda channel: channel.put_transaction(),
    "a take": lambda channel: channel.take_transaction(),
    "a consumer": lambda channel: channel.consumer("group"),
    "drop_group": lambda channel: channel.drop_group("default"),
    "a checkpoint": lambda channel: channel.checkpoint(),
    "a flush": lambda channel: channel.flush(),
    "another value of keep_alive": lambda channel: Channel(channel.path, readonly=True, keep_alive=77),
    "a commit": lambda channel: channel.engine().committing().__enter__(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_change_the_channel_is_refused_in_one_sentence(path: Path, open_channel: Open, what: str) -> None:
    put(open_channel(), b"a")
    before = snapshot(path)
    with reading(path) as readonly, pytest.raises(ReadonlyChannelError) as refused:
        REFUSED[what](readonly)
    assert str(refused.value) == (
        f"{path} is open read-only, and {what} would change the channel: open it without readonly for that"
    )
    assert snapshot(path) == before


def test_another_column_is_refused_and_those_there_are_not(path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    Channel(path, schema=schema).close()
    with Channel(path, readonly=True, schema=schema) as readonly:
        assert readonly.schema.equals(schema)
    with pytest.raises(ReadonlyChannelError, match="another column"):
        Channel(path, readonly=True, schema=schema.append(pa.field("b", pa.int64())))


def test_nothing_is_created_where_there_is_no_channel(path: Path) -> None:
    with pytest.raises(NotAChannelError):
        Channel(path, readonly=True)
    assert not path.exists()


def test_a_directory_that_is_not_the_channels_is_refused(path: Path, open_channel: Open, tmp_path: Path) -> None:
    open_channel(data_dirs=[str(tmp_path / "data")]).close()
    (tmp_path / "data" / "owner.json").unlink()
    with pytest.raises(ForeignDirectoryError, match=r"has no owner\.json"):
        reading(path)


@pytest.mark.usefixtures("settles_soon")
def test_a_channel_whose_owner_file_was_removed_under_its_handles_is_refused(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"a")
    (path / "owner.json").unlink()
    with pytest.raises(ChannelBusyError, match=r"owner\.json was removed"):
        Channel(path, readonly=True)


def test_a_closed_handle_says_so(path: Path, open_channel: Open) -> None:
    open_channel()
    readonly = reading(path)
    readonly.close()
    readonly.close()
    with pytest.raises(ChannelClosedError):
        readonly.stats()


def test_a_forked_child_reads_with_a_view_of_its_own(path: Path, open_channel: Open) -> None:
    put(open_channel(), b"a")
    with reading(path) as readonly:
        assert readonly.stats().channel_size == 1
        child = os.fork()
        if not child:
            os._exit(0 if bodies(readonly) == [b"a"] and readonly.schema.equals(EVENT_SCHEMA) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert bodies(readonly) == [b"a"]
