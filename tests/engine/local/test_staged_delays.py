"""The delayed events of a large put are written as they come, and its COMMIT makes side files of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import (
    Channel,
    DataLossError,
    Event,
    StorageError,
    backup,
    repair,
    restore,
    verify,
)
from spillable_stream.channel import delayed_events
from tests.support.damage import kill
from tests.support.delays import Clock, clock_of, deliveries_of
from tests.support.events import put, take
from tests.support.full_disk import refuse_once
from tests.support.object_channels import URL, stores_in_memory

Open = Callable[..., Channel]

RNG = random.Random(4)
SECONDS = [RNG.uniform(1, 9000) for _ in range(400)]
IN_ORDER = [b"%f" % seconds + bytes(500) for seconds in sorted(SECONDS)]


@pytest.fixture
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let delayed events leave their buffer after a few."""
    monkeypatch.setattr(delayed_events, "_BUFFERED_EVENTS", 16)


def put_many_late(channel: Channel) -> None:
    """Put so many delayed events that they are staged several times, and one that is not delayed."""
    with channel.put_transaction() as tx:
        for seconds in SECONDS:
            tx.put(Event(b"%f" % seconds + bytes(500)), deliver_after=seconds)
        tx.put(Event(b"now"))


def staged(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "data").glob("segment.*"))


def delivered(channel: Channel, clock: Clock) -> list[bytes]:
    clock.pass_by(9001)
    while deliveries_of(channel).deliver():
        pass
    return take(channel)


@pytest.mark.usefixtures("few_in_memory")
def test_many_delayed_events_are_written_before_the_commit_and_come_in_their_order(
    open_channel: Open, path: Path
) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    clock = clock_of(channel)
    tx = channel.put_transaction()
    tx.begin()
    for seconds in SECONDS:
        tx.put(Event(b"%f" % seconds + bytes(500)), deliver_after=seconds)
    assert sum(file.stat().st_size for file in (path / "data").glob("segment.*")) > 100_000
    assert channel.stats().delayed.events == 0
    tx.commit()
    tx.close()
    stats = channel.stats()
    assert (stats.delayed.events, stats.channel_size) == (400, 0)
    assert {file.name for file in channel.engine().state.delays.files.values()} == set(staged(path))
    assert delivered(channel, clock) == IN_ORDER
    assert staged(path) == [] and channel.stats().delayed.events == 0


@pytest.mark.usefixtures("few_in_memory")
def test_they_outlive_their_process_a_checkpoint_and_other_puts(open_channel: Open, path: Path) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    clock = clock_of(channel)
    put_many_late(channel)
    channel.checkpoint()
    with channel.put_transaction() as tx:
        tx.put(Event(b"z"), deliver_after=9000)
    files = channel.engine().state.delays.files
    assert [file.name for file in files.values() if not file.name] == [""]  # one of its own
    assert list(files) == sorted(files)
    kill(channel)
    assert verify(path).healthy
    channel = open_channel()
    channel.checkpoint()
    deliveries_of(channel).clock_ms = clock
    assert delivered(channel, clock) == [b"now", *IN_ORDER, b"z"]


@pytest.mark.usefixtures("few_in_memory")
def test_a_rollback_and_a_killed_process_leave_nothing(open_channel: Open, path: Path) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    for end in ("rollback", "kill"):
        tx = channel.put_transaction()
        tx.begin()
        for seconds in SECONDS:
            tx.put(Event(bytes(500)), deliver_after=seconds)
        assert staged(path)
        if end == "rollback":
            tx.rollback()
            tx.close()
            assert staged(path) == []
    tx._delayed.close()  # type: ignore[union-attr]  # as the kernel does
    kill(channel)
    channel = open_channel()
    channel.checkpoint()
    assert staged(path) == [] and channel.stats().delayed.events == 0


@pytest.mark.usefixtures("few_in_memory")
def test_a_staged_file_that_is_gone_is_not_named(open_channel: Open, path: Path) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    tx = channel.put_transaction()
    tx.begin()
    for seconds in SECONDS:
        tx.put(Event(bytes(500)), deliver_after=seconds)
    (path / "data" / staged(path)[0]).unlink()
    with pytest.raises(StorageError, match="is gone or cut; nothing was committed"):
        tx.commit()
    tx.rollback()
    tx.close()
    put(channel, b"a")
    assert channel.stats().delayed.events == 0 and take(channel) == [b"a"]


@pytest.mark.usefixtures("few_in_memory")
def test_a_file_that_was_removed_is_missing(open_channel: Open, path: Path) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    put_many_late(channel)
    kill(channel)
    (path / "data" / staged(path)[0]).unlink()
    with pytest.raises(DataLossError, match=r"delayed events are missing: the file segment\.local"):
        open_channel()
    report = verify(path)
    assert "the side file is missing" in report.findings[0].text
    repair(path)
    channel = open_channel()
    assert 0 < channel.stats().delayed.events < 400


@pytest.mark.usefixtures("few_in_memory")
@pytest.mark.parametrize("of", ["__init__", "write"])
def test_room_is_made_where_the_disk_has_none(open_channel: Open, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    clock, calls = clock_of(channel), refuse_once(monkeypatch, channel, of)
    put_many_late(channel)
    assert calls == ["refused", "room"]
    assert delivered(channel, clock) == [b"now", *IN_ORDER]


@pytest.mark.usefixtures("few_in_memory")
@pytest.mark.parametrize("new_identity", [False, True])
def test_a_backup_has_them(open_channel: Open, path: Path, tmp_path: Path, new_identity: bool) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    clock = clock_of(channel)
    put_many_late(channel)
    backup(path, tmp_path / "copy")
    channel.close()
    if not new_identity:
        path.rename(tmp_path / "away")
    restore(tmp_path / "copy", tmp_path / "restored", new_identity=new_identity)
    assert verify(tmp_path / "restored").healthy
    with Channel(tmp_path / "restored") as restored:
        deliveries_of(restored).clock_ms = clock
        assert delivered(restored, clock) == [b"now", *IN_ORDER]


@pytest.mark.usefixtures("few_in_memory")
def test_a_backup_of_them_becomes_a_channel_in_a_store(open_channel: Open, path: Path, tmp_path: Path) -> None:
    channel = open_channel(max_inline_bytes=10_000)
    clock = clock_of(channel)
    put_many_late(channel)
    backup(path, tmp_path / "copy")
    store = f"object+file://{tmp_path}/store"
    restore(tmp_path / "copy", store, new_identity=True)
    assert verify(store).healthy
    with Channel(store) as restored:
        deliveries_of(restored).clock_ms = clock
        assert delivered(restored, clock) == [b"now", *IN_ORDER]


@pytest.mark.usefixtures("few_in_memory")
def test_in_a_store_they_are_written_to_objects_before_the_commit() -> None:
    with stores_in_memory() as stores, Channel(URL, commit_interval=0, max_inline_bytes=10_000) as channel:
        clock = clock_of(channel)
        tx = channel.put_transaction()
        tx.begin()
        for seconds in SECONDS:
            tx.put(Event(b"%f" % seconds + bytes(500)), deliver_after=seconds)
        (store,) = stores.values()
        assert sum(1 for info in store.list("segments/")) > 5
        assert channel.stats().delayed.events == 0
        tx.commit()
        tx.close()
        assert channel.stats().delayed.events == 400
        assert delivered(channel, clock) == IN_ORDER
