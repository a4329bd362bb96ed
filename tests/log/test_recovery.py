"""Opening after a reboot: the head is gone, the log alone says what is true."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, DataLossError, StorageError, TornTailWarning
from spillable_stream.format.frame import FrameType
from tests.support.damage import age_head, flip, frames, kill, log_file, offsets, reboot, trim
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def reopened(path: Path) -> Channel:
    return Channel(path, create=False, checkpoint_on_close=False)


def contents(path: Path) -> list[bytes]:
    with reopened(path) as channel:
        return peek(channel)


def tear_second_commit(path: Path, open_channel: Open, kept_bytes: int) -> None:
    """Put b"first" and b"second", and lose all but ``kept_bytes`` of the second one's COMMIT in a power cut."""
    with open_channel() as channel:
        put(channel, b"first")
        put(channel, b"second")
    trim(path)
    with log_file(path).open("r+b") as file:
        file.truncate(offsets(path, FrameType.COMMIT)[-1] + kept_bytes)
    reboot(path)


def test_a_cleanly_closed_channel_recovers_without_a_warning(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, *numbered(0, 10))
        take(channel, 4)
    reboot(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert contents(path) == numbered(4, 6)


def test_an_open_reads_what_came_since_the_checkpoint_and_little_more(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        for _ in range(100):
            put(channel, b"x" * 10_000)
        channel.checkpoint()
        put(channel, b"later")
    for readonly in (True, False):
        fs = FaultyFileSystem()
        with Channel(path, create=False, readonly=readonly, fs=fs) as channel:
            assert channel.stats().last_id == 101
        assert fs.read_bytes < 100_000 < log_file(path).stat().st_size


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_torn_tail_is_cut_and_reported_at_every_byte(path: Path, tmp_path: Path, open_channel: Open, step: int) -> None:
    """A power cut in the last append, wherever it tears, leaves the transactions before and nothing else."""
    with open_channel() as channel:
        put(channel, b"first")
        whole = put(channel, b"second")
    end = trim(path)
    start = offsets(path, FrameType.PUT)[1]
    assert whole == (2, 2)
    for size in range(start, end, step):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        reboot(copy)
        with log_file(copy).open("r+b") as file:
            file.truncate(size)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with reopened(copy) as channel:
                assert peek(channel) == [b"first"], f"cut at {size}"
                assert put(channel, b"next") == (2, 2)
                assert peek(channel) == [b"first", b"next"]
        torn = [w for w in caught if w.category is TornTailWarning]
        # Where only zeros are left, and at a frame's end, nothing can be missed.
        assert bool(torn) == any(log_file(path).read_bytes()[start:size]), f"cut at {size}"
        shutil.rmtree(copy)


def test_zeros_in_any_sector_of_the_last_append_are_a_torn_tail(path: Path, tmp_path: Path, open_channel: Open) -> None:
    """A power cut may write later sectors and not earlier ones."""
    with open_channel() as channel:
        put(channel, b"first")
        put(channel, *[bytes([i]) * 300 for i in range(1, 20)])
    end = trim(path)
    start = offsets(path, FrameType.PUT)[1]
    for sector in range(start // 512, (end + 511) // 512):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        reboot(copy)
        with log_file(copy).open("r+b") as file:
            at = max(sector * 512, start)
            file.seek(at)
            file.write(bytes(min((sector + 1) * 512, end) - at))
        with pytest.warns(TornTailWarning):
            assert contents(copy) == [b"first"], f"sector {sector}"
        shutil.rmtree(copy)


def test_damage_before_the_last_append_is_refused_with_file_and_offset(
    path: Path, tmp_path: Path, open_channel: Open
) -> None:
    """It had been synced, so it is no torn tail, and nothing acknowledged is cut."""
    with open_channel() as channel:
        for body in (b"first", b"second", b"third"):
            put(channel, body)
    trim(path)
    last = offsets(path, FrameType.PUT)[-1]
    for frame in frames(path)[1:]:
        if frame.offset >= last:
            break
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        reboot(copy)
        flip(log_file(copy), frame.offset + 20)
        with pytest.raises(CorruptionError) as caught:
            reopened(copy)
        assert (caught.value.path, caught.value.offset) == (str(log_file(copy)), frame.offset)
        assert log_file(copy).read_bytes()[-8:] == log_file(path).read_bytes()[-8:]
        shutil.rmtree(copy)


def test_damage_below_what_the_old_head_published_is_refused(path: Path, open_channel: Open) -> None:
    """The head of an earlier boot is a lower bound of what had been synced."""
    with open_channel() as channel:
        put(channel, b"only")
    age_head(path)
    trim(path)
    flip(log_file(path), offsets(path, FrameType.COMMIT)[0] + 3)
    with pytest.raises(CorruptionError, match="a committed frame is damaged: everything up to offset"):
        reopened(path)


def test_a_log_shorter_than_the_old_head_published_is_refused(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"only")
    age_head(path)
    with log_file(path).open("r+b") as file:
        file.truncate(offsets(path, FrameType.PUT)[0])
    with pytest.raises(CorruptionError, match="the file was cut to"):
        reopened(path)


def test_a_flipped_bit_in_the_last_append_is_refused_when_a_checkpoint_proves_it(
    path: Path, open_channel: Open
) -> None:
    with open_channel() as channel:
        put(channel, b"first")
        put(channel, b"second")
        channel.checkpoint()
    reboot(path)
    at = offsets(path, FrameType.PUT)[1]
    flip(log_file(path), at + 60)
    with reopened(path) as channel:  # the checkpoint makes replay start behind it
        with channel.take_transaction() as tx, pytest.raises(CorruptionError) as caught:
            tx.take_many(10)
        assert caught.value.offset == at
        assert peek(channel, 1) == [b"first"]  # nothing else is lost


def test_damaged_events_of_earlier_appends_are_found_when_they_are_read(path: Path, open_channel: Open) -> None:
    """Replay reads headers only, so a body is checked when it is taken."""
    with open_channel() as channel:
        put(channel, b"first")
        put(channel, b"second")
        put(channel, b"third")
    at = offsets(path, FrameType.PUT)[1]
    flip(log_file(path), at + 100)
    with reopened(path) as channel, channel.take_transaction() as tx:
        with pytest.raises(CorruptionError) as caught:
            tx.take_many(3)
        assert (caught.value.path, caught.value.offset) == (str(log_file(path)), at)
        assert tx.take_many(1)[0].body == b"first"


def test_a_put_without_its_commit_is_not_visible(path: Path, open_channel: Open) -> None:
    tear_second_commit(path, open_channel, kept_bytes=0)
    with pytest.warns(TornTailWarning):
        assert contents(path) == [b"first"]


def test_a_recovery_whose_sync_failed_is_not_believed_at_the_next_open(path: Path, open_channel: Open) -> None:
    """The kernel forgets what a failed sync was to write: only bytes that are written again can be synced then."""
    with open_channel() as channel:
        put(channel, b"a")
        put(channel, b"b")
    reboot(path)
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("sync", "log-000001")), pytest.raises(StorageError):
        open_channel(fs=fs)
    fs.calls.clear()
    with open_channel(fs=fs) as channel:
        on_the_log = [call.name for call in fs.calls if call.file == "log-000001" and call.name in ("write", "sync")]
        assert on_the_log[:2] == ["write", "sync"]
        assert peek(channel) == [b"a", b"b"]


def test_the_second_open_changes_nothing(path: Path, open_channel: Open) -> None:
    tear_second_commit(path, open_channel, kept_bytes=5)
    with pytest.warns(TornTailWarning):
        reopened(path).close()
    once = log_file(path).read_bytes()
    reboot(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reopened(path).close()
    assert log_file(path).read_bytes() == once


def test_a_warning_that_a_filter_raises_leaves_nothing_to_heal(path: Path, open_channel: Open) -> None:
    tear_second_commit(path, open_channel, kept_bytes=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TornTailWarning, match="had after offset"):
            reopened(path)
        assert contents(path) == [b"first"]


def test_a_file_whose_creation_was_cut_short_is_removed(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"first")
    for left in (b"", frames(path)[0].header.length * b"\0", log_file(path).read_bytes()[:100]):
        log_file(path, 2).write_bytes(left)
        reboot(path)
        assert contents(path) == [b"first"]
        assert not log_file(path, 2).exists()


@pytest.mark.parametrize("left", ["nothing", "half of the header"])
def test_a_file_that_a_killed_process_was_making_hinders_no_open(path: Path, left: str) -> None:
    """The host ran on, so that nothing is recovered: the file lies behind what the head publishes."""
    fs = FaultyFileSystem()
    channel = Channel(path, fs=fs, minimum_required_space=0, max_file_size=2000)
    put(channel, b"first" * 200)
    failing = fs.failing(lambda call: call.name in ("write", "remove") and call.file == "log-000002")
    with failing, pytest.raises(StorageError):
        put(channel, b"second" * 200)
    kill(channel)
    if left == "nothing":
        log_file(path, 2).write_bytes(b"")
    assert log_file(path, 2).exists()
    assert contents(path) == [b"first" * 200]
    with reopened(path) as channel:
        put(channel, b"third" * 200)
        assert take(channel, 3) == [b"first" * 200, b"third" * 200]


def test_a_damaged_header_before_commits_is_refused(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"first")
    flip(log_file(path), 20)
    reboot(path)
    with pytest.raises(CorruptionError, match="header of log-000001 is damaged") as caught:
        reopened(path)
    assert caught.value.offset == 0


@pytest.mark.parametrize("checkpoint_at", [None, 1, 9])
def test_a_missing_file_in_the_middle_is_data_loss(path: Path, open_channel: Open, checkpoint_at: int | None) -> None:
    with open_channel(max_file_size=2000) as channel:
        for i in range(10):
            put(channel, *[b"%d" % i * 100] * 10)
            if i == checkpoint_at:
                channel.checkpoint()
    log_file(path, 5).unlink()
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"missing.*; restore (it|them), or let 'spillable repair /.*'"):
            reopened(path)
        reboot(path)


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_missing_last_file_is_noticed(path: Path, open_channel: Open, rebooted: bool) -> None:
    with open_channel(max_file_size=2000) as channel:
        for i in range(4):
            put(channel, *[b"%d" % i * 100] * 10)
    log_file(path, 4).unlink()
    if rebooted:
        age_head(path)
    with pytest.raises(CorruptionError if not rebooted else DataLossError, match=r"missing.*; restore it, or let"):
        reopened(path)


def test_a_file_of_another_channel_is_refused(path: Path, tmp_path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"mine")
    with Channel(tmp_path / "other", minimum_required_space=0) as other:
        put(other, b"theirs", b"and more")
    shutil.copy(log_file(tmp_path / "other"), log_file(path))
    reboot(path)
    with pytest.raises(CorruptionError):
        reopened(path)


def test_a_crash_during_recovery_is_recovered(path: Path, tmp_path: Path, open_channel: Open) -> None:
    """Every call of recovery may be the last: what is left opens as before."""
    from spillable_stream import StorageError
    from tests.support.fake_files import FaultyFileSystem

    tear_second_commit(path, open_channel, kept_bytes=5)
    for number in range(1, 200):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        fs = FaultyFileSystem()
        made = [0]

        def after(_: object, made: list[int] = made, number: int = number) -> bool:
            made[0] += 1
            return made[0] >= number

        with fs.failing(after), warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            try:
                Channel(copy, create=False, fs=fs).engine().close()
                completed = True
            except StorageError:
                completed = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            assert contents(copy) == [b"first"], f"call {number}"
        shutil.rmtree(copy)
        if completed:
            return
    raise AssertionError("recovery makes more calls than expected")


def test_a_stale_file_that_came_back_is_refused(path: Path, open_channel: Open) -> None:
    """Its header says that the file before it ends earlier than the head had published."""
    with open_channel(max_file_size=2000) as channel:
        for i in range(2):
            put(channel, *[b"%d" % i * 100] * 10)
        assert not log_file(path, 3).exists()
    age_head(path, published=(1, 10**6))  # beyond what the header of file 2 says of file 1
    with pytest.raises(CorruptionError, match="was committed up to 1000000, but the file after it says"):
        reopened(path)


def test_a_left_over_that_an_old_head_names_hinders_no_open(path: Path, tmp_path: Path, open_channel: Open) -> None:
    """Of two files that were removed, a power cut brought the first one back, and the head is as old."""
    with open_channel(max_file_size=2000) as channel:
        for i in range(4):
            put(channel, *[b"%d" % i * 100] * 10)
        old = shutil.copy(log_file(path), tmp_path)
        take(channel, 40)
        put(channel, b"last")
        for _ in range(2):
            channel.checkpoint()
            with channel.engine().committing():
                channel.engine().log.tiers.disk.roll(channel.engine().state.small)
        channel.checkpoint()
        assert not log_file(path, 2).exists()
    shutil.copy(old, log_file(path))
    age_head(path, published=(1, trim(path)))
    assert contents(path) == [b"last"]


def test_a_damaged_header_of_a_file_that_a_checkpoint_names_is_not_removed(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        channel.checkpoint()
    trim(path)
    flip(log_file(path), 20)
    reboot(path)
    with pytest.raises(CorruptionError, match="header of log-000001 is damaged"):
        reopened(path)
    assert log_file(path).exists()


def test_a_deletion_that_a_power_cut_half_undid_hinders_no_open(path: Path, open_channel: Open) -> None:
    """Names reach the disk in any order, and the head of before may be what is left of it."""
    with open_channel(max_file_size=1000) as channel:
        put(channel, *numbered(0, 10))
        first, head = log_file(path).read_bytes(), (path / "head").read_bytes()
        for i in range(3):
            put(channel, *numbered(10 + i * 10, 10))
        take(channel, 35)
        channel.checkpoint()
        put(channel, b"last")
        channel.checkpoint()
        assert not log_file(path, 1).exists() and not log_file(path, 2).exists()
    log_file(path).write_bytes(first)
    (path / "head").write_bytes(head)
    age_head(path)
    assert contents(path) == [*numbered(35, 5), b"last"]


@pytest.mark.parametrize("files", [1, 2])
def test_a_damaged_header_that_no_roll_can_have_left_is_refused_and_the_file_kept(
    path: Path, open_channel: Open, files: int
) -> None:
    """A roll is cut short behind a file that is whole."""
    with open_channel() as channel:
        for _ in range(files - 1):
            channel.engine().log.tiers.disk.roll(channel.engine().state.small)
    for file_id in range(1, files + 1):
        flip(log_file(path, file_id), 60)
    reboot(path)
    before = log_file(path, files).read_bytes()
    with pytest.raises(CorruptionError, match=f"the header of log-00000{files} is damaged"):
        reopened(path)
    assert log_file(path, files).read_bytes() == before
