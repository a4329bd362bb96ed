"""What a task is sent of a channel in an object store, and what it finds on its host."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.channel.taken_events import events_from_batch
from spillable_stream.engine import append_plan
from spillable_stream.engine.store.object_plans import ObjectReadPlan, ObjectStagePlan
from spillable_stream.errors import DataLossError, NotAChannelError, StorageError, UnsafeStoreError
from spillable_stream.format.batch import FAR_FRAME_BYTES
from spillable_stream.format.query_note import FirstBatch, QueryNote
from spillable_stream.log.salvage import Unreadable
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import StoreError
from tests.support.events import numbered, put
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, stores_in_memory
from tests.support.object_logs import frames_of


@pytest.fixture
def stores() -> Iterator[dict[str, MemoryStore]]:
    with stores_in_memory() as stores:
        yield stores


def plans() -> tuple[ObjectReadPlan, ObjectStagePlan]:
    """Create a channel of five events, and return the plans of reading some and of staging others."""
    with Channel(URL, compression="zstd", commit_interval=0) as channel:
        put(channel, *numbered(0, 5))
        [read] = channel.port().plan_read([[(2, 4)]])
        stage = channel.port().plan_stage()
    assert isinstance(read, ObjectReadPlan) and isinstance(stage, ObjectStagePlan)
    return read, stage


def test_tasks_of_a_host_share_what_they_read(stores: dict[str, MemoryStore], tmp_path: Path) -> None:
    with Channel(URL, commit_interval=0, max_inline_bytes=10) as channel:
        put(channel, *numbered(0, 5))
        [plan] = channel.port().plan_read([[(1, 5)]], DiskCache(str(tmp_path), 1 << 20))
    for in_store in (True, False):
        reader = pickle.loads(pickle.dumps(plan)).open()
        assert [r.last_id for extent in plan.extents for r in reader.read(extent)] == [5]
        reader.close()
        if in_store:
            for key in [key for key in stores[URL].objects if key.startswith("segments/")]:
                del stores[URL].objects[key]  # so that nothing but the cache has the events


def test_a_copy_of_a_channel_is_not_read_from_what_the_original_left_in_the_cache(
    stores: dict[str, MemoryStore], tmp_path: Path
) -> None:
    copy = f"{URL}-copy"
    with Channel(URL, commit_interval=0) as channel:
        put(channel, b"of both")
    stores[copy] = MemoryStore(copy)
    stores[copy].objects.update(stores[URL].objects)
    cache = DiskCache(str(tmp_path), 1 << 20)
    for place in (URL, copy):
        with Channel(place, create=False, commit_interval=0) as channel:
            put(channel, place.encode())
            [plan] = channel.port().plan_read([[(2, 2)]], cache)
        reader = pickle.loads(pickle.dumps(plan)).open()
        [read] = [read for extent in plan.extents for read in reader.read(extent)]
        assert [e.body for e in events_from_batch(read)] == [place.encode()]
        reader.close()


BEGIN: dict[str, Callable[[ObjectReadPlan, ObjectStagePlan], None]] = {
    "read": lambda read, _: read.open().close(),
    "stage": lambda _, stage: stage.ask_here()(),
}


@pytest.fixture(params=BEGIN)
def begin(request: pytest.FixtureRequest) -> Callable[..., None]:
    """What a task does first by one of its plans."""
    return BEGIN[request.param]


def test_plans_are_sent_without_a_store_and_without_credentials(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "a-credential")
    made = plans()
    sent = pickle.dumps(made)
    assert pickle.loads(sent) == made
    assert b"a-credential" not in sent and b"Store" not in sent
    for plan in made:
        with pytest.raises(dataclasses.FrozenInstanceError):
            plan.channel = ""  # type: ignore[misc]


@pytest.mark.usefixtures("one_block")
def test_events_are_read_by_a_plan_alone(stores: dict[str, MemoryStore]) -> None:
    read, _ = pickle.loads(pickle.dumps(plans()))
    reader = read.open()
    (extent,) = read.extents
    assert [body for r in reader.read(extent) for body in r.batch["body"].to_pylist()] == numbered(1, 3)
    assert (reader.path, reader.channel, read.ends) == (URL, read.channel, {})


def test_events_are_staged_by_a_plan_alone_and_an_old_plan_says_its_age(stores: dict[str, MemoryStore]) -> None:
    _, stage = plans()
    writer = stage.begin("query", 7)
    writer.write(frames_of(b"x"))
    name = writer.finish().name
    assert name in stores[URL].objects
    assert name.startswith(f"segments/{stage.birth:020d}-query.7.") and stage.birth == 1
    assert stage.compression == "zstd"


def test_a_large_put_is_cut_into_frames_so_that_a_task_downloads_few(stores: dict[str, MemoryStore]) -> None:
    """A task downloads whole frames, if only for one of their events."""
    rows = pa.record_batch({"x": pa.array([bytes(1000)] * 10_000)})
    with Channel(URL, schema=rows.schema, commit_interval=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_batch(rows)
        [plan] = channel.port().plan_read([[(1, 10_000)]])
        assert channel.port().plan_stage().frame_bytes == FAR_FRAME_BYTES
    reader = plan.open()
    frames = [read.last_id for extent in plan.extents for read in reader.read(extent)]
    reader.close()
    assert frames[-1] == 10_000
    assert 9 <= len(frames) <= 11


class _Together(MemoryStore):
    """Answers what the channel is only once events were asked for, and not what those are before the former."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner.root)
        self.objects = inner.objects
        self.asked = threading.Barrier(2)

    def get(self, key: str) -> bytes:
        self.asked.wait(60)
        return super().get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        self.asked.wait(60)
        return super().get(key)[start:end]


def test_the_first_events_are_asked_for_together_with_what_the_channel_is(stores: dict[str, MemoryStore]) -> None:
    read, _ = plans()
    stores[URL] = _Together(stores[URL])
    reader = read.open()
    assert [r.last_id for extent in read.extents for r in reader.read(extent)] == [4]


def test_a_host_that_finds_the_channel_is_accepted(stores: dict[str, MemoryStore], begin: Callable[..., None]) -> None:
    begin(*plans())


def test_a_host_that_finds_no_channel_is_refused(stores: dict[str, MemoryStore], begin: Callable[..., None]) -> None:
    made = plans()
    stores.clear()
    with pytest.raises(NotAChannelError, match=f"this host finds no channel at {URL}: give all hosts the same cred"):
        begin(*made)
    assert stores[URL].objects == {}


def test_a_host_that_finds_another_channel_there_is_refused(
    stores: dict[str, MemoryStore], begin: Callable[..., None]
) -> None:
    made = plans()
    stores.clear()
    plans()
    before = dict(stores[URL].objects)
    with pytest.raises(NotAChannelError, match=f"this host finds another channel at {URL}: give all hosts the same"):
        begin(*made)
    assert stores[URL].objects == before


@pytest.mark.usefixtures("one_block")
def test_what_cannot_be_read_is_kept_and_known(stores: dict[str, MemoryStore]) -> None:
    read, _ = plans()
    (extent,) = read.extents
    data = bytearray(stores[URL].objects[slot_key(1)])
    data[extent.offset + 70] ^= 1
    stores[URL].objects[slot_key(1)] = bytes(data)
    reader = read.open()
    (damage,) = reader.read_past_damage(extent)
    assert isinstance(damage, Unreadable) and damage[:2] == (2, 4)
    assert damage.path == Path(slot_key(1))
    assert reader.not_quarantined([(1, 5)]) == [(1, 5)]
    reader.keep_damaged(damage)
    assert reader.not_quarantined([(1, 5)]) == [(1, 1), (5, 5)]
    del stores[URL].objects[slot_key(1)]
    with pytest.raises(FileNotFoundError):
        reader.keep_damaged(damage)


@pytest.mark.usefixtures("one_block")
def test_events_that_are_gone_are_data_loss(stores: dict[str, MemoryStore]) -> None:
    read, _ = plans()
    stores[URL].objects.pop(slot_key(1))
    (extent,) = read.extents
    with pytest.raises(DataLossError, match="the events 2 to 4 are gone"):
        list(read.open().read(extent))


def test_the_query_that_reads_as_a_group_is_noted_and_replaced(stores: dict[str, MemoryStore]) -> None:
    read, _ = plans()
    events = read.open()
    assert events.query_note("g") is None
    for note in (QueryNote("one", "run", FirstBatch(0, 1, 10, "reset")), QueryNote("two", "run"), QueryNote("three")):
        assert events.note_query("g", note)
        assert events.query_note("g") == note
    assert events.query_note("another") is None


def test_a_note_that_the_store_fails_to_give_or_to_take_is_an_error(stores: dict[str, MemoryStore]) -> None:
    """Else a query whose first batch was stored before would not be found out."""
    read, _ = plans()
    store = FaultyStore(stores[URL])
    with stores_in_memory(lambda _: store):
        events = read.open()
    store.schedule = lambda _: Fault.UNAVAILABLE
    with pytest.raises(StorageError):
        events.query_note("g")
    with pytest.raises(StorageError):
        events.note_query("g", QueryNote("query"))


def test_without_a_right_to_write_no_query_is_noted(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, _ = plans()
    events = read.open()

    def refuse(*_: object) -> None:
        raise StoreError("the store refuses", may_have_happened=False, is_lasting=True)

    monkeypatch.setattr(MemoryStore, "replace", refuse)
    assert not events.note_query("g", QueryNote("query"))
    assert events.query_note("g") is None


def test_a_group_that_is_created_anew_has_no_query_of_the_dropped_one(stores: dict[str, MemoryStore]) -> None:
    read, _ = plans()
    read.open().note_query("g", QueryNote("query"))
    with Channel(URL, create=False, commit_interval=0) as channel:
        channel.consumer("g").close()
        assert channel.port().query_note("g") == QueryNote("query")
        channel.drop_group("g")
        channel.consumer("g").close()
        assert channel.port().query_note("g") is None


# ── a bucket that was put back after the planning, and that others continued ────────────────────

OTHERS = f"{URL} has another event 2 than the one that was to be read: the bucket was put back to an earlier version"
OPTIONS: dict[str, Any] = {"commit_interval": 0, "checkpoint_on_close": False}


def bodies_of(plan: ObjectReadPlan) -> list[bytes]:
    reader = pickle.loads(pickle.dumps(plan)).open()
    return [body for extent in plan.extents for read in reader.read(extent) for body in read.batch["body"].to_pylist()]


def plan_to_be_late(store: MemoryStore, *, checkpoint: bool = False) -> ObjectReadPlan:
    """Plan to read the event 2 in slot 2, and put the bucket back to before that slot.

    Where there is a checkpoint behind the slot, whoever plans the read never sees the slot's token.
    """
    with store.put_back():
        with Channel(URL, **OPTIONS) as channel:
            put(channel, b"mine")
            put(channel, b"mine, too")
            if checkpoint:
                channel.checkpoint()
        with Channel(URL, readonly=True) as channel:
            [plan] = channel.port().plan_read([[(2, 2)]])
    assert isinstance(plan, ObjectReadPlan) and (plan.tokens.token_of(2) is None) == checkpoint
    return plan


def put_as_another(*bodies: bytes) -> None:
    with Channel(URL, **OPTIONS) as channel:
        for body in bodies:
            put(channel, body)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_late_task_returns_no_events_of_others_that_have_its_slot_and_its_ids(
    stores: dict[str, MemoryStore], checkpoint: bool
) -> None:
    put_as_another(b"of both")
    plan = plan_to_be_late(stores[URL], checkpoint=checkpoint)
    put_as_another(b"others'")
    with pytest.raises(UnsafeStoreError, match=OTHERS):
        bodies_of(plan)


def test_slots_of_the_same_time_are_told_apart_by_their_tokens(
    stores: dict[str, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the last append is ahead of all clocks, so that each append has the next one."""
    with monkeypatch.context() as ahead:
        ahead.setattr(append_plan, "time", SimpleNamespace(time_ns=lambda: 4 * 10**18))
        put_as_another(b"of both")
    plan = plan_to_be_late(stores[URL])
    put_as_another(b"others'")
    with Channel(URL, readonly=True) as channel:
        [others] = channel.port().plan_read([[(2, 2)]])
    assert isinstance(others, ObjectReadPlan) and others.times == plan.times
    assert bodies_of(others) == [b"others'"]
    with pytest.raises(UnsafeStoreError, match=OTHERS):
        bodies_of(plan)


def test_a_slot_costs_a_plan_few_bytes_and_its_task_no_request(stores: dict[str, MemoryStore]) -> None:
    put_as_another(*numbered(0, 100))
    store = stores[URL] = Counting(stores[URL])
    with Channel(URL, readonly=True) as channel:
        few, many = (channel.port().plan_read([[(1, last)]])[0] for last in (50, 100))
    assert len(pickle.dumps(many)) - len(pickle.dumps(few)) < 50 * 100
    assert isinstance(many, ObjectReadPlan)
    store.asked.clear()
    assert bodies_of(many) == numbered(0, 100)
    assert sorted(store.asked) == [slot_key(number) for number in range(1, 101)]


class Counting(MemoryStore):
    """Remembers of which objects parts were asked for.

    Attributes:
        asked: the objects' keys.
    """

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner.root)
        self.objects = inner.objects
        self.asked: list[str] = []

    def get_range(self, key: str, start: int, end: int) -> bytes:
        self.asked.append(key)
        return super().get_range(key, start, end)
