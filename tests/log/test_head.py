from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import ChannelBusyError, StorageError
from spillable_stream.format.head_page import CommitPoint, HeadState, TierEnd
from spillable_stream.log import head as head_module
from spillable_stream.log.head import Head
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import flip
from tests.support.events import peek, put, take
from tests.support.fake_files import FaultyFileSystem


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    head = Head(FileSystem(), tmp_path / "head")
    yield head
    head.close()


def published(end: int) -> CommitPoint:
    return CommitPoint(TierEnd(1, end, HeadState.APPENDING), TierEnd(2, 5), 7, 1_700_000_000_099)


def test_a_new_head_publishes_nothing(head: Head) -> None:
    assert head.read() is None
    assert head.read_any_boot() is None


def test_a_head_has_its_room_from_the_start(head: Head, tmp_path: Path) -> None:
    assert (tmp_path / "head").stat().st_blocks > 0  # else the first write on a full disk kills the process


def test_a_head_for_which_there_is_no_room_is_an_error(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call.name == "preallocate"), pytest.raises(StorageError):
        Head(fs, tmp_path / "head")


def test_what_one_process_publishes_another_reads(head: Head, tmp_path: Path) -> None:
    head.begin_writing()
    other = Head(FileSystem(), tmp_path / "head")
    for end in range(1, 6):
        head.write(published(end))
        found = other.read()
        assert found is not None and found[:4] == published(end)[:4]
    other.close()


@pytest.mark.parametrize("end", [1, 2, 3])
def test_a_torn_slot_leaves_the_one_before(head: Head, tmp_path: Path, end: int) -> None:
    """A writer killed in the middle of its write, at every byte."""
    head.begin_writing()
    for written in range(1, end + 1):
        before = (tmp_path / "head").read_bytes()
        head.write(published(written))
    after = (tmp_path / "head").read_bytes()
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert changed
    for at in range(changed[0] + 1, changed[-1] + 1):
        (tmp_path / "torn").write_bytes(after[:at] + before[at:])
        torn = Head(FileSystem(), tmp_path / "torn")
        found = torn.read()
        assert (found.disk.end if found else 0) == end - 1, f"torn at {at}"
        torn.begin_writing()
        torn.write(published(100))
        assert (found := torn.read()) and found.disk.end == 100
        torn.close()


def test_a_head_of_another_boot_is_only_a_lower_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "boot_id", lambda: bytes(16))
    old = Head(FileSystem(), tmp_path / "head")
    old.begin_writing()
    old.write(published(5))
    old.close()
    monkeypatch.undo()

    head = Head(FileSystem(), tmp_path / "head")
    assert head.read() is None
    assert (known := head.read_any_boot()) and known.disk.end == 5
    assert head.begin_writing() is None
    head.write(published(6))
    assert (found := head.read()) and found.disk.end == 6
    head.close()


def test_a_damaged_head_publishes_nothing(head: Head, tmp_path: Path) -> None:
    head.begin_writing()
    head.write(published(1))
    head.write(published(2))
    (tmp_path / "head").write_bytes(b"\xff" * 512)
    assert head.read() is None


def states(found: CommitPoint | None) -> tuple[int, int]:
    assert found is not None
    return found.disk.state, found.memory.state


def test_an_append_that_did_not_publish_shows_to_the_next_writer_alone(head: Head) -> None:
    clean = CommitPoint(TierEnd(1, 5), TierEnd(2, 5), 7, 1_700_000_000_099)
    head.begin_writing()
    head.write(clean)
    assert states(head.begin_writing()) == (HeadState.CLEAN, HeadState.CLEAN)
    head.mark()
    assert states(head.read()) == (HeadState.CLEAN, HeadState.CLEAN)
    assert states(head.begin_writing()) == (HeadState.APPENDING, HeadState.APPENDING)
    head.write(clean)
    assert states(head.begin_writing()) == (HeadState.CLEAN, HeadState.CLEAN)


def test_a_mark_says_nothing_of_a_tier_that_is_not_there_or_whose_sync_failed(head: Head) -> None:
    head.begin_writing()
    head.write(CommitPoint(TierEnd(1, 5, HeadState.SYNC_FAILED)))
    head.mark()
    assert states(head.begin_writing()) == (HeadState.SYNC_FAILED, HeadState.CLEAN)


def test_a_damaged_mark_costs_a_look_behind_the_end_and_is_gone_with_the_next_append(
    head: Head, tmp_path: Path
) -> None:
    head.begin_writing()
    head.write(CommitPoint(TierEnd(1, 5)))
    with (tmp_path / "head").open("r+b") as file:
        file.seek(216)
        file.write(b"\xff" * 8)
    assert states(head.begin_writing())[0] == HeadState.APPENDING
    head.mark()
    head.write(CommitPoint(TierEnd(1, 6)))
    assert states(head.begin_writing())[0] == HeadState.CLEAN


def test_the_host_is_noted(head: Head) -> None:
    import os

    assert head.host() == ""
    head.write_host()
    assert head.host() == os.uname().nodename


@pytest.mark.parametrize("slot", [0, 128])
@pytest.mark.parametrize("zeros", [False, True])
def test_what_was_acknowledged_outlives_a_damaged_slot(
    path: Path, open_channel: Callable[..., Channel], slot: int, zeros: bool
) -> None:
    """The other slot says that the last append is under way; it must not be cut for that."""
    with open_channel() as channel:
        put(channel, b"first")
        put(channel, b"second")
    flip(path / "head", slot + 30)
    if zeros:
        head = (path / "head").read_bytes()
        (path / "head").write_bytes(head[:slot] + bytes(128) + head[slot + 128 :])
    with open_channel() as channel:
        put(channel, b"third")
        assert take(channel) == [b"first", b"second", b"third"]


@pytest.mark.parametrize(("byte", "sure"), [(10, True), (84, True), (3, False), (30, False)])
def test_a_damaged_slot_keeps_others_out_unless_it_is_surely_the_older_one(
    path: Path, open_channel: Callable[..., Channel], byte: int, sure: bool
) -> None:
    """It may be one that is being written, or the one that counts: whoever believed the other would cut a commit."""
    channel = open_channel()
    put(channel, b"first")
    put(channel, b"second")
    head = (path / "head").read_bytes()
    older = min((0, 128), key=lambda slot: int.from_bytes(head[slot : slot + 8], "little"))
    flip(path / "head", older + byte)
    if sure:
        assert peek(open_channel(), group="other") == [b"first", b"second"]
    else:
        with pytest.raises(ChannelBusyError, match="damaged, removed or replaced its head"):
            open_channel(lock_timeout=0.1)
