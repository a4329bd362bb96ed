"""What a host remembers of a channel in a store, and a handle that begins with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, DataLossError, NotAChannelError, StorageError
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.store import last_known
from spillable_stream.engine.store.last_known import LastKnown, recall, write_down
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.engine.store.object_opening import open_object_engine
from spillable_stream.format.frame import Frame, FrameType
from spillable_stream.objects.location import Location
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.damage import flip
from tests.support.events import put, take
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import (
    URL,
    collect_now,
    cut_off,
    log_of,
    put_with_an_older_hint,
    store_of,
    stores_in_memory,
)

Open = Callable[..., Channel]
FS = FileSystem()
PLACE = Location.parse(URL)


def remembered(channel: Channel, directory: Path) -> LastKnown:
    engine = channel.engine()
    assert isinstance(engine, ObjectEngine)
    write_down(FS, directory, engine)
    return recalled(directory)


def recalled(directory: Path) -> LastKnown:
    found = recall(FS, directory, PLACE)
    assert found is not None
    return found


def begun(store: FaultyStore, known: LastKnown) -> ObjectEngine:
    with stores_in_memory(lambda _: store):
        return open_object_engine(PLACE, 1.0, readonly=False, known=known)


def test_a_handle_begins_with_it_without_a_request_and_follows_once_the_store_answers(
    open_handle: Open, tmp_path: Path
) -> None:
    channel = open_handle()
    put(channel, b"1", b"2")
    known = remembered(channel, tmp_path)
    put(channel, b"3")
    store = FaultyStore(store_of(channel).inner, lambda _: Fault.LOST)
    engine = begun(store, known)
    assert (engine.state.last_id, store.requests, engine.channel) == (2, [], channel.uuid)
    with pytest.raises(StorageError):
        engine.follow()
    store.schedule = None
    assert engine.follow().last_id == 3
    engine.close()


@pytest.mark.parametrize("is_of_an_earlier_version", [False, True])
def test_a_handle_that_begins_with_what_began_with_an_older_checkpoint_refuses_to_append_where_later_slots_are_lost(
    open_handle: Open, tmp_path: Path, is_of_an_earlier_version: bool
) -> None:
    """Though its state is of a slot behind the newest checkpoint by now: an earlier version has put others there."""
    channel = open_handle()
    put_with_an_older_hint(channel)
    cut_off(channel)
    earlier = open_handle()
    log_of(earlier)._known.unlisted = None
    for _ in range(3):
        put(earlier, b"in its place")
    known = remembered(open_handle(), tmp_path)
    if is_of_an_earlier_version:
        forget_the_checkpoint(tmp_path)
        known = recalled(tmp_path)
    engine = begun(FaultyStore(store_of(channel).inner), known)
    with pytest.raises(DataLossError, match="the newest checkpoint is of"):
        engine.commit(Put([Frame.of(FrameType.PUT, b"behind the loss", 1)]))
    engine.close()


def forget_the_checkpoint(directory: Path) -> None:
    """Leave what an earlier version wrote."""
    said, _, data = (directory / "store").read_bytes().partition(b"\n")
    fields = json.loads(said)
    del fields["checkpoint"]
    (directory / "store").write_bytes(json.dumps(fields).encode() + b"\n" + data)


def test_a_handle_that_begins_with_it_knows_the_newest_checkpoint_and_lists_once(
    open_handle: Open, tmp_path: Path
) -> None:
    channel = open_handle()
    put(channel, b"1")
    channel.checkpoint()
    put(channel, b"2")
    known = remembered(channel, tmp_path)
    assert known.checkpoint.base == log_of(channel).checkpoint_number == 1
    store = FaultyStore(store_of(channel).inner)
    engine = begun(store, known)
    for _ in range(2):
        engine.commit(Put([Frame.of(FrameType.PUT, b"3", 1)]))
    assert store.counts["list"] == 1, "and not that of a load"
    engine.close()


def test_a_handle_that_begins_behind_what_was_collected_loads_anew(open_handle: Open, tmp_path: Path) -> None:
    channel = open_handle()
    put(channel, b"1", b"2")
    known = remembered(channel, tmp_path)
    take(channel, 2)
    for _ in range(3):
        put(channel, b"x")
        take(channel, 1)
        collect_now(channel)
    engine = begun(FaultyStore(store_of(channel).inner), known)
    assert engine.follow().small() == channel.engine().follow().small()
    engine.close()


@pytest.mark.parametrize("instead", ["nothing", "another channel"])
def test_a_channel_that_is_not_there_any_more_is_said(open_handle: Open, tmp_path: Path, instead: str) -> None:
    channel = open_handle()
    put(channel, b"1")
    known = remembered(channel, tmp_path)
    memory = store_of(channel).inner
    assert isinstance(memory, MemoryStore)
    memory.objects.clear()
    if instead == "another channel":
        other = open_handle()
        for _ in range(3):
            put(other, b"another's")
    engine = begun(FaultyStore(memory), known)
    with pytest.raises(NotAChannelError, match="is no longer at s3://bucket/orders"):
        engine.follow()
    engine.close()


def test_what_is_damaged_missing_or_of_another_place_is_not_known(open_handle: Open, tmp_path: Path) -> None:
    channel = open_handle()
    assert recall(FS, tmp_path, PLACE) is None
    remembered(channel, tmp_path)
    assert recall(FS, tmp_path, Location.parse("s3://bucket/others")) is None
    path = tmp_path / "store"
    whole = path.read_bytes()
    for offset in range(0, len(whole), 7):
        path.write_bytes(whole)
        flip(path, offset)
        found = recall(FS, tmp_path, PLACE)
        assert found is None or found.channel == channel.uuid
    path.write_bytes(b"")
    assert recall(FS, tmp_path, PLACE) is None


def test_a_disk_that_refuses_is_logged(open_handle: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = open_handle().engine()
    assert isinstance(engine, ObjectEngine)
    write_down(FS, tmp_path / "missing", engine)
    assert "can't put to" in caplog.text


def test_handles_that_write_it_down_at_once_wait_for_each_other(
    open_handle: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write has the same temporary file: one would give the file its name while the other still writes to it."""
    monkeypatch.setattr(last_known, "_WAIT_SECONDS", 60.0)
    engine = open_handle().engine()
    assert isinstance(engine, ObjectEngine)
    others = [threading.Thread(target=write_down, args=(FS, tmp_path, engine))]

    class Slow(FileSystem):
        def rename(self, source: Path, target: Path) -> None:
            others[0].start()
            others[0].join(0.3)
            assert others[0].is_alive()
            super().rename(source, target)

    write_down(Slow(), tmp_path, engine)
    others[0].join()
    assert not caplog.records and recall(FS, tmp_path, PLACE) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "store.lock"]


def test_a_handle_does_not_wait_long_for_another_one_that_writes_it_down(open_handle: Open, tmp_path: Path) -> None:
    channel = open_handle()
    remembered(channel, tmp_path)
    before = (tmp_path / "store").read_bytes()
    put(channel, b"1")
    lock = FileLock.open(FS, tmp_path / "store.lock")
    assert lock.try_acquire()
    remembered(channel, tmp_path)
    assert (tmp_path / "store").read_bytes() == before
    lock.close()
    remembered(channel, tmp_path)
    assert (tmp_path / "store").read_bytes() != before


def test_a_handle_that_begins_with_it_appends_nothing_to_another_channel_that_is_there_now(
    open_handle: Open, tmp_path: Path
) -> None:
    channel = open_handle()
    for _ in range(3):
        put(channel, b"1")
    known = remembered(channel, tmp_path)
    memory = store_of(channel).inner
    assert isinstance(memory, MemoryStore)
    memory.objects.clear()
    put(open_handle(), b"another's")
    objects = dict(memory.objects)
    engine = begun(FaultyStore(memory), known)
    with pytest.raises(NotAChannelError, match="is no longer at s3://bucket/orders"):
        engine.commit(Put([Frame.of(FrameType.PUT, b"one", 1)]))
    assert memory.objects == objects
    engine.close()
