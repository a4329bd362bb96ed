"""Sets, shards, spools, caches and Spark's source on servers: what the tests beside their modules show in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, DataLossError, Event, Producer, repair, verify
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.objects.cloud_store import CloudStore
from spillable_stream.objects.slots import slot_key
from spillable_stream.options import BUCKETS
from spillable_stream.sharding import shard_of_key
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink.sharded_writer import ShardedStreamWriter
from spillable_stream.spark.source import set_members
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.spark.sink.test_sharded_channels import sharded_plan
from tests.spark.test_channel_pool import close_parked
from tests.support.delays import clock_of, deliver_all
from tests.support.events import numbered, put, take
from tests.support.spools import without_threads
from tests.support.store_limits import SetLimits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.parametrize("store", ["s3", "gcs", "azurite", "radosgw"], indirect=True),
]

Json = dict[str, Any]
ROWS = pa.schema([("customer", pa.string()), ("n", pa.int64())])


@pytest.fixture
def place(store: CloudStore) -> Iterator[str]:
    """An address at which there is nothing yet, on a server that runs."""
    yield store.root
    close_parked()


def drained(reader: Any, start: Json | None = None) -> tuple[Json, list[bytes]]:
    """Run micro-batches as Spark does until there is nothing new; return where that is, and what they had."""
    start, found = reader.initialOffset() if start is None else start, list[bytes]()
    while (end := reader.latestOffset(start)) != start:
        for part in reader.partitions(start, end):
            found += [body for batch in reader.read(part) for body in batch.column("body").to_pylist()]
        reader.commit(end)
        start = end
    return start, found


def test_a_set_is_read_as_one_stream_and_a_channel_that_appears_joins(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_members, "_REMOTE_LOOK_SECONDS", 0.0)
    for letter in "ab":
        with Channel(f"{place}-{letter}", commit_interval=0) as channel:
            put(channel, *[b"%s%d" % (letter.encode(), n) for n in range(3)])
    reader = SpillableSetReader(ChannelSet([f"{place}-*"]), StreamOptions.of(), struct_type(EVENT_SCHEMA))
    at, found = drained(reader)
    assert sorted(found) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    with Channel(f"{place}-c", commit_interval=0) as channel:
        put(channel, b"c0")
    assert drained(reader, at)[1] == [b"c0"]
    reader.stop()


def test_a_stream_resumes_where_it_was(place: str) -> None:
    options, columns = StreamOptions.of({"group": "g", "max_events_per_trigger": 2}), struct_type(EVENT_SCHEMA)
    with Channel(place, commit_interval=0) as channel:
        put(channel, *numbered(0, 5))
        reader = SpillableStreamReader(place, options, columns)
        at, found = drained(reader)
        reader.stop()
        put(channel, b"later")
        again = SpillableStreamReader(place, options, columns)
        assert (found, drained(again, at)[1]) == (numbered(0, 5), [b"later"])
        again.stop()
        channel.engine().follow()
        assert channel.stats().groups["g"].lag == 0


@pytest.mark.parametrize("inline_bytes", [1 << 20, 0])
def test_a_sharded_batch_is_stored_once_however_often_it_is_committed(place: str, inline_bytes: int) -> None:
    writer = ShardedStreamWriter(sharded_plan(place, 2, keepAlive=0, maxInlineBytes=inline_bytes))
    customers = [f"customer {n % 7}" for n in range(40)]
    rows = pa.record_batch([pa.array(customers), pa.array(range(40))], ROWS)
    staged = [writer._stage(iter([rows]), "query", 1)]
    for _ in range(2):
        writer.commit(staged, 1)
    for shard in range(2):
        with Channel(f"{place}-{shard}", create=False) as channel:
            found = [n for batch in channel.read() for n in batch.column("n").to_pylist()]
        assert found == [n for n in range(40) if shard_of_key(customers[n], BUCKETS, 2) == shard]


def test_a_producer_spreads_keys_over_channels_in_a_store(place: str) -> None:
    channels = [Channel(f"{place}-{shard}", commit_interval=0) for shard in range(2)]
    with Producer(channels) as producer:
        for n in range(20):
            producer.send(Event(b"%d" % n), key=f"key {n % 5}")
    bodies = [take(channel, 20) for channel in channels]
    for shard, found in enumerate(bodies):
        assert found == [b"%d" % n for n in range(20) if shard_of_key(f"key {n % 5}", BUCKETS, 2) == shard]
    for channel in channels:
        channel.close()


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_a_spool_ships_in_order_and_the_next_process_continues(place: str, tmp_path: Path, durability: str) -> None:
    options: Any = {"durability": durability, "spool": tmp_path / "spool", "commit_interval": 0}
    with Channel(place, minimum_required_space=0, **options) as channel:
        put(channel, *numbered(0, 10))
        channel.flush()
        put(channel, *numbered(10, 10))
        channel.close(flush=False)
    with Channel(place, minimum_required_space=0, **options) as channel:
        put(channel, *numbered(20, 10))
        channel.flush()
        assert take(channel, 100) == numbered(0, 30)


def test_a_spool_that_went_its_own_way_since_it_was_copied_is_refused_and_leaves_nothing_out(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    spool, copy = tmp_path / "spool", tmp_path / "copy"
    options: Any = {"durability": "local", "spool": spool, "commit_interval": 0, "minimum_required_space": 0}
    for first in (0, 5):
        with Channel(place, **options) as channel:
            put(channel, *numbered(first, 5))
            channel.flush()
        if first == 0:
            shutil.copytree(spool, copy)
    shutil.rmtree(spool)
    copy.rename(spool)
    channel = Channel(place, **options)
    put(channel, *numbered(100, 20))
    with pytest.raises(DataLossError, match="event 10 of the spool differs from the one with this ID in"):
        channel.flush()
    assert channel.stats().spool.events == 20  # type: ignore[union-attr]
    assert take(channel, 100) == numbered(0, 10)
    channel.close(flush=False)


def test_a_group_whose_creation_is_destroyed_is_repaired(place: str, store: CloudStore) -> None:
    with Channel(place, commit_interval=0, checkpoint_on_close=False) as channel:
        channel.consumer("other")
        channel.consumer("g")
        creation = channel.engine().log.tail.number  # type: ignore[attr-defined]
        put(channel, *numbered(0, 3))
    store.delete(slot_key(creation))
    assert repair(place).loss.repeated["g"] == ((1, 3),)
    with Channel(place, create=False) as channel:
        assert take(channel, 9, "g") == numbered(0, 3)


def test_events_wait_are_copied_together_and_come_once_whoever_delivers(
    place: str, store: CloudStore, set_limits: SetLimits
) -> None:
    with Channel(place, commit_interval=0, gc_delay=0) as channel, Channel(place, commit_interval=0) as other:
        clock = clock_of(channel, other)
        clock.begin_stretch(100_000)
        set_limits(many_puts=3, many_of_a_stretch=3)
        for number in range(6):
            with channel.put_transaction() as tx:
                tx.put(Event(b"%d soon" % number), deliver_after=1_000 + number, ttl=3600)
                tx.put(Event(b"%d late" % number), deliver_after=100_000 + number)
        assert len(list(store.list("segments/"))) == 6
        channel.checkpoint()
        assert len(channel.engine().state.delays.files) == 2
        assert verify(place).healthy
        other.engine().follow()
        clock.pass_by(2_000)
        for handle in (other, channel):
            deliver_all(handle)
        put(channel, b"now")
        clock.pass_by(100_000)
        for handle in (channel, other):
            deliver_all(handle)
        assert take(other, 100) == [b"%d soon" % n for n in range(6)] + [b"now"] + [b"%d late" % n for n in range(6)]
        for number in range(2):
            put(channel, b"%d" % number)
            channel.checkpoint()
        assert list(store.list("segments/")) == []
    assert verify(place).healthy


def test_what_is_in_the_cache_of_this_host_is_not_asked_for(place: str, store: CloudStore, tmp_path: Path) -> None:
    with Channel(place, commit_interval=0, max_inline_bytes=10, retention_bytes=1 << 30) as channel:
        put(channel, *numbered(0, 10))

    def read() -> list[bytes]:
        with Channel(place, create=False, readonly=True, cache_dir=tmp_path / "cache") as channel:
            return [body for batch in channel.read() for body in batch.column("body").to_pylist()]

    assert read() == numbered(0, 10)
    for info in list(store.list("segments/")):
        store.delete(info.key)  # so that nothing but the cache has the events
    assert read() == numbered(0, 10)


def test_a_seek_that_is_destroyed_is_named_and_repaired(place: str, store: CloudStore) -> None:
    with Channel(place, commit_interval=0, checkpoint_on_close=False, retention_bytes=1 << 30) as channel:
        put(channel, *numbered(0, 3))
        take(channel, 3, "g")
        channel.seek("g", 2)
        number = channel.engine().log.tail.number  # type: ignore[attr-defined]
        put(channel, b"later")
    store.delete(slot_key(number))
    assert verify(place).loss.skipped == repair(place).loss.skipped == {"g": ((1, 3),)}
    assert verify(place).healthy
