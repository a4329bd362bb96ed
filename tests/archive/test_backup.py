"""`backup`: consistent copies of live channels, each restored and compared with a ledger."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
import time
from collections import Counter
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
from spillable_stream.archive.manifest import manifest_key
from spillable_stream.engine.engine import Engine
from spillable_stream.errors import DataLossError
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.slots import slot_key
from spillable_stream.state.delays import DelayedFile
from tests.lab.size import sized
from tests.support.damage import flip, log_file
from tests.support.delays import clock_of, deliveries_of, put_late
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.live_channel import under_load


def contents(copy: Path, to: Path, group: str) -> tuple[int, dict[int, bytes]]:
    """Restore a backup as a second channel and return its last ID and what a group has yet to take."""
    report = ss.restore(copy, to, new_identity=True)
    assert ss.verify(to).healthy
    with Channel(to, create=False, minimum_required_space=0) as channel:
        assert channel.stats().last_id == report.last_id
        found: dict[int, bytes] = {}
        for batch in channel.read(group=group):
            found |= dict(
                zip(batch.column("write_order_id").to_pylist(), batch.column("body").to_pylist(), strict=True)
            )
        assert channel.stats().groups[group].lag == len(found)
    shutil.rmtree(to)
    return report.last_id, found


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
    monkeypatch.setattr(backup_module, "_FILE_BYTES", 1000)
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


def test_events_that_leave_while_they_are_copied_are_done_without(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0, max_file_size=5000) as channel:
        channel.consumer("default")
        put(channel, *[b"%d" % i * 1000 for i in range(9)])
        put(channel, *[b"%d" % i * 1000 for i in range(9)])
        real, left = backup_module._reader, []

        def reader(engine: Engine) -> Any:
            if not left:  # after the state was read, and before the first event is
                left.append(take(channel, 12))
                channel.checkpoint()
            return real(engine)

        monkeypatch.setattr(backup_module, "_reader", reader)
        report = ss.backup(path, tmp_path / "copy")
    last_id, found = contents(tmp_path / "copy", tmp_path / "r", "default")
    assert last_id == report.last_id == 18 and list(found) == list(range(13, 19))


def test_events_that_always_leave_end_a_backup_with_advice(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")

        class Gone:
            def expect(self, _: object) -> None: ...
            def close(self) -> None: ...
            def frames(self, _: object) -> Any:
                put(channel, b"new")
                take(channel, 1)
                channel.checkpoint()
                raise DataLossError("it has left")

        put(channel, b"a")
        monkeypatch.setattr(backup_module, "_reader", lambda _: nullcontext(Gone()))
        monkeypatch.setattr(backup_module, "_file_of", lambda *_: object())
        with pytest.raises(ChannelBusyError, match="leave faster than they can be copied"):
            ss.backup(channel, tmp_path / "copy")


def test_an_event_that_is_damaged_fails_the_backup(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a" * 100)
        put(channel, b"b" * 100)
    file = log_file(path)
    flip(file, file.read_bytes().index(b"a" * 100))
    with pytest.raises(CorruptionError, match="damaged"):
        ss.backup(path, tmp_path / "copy")
    assert not (tmp_path / "copy" / "backups").exists()


def test_a_file_of_an_earlier_backup_that_is_gone_is_noticed(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
        ss.backup(channel, tmp_path / "copy")
        next((tmp_path / "copy" / "events").iterdir()).unlink()
        put(channel, b"b")
        with pytest.raises(CorruptionError, match="a file of an earlier backup is gone, or was cut"):
            ss.backup(channel, tmp_path / "copy")


def test_events_that_wait_are_copied_and_are_due_at_their_time(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        clock = clock_of(channel)
        put_late(channel, 10, b"a", b"b")
        put_late(channel, 20, b"c")
        put_late(channel, 100_000, b"d")
        with channel.put_transaction() as tx:
            tx.put(ss.Event(b"now"))
            tx.put(ss.Event(b"e"), ttl=3600, deliver_after=200_000)
        clock.pass_by(15)
        assert deliveries_of(channel).deliver()
        report = ss.backup(path, copy)
        assert (report.copied_events, report.delayed_events, report.files, report.last_id) == (3, 3, 4, 3)
    for new_identity in (True, False):
        shutil.rmtree(path, ignore_errors=True)
        made = ss.restore(copy, path, new_identity=new_identity)
        assert (made.events, made.delayed_events) == (3, 3)
        assert '"format": 3' in (path / "channel.json").read_text()
        with Channel(path, create=False, minimum_required_space=0) as restored:
            now_ms = clock.now_ms
            deliveries_of(restored).clock_ms = clock
            assert take(restored) == [b"now", b"a", b"b"]
            put_late(restored, 6, b"later")  # into the side file of the original, or another one
            clock.pass_by(5.001)
            assert take(restored) == [b"c"]
            clock.pass_by(1)
            assert take(restored) == [b"later"]
            clock.pass_by(100_000)
            assert take(restored) == [b"d"]
            clock.pass_by(100_000)
            with restored.take_transaction() as tx:
                (event,) = tx.take_many(10)
            assert event.body == b"e"
            assert restored.stats().delayed.events == 0
            assert list((path / "data").glob("delayed-*")) == []
            clock.now_ms = now_ms
        assert ss.verify(path).healthy


def test_a_side_file_is_written_again_only_if_it_has_other_events(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        clock = clock_of(channel)
        put_late(channel, 10_000, b"a")
        put_late(channel, 1_000_000, b"b")
        first = ss.backup(channel, copy)
        assert (first.files, first.kept_files, first.copied_events) == (2, 0, 0)
        assert first.copied_bytes == sum(f.stat().st_size for f in (copy / "delays").iterdir())
        second = ss.backup(channel, copy)
        assert (second.files, second.kept_files, second.copied_bytes) == (2, 2, 0)
        put_late(channel, 10_000, b"c")
        third = ss.backup(channel, copy)
        assert (third.files, third.kept_files, third.delayed_events) == (2, 1, 3)
        clock.pass_by(20_000)
        assert deliveries_of(channel).deliver()
        fourth = ss.backup(channel, copy)
        assert (fourth.files, fourth.kept_files, fourth.delayed_events) == (2, 1, 1)
        assert len(list((copy / "delays").iterdir())) == 1
        clock.pass_by(1_000_000)
        assert deliveries_of(channel).deliver()
        assert ss.backup(channel, copy).delayed_events == 0
    assert list((copy / "delays").iterdir()) == []
    (manifest,) = (copy / "backups").iterdir()
    assert '"format": 1' in manifest.read_text() and "delays" not in manifest.read_text()


def test_a_side_file_that_is_delivered_while_it_is_copied_is_copied_as_events(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("default")
        clock = clock_of(channel)
        put_late(channel, 10, b"a")
        put_late(channel, 100_000, b"b")
        content = DelayedFiles.content

        def deliver_first(files: DelayedFiles, file: DelayedFile) -> bytes:
            clock.pass_by(11)
            deliveries_of(channel).deliver()
            return content(files, file)

        monkeypatch.setattr(DelayedFiles, "content", deliver_first)
        report = ss.backup(path, tmp_path / "copy")
    assert (report.copied_events, report.delayed_events, report.last_id) == (1, 1, 1)
    assert contents(tmp_path / "copy", tmp_path / "r", "default") == (1, {1: b"a"})


def test_a_copy_of_a_side_file_that_is_not_needed_in_the_end_is_removed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first side file is copied, and all events are delivered before the second one is."""
    with Channel(path, minimum_required_space=0) as channel:
        clock = clock_of(channel)
        put_late(channel, 10, b"a")
        put_late(channel, 100_000, b"b")
        content, read = DelayedFiles.content, list[int]()

        def deliver_before_the_second(files: DelayedFiles, file: DelayedFile) -> bytes:
            read.append(file.number)
            if len(read) == 2:
                clock.pass_by(200_000)
                deliveries_of(channel).deliver()
            return content(files, file)

        monkeypatch.setattr(DelayedFiles, "content", deliver_before_the_second)
        report = ss.backup(path, tmp_path / "copy")
    assert (read, report.copied_events, report.delayed_events) == ([1, 2], 2, 0)
    assert list((tmp_path / "copy" / "delays").iterdir()) == []


def test_a_side_file_that_is_gone_or_damaged_leaves_the_earlier_backup(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Channel(path, minimum_required_space=0) as channel:
        put_late(channel, 10_000, b"a" * 100)
        ss.backup(channel, copy)
        (file,) = (path / "data").glob("delayed-*")
        whole = file.read_bytes()
        flip(file, whole.index(b"a" * 100))
        with pytest.raises(CorruptionError, match="delayed events is damaged"):
            ss.backup(channel, copy)
        file.unlink()
        with pytest.raises(DataLossError, match="the file was removed"):
            ss.backup(channel, copy)
        file.write_bytes(whole)
    assert [f.name[:20] for f in (copy / "backups").iterdir()] == ["00000000000000000001"]
    assert ss.restore(copy, tmp_path / "r", new_identity=True).delayed_events == 1


def test_a_copy_of_a_side_file_that_is_gone_is_noticed(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put_late(channel, 10_000, b"a")
        ss.backup(channel, tmp_path / "copy")
        next((tmp_path / "copy" / "delays").iterdir()).unlink()
        with pytest.raises(CorruptionError, match="a file of an earlier backup is gone, or was cut"):
            ss.backup(channel, tmp_path / "copy")


@pytest.mark.parametrize("times", [3, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{}, {"memory_capacity": 200, "overflow_timeout": 0}])
def test_a_backup_under_load_has_each_transaction_whole_with_its_events_that_wait(
    path: Path, tmp_path: Path, options: Any, times: int
) -> None:
    """Each transaction puts one event for now and two for later, which are delivered while backups are created."""
    ended, rng = threading.Event(), random.Random(1)

    def load() -> None:
        number = 0
        while not ended.is_set():
            with channel.put_transaction() as tx:
                tx.put(ss.Event(b"%d" % number))
                tx.put(ss.Event(b"%d" % number), deliver_after=rng.choice([0.001, 0.01, 0.1, 100]))
                tx.put(ss.Event(b"%d" % number), deliver_after=0.03)
            number += 1

    with Channel(path, minimum_required_space=0, **options) as channel:
        thread = threading.Thread(target=load)
        thread.start()
        try:
            for i in range(times):
                report = ss.backup(channel if i % 2 else path, tmp_path / "copy")
                ss.restore(tmp_path / "copy", tmp_path / "r", new_identity=True)
                with Channel(tmp_path / "r", create=False, minimum_required_space=0) as restored:
                    stats = restored.stats()
                    assert stats.last_id == report.last_id and stats.delayed.events == report.delayed_events
                    clock_of(restored).pass_by(1000)
                    while deliveries_of(restored).deliver():
                        pass
                    found = Counter(body for batch in restored.read() for body in batch.column("body").to_pylist())
                assert found == {b"%d" % number: 3 for number in range(len(found))}
                shutil.rmtree(tmp_path / "r")
        finally:
            ended.set()
            thread.join()
