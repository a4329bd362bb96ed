"""Files of taken events: free with the take, used again by the next puts, and gone when nobody puts."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from spillable_stream import Channel, Event, StorageError
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.engine.local import checkpointing
from spillable_stream.engine.local.drained_files import DrainedFiles
from spillable_stream.engine.local.memory_tier import MemoryTier
from spillable_stream.engine.put_request import Put
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.file_names import Tier
from spillable_stream.integrity.verify import verify
from spillable_stream.log import disk_space
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.damage import kill, log_file, reboot
from tests.support.events import numbered, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.full_disk import drain, fill, used_bytes

Open = Callable[..., Channel]
MIB = 1 << 20
FILES = {"max_file_size": MIB, "spare_bytes": 4 * MIB}


def spares(channel: Channel) -> list[str]:
    return [path.name for path in channel.engine().layout.spares(FileSystem(), Tier.DISK)]


def events_after_a_crash(channel: Channel) -> int:
    """Kill a handle, let the host go down, and return how many events the channel has then."""
    kill(channel)
    reboot(channel.path)
    with Channel(channel.path) as again:
        return len(take(again))


def log_files(channel: Channel) -> list[int]:
    return channel.engine().layout.log_files(FileSystem())


def test_a_take_frees_its_files_without_a_checkpoint(open_channel: Open, path: Path) -> None:
    channel = open_channel(checkpoint_interval=1 << 40, **FILES)
    fill(channel)
    take(channel, 40)
    needed = channel.engine().state.blocks.oldest_data_file()
    assert needed is not None and needed > 2
    assert log_files(channel)[0] == needed
    assert spares(channel) != []
    assert list((path / "checkpoint").glob("checkpoint-*")) == [], "none needs a file that is gone"


def test_a_channel_without_a_checkpoint_begins_with_its_oldest_file(open_channel: Open, path: Path) -> None:
    channel = open_channel(checkpoint_interval=1 << 40, **FILES)
    fill(channel, 3 * MIB)
    take(channel, 40)
    put(channel, *numbered(0, 5))
    kill(channel)
    reboot(path)
    again = open_channel()
    assert take(again, 8) == [bytes(64 << 10)] * 8
    assert take(again, 100) == numbered(0, 5)
    assert verify(path).healthy


def test_puts_write_over_what_was_taken(open_channel: Open) -> None:
    channel, inodes = open_channel(**FILES), set[int]()
    for _ in range(12):
        fill(channel, MIB)
        drain(channel)
        inodes |= {channel.engine().layout.log_file(i).stat().st_ino for i in log_files(channel)}
    assert log_files(channel)[-1] > 10
    assert len(inodes) <= 4


def test_small_files_wait_for_a_checkpoint(open_channel: Open) -> None:
    channel = open_channel(max_file_size=MIB, spare_bytes=64 * MIB)
    fill(channel, 3 * MIB)
    files = log_files(channel)
    drain(channel)
    assert log_files(channel) == files


def test_without_spares_every_file_waits_for_a_checkpoint_and_goes(open_channel: Open, path: Path) -> None:
    channel = open_channel(max_file_size=MIB, spare_bytes=0)
    fill(channel)
    files = log_files(channel)
    drain(channel)
    assert log_files(channel) == files
    channel.engine().checkpointing.give_back_within_a_call(1)
    assert used_bytes(path) < MIB
    assert spares(channel) == []


def test_a_checkpoint_in_passing_keeps_spares_and_one_that_was_asked_for_keeps_none(open_channel: Open) -> None:
    channel = open_channel(checkpoint_interval=1, **FILES)
    fill(channel)
    drain(channel)
    assert spares(channel) != []
    channel.checkpoint()
    assert spares(channel) == []


def test_an_idle_channel_keeps_no_spares(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "IDLE_SECONDS", 0.0)
    channel = open_channel(**FILES)
    fill(channel)
    drain(channel)
    assert spares(channel) != []
    for _ in range(2):  # the first one sees where the log ends
        assert take(channel, 1) == []
    assert spares(channel) == []


def test_a_close_keeps_no_spares_and_nothing_behind_the_end(path: Path) -> None:
    with Channel(path, **FILES) as channel:
        for _ in range(6):
            fill(channel, 2 * MIB)
            drain(channel)
        put(channel, b"x")
        end = channel.engine().positions.disk
        header = channel.engine().log.tiers.disk.read_file_header(end.file_id)
        assert header is not None and header.reused
    assert sorted(p.name for p in (path / "data").iterdir()) == [f"log-{end.file_id:06d}", "owner.json"]
    assert (path / "data" / f"log-{end.file_id:06d}").stat().st_size == end.offset


def test_no_spares_are_kept_while_space_is_short(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(minimum_required_space=0, **FILES)
    fill(channel)
    monkeypatch.setattr(disk_space, "_NEARLY_FULL_BYTES", 1 << 60)
    drain(channel)
    assert spares(channel) == []


def test_spares_are_given_back_to_a_put_that_finds_no_room(open_channel: Open) -> None:
    channel = open_channel(**FILES)
    fill(channel)
    drain(channel)
    assert spares(channel) != []
    channel.engine().make_room()
    assert spares(channel) == []


def test_while_another_process_creates_a_checkpoint_nothing_is_freed(open_channel: Open) -> None:
    channel = open_channel(**FILES)
    fill(channel)
    files = log_files(channel)
    with contextlib.closing(FileLock.open(FileSystem(), channel.engine().layout.checkpoint_lock)) as lock:
        assert lock.try_acquire()
        drain(channel)
        assert log_files(channel) == files
    put(channel, bytes(MIB))
    drain(channel)
    assert log_files(channel)[0] > files[-1]


@pytest.mark.usefixtures("one_block")
def test_a_file_that_a_reader_has_open_is_not_written_over(open_channel: Open) -> None:
    channel = open_channel(**FILES)
    fill(channel)
    reader = channel.engine().reader()
    read = reader.read(channel.engine().state.blocks.extents(1, 60)[0])
    next(read)
    drain(channel)
    fill(channel)
    assert all(batch.batch.column("body")[0].as_py() == bytes(64 << 10) for batch in read)
    reader.close()


@pytest.mark.usefixtures("one_block")
def test_a_segment_that_a_reader_has_open_is_removed_with_the_checkpoint_after_its_take(
    open_channel: Open, path: Path
) -> None:
    channel = open_channel(max_inline_bytes=MIB)
    put(channel, *[bytes(64 << 10)] * 32)
    [extent] = channel.engine().state.blocks.extents(1, 32)
    with contextlib.closing(channel.engine().reader()) as reader:
        read = reader.read(extent)
        next(read)
        drain(channel)
        channel.checkpoint()
        assert list((path / "data").glob("segment.*")) == []


def test_freed_files_are_those_that_the_memory_tier_does_not_begin_with(open_channel: Open, path: Path) -> None:
    channel = open_channel(memory_capacity=10, byte_capacity=MIB, overflow_timeout=0.0, **FILES)
    fill(channel)
    take(channel, 40)
    put(channel, *numbered(0, 5))
    other = open_channel()
    assert other.stats().channel_size == channel.stats().channel_size == 29
    assert verify(path).healthy


def test_a_take_that_is_committed_does_not_fail_where_its_files_cannot_be_looked_at(open_channel: Open) -> None:
    channel = open_channel(**FILES)
    fill(channel)
    with mock.patch.object(FileSystem, "size_bytes", side_effect=StorageError("looking at a file failed")):
        assert len(take(channel, 40)) == 40
    assert channel.stats().channel_size == 24


def test_what_keeps_files_from_being_freed_is_said_once_and_not_with_every_take(
    open_channel: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = open_channel(**FILES)
    fill(channel)
    with mock.patch.object(MemoryTier, "renew", side_effect=StorageError("no memory is left")) as renew:
        drain(channel)
        for _ in range(5):
            put(channel, b"x")
            take(channel, 1)
    assert renew.call_count == 1
    assert [r.getMessage() for r in caplog.records if "keep their disk space" in r.getMessage()] != []


def test_files_that_are_too_small_to_be_used_again_are_measured_once_and_not_with_every_take(
    open_channel: Open,
) -> None:
    channel = open_channel(checkpoint_interval=1 << 40, max_file_size=MIB, spare_bytes=16 * MIB)
    fill(channel, 2 * MIB)
    drain(channel)
    assert spares(channel) == [] and len(log_files(channel)) > 1
    size_bytes = FileSystem.size_bytes
    with mock.patch.object(FileSystem, "size_bytes", autospec=True, side_effect=size_bytes) as measured:
        for _ in range(5):
            put(channel, b"x")
            take(channel, 1)
        assert measured.call_count == 0
        fill(channel, 4 * MIB)
        drain(channel)
    assert spares(channel) != [], "with others that got empty, they are enough"


def test_files_may_get_empty_while_they_are_counted(open_channel: Open) -> None:
    channel = open_channel(**FILES)
    fill(channel, MIB)
    disk, drained = channel.engine().state.blocks.disk, channel.engine().drained

    class Counted(int):
        """A file whose comparison is where another thread's commit comes in between."""

        def __lt__(self, other: int) -> bool:
            disk.emptied.add(len(disk.emptied) + 10)
            return super().__lt__(other)

    disk.emptied.update(Counted(i) for i in range(1, 9))
    drained.are_worth_using_again()


def test_a_copy_made_in_use_never_gives_what_the_original_wrote_into_a_spare_later(path: Path, tmp_path: Path) -> None:
    copy, options = tmp_path / "copy", {"checkpoint_interval": 1 << 40, "minimum_required_space": 0, **FILES}
    with Channel(path, **options) as channel:
        fill(channel, 2 * MIB)
        drain(channel)
        last, spare = log_files(channel)[-1], spares(channel)[-1]
        shutil.copytree(path, copy)
        with (path / "data" / spare).open("rb") as late:  # the copying program has opened it, and reads it later
            fill(channel, 2 * MIB)
            (copy / "data" / spare).write_bytes(late.read())
    reboot(copy)
    again, count = Channel(copy), 0
    while again.engine().positions.disk.file_id <= last:
        put(again, bytes(64 << 10))
        count += 1
    assert events_after_a_crash(again) == count


@pytest.mark.parametrize("puts", [6, 9])
def test_a_copy_made_in_use_makes_no_spares_of_what_it_was_copied_with(path: Path, tmp_path: Path, puts: int) -> None:
    copy = tmp_path / "copy"
    options = {"checkpoint_interval": 1 << 40, "minimum_required_space": 0, **FILES, "spare_bytes": 2 * MIB}
    with Channel(path, **options) as channel:
        fill(channel, 2 * MIB - MIB // 2)
        channel.checkpoint()
        first, second = log_files(channel)
        shutil.copytree(path, copy)
        with log_file(path, first).open("rb") as late:
            begun = late.read(MIB // 2)  # the copying program has read so much, and reads the rest later
            take(channel, channel.stats().channel_size - 1)
            shutil.copy(log_file(path, second), log_file(copy, second))
            assert spares(channel) == [f"spare-{log_file(path, first).name}"]
            fill(channel, 2 * MIB)
            log_file(copy, first).write_bytes(begun + late.read())
    reboot(copy)
    again, count = Channel(copy), 1
    while again.engine().positions.disk.file_id == second or puts:
        puts -= again.engine().positions.disk.file_id > second
        put(again, bytes(64 << 10))
        count += 1
    assert events_after_a_crash(again) == count


def test_a_recovery_removes_the_spares_that_it_finds(open_channel: Open, path: Path) -> None:
    channel = open_channel(**FILES)
    fill(channel)
    drain(channel)
    assert spares(channel) != []
    kill(channel)
    assert spares(open_channel()) == []


def test_a_handle_that_is_closed_leaves_the_spares_to_the_others(open_channel: Open, path: Path) -> None:
    channel, other = open_channel(**FILES), open_channel()
    fill(channel)
    drain(channel)
    kept = spares(channel)
    assert kept != []
    other.close()
    assert spares(channel) == kept
    channel.close()
    assert list((path / "data").glob("spare-*")) == []


def test_big_transactions_are_staged_in_what_was_taken(open_channel: Open, path: Path) -> None:
    channel, inodes = open_channel(max_inline_bytes=MIB, checkpoint_interval=1, **FILES), set[int]()
    for i in range(6):
        put(channel, *[bytes([i]) * (64 << 10)] * 32)
        [segment] = (path / "data").glob("segment.*")
        inodes.add(segment.stat().st_ino)
        assert take(channel, 100) == [bytes([i]) * (64 << 10)] * 32
        put(channel, b"x")  # with a checkpoint
        drain(channel)
    assert len(inodes) == 1
    channel.checkpoint()
    assert list((path / "data").glob("*segment.*")) == []


def put_staged(channel: Channel, owner: str, *bodies: bytes) -> str:
    """Put bodies as a task of Spark's sink stages them and its commit adopts them, and return the segment's name."""
    port = channel.port()
    plan = port.plan_stage()
    file = plan.begin(owner, 0)
    file.write(encode_batch(batch_from_events([Event(body) for body in bodies]), plan.schema_id))
    found = file.finish()
    file.close()
    assert isinstance(found, SegmentRef)
    assert port.publish(Put([], [found]), 0)
    return found.name


# Of a batch write, and of a stream by shards, the channel does not remember under the name that they stage with.
OWNERS = pytest.mark.parametrize("owner", ["batch-0123", "query"])


@OWNERS
@pytest.mark.parametrize("spare_bytes", [0, MIB])
def test_what_any_write_had_staged_is_gone_once_it_is_taken(
    open_channel: Open, path: Path, owner: str, spare_bytes: int
) -> None:
    channel, other = open_channel(spare_bytes=spare_bytes, checkpoint_interval=1 << 40), open_channel()
    put_staged(channel, owner, b"a", b"b")
    kept = put_staged(channel, owner, b"c")
    assert take(channel, 2) == [b"a", b"b"]
    other.checkpoint()  # another process knows it, too
    assert channel.engine().layout.segments(FileSystem()) == [kept]
    assert take(channel) == [b"c"]
    channel.checkpoint()
    assert list((path / "data").glob("*segment*")) == []


def test_what_a_batch_write_had_staged_is_staged_in_again(open_channel: Open, path: Path) -> None:
    channel, inodes = open_channel(checkpoint_interval=1, **FILES), set[int]()
    for i in range(4):
        segment = path / "data" / put_staged(channel, f"batch-{i}", bytes(2 * MIB))
        inodes.add(segment.stat().st_ino)
        assert len(take(channel)) == 1
    assert len(inodes) == 1


@pytest.mark.parametrize(("part", "step"), [(Checkpoints, "write"), (DrainedFiles, "free")])
def test_a_checkpoint_that_is_killed_leaves_no_segment_that_was_taken(
    open_channel: Open, path: Path, part: type, step: str
) -> None:
    channel = open_channel(checkpoint_interval=1 << 40)
    put_staged(channel, "batch-0123", b"a")
    assert take(channel) == [b"a"]
    with mock.patch.object(part, step, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        channel.checkpoint()
    kill(channel)
    reboot(path)
    open_channel().checkpoint()
    assert list((path / "data").glob("*segment*")) == []


def test_a_segment_that_is_gone_asks_for_no_checkpoint(open_channel: Open) -> None:
    channel, other = open_channel(checkpoint_interval=1 << 40), open_channel()
    put_staged(channel, "batch-0123", b"a")
    assert take(channel) == [b"a"]
    other.engine().follow()
    assert other.engine().drained.are_any()
    channel.checkpoint()
    assert not other.engine().drained.are_any()


def test_a_segment_that_cannot_be_removed_keeps_no_checkpoint_from_being_written(path: Path) -> None:
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, spare_bytes=0, checkpoint_interval=1 << 40) as channel:
        put_staged(channel, "batch-0123", b"a")
        assert take(channel) == [b"a"]
        failing = fs.failing(lambda call: call.name == "remove" and call.file.startswith("segment."))
        with failing, pytest.raises(StorageError):
            channel.checkpoint()
        assert list((path / "checkpoint").glob("checkpoint-*")) != []
        channel.checkpoint()
        assert list((path / "data").glob("*segment*")) == []


def test_a_data_file_whose_sync_failed_at_the_last_close_gets_nothing_more(path: Path) -> None:
    """What the close had cut of it may be there again, or be cut from what is put behind it."""
    fs = FaultyFileSystem()
    channel = Channel(path, fs=fs, checkpoint_on_close=False, minimum_required_space=0)
    put(channel, b"a")
    before = fs.count("sync", "log-")
    with fs.failing(lambda call: call.name == "sync" and call.file.startswith("log-")):
        channel.close()
    assert fs.count("sync", "log-") > before
    with Channel(path, checkpoint_on_close=False) as again:
        put(again, b"b")
        assert log_files(again)[-1] > 1
        assert take(again) == [b"a", b"b"]
