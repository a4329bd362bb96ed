"""A handle that only reads: it changes nothing, is in nobody's way, and refuses what would change the channel."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelBusyError,
    ChannelClosedError,
    ForeignDirectoryError,
    NotAChannelError,
    ReadonlyChannelError,
)
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.log.directory_ownership import is_held, is_locked
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import bodies_in, snapshot
from tests.support.damage import kill, memory_of
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.mounts import NEEDS_MOUNTS, mounted_readonly

Open = Callable[..., Channel]
MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def reading(path: Path) -> Channel:
    return Channel(path, create=False, readonly=True)


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
        bodies_in(readonly)
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
            assert channel.engine().log.become_last()


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
        assert bodies_in(readonly) == numbered(0, 30)
        if held and elsewhere:
            take(channel, 10)
            assert readonly.stats().channel_size == 20


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
        f"{path} is open read-only, but {what} would change the channel: open it without readonly for that"
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
            os._exit(0 if bodies_in(readonly) == [b"a"] and readonly.schema.equals(EVENT_SCHEMA) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert bodies_in(readonly) == [b"a"]
