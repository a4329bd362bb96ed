"""`backup`: consistent copies of live channels, each restored and compared with a ledger."""

from __future__ import annotations

import errno
import os
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import (
    Channel,
    ChannelBusyError,
    CorruptionError,
    ForeignDirectoryError,
    NotAChannelError,
    OptionError,
    StorageError,
)
from spillable_stream.archive import backup as backup_module
from spillable_stream.archive import event_copies
from spillable_stream.archive.manifest import manifest_key
from spillable_stream.errors import DataLossError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.slots import slot_key
from tests.lab.size import sized
from tests.support.backups import contents
from tests.support.channels import snapshot
from tests.support.command_line import run
from tests.support.damage import log_file, offsets
from tests.support.delays import put_late
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.live_channel import under_load
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory


def back_up_again_and_again(channel: Channel, tmp_path: Path, times: int, groups: tuple[str, ...]) -> None:
    copy, reports = tmp_path / "copy", []
    with under_load(channel, *groups) as load:
        for i in range(times):
            reports.append(ss.backup(channel if i % 2 else channel.path, copy))
            last_id, found = contents(copy, tmp_path / "restored", groups[0])
            assert last_id == reports[-1].last_id
            assert not found or list(found) == list(range(min(found), last_id + 1)), "a prefix, without a gap"
            saved = dict(found)
            while not saved.keys() <= load.ledger.keys():
                time.sleep(0.001)  # a commit has returned, and is yet to be noted
            assert saved == {event: load.ledger[event] for event in saved}
    assert [r.number for r in reports] == list(range(1, times + 1))
    assert all(a.last_id <= b.last_id for a, b in pairwise(reports))


@pytest.mark.parametrize("options", [{}, {"memory_capacity": 200, "overflow_timeout": 0}, {"retention_bytes": 1 << 20}])
def test_each_backup_of_a_live_channel_is_a_prefix_of_its_order(path: Path, tmp_path: Path, options: Any) -> None:
    with Channel(path, minimum_required_space=0, max_file_size=100_000, **options) as channel:
        channel.consumer("fast")
        back_up_again_and_again(channel, tmp_path, 5, ("fast",))


@pytest.mark.crash
@pytest.mark.parametrize("options", [{}, {"memory_capacity": 200, "overflow_timeout": 0}])
def test_very_many_backups_of_a_live_channel_are_prefixes_of_its_order(
    path: Path, tmp_path: Path, options: Any
) -> None:
    with Channel(path, minimum_required_space=0, max_file_size=1_000_000, **options) as channel:
        channel.consumer("fast")
        back_up_again_and_again(channel, tmp_path, sized(ci=20, full=100), ("fast", "other"))


def test_a_backup_does_not_count_that_lacks_an_event_whose_frame_is_missing(
    path: Path, tmp_path: Path, one_block: None
) -> None:
    """It counted, and only its restore said that it can't be restored."""
    with Channel(path, minimum_required_space=0) as channel:
        for body in (b"1", b"2", b"3"):
            put(channel, body)
        _, second, third = offsets(path, FrameType.PUT)
        data = log_file(path).read_bytes()
        log_file(path).write_bytes(data[:second] + data[third:] + data[second:third])
        with pytest.raises(CorruptionError, match="event 2 is not where the channel's state says"):
            ss.backup(channel, tmp_path / "copy")
        log_file(path).write_bytes(data)
    with pytest.raises(NotAChannelError):
        ss.restore(tmp_path / "copy", tmp_path / "second")


def test_a_later_backup_copies_only_new_events_and_drops_old_files(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        put(channel, *numbered(1, 10))
        first = ss.backup(channel, copy)
        put(channel, *numbered(11, 5))
        second = ss.backup(channel, copy)
        third = ss.backup(channel, copy)
        assert (first.copied_events, second.copied_events, third.copied_events) == (10, 5, 0)
        assert (second.files, second.kept_files, third.kept_files) == (2, 1, 2)
        take(channel, 12)
        fourth = ss.backup(channel, copy)
        assert (fourth.files, fourth.copied_events) == (1, 0)
    assert [len(list((copy / d).iterdir())) for d in ("backups", "events", "states")] == [1, 1, 1]
    assert list(contents(copy, tmp_path / "r", "default")[1].values()) == numbered(13, 3)


def test_events_of_both_tiers_groups_options_and_producers_are_copied(path: Path, tmp_path: Path) -> None:
    schema_options: Any = {"memory_capacity": 6, "overflow_timeout": 0, "keep_alive": 7.0}
    with Channel(path, minimum_required_space=0, **schema_options) as channel:
        put(channel, *numbered(1, 5))
        put(channel, *numbered(6, 5))
        assert channel.stats().memory.events == channel.stats().disk.events == 5
        take(channel, 2, "a")
        take(channel, 7, "b")
        tx = channel.put_transaction()
        tx.producer = NumberedBatch("p", Numbers(1, 40, 7))
        with tx:
            tx.put(ss.Event(b"sent"))
        before = channel.stats()
        ss.backup(channel, tmp_path / "copy")
    ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True)
    with Channel(tmp_path / "r", create=False) as restored:
        after = restored.stats()
        assert dict(after.groups) == dict(before.groups) and dict(after.producers) == {"p": 40}
        assert (after.last_id, after.channel_size, after.memory.events) == (11, before.channel_size, 0)
        assert restored.options["keep_alive"] == 7.0
        assert peek(restored, group="b") == [b"10", b"sent"]
        assert put(restored, b"next") == (12, 12)


def test_a_channel_that_nobody_has_open_is_backed_up_without_a_trace(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0, memory_capacity=10, flush_on_close=False) as channel:
        put(channel, b"a", b"b")
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()}
    assert ss.backup(path, tmp_path / "copy").copied_events == 2
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()} == before


def test_a_channel_in_a_store_is_backed_up_and_restored_to_a_disk(tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/orders"
    with Channel(url, commit_interval=0) as channel:
        put(channel, *numbered(1, 3))
        put(channel, *numbered(4, 3))
        take(channel, 2)
        ss.backup(url, f"object+file://{tmp_path}/copy")
    assert contents(tmp_path / "copy", tmp_path / "r", "default") == (
        6,
        dict(zip(range(3, 7), numbered(3, 4), strict=True)),
    )


def test_a_channel_in_a_store_that_has_lost_its_newest_slots_is_not_backed_up(tmp_path: Path) -> None:
    """An open trusts the hint, which may lead to an older checkpoint than the newest."""
    root, copy = tmp_path / "orders", tmp_path / "copy"
    url = f"object+file://{root}"
    with Channel(url, commit_interval=0) as channel:
        put(channel, b"1")
        channel.checkpoint()
        hint = (root / "hint").read_bytes()
        put(channel, b"2")
        channel.checkpoint()
    (root / "hint").write_bytes(hint)
    (root / slot_key(2)).unlink()
    with pytest.raises(DataLossError, match="the newest checkpoint is of slot 2, which is not in the log"):
        ss.backup(url, copy)
    assert not copy.exists()


def test_large_transactions_and_typed_events_are_copied_as_they_are(path: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    schema = pa.schema([("n", pa.int64())])
    with Channel(path, schema=schema, minimum_required_space=0, max_inline_bytes=1000, compression="zstd") as channel:
        for first in (0, 5000):
            with channel.put_transaction() as tx:
                tx.put_batch(pa.record_batch({"n": pa.array(range(first, first + 5000), pa.int64())}))
        channel.evolve(pa.schema([("n", pa.int64()), ("s", pa.string())]))
        with channel.put_transaction() as tx:
            tx.put({"n": 10_000, "s": "x"})
        with channel.take_transaction() as tx:
            tx.take_many(17)
        ss.backup(channel, tmp_path / "copy")
    ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True)
    with Channel(tmp_path / "r", create=False) as restored:
        rows = [n for batch in restored.read(group="default") for n in batch.column("n").to_pylist()]
        assert rows == list(range(17, 10_001)) and restored.schema.names == ["n", "s"]


def test_a_copy_holds_one_channel_and_one_continuation_of_it(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 5))
        ss.backup(channel, copy)
    Channel(tmp_path / "other", minimum_required_space=0).close()
    with pytest.raises(ForeignDirectoryError, match="is a backup of the channel"):
        ss.backup(tmp_path / "other", copy)
    path.rename(tmp_path / "old")
    ss.restore(copy, path)
    for place, bodies in ((path, numbered(1, 3)), (tmp_path / "old", numbered(6, 7))):
        with Channel(place, create=False) as channel:
            put(channel, *bodies)
    assert ss.backup(path, copy).copied_events == 3, "the successor continues the backup"
    with pytest.raises(ForeignDirectoryError, match=r"another continuation .* its event 6 is another one"):
        ss.backup(tmp_path / "old", copy)


def test_a_place_that_is_something_else_or_inside_the_channel_is_refused(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes").mkdir()
        (tmp_path / "mine" / "notes" / "a").touch()
        with pytest.raises(NotAChannelError, match="neither empty nor a backup: it holds 'notes'"):
            ss.backup(channel, tmp_path / "mine")
        with pytest.raises(OptionError, match="is inside of the channel"):
            ss.backup(channel, path / "copy")
        (tmp_path / "link").symlink_to(path)
        with pytest.raises(OptionError, match="is inside of the channel"):
            ss.backup(channel, tmp_path / "link" / "copy")
    with pytest.raises(NotAChannelError):
        ss.backup(tmp_path / "nothing", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_backup_that_is_interrupted_leaves_the_one_before(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"

    def stop(_: ss.Progress) -> None:
        raise KeyboardInterrupt

    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        put(channel, *numbered(1, 3))
        ss.backup(channel, copy)
        put(channel, *numbered(4, 3))
        with pytest.raises(KeyboardInterrupt):
            ss.backup(channel, copy, progress=stop)
        assert list(contents(copy, tmp_path / "r", "default")[1].values()) == numbered(1, 3)
        assert ss.backup(channel, copy).copied_events == 3
        assert len(list((copy / "events").iterdir())) == 2


@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_backup_that_finds_the_disk_full_leaves_no_trace_and_takes_no_room(
    path: Path, tmp_path: Path, has_earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, real = tmp_path / "above" / "copy", os.pwritev
    monkeypatch.setattr(event_copies, "_FILE_BYTES", 1000)
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        put(channel, b"one")
        if has_earlier:
            ss.backup(channel, copy)
        before = sorted(tmp_path.rglob("*"))
        put_late(channel, 60, b"later")
        for _ in range(3):
            put(channel, bytes(2000))
        for allowed in range(5):  # writes of the backup: a side file, files of events, the state, the manifest
            left = [allowed]

            def full(fd: int, buffers: Any, offset: int, left: list[int] = left) -> int:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(fd, buffers, offset)

            with monkeypatch.context() as patch, pytest.raises(StorageError, match="full"):
                patch.setattr(os, "pwritev", full)
                ss.backup(channel, copy)
            assert [p for p in sorted(tmp_path.rglob("*")) if not p.is_relative_to(path)] == [
                p for p in before if not p.is_relative_to(path)
            ]
        ss.backup(channel, copy)
    assert contents(copy, tmp_path / "restored", "default")[0] == 4


def test_of_two_backups_at_once_one_fails_and_harms_nothing(path: Path, tmp_path: Path) -> None:
    copy, others = tmp_path / "copy", []

    def back_up_too(_: ss.Progress) -> None:
        if not others:
            others.append(None)
            ss.backup(path, copy)

    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        put(channel, *numbered(1, 3))
        with pytest.raises(ChannelBusyError, match=r"another backup .* was created meanwhile"):
            ss.backup(channel, copy, progress=back_up_too)
        assert list(contents(copy, tmp_path / "r", "default")[1].values()) == numbered(1, 3)


@pytest.mark.parametrize(
    ("create", "get", "error"),
    [
        (Fault.RETRIED, None, None),
        (Fault.RETRIED, Fault.REFUSED, StorageError),
        (Fault.CONFLICT, None, ChannelBusyError),
    ],
)
def test_a_manifest_that_is_said_to_be_there_already_and_is_of_this_backup_counts(
    path: Path,
    tmp_path: Path,
    create: Fault,
    get: Fault | None,
    error: type[Exception] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier request has created it, and its answer was lost. Where nobody can tell, its files stay."""
    copy, key = tmp_path / "copy", manifest_key(2)
    faults = {"create": create, "get": get}
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        put(channel, b"one")
        ss.backup(channel, copy)
        put(channel, b"two")
        with monkeypatch.context() as patch, pytest.raises(error) if error else nullcontext():
            faulty = FaultyStore(DirectoryStore(copy), lambda r: faults.get(r.kind) if r.key == key else None)
            patch.setattr(backup_module, "open_store", lambda _: faulty)
            ss.backup(channel, copy)
        if error is not ChannelBusyError:
            assert contents(copy, tmp_path / "r", "default")[0] == 2
        put(channel, b"three")
        ss.backup(channel, copy)
    assert contents(copy, tmp_path / "r", "default")[0] == 3


def test_a_file_of_an_earlier_backup_that_is_gone_is_noticed(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        ss.backup(channel, tmp_path / "copy")
        next((tmp_path / "copy" / "events").iterdir()).unlink()
        put(channel, b"b")
        with pytest.raises(CorruptionError, match="a file of an earlier backup is gone, or was cut"):
            ss.backup(channel, tmp_path / "copy")


def test_nothing_else_is_written_in_a_backup_whose_next_one_would_remove_it(copy: Path, path: Path) -> None:
    """A backup in a folder of another one was created there, and lost its events with the next one of that."""
    for inner in (copy / "events", copy / "events" / "inner"):
        with pytest.raises(OptionError, match=f"{inner} is inside of {copy}, a backup: give a place outside of it"):
            ss.backup(path, inner)
    done = run("export", path, copy / "events" / "out.jsonl")
    assert done.exit_code == 2 and f"is inside of {copy}, a backup" in done.stderr
    assert ss.backup(path, copy).number == 2


@pytest.mark.parametrize("folder", ["events", "log"])
def test_no_backup_is_created_in_a_folder_of_a_backup_or_a_channel_in_a_cloud(path: Path, folder: str) -> None:
    """It was, and the next backup of the outer one removed it."""
    Channel(path, minimum_required_space=0).close()
    with stores_in_memory() as stores:
        Channel(URL).close()
        if folder == "events":
            stores[URL] = MemoryStore(URL)
            stores[URL].replace(manifest_key(1), b"{}")
        with pytest.raises(OptionError, match=f"^{URL}/{folder}/inner is inside of {URL}, a (backup|channel): give"):
            ss.backup(path, f"{URL}/{folder}/inner")


def test_a_backup_removes_nothing_that_is_not_its_own(copy: Path, path: Path, tmp_path: Path) -> None:
    """It removed whatever was in its folders: a file that somebody put there, or a whole backup."""
    (copy / "events" / "notes").touch()
    ss.backup(path, tmp_path / "other")
    (tmp_path / "other").rename(copy / "states" / "other")
    before = snapshot(copy / "states" / "other")
    assert ss.backup(path, copy).number == 2
    assert (copy / "events" / "notes").exists() and snapshot(copy / "states" / "other") == before


@pytest.mark.parametrize("folder", ["delays", "events", "states"])
def test_a_place_with_a_backup_called_like_a_folder_of_one_is_refused(path: Path, tmp_path: Path, folder: str) -> None:
    """It was taken for what a backup had left that was cut short, and removed."""
    Channel(path, minimum_required_space=0).close()
    ss.backup(path, tmp_path / "backups of all" / folder)
    before = snapshot(tmp_path)
    with pytest.raises(NotAChannelError, match=f"neither empty nor a backup: it holds '{folder}/"):
        ss.backup(path, tmp_path / "backups of all")
    assert snapshot(tmp_path) == before
