"""The state that the head publishes is loaded: an image, and what the logs say after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spillable_stream import Channel, ChannelBusyError, DataLossError
from spillable_stream.engine.local import loading
from spillable_stream.engine.local.loading import StateLoader
from spillable_stream.errors import CorruptionError
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.frame import FrameHeader, FrameType
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.tier_logs import Positions
from tests.support.damage import flip, log_file
from tests.support.delays import Clock, deliveries_of, put_late
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem, FileSystemOfOthers

Open = Callable[..., Channel]


def test_a_removed_segment_is_noticed_at_open(path: Path, open_channel: Open) -> None:
    with open_channel(max_inline_bytes=0) as channel:
        put(channel, *numbered(0, 5))
    next((path / "data").glob("segment.*")).unlink()
    missing = r"the events 1 to 5 are missing: the file segment\S+ was removed; restore it, or let 'spillable repair "
    with pytest.raises(DataLossError, match=missing):
        open_channel()


def test_replay_reads_headers_and_not_payloads(path: Path, open_channel: Open) -> None:
    with open_channel(checkpoint_interval=10**9) as channel:
        for _ in range(30):
            put(channel, *[bytes(200)] * 1000)
    size = sum(f.stat().st_size for f in (path / "data").iterdir() if f.name.startswith("log"))
    fs = FaultyFileSystem()
    with Channel(path, create=False, fs=fs, checkpoint_on_close=False) as channel:
        assert channel.stats().channel_size == 30_000
    assert fs.read_bytes < min(size, 30 * 200_000) / 5


def loader_of(channel: Channel) -> StateLoader:
    log = channel.engine().log
    return StateLoader(log.lock, log.tiers, log.checkpoints)


def remove_checkpoints(path: Path) -> None:
    for file in (path / "checkpoint").glob("checkpoint-*"):
        file.unlink()


@pytest.mark.parametrize("options", [{}, {"memory_capacity": 100, "byte_capacity": 1 << 20}], ids=["disk", "memory"])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_state_of_both_logs_is_loaded(
    path: Path, open_channel: Open, options: dict[str, int], checkpoint: bool
) -> None:
    channel = open_channel(max_file_size=1500, **options)
    for i in range(10):
        put(channel, b"%d" % i * 100)
        if i == 5 and checkpoint:
            channel.checkpoint()
    take(channel, 3)
    if not checkpoint:
        remove_checkpoints(path)
    state, positions = loader_of(channel).load()
    followed = channel.engine().follow()
    assert state is not followed
    assert state.image() == followed.image()
    assert positions == channel.engine().positions == Positions.of(channel.engine().log.position())


def test_what_a_recovery_replayed_counts_if_nothing_was_published_since(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    put(channel, b"0")
    loader = loader_of(channel)
    replayed = loader.load()
    assert loader.load(replayed) is replayed
    put(other, b"1")
    state, positions = loader.load(replayed)
    assert (replayed[0].last_id, state.last_id) == (1, 2)
    assert positions == Positions.of(other.engine().log.position())


def test_a_checkpoint_of_another_process_beyond_the_end_is_passed_over(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"0")
    before = channel.engine().log.position()
    put(channel, b"1")
    channel.checkpoint()
    state, positions = loader_of(channel).load_at(before)
    assert (state.last_id, positions) == (1, Positions.of(before))


def test_a_checkpoint_of_a_file_that_is_missing_is_data_loss(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"0")
    channel.checkpoint()
    log_file(path).unlink()
    with pytest.raises(DataLossError, match="log-000001 is missing, and a checkpoint needs it; restore it, or let"):
        loader_of(channel).load()


def test_trouble_that_a_checkpoint_of_another_process_made_is_looked_at_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes files while they are read."""
    channel, other = open_channel(), open_channel()
    put(other, b"0")
    loader, looks = loader_of(channel), list[int]()
    real = loader.load_at

    def load_at(ends: Any) -> Any:
        looks.append(1)
        if len(looks) == 1:
            put(other, b"1")
            raise FileNotFoundError("log-000001")
        return real(ends)

    monkeypatch.setattr(loader, "load_at", load_at)
    assert loader.load()[0].last_id == 2
    assert len(looks) == 2


@pytest.mark.parametrize(("failing", "waited"), [(4, 0), (6, 0.01), (9, 0.44)])
def test_a_file_that_is_removed_while_nothing_is_published_is_looked_for_again(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, failing: int, waited: float
) -> None:
    """Another process removes files some time after the checkpoint that makes them needless."""
    channel = open_channel()
    put(channel, b"0")
    loader, looks = loader_of(channel), list[int]()
    real = loader.load_at

    def load_at(ends: Any) -> Any:
        looks.append(1)
        if len(looks) < failing:
            raise FileNotFoundError("log-000001")
        return real(ends)

    pauses = list[float]()
    monkeypatch.setattr(loader, "load_at", load_at)
    monkeypatch.setattr(loading, "time", SimpleNamespace(sleep=pauses.append))
    assert loader.load()[0].last_id == 1
    assert len(looks) == failing and sum(pauses) == pytest.approx(waited)


def test_trouble_that_nobody_made_meanwhile_is_told_at_the_second_look(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    for i in range(3):
        put(channel, b"%d" % i)
    remove_checkpoints(path)
    flip(log_file(path), channel.engine().log.position().disk.end - 60)
    with pytest.raises(CorruptionError, match="a frame of log-000001 is damaged"):
        loader_of(channel).load()


def test_a_channel_that_changes_faster_than_it_is_read_is_busy_or_damaged(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes are not waited for without an end."""
    channel, other = open_channel(), open_channel()
    loader, looks = loader_of(channel), list[int]()

    def load_at(_: Any) -> Any:
        looks.append(1)
        put(other, b"x")
        raise FileNotFoundError("log-000001")

    monkeypatch.setattr(loader, "load_at", load_at)
    monkeypatch.setattr(loading, "time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(ChannelBusyError, match="changes faster than it can be read"):
        loader.load()
    assert len(looks) == 10


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("options", [{}, {"memory_capacity": 100, "byte_capacity": 1 << 20}], ids=["disk", "memory"])
def test_a_side_file_that_is_delivered_after_the_state_was_read_is_not_missing(
    path: Path, open_channel: Open, options: dict[str, int], readonly: bool
) -> None:
    """However often: one is delivered at every look of the handle that opens."""
    other, clock = open_channel(**options), Clock()
    deliveries_of(other).clock_ms = clock
    dues = [100 * 4**i for i in range(8)]
    for seconds in dues:
        put_late(other, seconds, b"x")
    assert len(list((path / "data").glob("delayed-*"))) == len(dues)
    began_ms, left = clock.now_ms, list(dues)

    def deliver_the_next() -> None:
        clock.now_ms = began_ms + 1000 * left.pop(0) + 100
        assert deliveries_of(other).deliver()

    with Channel(path, create=False, readonly=readonly, fs=FileSystemOfOthers(deliver_the_next)) as channel:
        assert channel.stats().delayed.events == len(left) < len(dues)
        assert channel.stats().last_id == len(dues) - len(left)


def test_a_side_file_is_missing_that_the_newest_state_names(path: Path, open_channel: Open) -> None:
    other = open_channel()
    put_late(other, 1000, b"0")
    (file,) = (path / "data").glob("delayed-*")

    def remove_and_commit() -> None:
        file.unlink(missing_ok=True)
        put(other, b"x")

    with pytest.raises(DataLossError, match="the file delayed-000001 was removed; restore it, or let"):
        Channel(path, create=False, readonly=True, fs=FileSystemOfOthers(remove_and_commit))


def test_data_files_whose_events_were_taken_after_the_state_was_read_are_not_missing(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, channel = open_channel(max_file_size=2000), open_channel()
    for i in range(12):
        put(other, b"%d" % i * 500)
    loader, looks = loader_of(channel), list[int]()
    real = loader.load_at

    def load_at(ends: Any) -> Any:
        found = real(ends)
        looks.append(1)
        take(other, 4)
        other.checkpoint()
        return found

    monkeypatch.setattr(loader, "load_at", load_at)
    assert list(loader.load()[0].blocks.gaps(1, 12)) == [(1, 4)]
    assert len(looks) == 1


def test_damage_counts_also_where_others_commit_meanwhile(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, other, looks = open_channel(), open_channel(), list[int]()
    loader = loader_of(channel)

    def load_at(ends: Any) -> Any:
        looks.append(1)
        put(other, b"x")
        raise CorruptionError(f"a frame is damaged; its bytes up to {ends.disk.end} were committed", "log-1", 640)

    monkeypatch.setattr(loader, "load_at", load_at)
    with pytest.raises(CorruptionError, match="a frame is damaged"):
        loader.load()
    assert len(looks) == 2


def test_trouble_that_is_another_one_at_each_look_is_not_damage(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, looks = open_channel(), list[int]()
    loader = loader_of(channel)

    def load_at(_: Any) -> Any:
        looks.append(1)
        raise DataLossError(f"log-{len(looks)} is missing", f"log-{len(looks)}")

    monkeypatch.setattr(loader, "load_at", load_at)
    monkeypatch.setattr(loading, "time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(ChannelBusyError, match="changes faster than it can be read"):
        loader.load()
    assert len(looks) == 10


def frame(type_: FrameType, payload: bytes, offset: int) -> LocatedFrame:
    return LocatedFrame(offset, FrameHeader(type_, len(payload), 9, 0, 0, 0, 0, 0), payload)


def test_a_frame_that_cannot_be_parsed_names_file_and_offset(open_channel: Open) -> None:
    channel = open_channel()
    with pytest.raises(CorruptionError, match="a CommitRecord is invalid") as caught:
        loader_of(channel).apply(channel.engine().state, 7, frame(FrameType.COMMIT, b"\x07", 640))
    assert (caught.value.path, caught.value.offset) == (str(log_file(channel.path, 7)), 640)


def test_a_frame_that_is_invalid_to_the_state_names_file_and_offset(open_channel: Open) -> None:
    channel = open_channel()
    loader, state = loader_of(channel), channel.engine().state
    commit = CommitRecord("control", 600).frame(0)
    loader.apply(state, 7, frame(FrameType.GROUP, b"\x07", 600))
    with pytest.raises(CorruptionError, match="a COMMIT is invalid: ") as caught:
        loader.apply(state, 7, frame(FrameType.COMMIT, bytes(commit.payload), 640))
    assert (caught.value.path, caught.value.offset) == (str(log_file(channel.path, 7)), 640)


def test_a_memory_tier_that_was_removed_is_data_loss(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 20)
    put(channel, b"0")
    ends = channel.engine().log.position()
    channel.engine().log.tiers.close()
    memory_file = channel.engine().layout.log_file(ends.memory.file_id)
    memory_file.rename(memory_file.with_name("kept"))
    with pytest.raises(DataLossError, match="the memory tier's directory was removed; close every handle"):
        loader_of(channel).load_at(ends)
    memory_file.with_name("kept").rename(memory_file)


def test_a_memory_tier_that_knows_of_more_than_the_disk_has_is_data_loss(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 20)
    put(channel, b"0")
    ends = channel.engine().log.position()
    with pytest.raises(DataLossError, match=r"knows of the disk tier's log up to .*, beyond its end"):
        loader_of(channel).load_at(ends._replace(disk=ends.disk._replace(end=8)))
