"""What must stay free stays free, however fast is written, by whomever."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, DiskSpaceError, Event, StorageError
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.engine.put_request import Put
from spillable_stream.format.batch import encode_batch
from spillable_stream.integrity.verify import verify
from spillable_stream.log import disk_space
from spillable_stream.log.disk_space import DiskSpace, lacking_bytes, require_space, required_bytes, with_room
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import put, take
from tests.support.fake_files import SmallDisk

KIB, MIB = 1 << 10, 1 << 20
TOTAL_BYTES, REQUIRED_BYTES = 10 * MIB, MIB
BODY = bytes(20 * KIB)
Open = Callable[..., Channel]


@pytest.fixture
def fs(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path, TOTAL_BYTES)


@pytest.fixture
def open_channel(fs: SmallDisk, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Open handles of a channel on a small disk; no time passes, so that only what is counted makes them look at it."""
    monkeypatch.setattr(disk_space, "_LOOK_SECONDS", float("inf"))
    opened = []

    def open_channel(**options: Any) -> Channel:
        opened.append(Channel(path, fs=fs, **{"checkpoint_interval": 10**9, **options}))
        return opened[-1]

    yield open_channel
    for channel in opened:
        channel.close()


def fill(channel: Channel, body: bytes = BODY) -> int:
    """Put one by one until a put is refused, and return how many were not."""
    for number in range(10_000):
        try:
            put(channel, body)
        except DiskSpaceError:
            return number
    raise AssertionError("the disk was never full")


@pytest.mark.parametrize(("total_bytes", "default"), [(1 << 40, 500 * MIB), (5000 * MIB, 500 * MIB), (MIB, MIB // 10)])
def test_by_default_a_small_file_system_must_have_a_tenth_free(tmp_path: Path, total_bytes: int, default: int) -> None:
    fs = SmallDisk(tmp_path, total_bytes)
    assert required_bytes(fs, tmp_path, None) == default
    assert required_bytes(fs, tmp_path, 7) == 7


@pytest.mark.parametrize("options", [{}, {"minimum_required_space": REQUIRED_BYTES}], ids=["default", "given"])
def test_a_fast_writer_leaves_what_must_be_free_and_little_more(
    open_channel: Open, fs: SmallDisk, path: Path, options: dict[str, int]
) -> None:
    channel = open_channel(**options)
    count = fill(channel)
    assert REQUIRED_BYTES <= fs.free_bytes(path) < REQUIRED_BYTES + 2 * len(BODY)
    assert len(take(channel)) == count


def test_the_error_says_what_is_free_and_what_must_be(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    fill(channel)
    said = rf"{path}/data has 1,\d+,\d+ bytes free, but minimum_required_space is 1,048,576 \(the default\)"
    with pytest.raises(DiskSpaceError, match=said):
        put(channel, BODY)


@pytest.mark.parametrize(("size", "said"), [(0, ": puts are refused; "), (5000, ": 5,000 more bytes are refused; ")])
def test_where_nothing_fits_no_size_is_said(fs: SmallDisk, tmp_path: Path, size: int, said: str) -> None:
    with pytest.raises(DiskSpaceError, match=said):
        require_space(fs, tmp_path, TOTAL_BYTES + 1, size)


def test_what_another_process_appended_counts(open_channel: Open, fs: SmallDisk, path: Path) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, BODY)
    fill(other)
    with pytest.raises(DiskSpaceError):
        put(channel, BODY)
    assert fs.free_bytes(path) >= REQUIRED_BYTES


def test_a_large_transaction_is_refused_while_it_is_staged(open_channel: Open, fs: SmallDisk, path: Path) -> None:
    channel = open_channel(max_inline_bytes=0)
    tx = channel.put_transaction()
    tx.begin()
    with pytest.raises(DiskSpaceError, match="more bytes are refused"):
        for _ in range(20):
            tx.put_batch(batch_from_events([Event(bytes(MIB))]))
    assert 8 <= tx.count < 10
    assert fs.free_bytes(path) >= REQUIRED_BYTES
    tx.rollback()
    assert fs.free_bytes(path) > 9 * MIB


def test_a_segment_that_memory_has_no_room_for_does_not_go_to_a_disk_without_space(
    open_channel: Open, fs: SmallDisk, path: Path
) -> None:
    layout = open_channel().engine().layout
    layout.memory.mkdir()
    writer = StagedFileWriter(fs, layout, memory_bytes=8 * MIB, minimum_required_space=5 * MIB)
    frames = encode_batch(batch_from_events([Event(bytes(2 * MIB))]))
    for _ in range(3):
        writer.write(frames)
    with pytest.raises(DiskSpaceError, match=f"file system of {path}/data has"):
        writer.write(frames)
    assert writer.path.parent == layout.memory
    assert writer.finish().count == 3
    writer.discard()
    layout.memory.rmdir()


def test_what_a_task_staged_counts_when_it_is_adopted(open_channel: Open, fs: SmallDisk, path: Path) -> None:
    channel = open_channel(transaction_capacity=100)
    put(channel, BODY)
    writer = StagedFileWriter(fs, channel.engine().layout, "query")  # of another program, which does not look
    while fs.free_bytes(path) > REQUIRED_BYTES:
        writer.write(encode_batch(batch_from_events([Event(bytes(MIB))])))
    with pytest.raises(DiskSpaceError):
        channel.engine().commit(Put([], [writer.finish()]))
    writer.close()


def test_takes_and_checkpoints_continue_without_space(open_channel: Open, fs: SmallDisk) -> None:
    channel = open_channel(minimum_required_space=TOTAL_BYTES // 2)
    count = fill(channel)
    fs.use(TOTAL_BYTES // 4)
    assert len(take(channel, 5)) == 5
    channel.checkpoint()
    assert len(take(channel)) == count - 5


def test_a_channel_that_requires_no_space_does_not_look(open_channel: Open, fs: SmallDisk) -> None:
    channel = open_channel(minimum_required_space=0)
    fs.use(TOTAL_BYTES)
    put(channel, BODY)


@pytest.mark.parametrize("required_bytes", [0, REQUIRED_BYTES])
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("directories", [1, 2])
def test_delayed_events_fill_a_disk_no_further_than_it_has_room_to_deliver_them(
    open_channel: Open, fs: SmallDisk, path: Path, required_bytes: int, at_once: int, directories: int
) -> None:
    """They are written once more then, and nothing could be taken if there were no room for that."""
    dirs = [str(path.parent / f"d{i}") for i in range(directories)]
    channel = open_channel(minimum_required_space=required_bytes, data_dirs=dirs)
    clock = clock_of(channel)
    count = 0
    with pytest.raises(DiskSpaceError, match=r", and waiting delayed events need [45],\d+,\d+ when they are due: "):
        for _ in range(1000):
            put_late(channel, 60, *[BODY] * at_once)
            count += at_once
    assert count * len(BODY) > 0.4 * (TOTAL_BYTES - required_bytes), "and fill the rest"
    with pytest.raises(DiskSpaceError):
        fill(channel)
        put(channel, BODY * 3)
    clock.pass_by(61)
    deliver_all(channel)
    assert channel.stats().delayed.events == 0
    assert fs.free_bytes(path) >= required_bytes
    assert len(take(channel)) >= count


def test_delayed_events_of_another_process_count_at_once(open_channel: Open, fs: SmallDisk, path: Path) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, BODY)
    for _ in range(200):
        put_late(other, 60, BODY)
    fill(channel)
    assert fs.free_bytes(path) > REQUIRED_BYTES + 150 * len(BODY), "the rest is preallocated, for what comes next"


@pytest.mark.parametrize("required_bytes", [0, REQUIRED_BYTES])
@pytest.mark.parametrize("staged", ["a transaction", "a task's rows", "delayed events"])
def test_what_is_staged_leaves_room_for_the_delayed_events_that_wait(
    open_channel: Open, fs: SmallDisk, path: Path, required_bytes: int, staged: str
) -> None:
    """What is refused at the commit alone takes their room until then; a Spark query's, until ``stagingTtl``."""
    channel = open_channel(max_inline_bytes=MIB, minimum_required_space=required_bytes)
    for _ in range(4):
        put_late(channel, 60, bytes(900 * KIB))
    waiting_bytes = 4 * 900 * KIB
    rows = batch_from_events([Event(bytes(MIB))])
    with pytest.raises(DiskSpaceError, match=r", and waiting delayed events need 3,688,000 when they are due"):
        if staged in ("a transaction", "delayed events"):
            with channel.put_transaction() as tx:
                for _ in range(10):
                    tx.put_batch(rows, deliver_after=None if staged == "a transaction" else 60)
                    assert fs.free_bytes(path) >= required_bytes + waiting_bytes
                raise AssertionError("all of it was staged")
        else:
            writer = channel.port().plan_stage()._writer(fs, "query", 1, 0)  # type: ignore[attr-defined]
            for _ in range(10):
                writer.write(encode_batch(rows))
                assert fs.free_bytes(path) >= required_bytes + waiting_bytes


def test_events_that_were_delivered_do_not_put_off_the_next_look(tmp_path: Path, fs: SmallDisk) -> None:
    """They left the room as it was: they are in the log now, and in their side file still."""
    space = DiskSpace(fs, Layout(tmp_path, "a channel", (tmp_path,), tmp_path, None))
    (tmp_path / "log-000001").touch()
    space.require(0, 1, 0, waiting_bytes=4 * MIB)
    fs.use(TOTAL_BYTES - 2 * MIB)
    space.require(0, 1, 2 * MIB, waiting_bytes=2 * MIB)
    with pytest.raises(DiskSpaceError):
        space.require(0, 1, 3 * MIB, waiting_bytes=2 * MIB)


FULL: dict[str, Callable[[Channel], object]] = {
    "a put": lambda channel: put(channel, b"x"),
    "a delayed put": lambda channel: put_late(channel, 60, b"x"),
    "a large put": lambda channel: put(channel, BODY),
    "a large delayed put": lambda channel: put_late(channel, 60, BODY),
    "a take": lambda channel: take(channel),
    "a group": lambda channel: channel.consumer("another"),
    "an option": lambda channel: Channel(channel.path, keep_alive=1).close(),
    "a checkpoint": lambda channel: channel.checkpoint(),
    "a creation": lambda channel: Channel(f"{channel.path}-2").close(),
}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("what", FULL)
def test_a_disk_that_another_program_fills_is_one_error_whatever_meets_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with Channel(path, minimum_required_space=0, max_inline_bytes=10_000) as channel:
        put(channel, b"kept")
        with monkeypatch.context() as full:
            full.setattr(os, "pwritev", refuse)
            with pytest.raises(DiskSpaceError, match=rf"(writing|preallocating) .*errno {number}\); make room"):
                FULL[what](channel)
        FULL[what](channel)
    assert verify(path).healthy


class Disks(FileSystem):
    """Directories that each have a disk; one that says nothing of its space has None.

    Args:
        free: the free bytes, by the directories' names.
    """

    def __init__(self, **free: int | None) -> None:
        self._free = free

    def total_bytes(self, path: Path) -> int:
        return 1 << 40

    def free_bytes(self, path: Path) -> int:
        if (free := self._free[path.name]) is None:
            raise StorageError(f"looking at {path} failed")
        return free


@pytest.mark.parametrize(
    ("free", "found"),
    [
        ({"a": 1 << 40, "b": 65 * MIB}, "ab"),
        ({"a": 1 << 40, "b": 60 * MIB}, "a"),
        ({"a": 2 * MIB, "b": MIB}, "ab"),
        ({"a": 2 * MIB, "b": MIB // 2}, "a"),
        ({"a": 0, "b": 0}, "ab"),
        ({"a": -MIB, "b": -1}, "ab"),
        ({"a": MIB, "b": None}, "a"),
        ({"a": None, "b": None}, "ab"),
    ],
)
def test_files_are_begun_on_disks_that_have_room_if_any_has(
    tmp_path: Path, free: dict[str, int | None], found: str
) -> None:
    layout = Layout(tmp_path, "a channel", (tmp_path / "a", tmp_path / "b"), tmp_path, None)
    said = {name: None if bytes_ is None else bytes_ + MIB for name, bytes_ in free.items()}
    assert {directory.name for directory in with_room(Disks(**said), layout, MIB)} == set(found)


def test_puts_lack_room_only_when_no_disk_has_any(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "a channel", (tmp_path / "a", tmp_path / "b"), tmp_path, None)
    assert lacking_bytes(Disks(a=0, b=1 << 30), layout, 0, 0) == 0
    assert lacking_bytes(Disks(a=None, b=1 << 30), layout, 0, 0) == 0
    assert lacking_bytes(Disks(a=0, b=60 * MIB), layout, 0, 0) == 4 * MIB
    assert lacking_bytes(Disks(a=0, b=60 * MIB), layout, 0, 20 * MIB) == 24 * MIB, "one disk may get all that waits"
    with pytest.raises(StorageError):
        lacking_bytes(Disks(a=None, b=None), layout, 0, 0)
