"""Channels in a store that are created from backups."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream import Channel, ChannelError, CorruptionError, Event, ForeignDirectoryError, Progress
from spillable_stream.archive import store_restore
from spillable_stream.archive.restore import RestoreReport
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import Store
from tests.support.damage import flip
from tests.support.delays import clock_of, deliver_all, deliveries_of, put_late
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory

KINDS = ["a disk", "a disk and memory", "a store"]


def original_of(kind: str, tmp_path: Path) -> Channel:
    """Return a channel of one kind, with two groups, headers, and events that one group has taken."""
    options = {
        "a disk": {"minimum_required_space": 0, "mode": "0770"},
        "a disk and memory": {"minimum_required_space": 0, "memory_capacity": 1000},
        "a store": {"commit_interval": 0.0},
    }[kind]
    place = f"object+file://{tmp_path}/original" if kind == "a store" else str(tmp_path / "original")
    channel = Channel(place, retention_bytes=10**9, **options)  # type: ignore[arg-type]
    put(channel, *numbered(1, 10))
    take(channel, 3)
    with channel.put_transaction() as tx:
        tx.put(Event(b"with headers", {"k": "v"}))
    channel.port().create_group("late", "latest")
    put(channel, b"last")
    return channel


@pytest.fixture
def original(tmp_path: Path) -> Channel:
    """A channel on a disk, with memory in front."""
    return original_of("a disk and memory", tmp_path)


def bodies(channel: Channel, group: str | None = None) -> list[bytes]:
    return [body for batch in channel.read(group=group) for body in batch.column("body").to_pylist()]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"object+file://{tmp_path}/restored"


@pytest.mark.parametrize("new_identity", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to_store", [False, True])
def test_events_that_wait_go_with_a_backup_from_anywhere_to_anywhere(
    kind: str, to_store: bool, new_identity: bool, tmp_path: Path, address: str
) -> None:
    to = address if to_store else str(tmp_path / "restored")
    with original_of(kind, tmp_path) as channel:
        clock = clock_of(channel)
        for seconds in (100, 2000):
            with channel.put_transaction() as tx:
                tx.put(Event(b"%d" % seconds, {"k": "v"}), deliver_after=seconds)
                tx.put(Event(b"%d, expires" % seconds), deliver_after=seconds, ttl=3600)
                tx.put(Event(b"%d" % (10 * seconds)), deliver_after=10 * seconds)
        clock.pass_by(150)
        deliver_all(channel)
        report = ss.backup(channel, tmp_path / "copy")
        assert report.delayed_events == 4
    if not new_identity:
        (tmp_path / "original").rename(tmp_path / "gone")
    assert ss.restore(tmp_path / "copy", to, new_identity=new_identity).delayed_events == 4
    assert ss.verify(to).healthy
    with Channel(to, create=False) as restored:
        deliveries_of(restored).clock_ms = clock
        put_late(restored, 1900, b"later")
        restored.checkpoint()
        clock.pass_by(3000)
        deliver_all(restored)
        assert bodies(restored)[-6:] == [b"100", b"100, expires", b"1000", b"2000", b"2000, expires", b"later"]
        ss.backup(restored, tmp_path / "another copy")
        clock.pass_by(100_000)
        deliver_all(restored)
        assert bodies(restored)[-1:] == [b"20000"]
    assert ss.verify(to).healthy


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_backup_whose_delayed_events_are_damaged_creates_no_channel(
    damage: str, tmp_path: Path, address: str
) -> None:
    with original_of("a store", tmp_path) as channel:
        put_late(channel, 1000, b"late")
        ss.backup(channel, tmp_path / "copy")
    (file,) = (tmp_path / "copy" / "delays").iterdir()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CorruptionError):
        ss.restore(tmp_path / "copy", address, new_identity=True)
    assert not [path for path in tmp_path.glob("restored/**/*") if path.is_file()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_channel_in_a_store_has_what_the_original_had(kind: str, address: str, tmp_path: Path) -> None:
    with original_of(kind, tmp_path) as original:
        ss.backup(original, tmp_path / "copy")
        report = ss.restore(tmp_path / "copy", address, new_identity=True)
        assert (report.path, report.events, report.last_id, report.is_new) == (address, 12, 12, True)
        assert ss.verify(address).healthy
        with Channel(address, create=False) as channel:
            assert channel.uuid == report.channel != original.uuid
            assert bodies(channel) == bodies(original) and len(bodies(channel)) == 12
            for group in ("default", "late"):
                assert bodies(channel, group) == bodies(original, group)
            assert channel.options["memory_capacity"] == 0 and channel.options["retention_bytes"] == 10**9
            put(channel, b"more")
            assert take(channel, 99) == [*numbered(4, 7), b"with headers", b"last", b"more"]
            channel.checkpoint()
    assert ss.verify(address).healthy
    with Channel(address, create=False) as channel:
        assert len(bodies(channel)) == 13


@pytest.mark.parametrize("kind", KINDS)
def test_the_successor_keeps_the_identity_once_the_original_is_gone(kind: str, address: str, tmp_path: Path) -> None:
    with original_of(kind, tmp_path) as original:
        uuid = original.uuid
        ss.backup(original, tmp_path / "copy")
        with pytest.raises(ForeignDirectoryError, match="two channels of one identity"):
            ss.restore(tmp_path / "copy", address)
    (tmp_path / "original").rename(tmp_path / "gone")
    assert ss.restore(tmp_path / "copy", address).channel == uuid
    with Channel(address, create=False) as channel:
        assert channel.uuid == uuid and len(bodies(channel)) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_channel_of_a_store_is_restored_to_a_disk_without_the_options_of_stores(kind: str, tmp_path: Path) -> None:
    with original_of(kind, tmp_path) as original:
        ss.backup(original, tmp_path / "copy")
        ss.restore(tmp_path / "copy", tmp_path / "disk", new_identity=True)
        with Channel(tmp_path / "disk", create=False) as channel:
            assert bodies(channel) == bodies(original)
    with Channel(tmp_path / "disk", create=False, retention_bytes=0) as channel:  # which all of its options must fit
        assert ss.verify(channel.path).healthy


def test_an_empty_and_a_typed_channel_are_restored(path: Path, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    with Channel(path, schema=schema, minimum_required_space=0) as channel:
        ss.backup(channel, tmp_path / "empty")
        with channel.put_transaction() as tx:
            tx.put_batch(pa.record_batch({"n": [1, 2]}, schema))
        ss.backup(channel, tmp_path / "full")
    for name, rows in (("empty", 0), ("full", 2)):
        address = f"object+file://{tmp_path}/of-{name}"
        assert ss.restore(tmp_path / name, address, new_identity=True).events == rows
        with Channel(address, create=False) as channel:
            assert channel.schema == schema and sum(batch.num_rows for batch in channel.read()) == rows
        assert ss.verify(address).healthy


def test_many_events_are_in_several_objects_and_few_blocks(
    path: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_restore, "_OBJECT_BYTES", 200_000)
    with Channel(path, minimum_required_space=0) as channel:
        for i in range(2000):
            put(channel, b"%d" % i * 100)
        ss.backup(channel, tmp_path / "copy")
    ss.restore(tmp_path / "copy", address, new_identity=True)
    objects = list((tmp_path / "restored" / "segments").iterdir())
    assert len(objects) > 2
    with Channel(address, create=False) as channel:
        assert bodies(channel) == [b"%d" % i * 100 for i in range(2000)]
        with channel.engine().snapshot() as state:
            assert len(state.blocks) < 100
        take(channel, 2000)
    assert ss.verify(address).healthy


def test_nothing_is_ever_overwritten(original: Channel, address: str, tmp_path: Path) -> None:
    with original:
        ss.backup(original, tmp_path / "copy")
    Channel(address).close()
    with pytest.raises(ChannelError, match=f"{re.escape(address)} is there: move it away, or restore to another path"):
        ss.restore(tmp_path / "copy", address, new_identity=True)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "notes.txt").write_text("mine")
    with pytest.raises(ChannelError, match="is there"):
        ss.restore(tmp_path / "copy", f"object+file://{tmp_path}/else", new_identity=True)
    assert [p.name for p in (tmp_path / "else").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("what", ["restore", "verify"])
def test_of_two_restores_to_one_address_at_once_one_fails_and_leaves_the_other_alone(
    original: Channel, address: str, tmp_path: Path, what: str
) -> None:
    other: list[str] = []

    def let_another_overtake(progress: Progress) -> None:
        if progress.what == what and not other:
            other.append("")
            other[0] = ss.restore(tmp_path / "copy", address, new_identity=True).channel

    with original:
        ss.backup(original, tmp_path / "copy")
        with pytest.raises(ChannelError, match="is there"):
            ss.restore(tmp_path / "copy", address, new_identity=True, progress=let_another_overtake)
        report = ss.verify(address)
        assert report.healthy and not report.findings
        with Channel(address, create=False) as channel:
            assert channel.uuid == other[0] and bodies(channel) == bodies(original)


def test_a_restore_that_is_interrupted_leaves_nothing(original: Channel, address: str, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.what == "verify":
            raise KeyboardInterrupt

    with original:
        ss.backup(original, tmp_path / "copy")
    with pytest.raises(KeyboardInterrupt):
        ss.restore(tmp_path / "copy", address, new_identity=True, progress=interrupt)
    assert not [p for p in (tmp_path / "restored").rglob("*") if p.is_file()]
    assert ss.restore(tmp_path / "copy", address, new_identity=True).events == 12


def test_what_a_killed_restore_left_is_in_nobodys_way(original: Channel, address: str, tmp_path: Path) -> None:
    with original:
        ss.backup(original, tmp_path / "copy")
    left = tmp_path / "restored" / "segments" / f"{0:020}-merged.0.{0:032x}"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    assert ss.restore(tmp_path / "copy", address, new_identity=True).events == 12
    with Channel(address, create=False) as channel:
        assert len(bodies(channel)) == 12
    assert ss.verify(address).healthy


class Killed(BaseException):
    """What ends a process in a test: it does nothing any more."""


def kill_at(number: int, *, done: bool) -> Callable[[Store], Store]:
    """Return what makes a store in which a process is killed at a request, before or after that is done."""

    def seen_by(store: Store) -> Store:
        def end(request: Request) -> None:
            if request.number >= number + done:
                raise Killed

        def schedule(request: Request) -> Fault | None:
            end(request)
            return None

        return FaultyStore(store, schedule, after=lambda request: end(request._replace(number=request.number + done)))

    return seen_by


@contextlib.contextmanager
def restoring_to(store: Store) -> Iterator[None]:
    """Let restores go to a store."""
    with mock.patch.object(store_restore, "open_store", lambda location: store):
        yield


@pytest.mark.parametrize("new_identity", [False, True], ids=["successor", "new"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_restore_that_is_killed_at_any_request_is_run_again(
    original: Channel, tmp_path: Path, done: bool, new_identity: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_restore, "require_sound", lambda store: None)  # its objects are in another test
    uuid, expected = original.uuid, bodies(original)
    put_late(original, 10_000, b"late")
    ss.backup(original, tmp_path / "copy")
    original.close()
    (tmp_path / "original").rename(tmp_path / "gone")

    def restore() -> RestoreReport:
        return ss.restore(tmp_path / "copy", URL, new_identity=new_identity)

    with stores_in_memory() as stores:
        counting = FaultyStore(MemoryStore(URL))
        with restoring_to(counting):
            restore()
        finished = 0
        for number in range(1, len(counting.requests) + 1):
            store = stores[URL] = MemoryStore(URL)
            with restoring_to(kill_at(number, done=done)(store)), pytest.raises(Killed):
                restore()
            finished += slot_key(0) in store.objects and IDENTITY not in store.objects
            if IDENTITY in store.objects:  # all was done, and nobody was told
                with restoring_to(store), pytest.raises(ChannelError, match="is there"):
                    restore()
            else:
                with restoring_to(store):
                    report = restore()
                assert (report.events, report.delayed_events) == (12, 1)
            assert ss.verify(URL).healthy
            with Channel(URL, create=False) as channel:
                assert bodies(channel) == expected and (channel.uuid != uuid) == new_identity
                assert channel.stats().delayed.events == 1
        assert finished, "between slot 0 and channel.json"


def test_objects_of_the_stores_test_that_a_killed_restore_left_are_in_nobodys_way(
    original: Channel, address: str, tmp_path: Path
) -> None:
    with original:
        ss.backup(original, tmp_path / "copy")
    left = tmp_path / "restored" / "check" / "0123-0000"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"first")
    assert ss.restore(tmp_path / "copy", address, new_identity=True).events == 12


@pytest.mark.parametrize("what", ["another moment", "another identity", "an empty channel"])
def test_what_is_half_made_of_something_else_stays_and_is_named(
    original: Channel, address: str, tmp_path: Path, what: str
) -> None:
    with original:
        ss.backup(original, tmp_path / "copy")
        if what == "an empty channel":
            Channel(address).close()
        else:
            ss.restore(tmp_path / "copy", address, new_identity=True)
        (tmp_path / "restored" / "channel.json").unlink()
        if what == "another moment":
            put(original, b"later")
            ss.backup(original, tmp_path / "copy")
    (tmp_path / "original").rename(tmp_path / "gone")
    left = sorted(p for p in (tmp_path / "restored").rglob("*") if p.is_file())
    with pytest.raises(ChannelError, match=r"pid \d+ began a channel at .* that is not this backup, .*: remove"):
        ss.restore(tmp_path / "copy", address, new_identity=what != "another identity")
    assert sorted(p for p in (tmp_path / "restored").rglob("*") if p.is_file()) == left


@pytest.mark.parametrize("what", ["another moment", "another identity", "an empty channel"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_what_is_half_made_of_something_else_is_replaced_if_that_may_be_whenever_the_restore_is_killed(
    original: Channel, tmp_path: Path, what: str, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_restore, "require_sound", lambda store: None)
    new_identity, asked = what != "another identity", list[str]()
    with stores_in_memory() as stores:
        half_made = stores[URL] = MemoryStore(URL)
        with original:
            ss.backup(original, tmp_path / "copy")
            with restoring_to(half_made):
                if what == "an empty channel":
                    Channel(URL).close()
                else:
                    ss.restore(tmp_path / "copy", URL, new_identity=True)
            half_made.delete(IDENTITY)
            if what == "another moment":
                put(original, b"later")
                ss.backup(original, tmp_path / "copy")
            uuid, expected = original.uuid, bodies(original)
        (tmp_path / "original").rename(tmp_path / "gone")

        def restore(store: Store) -> None:
            with restoring_to(store):
                ss.restore(
                    tmp_path / "copy", URL, new_identity=new_identity, may_replace=lambda it: not asked.append(it)
                )

        def half_made_again() -> MemoryStore:
            store = stores[URL] = MemoryStore(URL)
            store.objects.update(half_made.objects)
            return store

        restore(counting := FaultyStore(half_made_again()))
        assert len(asked) == 1 and "began a channel at" in asked[0]
        for number in range(1, len(counting.requests) + 1):
            store = half_made_again()
            with contextlib.suppress(Killed):  # objects are read ahead, so not every run has as many requests
                restore(kill_at(number, done=done)(store))
            if IDENTITY not in store.objects:
                restore(store)
            assert ss.verify(URL).healthy
            with Channel(URL, create=False) as channel:
                assert bodies(channel) == expected and (channel.uuid != uuid) == new_identity


def test_a_maker_that_finishes_while_its_slot_may_be_replaced_keeps_its_channel(
    original: Channel, address: str, tmp_path: Path
) -> None:
    identity = tmp_path / "restored" / "channel.json"
    with original:
        ss.backup(original, tmp_path / "copy")
    made = ss.restore(tmp_path / "copy", address, new_identity=True)
    text = identity.read_bytes()
    identity.unlink()
    (tmp_path / "original").rename(tmp_path / "gone")

    def finish(what: str) -> bool:
        identity.write_bytes(text)
        return True

    with pytest.raises(ChannelError, match="is there"):
        ss.restore(tmp_path / "copy", address, may_replace=finish)
    assert ss.verify(address).healthy
    with Channel(address, create=False) as channel:
        assert channel.uuid == made.channel


def test_a_channel_in_use_that_lost_its_identity_is_not_taken_for_a_restore(
    original: Channel, address: str, tmp_path: Path
) -> None:
    with original:
        ss.backup(original, tmp_path / "copy")
    ss.restore(tmp_path / "copy", address, new_identity=True)
    with Channel(address, create=False) as channel:
        put(channel, b"more")
    (tmp_path / "restored" / "channel.json").unlink()
    with pytest.raises(ChannelError, match="is there"):
        ss.restore(tmp_path / "copy", address, new_identity=True)


@pytest.mark.parametrize("folder", ["events", "states"])
def test_a_damaged_backup_creates_no_channel(original: Channel, address: str, tmp_path: Path, folder: str) -> None:
    with original:
        ss.backup(original, tmp_path / "copy")
    file = next((tmp_path / "copy" / folder).iterdir())
    flip(file, file.stat().st_size // 2)
    with pytest.raises(CorruptionError):
        ss.restore(tmp_path / "copy", address, new_identity=True)
    assert not [p for p in (tmp_path / "restored").rglob("*") if p.is_file()]


def test_a_restored_channel_is_backed_up_and_restored_again(original: Channel, address: str, tmp_path: Path) -> None:
    with original:
        expected = bodies(original)
        ss.backup(original, tmp_path / "copy")
    ss.restore(tmp_path / "copy", address, new_identity=True)
    with Channel(address, create=False) as channel:
        put(channel, b"more")
        assert ss.backup(channel, tmp_path / "second").last_id == 13
    shutil.rmtree(tmp_path / "restored")
    assert ss.restore(tmp_path / "second", address).events == 13
    with Channel(address, create=False) as channel:
        assert bodies(channel) == [*expected, b"more"]
