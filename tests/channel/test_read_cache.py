"""A handle with a read cache on its host's disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, OptionError, UnsafeStoreError, backup
from spillable_stream.channel.read_cache import divide_cache_options
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.put_request import Put
from spillable_stream.format.file_names import Tier
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.state import block_index
from tests.support.damage import flip
from tests.support.events import put
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, store_of, stores_in_memory
from tests.support.object_logs import Writer, frames_of

BODIES = [b"%d" % i * 2000 for i in range(10)]


@pytest.fixture(autouse=True)
def stores() -> Iterator[dict[str, MemoryStore]]:
    """Each handle sees the store through one that counts."""
    with stores_in_memory(FaultyStore) as stores:
        yield stores


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fill() -> None:
    """Create a channel with one staged segment of ten events."""
    with Channel(URL, commit_interval=0, max_inline_bytes=100, retention_bytes=1 << 30) as channel:
        put(channel, *BODIES)


def read(directory: Path) -> tuple[list[bytes], int]:
    """Read everything through a new handle; return it, and how many reads of segments the store was asked for."""
    with Channel(URL, create=False, readonly=True, cache_dir=directory) as channel:
        bodies = [body for batch in channel.read() for body in batch.column("body").to_pylist()]
        return bodies, sum(r.key.startswith("segments/") for r in store_of(channel).requests)


def test_what_one_handle_has_read_the_next_one_does_not_ask_for(directory: Path) -> None:
    fill()
    assert read(directory) == (BODIES, 1)
    assert read(directory) == (BODIES, 0)


def test_a_damaged_file_costs_a_request_and_nothing_else(directory: Path) -> None:
    fill()
    read(directory)
    (path,) = [path for path in directory.rglob("*") if path.is_file()]
    flip(path, 1000)
    assert read(directory) == (BODIES, 1)
    assert read(directory) == (BODIES, 0)


def keep_damaged(stores: dict[str, MemoryStore], directory: Path) -> None:
    """Keep the segment in the cache as it came, which was not whole."""
    (segment,) = [key for key in stores[URL].objects if key.startswith("segments/")]
    data = stores[URL].objects[segment]
    with Channel(URL, create=False, readonly=True) as channel:
        where = f"{channel.uuid} at {URL}"
    DiskCache(str(directory), 1 << 30).put(where, segment, 0, pa.py_buffer(data[:5000] + b"?" + data[5001:]))


def test_bytes_that_were_damaged_on_their_way_into_the_cache_are_asked_for_again(
    stores: dict[str, MemoryStore], directory: Path
) -> None:
    fill()
    keep_damaged(stores, directory)
    assert read(directory) == (BODIES, 1)
    assert read(directory) == (BODIES, 0)


def test_a_backup_asks_for_them_again_too(stores: dict[str, MemoryStore], directory: Path, tmp_path: Path) -> None:
    fill()
    keep_damaged(stores, directory)
    with Channel(URL, create=False, readonly=True, cache_dir=directory) as channel:
        assert backup(channel, tmp_path / "backup").copied_events == len(BODIES)
    assert read(directory) == (BODIES, 0)


def test_an_object_that_is_damaged_in_the_store_is_not_kept(stores: dict[str, MemoryStore], directory: Path) -> None:
    fill()
    objects = stores[URL].objects
    (segment,) = [key for key in objects if key.startswith("segments/")]
    whole = objects[segment]
    objects[segment] = whole[:5000] + b"?" + whole[5001:]
    with pytest.raises(Exception, match="damaged"):
        read(directory)
    objects[segment] = whole
    assert read(directory) == (BODIES, 1)


def test_another_handle_of_the_same_channel_has_the_cache_too(directory: Path) -> None:
    fill()
    read(directory)
    with Channel(URL, create=False, cache_dir=directory) as first, first.another() as channel:
        store_of(channel).forget_counts()
        assert len(list(channel.read())) > 0
        assert not [r for r in store_of(channel).requests if r.key.startswith("segments/")]


# ── a channel that was put back to an older version, and went on ────────────────────────────────


def roll_back(store: MemoryStore, objects: dict[str, bytes]) -> None:
    """Put the objects back that were there once, as a version of a bucket is restored."""
    store.objects.clear()
    store.objects.update(objects)


def bodies_of(channel: Channel) -> list[bytes]:
    return [body for batch in channel.read() for body in batch.column("body").to_pylist()]


@pytest.mark.parametrize("checkpoints", ["none", "before", "after", "both"])
def test_events_of_before_a_rollback_are_never_read_from_the_cache(
    stores: dict[str, MemoryStore], directory: Path, checkpoints: str
) -> None:
    def fill_slots(letter: bytes, count: int) -> None:
        with Channel(URL, commit_interval=0, checkpoint_on_close=False, retention_bytes=1 << 30) as channel:
            if letter != b"a" and checkpoints in ("after", "both"):
                channel.checkpoint()
            for _ in range(count):
                put(channel, letter * 2000)
            if letter == b"b" and checkpoints in ("before", "both"):
                channel.checkpoint()

    fill_slots(b"a", 2)
    before = dict(stores[URL].objects)
    fill_slots(b"b", 3)
    for _ in range(2):  # as a handle that was there, and as one that came later
        with Channel(URL, create=False, readonly=True, cache_dir=directory) as channel:
            assert bodies_of(channel) == [b"a" * 2000] * 2 + [b"b" * 2000] * 3
    roll_back(stores[URL], before)
    fill_slots(b"c", 4)
    with Channel(URL, create=False, readonly=True, cache_dir=directory) as channel:
        assert bodies_of(channel) == [b"a" * 2000] * 2 + [b"c" * 2000] * 4


def test_a_handle_that_is_open_meanwhile_is_told_and_reads_what_is_there_then(
    stores: dict[str, MemoryStore], directory: Path
) -> None:
    options = {"commit_interval": 0, "checkpoint_on_close": False, "retention_bytes": 1 << 30}
    with Channel(URL, cache_dir=directory, **options) as channel:
        put(channel, b"a")
        before = dict(stores[URL].objects)
        put(channel, b"b")
        assert bodies_of(channel) == [b"a", b"b"]
        roll_back(stores[URL], before)
        with Channel(URL, **options) as other:
            put(other, b"c")
            put(other, b"d")
        with pytest.raises(UnsafeStoreError, match="or was put back to an earlier version"):
            bodies_of(channel)
        assert bodies_of(channel) == [b"a", b"c", b"d"]


def put_as_one_slot(store: MemoryStore, channel: str, *bodies: bytes) -> None:
    """Put transactions of an event each, as a handle does whose threads commit at the same time."""
    writer = Writer(store, channel)
    plan = AppendPlan(writer.state, Tier.DISK, start=writer.appending.begin_bytes(writer.tail))
    for body in bodies:
        Put(frames_of(body)).plan(plan)
    assert writer.appending.append(writer.appending.attempt(writer.tail, plan.entries)) is None


def test_a_read_that_continues_after_its_handle_was_told_that_the_bucket_was_put_back_reads_what_is_there_then(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_index, "BLOCK_BYTES", 1)  # each transaction is a block
    options = {"commit_interval": 0, "checkpoint_on_close": False, "retention_bytes": 1 << 30}
    with Channel(URL, **options) as channel:
        before = dict(stores[URL].objects)
        put_as_one_slot(stores[URL], channel.uuid, b"a1", b"a2", b"a3", b"a4")
        reads = channel.read(max_bytes=1)
        assert next(reads).column("body").to_pylist() == [b"a1"]
        roll_back(stores[URL], before)
        put_as_one_slot(stores[URL], channel.uuid, b"c1", b"c2", b"c3", b"c4")
        with Channel(URL, **options) as other:
            put(other, b"c5")
            other.checkpoint()
        with pytest.raises(UnsafeStoreError):
            put(channel, b"b")
        put(channel, b"d")
        found = [body for batch in reads for body in batch.column("body").to_pylist()]
        assert found == [b"a2", b"c3", b"c4"], "one event was read ahead"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_slots_are_kept_too_and_found_by_later_handles(
    stores: dict[str, MemoryStore], directory: Path, checkpoint: bool
) -> None:
    with Channel(URL, commit_interval=0, checkpoint_on_close=False, retention_bytes=1 << 30) as channel:
        for body in BODIES:
            put(channel, body)
        if checkpoint:
            channel.checkpoint()

    def events_asked_for() -> int:
        with Channel(URL, create=False, readonly=True, cache_dir=directory) as channel:
            store_of(channel).forget_counts()
            assert bodies_of(channel) == BODIES
            return store_of(channel).counts["get_range"] - 1  # a look proves the newest slot

    assert [events_asked_for(), events_asked_for()] == [len(BODIES), 0]


def test_options_of_a_cache_are_of_stores_and_go_together(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cache_dir is for channels in an object store"):
        Channel(tmp_path / "channel", cache_dir=tmp_path / "cache")
    with pytest.raises(OptionError, match="cache_bytes is for channels in an object store"):
        Channel(tmp_path / "channel", cache_bytes=1 << 30 | 1)
    with pytest.raises(OptionError, match="give cache_dir, too"):
        Channel(URL, cache_bytes=1 << 21)
    with pytest.raises(OptionError, match="cache_dir must be a directory of this host"):
        Channel(URL, cache_dir="s3://bucket/cache")
    assert not (tmp_path / "channel").exists()


def test_options_are_divided() -> None:
    given = {"group": "a", "cache_dir": "/c", "cache_bytes": 1 << 20}
    assert divide_cache_options(given, in_store=True) == ({"group": "a"}, DiskCache("/c", 1 << 20))
    assert divide_cache_options({"group": "a"}, in_store=False) == ({"group": "a"}, None)
