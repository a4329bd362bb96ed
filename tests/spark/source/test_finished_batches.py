"""The commit of a micro-batch waits for the take of the next one, where an append costs much: a slot for a batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.store.object_port import ObjectPort
from spillable_stream.spark.source.finished_batches import FinishedBatches
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from tests.support.events import put
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, log_of, stores_in_memory
from tests.support.spark.sources import named_source

pytestmark = pytest.mark.spark
LONG_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def store() -> Iterator[MemoryStore]:
    with stores_in_memory() as stores:
        stores[URL] = MemoryStore(URL)
        yield stores[URL]


@pytest.fixture
def channel(store: MemoryStore) -> Iterator[ss.Channel]:
    with ss.Channel(URL, commit_interval=0) as channel:
        yield channel


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no second pass."""
    delay(monkeypatch, LONG_SECONDS)


def delay(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(ObjectPort, "commit_delay_seconds", lambda _: seconds)


def slots_of(store: MemoryStore) -> int:
    return sum(key.startswith("log/") for key in store.objects)


def position(channel: ss.Channel) -> tuple[int, int]:
    """Return the group's position, and how many events are in takes that are not committed."""
    channel.engine().follow()
    stats = channel.stats().groups["default"]
    return stats.position, stats.in_flight


def run(reader: SpillableStreamReader, start: Any, *, tells: bool = True) -> Any:
    """Run a micro-batch as Spark does, which ends the batch before it once it has written this one down."""
    end = reader.latestOffset(start)
    assert end != start
    if tells:
        reader.commit(start)
    assert reader.partitions(start, end)
    return end


# ── a slot for a batch ──────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("tells", [True, False])
def test_a_batch_costs_a_slot_whether_spark_says_that_it_is_done_or_never(
    channel: ss.Channel, store: MemoryStore, tells: bool
) -> None:
    put(channel, b"0")
    reader = named_source(channel)
    end = run(reader, reader.initialOffset(), tells=False)
    for number in range(1, 5):
        put(channel, b"%d" % number)
        before = slots_of(store)
        end = run(reader, end, tells=tells)
        assert slots_of(store) == before + 1
        assert position(channel) == (number, 1)
    reader.stop()


@pytest.mark.usefixtures("never")
def test_a_source_that_is_closed_commits_first(channel: ss.Channel) -> None:
    put(channel, b"0")
    reader = named_source(channel)
    end = run(reader, reader.initialOffset(), tells=False)
    assert reader.latestOffset(end) == end
    assert position(channel) == (0, 1)
    reader.stop()
    assert position(channel) == (1, 0)


@pytest.mark.usefixtures("never")
def test_a_query_that_ends_with_what_there_is_waits_for_nothing(channel: ss.Channel) -> None:
    put(channel, b"0")
    reader = named_source(channel)
    reader.prepareForTriggerAvailableNow()
    end = run(reader, reader.initialOffset(), tells=False)
    assert reader.latestOffset(end) == end
    assert position(channel) == (1, 0)
    reader.stop()


def test_without_news_the_commit_comes_by_itself(channel: ss.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    delay(monkeypatch, 0.001)
    done = threading.Event()
    commit_due = FinishedBatches.commit_due

    def committed(self: FinishedBatches) -> None:
        commit_due(self)
        done.set()

    monkeypatch.setattr(FinishedBatches, "commit_due", committed)
    put(channel, b"0")
    reader = named_source(channel)
    end = run(reader, reader.initialOffset(), tells=False)
    reader.commit(end)
    assert done.wait(30)
    assert position(channel) == (1, 0)
    reader.stop()


@pytest.mark.usefixtures("never")
def test_a_loss_that_the_commit_meets_which_comes_by_itself_is_raised_by_sparks_next_take(
    channel: ss.Channel, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    put(channel, b"0")
    reader = named_source(channel)
    end = run(reader, reader.initialOffset(), tells=False)
    with store.put_back():
        put(channel, b"lost")
        assert reader.latestOffset(end) != end
    with ss.Channel(URL, commit_interval=0) as other:
        put(other, b"1")
        put(other, b"2")
    reader._query.finished._late._run()
    assert [r.levelname for r in caplog.records] == ["ERROR"] and "events are lost" in caplog.text
    following = reader.latestOffset(end)
    with pytest.raises(ss.UnsafeStoreError, match="events are lost"):
        reader.partitions(end, following)
    reader.stop()
    again = named_source(channel)  # the query ended with that, and is started again
    assert again.partitions(end, again.latestOffset(end))
    again.stop()


@pytest.mark.usefixtures("never")
def test_a_source_that_is_closed_commits_and_leaves_a_loss_to_the_next_call(channel: ss.Channel) -> None:
    put(channel, b"0")
    reader = named_source(channel)
    end = run(reader, reader.initialOffset(), tells=False)
    assert reader.latestOffset(end) == end
    untold = log_of(reader._query.lease.channel()).untold_loss
    with untold.block():
        raise ss.UnsafeStoreError("lost")
    reader.stop()
    assert position(channel) == (1, 0)
    assert untold.waiting is not None


def test_a_channel_on_a_disk_waits_for_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ss.Channel(tmp_path_factory.mktemp("c") / "c", minimum_required_space=0) as channel:
        put(channel, b"0")
        reader = named_source(channel)
        end = run(reader, reader.initialOffset(), tells=False)
        reader.commit(end)
        assert position(channel) == (1, 0)
        reader.stop()


# ── what may come in between ────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("never")
def test_a_listener_may_commit_what_waits(channel: ss.Channel, store: MemoryStore) -> None:
    put(channel, b"0")
    reader = named_source(channel)
    end = run(reader, reader.initialOffset(), tells=False)
    put(channel, b"1")
    following = reader.latestOffset(end)
    assert finish_takes(channel.engine(), "default", 1) == 1
    before = slots_of(store)
    assert reader.partitions(end, following)
    assert slots_of(store) == before + 1
    assert position(channel) == (1, 1)
    reader.stop()


@pytest.mark.usefixtures("never")
def test_a_source_that_is_killed_while_a_commit_waits_leaves_it_to_the_next(channel: ss.Channel) -> None:
    put(channel, b"0", b"1")
    reader = named_source(channel, maxEventsPerTrigger=1)
    end = run(reader, reader.initialOffset(), tells=False)
    reader.latestOffset(end)
    reader._query.finished.takes.due_id = 0  # as if it had never come to that
    reader.stop()
    assert position(channel) == (0, 1)
    reader = named_source(channel, maxEventsPerTrigger=1)
    following = run(reader, end, tells=False)
    assert position(channel) == (1, 1)
    assert reader.latestOffset(following) == following
    reader.stop()
    assert position(channel) == (2, 0)


@pytest.mark.usefixtures("never")
def test_a_batch_that_sparks_checkpoint_lost_is_planned_again_as_it_was(channel: ss.Channel) -> None:
    put(channel, b"0", b"1", b"2")
    reader = named_source(channel, maxEventsPerTrigger=1)
    first = run(reader, reader.initialOffset(), tells=False)
    second = run(reader, first, tells=False)
    reader.stop()
    reader = named_source(channel)  # whatever the limits are by now
    assert reader.latestOffset(first)["writeOrderId"] == second["writeOrderId"] == 2
    reader.stop()


# ── a store that fails ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ANSWER_LOST])
@pytest.mark.usefixtures("never")
def test_a_slot_with_a_commit_and_a_take_is_there_as_a_whole_or_not_at_all(
    channel: ss.Channel, store: MemoryStore, fault: Fault
) -> None:
    put(channel, b"0")
    left = [fault]
    armed = threading.Event()

    def schedule(request: Request) -> Fault | None:
        return left.pop() if left and armed.is_set() and request.kind == "create" else None

    with stores_in_memory(lambda inner: FaultyStore(inner, schedule)) as stores:
        stores[URL] = store
        reader = named_source(channel)
        end = run(reader, reader.initialOffset(), tells=False)
        put(channel, b"1")
        following = reader.latestOffset(end)
        armed.set()
        if fault is Fault.REFUSED:
            with pytest.raises(ss.StorageError, match="nothing was committed"):
                reader.partitions(end, following)
            assert position(channel) == (0, 1)
        assert reader.partitions(end, following)
        assert position(channel) == (1, 1)
        reader.stop()
