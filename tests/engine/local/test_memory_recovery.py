"""The day the memory tier is gone: what is said, what is there, and which IDs come next."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.engine.local.memory_recovery import _warn_of_loss
from spillable_stream.errors import (
    ChannelBusyError,
    DataLossError,
    MemoryLossWarning,
    StorageError,
)
from spillable_stream.log import head as head_module
from spillable_stream.log.identity_file import read_identity
from spillable_stream.state.memory_loss_rules import MemoryLoss
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import kill, lose_memory
from tests.support.events import ids, numbered, put, take
from tests.support.fake_files import FaultyFileSystem, nth
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


def test_a_warning_that_a_filter_raises_is_raised_once_and_the_loss_is_remembered(
    path: Path, open_channel: Open
) -> None:
    kill_spilled(open_channel)
    lose_memory(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MemoryLossWarning):
            open_channel()
        channel = open_channel()
    assert channel.stats().lost == ((1, 10), (36, 38))
    assert list(ids(channel)) == list(range(11, 36))


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


def test_a_crash_while_the_loss_is_recorded_reports_it_again(path: Path, tmp_path: Path, open_channel: Open) -> None:
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
