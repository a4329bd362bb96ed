"""Where a log file ends: what is torn counts for nothing, what is corrupt is reported."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel, CorruptionError, TornTailWarning
from spillable_stream.format.file_names import log_name
from spillable_stream.format.frame import Frame, FrameType, encode, file_seed
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.tail import Reporter, Tail, find_tail, pass_over, refuse
from spillable_stream.log.wal import Position
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import flip, frames, kill, log_file, offsets, reboot, trim
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


@pytest.fixture
def commits(path: Path, open_channel: Open) -> Iterator[list[LocatedFrame]]:
    """Make a log of three puts and a take, and return its COMMITs."""
    with open_channel() as channel:
        for i in range(3):
            put(channel, *numbered(10 * i, 2))
        take(channel, 3)
    trim(path)
    yield [f for f in frames(path) if f.header.type == FrameType.COMMIT]


def tail(
    path: Path, report: Reporter, floor: int = 0, start: int = 0, applied: list[LocatedFrame] | None = None
) -> Tail:
    fs = FileSystem()
    seed = file_seed(read_identity(fs, path).channel, log_name(1))
    with contextlib.closing(fs.open(log_file(path), readonly=True)) as file:
        return find_tail(file, seed, start, floor, report, ([] if applied is None else applied).append)


def cut(path: Path, size_bytes: int) -> None:
    with log_file(path).open("r+b") as file:
        file.truncate(size_bytes)


def test_a_whole_file_ends_with_its_last_transaction(path: Path, commits: list[LocatedFrame]) -> None:
    applied: list[LocatedFrame] = []
    found = tail(path, refuse, applied=applied)
    assert found == Tail(commits[-1].end, found.synced, 0, False)
    assert [f.offset for f in applied] == [f.offset for f in frames(path)]


def test_a_transaction_that_is_not_whole_is_torn(path: Path, commits: list[LocatedFrame]) -> None:
    cut(path, commits[2].offset + 8)
    applied: list[LocatedFrame] = []
    found = tail(path, refuse, applied=applied)
    assert (found.end, applied[-1].end) == (commits[1].end, commits[1].end)
    assert found.torn_bytes > 0


def test_what_a_later_commit_proves_is_corrupt(path: Path, commits: list[LocatedFrame]) -> None:
    flip(log_file(path), commits[1].offset + 60)
    with pytest.raises(CorruptionError, match=r"a committed frame is damaged: .* had been synced") as caught:
        tail(path, refuse)
    assert caught.value.offset == commits[1].offset


def test_what_the_head_proves_is_corrupt(path: Path, commits: list[LocatedFrame]) -> None:
    flip(log_file(path), commits[-1].offset + 60)
    assert tail(path, refuse).torn_bytes > 0
    with pytest.raises(CorruptionError, match=f"everything up to offset {commits[-1].end} had been synced"):
        tail(path, refuse, floor=commits[-1].end)


def test_a_reporter_that_returns_hears_of_every_corruption(path: Path, commits: list[LocatedFrame]) -> None:
    puts = offsets(path, FrameType.PUT)
    for offset in (puts[0] + 20, commits[1].offset + 60):  # a header, a payload
        flip(log_file(path), offset)
    reported: list[CorruptionError] = []
    found = tail(path, reported.append)
    assert found.end == commits[-1].end
    assert [e.offset for e in reported] == [puts[0], commits[1].offset]


def test_a_file_that_is_cut_below_what_was_synced_is_corrupt(path: Path, commits: list[LocatedFrame]) -> None:
    floor = commits[-1].end
    cut(path, commits[0].end)
    with pytest.raises(
        CorruptionError, match=f"the file was cut to {commits[0].end:,} bytes; {floor:,} had been synced"
    ):
        tail(path, refuse, floor)
    assert tail(path, pass_over, floor) == Tail(floor, floor, 0, True)


def test_frames_that_no_commit_ends_are_corrupt_if_they_had_been_synced(
    path: Path, commits: list[LocatedFrame]
) -> None:
    cut(path, commits[2].offset)
    assert tail(path, refuse).end == commits[1].end
    with pytest.raises(CorruptionError, match="no COMMIT ends the frames here"):
        tail(path, refuse, floor=commits[2].offset)


def test_both_reporters_find_the_same_end(path: Path, commits: list[LocatedFrame]) -> None:
    """What is refused is reported; where nothing is, the end does not depend on the reporter."""
    whole, chosen, refused = log_file(path).read_bytes(), random.Random(5), 0
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(chosen.randrange(1, 3)):
            data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        log_file(path).write_bytes(data[: chosen.choice([len(data), chosen.randrange(1, len(data))])])
        reported: list[CorruptionError] = []
        found = tail(path, reported.append)
        try:
            assert tail(path, refuse) == found
        except CorruptionError as e:
            refused += 1
            assert (str(e), e.offset) == (str(reported[0]), reported[0].offset)
        else:
            assert reported == []
    assert 50 < refused < 200


# ── a file that was used again ──────────────────────────────────────────────────────────────────


@pytest.fixture
def reused(path: Path, open_channel: Open) -> tuple[Path, Position]:
    """Make a log that continues in a file which held other bytes before, and kill the process; return where it ends."""
    channel = open_channel(max_file_size=20_000, spare_bytes=40_000, checkpoint_on_close=False)
    while channel.engine().positions.disk.file_id < 6:
        put(channel, *[bytes(500)] * 9)
        if channel.engine().positions.disk.file_id > 2:
            take(channel, 9)
    put(channel, b"last")
    end = channel.engine().positions.disk
    header = channel.engine().log.tiers.disk.read_file_header(end.file_id)
    assert header is not None and header.reused
    kill(channel)
    reboot(path)
    assert log_file(path, end.file_id).stat().st_size > end.offset
    return log_file(path, end.file_id), end


def test_what_a_file_held_before_is_not_a_torn_tail(
    reused: tuple[Path, Position], open_channel: Open, recwarn: pytest.WarningsRecorder
) -> None:
    file, end = reused
    channel = open_channel()
    assert not [w for w in recwarn if issubclass(w.category, TornTailWarning)]
    assert channel.engine().log.torn_bytes == 0
    assert take(channel, 10_000)[-1] == b"last"
    assert file.stat().st_size >= end.offset


def test_a_torn_append_in_a_file_that_was_used_again_is_cut_and_reported(
    reused: tuple[Path, Position], path: Path, open_channel: Open
) -> None:
    file, end = reused
    seed = file_seed(read_identity(FileSystem(), path).channel, file.name)
    frame = Frame.of(FrameType.PUT, bytes(300), 1)
    with file.open("r+b") as opened:
        opened.seek(end.offset)
        opened.write(b"".join(bytes(b) for b in encode(frame, seed, 99, 99, 1))[:200])
    with pytest.warns(TornTailWarning, match=f"had after offset {end.offset}, "):
        channel = open_channel()
    put(channel, b"after")
    assert take(channel, 10_000)[-2:] == [b"last", b"after"]
