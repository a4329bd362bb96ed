"""What Spark's calls ask of a store, counted: a look at the log is two reads, and a commit a create and a small read.

A request costs 20 to 50 ms, and money. So each call looks once, however often it asks for the state.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.engine.deliveries import wall_clock_ms
from spillable_stream.engine.store.object_owners import ObjectOwners
from spillable_stream.engine.store.object_port import ObjectPort
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.sink.sharded_channels import plan_sharded_sink
from spillable_stream.spark.sink.sharded_writer import ShardedStreamWriter
from spillable_stream.spark.sink.sink_channel import plan_sink
from spillable_stream.spark.sink.sink_options import SinkOptions
from spillable_stream.spark.sink.writer import SpillableBatchWriter, SpillableStreamWriter
from spillable_stream.spark.source.batch_reader import SpillableBatchReader
from spillable_stream.spark.source.read_options import BatchOptions, StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader
from tests.spark.test_channel_pool import close_parked
from tests.support.delays import put_late
from tests.support.events import put
from tests.support.faulty_store import Kind, Request
from tests.support.object_channels import URL, collect_now, faulty_stores_in_memory
from tests.support.spark.sources import source

pytestmark = pytest.mark.spark

Asked = Callable[[], tuple[int, int]]

LOOK = 2
"""The slot after the newest one that is known, which is not there, and that one again."""

FOUND = 1
"""A slot that is there."""

PROOF = 1
"""Of a commit: the slot before it."""

CREATE = 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """Return how many reads and writes there were since this was asked last; threads of their own ask for nothing."""
    monkeypatch.setattr(ObjectPort, "commit_delay_seconds", lambda _: 3600.0)
    monkeypatch.setattr(ObjectOwners, "period_seconds", lambda _: 3600.0)

    def asked() -> tuple[int, int]:
        counts = sum((store.counts for store in stores), Counter[Kind]())
        for store in stores:
            store.forget_counts()
        reads = counts["get"] + counts["get_range"] + counts["list"]
        return reads, counts.total() - reads

    with faulty_stores_in_memory() as stores:
        yield asked
        close_parked()


@pytest.mark.parametrize("options", [{"group": "g"}, {}])
def test_each_call_of_a_stream_looks_once_and_a_batch_is_one_append(asked: Asked, options: dict[str, str]) -> None:
    with ss.Channel(URL, commit_interval=0) as channel:
        reader = source(channel, **options)
        start = reader.initialOffset()
        put(channel, b"the first batch creates the group, or its owner")
        end = reader.latestOffset(start)
        reader.partitions(start, end)
        for number in range(3):
            start = end
            put(channel, b"%d" % number)
            asked()
            end = reader.latestOffset(start)
            assert asked() == (LOOK + FOUND, 0)
            reader.commit(start)
            assert asked() == (LOOK, 0)
            parts = reader.partitions(start, end)
            assert asked() == (LOOK + PROOF, CREATE)
            reader.reportLatestOffset()
            assert asked() == (LOOK, 0)
            assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 1
        asked()
        assert reader.latestOffset(end) == end
        assert asked() == (LOOK, 0)
        reader.stop()


def test_an_idle_stream_delivers_what_others_delayed_and_looks_no_more_for_it(asked: Asked) -> None:
    with ss.Channel(URL, commit_interval=0) as channel:
        reader = source(channel, group="g")
        reader.partitions(reader.initialOffset(), start := reader.latestOffset(reader.initialOffset()))
        put_late(channel, 1_000, b"late")
        late_ms = wall_clock_ms() + 2_000_000
        reader.port()._engine.deliveries.clock_ms = lambda: late_ms  # type: ignore[attr-defined]
        asked()
        end = reader.latestOffset(start)
        reads, writes = asked()
        assert writes == CREATE
        assert reads == LOOK + FOUND + PROOF + 2, "the object with the event, and the identity"
        assert [reader.read(part) is not None for part in reader.partitions(start, end)] == [True]
        assert asked() and reader.latestOffset(end) == end
        assert asked() == (LOOK, 0)
        reader.stop()


def test_a_set_costs_what_its_channels_cost_alone(asked: Asked) -> None:
    places = [f"{URL}-{letter}" for letter in "abc"]
    channels = [ss.Channel(place, commit_interval=0) for place in places]
    for channel in channels:
        put(channel, b"first")
    reader = SpillableSetReader(ChannelSet(places), StreamOptions.of(), struct_type(EVENT_SCHEMA))
    start: Any = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    for channel in channels:
        put(channel, b"second")
    start, count = end, len(places)
    asked()
    end = reader.latestOffset(start)
    assert asked() == (count * (LOOK + FOUND), 0)
    reader.commit(start)
    assert asked() == (count * LOOK, 0)
    reader.partitions(start, end)
    assert asked() == (count * (LOOK + PROOF), count * CREATE)
    assert reader.latestOffset(end) == end
    assert asked() == (count * LOOK, 0)
    reader.stop()
    for channel in channels:
        channel.close()


ROWS = pa.record_batch([pa.array([f"customer {n}" for n in range(40)]), pa.array(range(40))], ["customer", "n"])
COLUMNS = struct_type(ROWS.schema)


@pytest.mark.parametrize(
    ("options", "count"), [({}, 1), ({"shards": "2", "shardBy": "customer"}, 2)], ids=["a channel", "two shards"]
)
def test_the_plan_and_the_commit_of_a_sinks_batch_look_once_at_each_channel(
    asked: Asked, options: dict[str, str], count: int
) -> None:
    parsed, columns = SinkOptions.parse({"commitInterval": "0", **options}, stream=True), struct_type(ROWS.schema)
    beyond = 0 if count == 1 else 1  # whether an earlier division had more shards
    for batch_id in range(3):
        writer: SpillableStreamWriter | ShardedStreamWriter
        if count == 1:
            writer = SpillableStreamWriter(plan_sink(URL, parsed, columns))
        else:
            writer = ShardedStreamWriter(plan_sharded_sink(URL, parsed, columns))
        planned = asked()
        assert batch_id == 0 or planned == (count * LOOK + beyond, 0)
        staged = [writer._stage(iter([ROWS]), "query", batch_id)]
        assert asked() == (count, 0), "a task asks each channel which one it is"
        writer.commit(staged, batch_id)
        committed = asked()
        assert batch_id == 0 or committed == (count * (LOOK + PROOF), count * CREATE)


def test_a_batch_write_reads_the_channel_for_its_plan_and_looks_once_for_its_commit(asked: Asked) -> None:
    """Spark plans, stages and commits in a process each."""
    with ss.Channel(URL, schema=ROWS.schema, commit_interval=0):
        pass
    asked()
    planned = pickle.dumps(SpillableBatchWriter(plan_sink(URL, SinkOptions.parse({}, stream=False), COLUMNS)))
    assert asked() == (LOOK + 5, 0), "its identity, the hint, the checkpoints, slot 0, and the slot behind the end"
    close_parked()
    staged = pickle.loads(planned).write(iter([ROWS]))
    assert asked() == (1, 0)
    pickle.loads(planned).commit([staged])
    assert asked() == (LOOK + PROOF, CREATE)
    with ss.Channel(URL, create=False) as channel:
        assert channel.range_of() == (1, 40)


def test_a_batch_writes_commit_follows_what_others_appended_meanwhile(asked: Asked) -> None:
    with ss.Channel(URL, schema=ROWS.schema, commit_interval=0) as channel:
        planned = pickle.dumps(SpillableBatchWriter(plan_sink(URL, SinkOptions.parse({}, stream=False), COLUMNS)))
        close_parked()
        staged = pickle.loads(planned).write(iter([ROWS]))
        with channel.put_transaction() as tx:
            tx.put_batch(ROWS)
        asked()
        pickle.loads(planned).commit([staged])
        assert asked() == (LOOK + FOUND + PROOF, CREATE)
        assert channel.range_of() == (1, 80)


def test_a_batch_write_that_was_committed_before_is_skipped_though_the_plan_did_not_know(asked: Asked) -> None:
    options = SinkOptions.parse({"txnAppId": "app", "txnVersion": "1"}, stream=False)
    with ss.Channel(URL, schema=ROWS.schema, commit_interval=0) as channel:
        planned = [pickle.dumps(SpillableBatchWriter(plan_sink(URL, options, COLUMNS))) for _ in range(2)]
        for one in planned:
            close_parked()
            writer = pickle.loads(one)
            writer.commit([writer.write(iter([ROWS]))])
        assert channel.range_of() == (1, 40)


def test_the_plan_of_a_batch_read_looks_once(asked: Asked) -> None:
    with ss.Channel(URL, commit_interval=0) as channel:
        put(channel, b"0")
    reader = SpillableBatchReader(URL, BatchOptions.of(), struct_type(EVENT_SCHEMA))
    reader.partitions()
    asked()
    reader.partitions()
    assert asked() == (LOOK, 0)


def two_batches_with_a_pause(at: int, *, after: bool) -> tuple[list[bytes], int]:
    """Run micro-batches in a driver that is paused at a request, before or after it, until its slots were collected.

    Returns:
        What the batches had, and how many requests there were.
    """
    requests = list[int]()

    def pause(request: Request) -> None:
        requests.append(request.number)
        if len(requests) == at:
            for _ in range(4):
                put(channel, b"later")
            collect_now(channel)

    options: Any = {"commit_interval": 0, "gc_delay": 0, "max_inline_bytes": 0, "retention_bytes": 1 << 30}
    with faulty_stores_in_memory() as stores, ss.Channel(URL, **options) as channel:
        put(channel, b"first", b"second")
        reader, found = source(channel, maxEventsPerTrigger=1), list[bytes]()
        start = reader.initialOffset()
        setattr(stores[-1], "after" if after else "schedule", pause)
        while len(found) < 2:
            end = reader.latestOffset(start)
            reader.commit(start)
            for part in reader.partitions(start, end):
                found += [body for batch in reader.read(part) for body in batch.column("body").to_pylist()]
            start = end
        reader.stop()
    return found, len(requests)


@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after it"])
def test_a_driver_that_is_paused_until_its_slots_were_collected_continues_as_if_nothing_had_been(after: bool) -> None:
    for at in itertools.count(1):
        found, requests = two_batches_with_a_pause(at, after=after)
        assert found == [b"first", b"second"]
        if requests < at:
            return
