"""The day the memory tier is gone: what is said, what is there, and which IDs come next."""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.local import memory_directory
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.engine.local.memory_recovery import _warn_of_loss
from spillable_stream.engine.local.position_hint import PositionHint, read_position_hint
from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    CorruptionError,
    DataLossError,
    MemoryLossWarning,
    StorageError,
)
from spillable_stream.integrity import inspection
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log import head as head_module
from spillable_stream.log.identity_file import read_identity
from spillable_stream.state.group import GroupState
from spillable_stream.state.memory_loss_rules import MemoryLoss
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.damage import flip, kill, lose_memory, memory_of
from tests.support.events import ids, numbered, put, take
from tests.support.two_tiers import OPTIONS, RESERVED, kill_spilled, reopened, spilled

Open = Callable[..., Channel]


def test_exactly_the_lost_ranges_are_reported_and_the_rest_is_there(path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, warning.doubtful) == (((1, 10), (36, 38)), ((39, RESERVED),))
        assert "13 events are lost, 1 to 10, 36 to 38" in str(warning)
        stats = channel.stats()
        assert (stats.lost, stats.doubtful) == (warning.lost, warning.doubtful)
        assert (stats.drain_order, stats.channel_size) == ([-25], 25)
        assert list(ids(channel)) == list(range(11, 36))
        assert put(channel, b"next") == (RESERVED + 1, RESERVED + 1)
        assert channel.stats().drain_order == [-25, 1]


def test_after_a_reboot_ids_continue_above_every_id_that_may_have_been_used(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    reserved = channel.engine().state.memory.reserved_id
    kill(channel)
    lose_memory(path)
    monkeypatch.setattr(head_module, "boot_id", lambda: bytes(16))
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, warning.doubtful) == (((1, 10), (36, 38)), ((39, reserved),))
        assert f"IDs among 39 to {reserved}" in str(warning)
        assert channel.stats().doubtful == ((39, reserved),)
        assert put(channel, b"next") == (reserved + 1, reserved + 1)
        assert channel.stats().channel_size == 26
        assert list(ids(channel)) == [*range(11, 36), reserved + 1]


def test_what_was_taken_is_not_lost(path: Path, open_channel: Open) -> None:
    """Takes of memory are recorded in memory, and yet the report is exact."""
    channel = open_channel(**OPTIONS)
    spilled(channel)
    take(channel, 4)
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((5, 10), (36, 38))
        assert list(ids(channel)) == list(range(11, 36))


def test_what_a_helper_committed_for_the_owner_is_not_lost(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    consumer.prepare([(1, 4)])
    consumer.prepare([(5, 10)])
    with Channel(path) as other:
        assert finish_takes(other.engine(), "g", 10) == 2
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, channel.stats().groups["g"].lost) == ((), ((11, RESERVED),)), "and what is doubtful"


def test_an_owner_does_not_write_an_older_position_over_a_helpers(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(**OPTIONS), open_channel()
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    prepared = consumer.prepare([(1, 4)])
    consumer.prepare([(5, 10)])
    helper = threading.Thread(target=finish_takes, args=(other.engine(), "g", 10))
    write = PositionHint.write

    def slow_write(position: PositionHint, group: GroupState) -> None:
        if helper.ident is None:
            helper.start()
            helper.join(0.3)
        write(position, group)

    monkeypatch.setattr(PositionHint, "write", slow_write)
    consumer.commit([(1, 4)], prepared)
    helper.join()
    layout = read_identity(FileSystem(), path)
    assert read_position_hint(FileSystem(), layout, "g") == (10, [])


def test_what_was_taken_ahead_of_an_open_take_is_not_lost(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    with channel.take_transaction() as open_take:
        open_take.take_many(3)
        take(channel, 4)
        open_take.rollback()
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    channel.close()
    assert warning.lost == ((1, 3), (8, 10))


def test_a_take_of_both_tiers_never_comes_back(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    take(channel, 20)
    (path / "groups" / "default.position").unlink()
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((36, 38),)
        assert list(ids(channel)) == list(range(21, 36))


def test_a_put_on_disk_remembers_what_was_taken_from_memory(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 10)
    put(channel, *numbered(0, 25))
    (path / "groups" / "default.position").unlink()
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ()
        assert list(ids(channel)) == list(range(11, 36))


def test_an_empty_memory_tier_is_not_a_loss(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 10)
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, channel.stats().lost, warning.doubtful) == ((), (), ((11, RESERVED),))
        assert put(channel, b"x") == (RESERVED + 1, RESERVED + 1)


def test_the_loss_is_reported_once_and_remembered(path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    reopened(path)[0].close()
    for _ in range(2):
        (path / "head").unlink()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            channel = open_channel()
        assert channel.stats().lost == ((1, 10), (36, 38))
        channel.close(checkpoint=True)


def test_groups_lose_only_what_they_had_not_taken(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    take(channel, 2, "slow")
    take(channel, 38, "fast")
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((3, 10), (36, 38))
        assert (list(ids(channel, "fast")), list(ids(channel, "slow"))) == ([], list(range(11, 36)))
        assert list(ids(channel, "new")) == list(range(11, 36))


def test_a_group_remembers_what_it_lost_until_it_takes_a_later_event(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    take(channel, 2)
    kill(channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.stats().groups["default"].lost == ((3, 10), (36, RESERVED)), "the doubtful ones, too"
        put(channel, b"later")
        take(channel, 25)
        assert channel.stats().groups["default"].lost == ((36, RESERVED),)
        take(channel, 1)
        assert channel.stats().groups["default"].lost == ()


def test_kept_events_that_went_with_memory_are_told_to_whoever_begins_there(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS, retention_bytes=1 << 20)
    channel.engine().upkeep.stop()
    put(channel, *numbered(0, 4))
    assert take(channel) == numbered(0, 4)
    channel.flush()
    put(channel, *numbered(4, 4))
    assert take(channel) == numbered(4, 4)
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((5, 8),)
        assert "every group had taken 4" in str(warning)
        assert channel.stats().groups["default"].lost == ((9, RESERVED),)
        assert take(channel, group="new") == numbered(0, 4)
        assert channel.stats().groups["new"].lost == ((5, RESERVED),)
    reopened_again = open_channel()
    assert reopened_again.engine().state.missing() == []


def test_a_group_that_is_created_after_the_loss_begins_with_what_is_there(path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.stats().first_id == 11
        put(channel, b"x")
        assert list(ids(channel, "new")) == [*range(11, 36), RESERVED + 1]
        assert channel.stats().groups["new"].lag == 26


def test_a_group_that_is_created_after_the_loss_is_told_about_it(path: Path, open_channel: Open) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.consumer("new").lost() == [(1, 10), (36, RESERVED)]
        assert channel.consumer("from-20", starting="20").lost() == [(36, RESERVED)]
        assert channel.consumer("latest", starting="latest").lost() == []
        take(channel, 1, "new")
        assert channel.consumer("new").lost() == [(36, RESERVED)]


def test_a_dropped_group_leaves_no_position_to_its_successor(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 6, "other")
    take(channel, 10)
    channel.drop_group("default")
    put(channel, *numbered(0, 5))
    take(channel, 1)
    layout = read_identity(FileSystem(), path)
    assert read_position_hint(FileSystem(), layout, "default") == (7, [])
    kill(channel)
    lose_memory(path)
    channel, warning = reopened(path)
    channel.close()
    assert warning.lost == ((7, 15),)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_position_says_nothing(path: Path, open_channel: Open, damage: str) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, *numbered(0, 10))
    take(channel, 4)
    kill(channel)
    lose_memory(path)
    file = path / "groups" / "default.position"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:9])
    else:
        flip(file, 9)
    channel, warning = reopened(path)
    channel.close()
    assert warning.lost == ((1, 10),)


def test_open_handles_say_that_memory_was_removed(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, b"x")
    lose_memory(path)
    with pytest.raises(DataLossError, match="close every handle of the channel and open it again"):
        put(channel, b"y")
    with pytest.raises(
        ChannelBusyError, match="or its memory tier while others have it open: wait, or close it everywhere"
    ):
        LocalEngine(FileSystem(), read_identity(FileSystem(), path), lock_timeout_seconds=0.05)
    kill(channel)
    again, warning = reopened(path)
    assert warning.lost == ((1, 1),)
    again.close()


def test_memory_that_survives_a_reboot_whole_is_used(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`memoryDir` may be on a disk, and the host may have been shut down in order."""
    (tmp_path / "disk").mkdir()
    channel = open_channel(**OPTIONS, memory_dir=str(tmp_path / "disk"))
    spilled(channel)
    take(channel, 4)
    kill(channel)
    monkeypatch.setattr(head_module, "boot_id", lambda: bytes(16))
    channel, warning = reopened(path)
    with channel:
        assert (warning.lost, [first for first, _ in warning.doubtful]) == ((), [39])
        assert channel.stats().drain_order == [6, -25, 3]
        assert put(channel, b"next")[0] > warning.doubtful[0][1]
        assert take(channel) == [*numbered(4, 6), *numbered(0, 25), *numbered(0, 3), b"next"]


@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize("damage", ["an event", "the tail"])
def test_memory_that_survives_a_reboot_in_part_is_lost(
    path: Path, tmp_path: Path, open_channel: Open, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    channel = open_channel(**OPTIONS, memory_dir=str(tmp_path / "disk"))
    spilled(channel)
    (extent,) = channel.engine().state.blocks.extents(1, 10)
    end = channel.engine().positions.memory.offset
    kill(channel)
    monkeypatch.setattr(head_module, "boot_id", lambda: bytes(16))
    (file,) = (path / "memory").glob("memory-*")
    if damage == "an event":
        flip(file, extent.offset + 100)
    else:
        os.truncate(file, end - 10)
    channel, warning = reopened(path)
    with channel:
        assert warning.lost == ((1, 10), (36, 38))
        assert list(ids(channel)) == list(range(11, 36))


def test_verify_says_after_a_reboot_that_a_repair_keeps_what_an_open_gives_up(
    path: Path, tmp_path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    channel = open_channel(memory_capacity=100, memory_dir=str(tmp_path / "disk"))
    put(channel, *numbered(0, 3))
    channel.checkpoint()  # which begins a new file
    put(channel, *numbered(3, 4))
    kill(channel)
    for module in (head_module, inspection):
        monkeypatch.setattr(module, "boot_id", lambda: bytes(16))
    sorted(memory_of(path).glob("memory-*"))[-1].unlink()
    assert any("an open gives up all that is in memory" in f.text for f in verify(path).findings)
    assert (4, 7) in repair(path).loss.lost
    with Channel(path, create=False) as channel:
        assert list(ids(channel)) == [1, 2, 3]


def test_a_prepared_take_in_lost_memory_is_forgotten(path: Path, open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    spilled(channel)
    channel.consumer("g").prepare([(1, 5)])
    channel.checkpoint()
    kill(channel)
    lose_memory(path)
    with reopened(path)[0] as channel:
        assert channel.consumer("g", resume=True).prepared() == {}


def test_a_crash_while_the_loss_is_recorded_reports_it_again(path: Path, tmp_path: Path, open_channel: Open) -> None:
    from tests.support.fake_files import FaultyFileSystem, nth

    kill_spilled(open_channel)
    lose_memory(path)
    for number in range(1, 40):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy, symlinks=True)
        fs = FaultyFileSystem()
        crashed = False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with fs.failing(nth("sync", number, "log-")):
                    Channel(copy, fs=fs, minimum_required_space=0).engine().close()
            except StorageError:
                crashed = True
            with Channel(copy, minimum_required_space=0) as channel:
                assert channel.stats().lost == ((1, 10), (36, 38))
                assert list(ids(channel)) == list(range(11, 36))
        assert {w.message.lost for w in caught if isinstance(w.message, MemoryLossWarning)} == {((1, 10), (36, 38))}
        if not crashed:
            assert number > 2
            return
    pytest.fail("it never opened without a crash")


def test_a_closed_handle_says_so(open_channel: Open) -> None:
    channel = open_channel(**OPTIONS)
    put(channel, b"x")
    channel.close()
    with pytest.raises(ChannelClosedError):
        channel.flush()


def test_a_file_of_memory_that_holds_commits_is_not_taken_for_one_that_was_being_created(
    path: Path, open_channel: Open
) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 3))
    engine = channel.engine()
    with engine.committing():
        engine.log.tiers.memory.roll(lambda: engine.log.memory_image(engine.follower))
        engine.follower.catch_up()
    put(channel, *numbered(3, 4))
    files = sorted(memory_of(path).glob("memory-*"))
    assert len(files) == 2
    kill(channel)
    flip(files[-1], 60)
    (path / "head").unlink()
    with pytest.raises(CorruptionError, match=r"the header of memory-.* is damaged and a commit follows"):
        Channel(path, minimum_required_space=0)
    assert repair(path).quarantine
    with Channel(path, minimum_required_space=0) as channel:
        assert list(ids(channel))[:3] == [1, 2, 3]
        assert put(channel, b"next")[0] > 7


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "on a disk"])
@pytest.mark.parametrize(("which", "lost", "kept"), [(0, (1, 3), [4, 5, 6, 7]), (-1, (4, 7), [1, 2, 3])])
def test_a_file_of_memory_that_was_removed_takes_no_other_file_with_it(
    path: Path,
    open_channel: Open,
    monkeypatch: pytest.MonkeyPatch,
    in_memory: bool,
    which: int,
    lost: tuple[int, int],
    kept: list[int],
) -> None:
    monkeypatch.setattr(FileSystem, "is_in_memory", lambda self, path: in_memory)
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 3))
    channel.checkpoint()  # which begins a new file
    put(channel, *numbered(3, 4))
    kill(channel)
    sorted(memory_of(path).glob("memory-*"))[which].unlink()
    for _ in range(2):
        for readonly in (False, True):
            with pytest.raises(DataLossError, match=r"memory-\d+-\d+.*; restore it, or let 'spillable repair "):
                Channel(path, readonly=readonly, create=False)
    assert lost in verify(path).loss.lost
    assert lost in repair(path).loss.lost
    with Channel(path, minimum_required_space=0) as channel:
        assert list(ids(channel)) == kept


def test_a_memory_tier_that_somebody_still_holds_is_not_lost(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel frees the locks of a process that was killed one after the other."""
    kill_spilled(open_channel)
    leaving = FileLock.open(FileSystem(), memory_of(path) / "owner.json", create=False)
    assert leaving.try_acquire(shared=True)
    with monkeypatch.context() as patch:
        patch.setattr(memory_directory, "_LEAVING_SECONDS", 0.05)
        with pytest.raises(ChannelBusyError, match="is held by a process that does not hold the channel"):
            Channel(path, minimum_required_space=0)
    threading.Timer(0.2, leaving.close).start()
    with Channel(path, minimum_required_space=0) as channel:
        assert channel.stats().drain_order == [10, -25, 3]


def test_a_memory_tier_is_not_lost_to_an_error_that_passes(
    path: Path, open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_spilled(open_channel)
    real = os.open

    def exhausted(name: str, flags: int, *rest: int) -> int:
        if "memory-" in os.fspath(name):
            raise OSError(24, "Too many open files")
        return real(name, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", exhausted)
        with pytest.raises(StorageError, match="Too many open files"):
            Channel(path, minimum_required_space=0)
    with Channel(path, minimum_required_space=0) as channel:
        assert channel.stats().drain_order == [10, -25, 3]


def test_a_memory_tier_is_not_lost_to_a_disk_that_fails(path: Path, open_channel: Open) -> None:
    """The read that fails is of the channel's own directory; the memory tier is no worse for that."""
    kill_spilled(open_channel)
    data, real = str(path / "data"), os.preadv

    def dying(descriptor: int, buffers: object, offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(data):
            dying.failed = True  # type: ignore[attr-defined]
            raise OSError(5, "Input/output error")
        return real(descriptor, buffers, offset)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", dying)
        with pytest.raises(StorageError, match="Input/output error"):
            Channel(path, minimum_required_space=0)
    assert dying.failed  # type: ignore[attr-defined]
    with Channel(path, minimum_required_space=0) as again:
        assert again.stats().drain_order == [10, -25, 3]


def test_the_warning_names_lost_and_doubtful_events() -> None:
    with pytest.warns(MemoryLossWarning, match=r"of /c is gone: 3 events are lost, 2 to 4; .* among 9 to 12") as caught:
        _warn_of_loss(Path("/c"), MemoryLoss(12, lost=[(2, 4)], doubtful=[(9, 12)]))
    (warning,) = caught
    assert isinstance(warning.message, MemoryLossWarning)
    assert (warning.message.lost, warning.message.doubtful) == (((2, 4),), ((9, 12),))


def test_the_warning_tells_lost_events_apart_that_every_group_had_taken() -> None:
    with pytest.warns(
        MemoryLossWarning, match="9 events are lost, 2 to 10 .of them every group had taken 3, .* 2 to 4"
    ):
        _warn_of_loss(Path("/c"), MemoryLoss(12, lost=[(2, 10)], taken=[(2, 4)]))


def test_doubt_alone_is_a_warning_and_nothing_is_said_where_nothing_can_be_lost() -> None:
    with pytest.warns(MemoryLossWarning, match="no event is known to be lost; .* among 9 to 12"):
        _warn_of_loss(Path("/c"), MemoryLoss(12, doubtful=[(9, 12)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_loss(Path("/c"), MemoryLoss(12))
