"""A repair of a channel in a store continues behind holes and damage, whoever still remembers what was before."""

from __future__ import annotations

from contextlib import suppress

import pytest

import spillable_stream as ss
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing
from spillable_stream.integrity import object_repair
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import Store
from tests.support.delays import clock_of, deliver_all, put_late
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, FaultyStore, Request, once
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, kill, make_two_checkpoints, stores_in_memory
from tests.support.object_damage import (
    DAMAGES,
    contents_of,
    damage_object,
    damaged_take,
    fill_store,
    keys_of,
    merge_now,
    open_here,
    require_repaired,
)
from tests.support.object_logs import FakeTime
from tests.support.store_limits import SetLimits

pytestmark = pytest.mark.usefixtures("no_word_of_void_slots")


def test_ids_that_may_have_been_used_are_not_used_again(store: MemoryStore) -> None:
    channel = open_here()
    put(channel, b"0", b"1")
    put(channel, b"2", b"3")
    kill(channel)
    damage_object(store, keys_of("log/", store)[-1], DAMAGES["nonsense"])
    report = ss.repair(URL)
    ((first, last),) = report.loss.doubtful
    assert first == 3
    with open_here(create=False) as channel:
        assert put(channel, b"later")[0] == last + 1
        assert channel.stats().doubtful == ((first, last),)
        assert peek(channel) == [b"0", b"1", b"later"]


@pytest.mark.parametrize("kind", ["missing", "cut short"])
def test_a_seek_that_is_destroyed_is_named_by_what_its_group_would_miss(store: MemoryStore, kind: str) -> None:
    with open_here(retention_bytes=1 << 20) as channel:
        put(channel, b"1", b"2", b"3")
        take(channel, 3, "fast")
        channel.seek("fast", 2)
        number = channel.engine().log.tail.number  # type: ignore[attr-defined]
        put(channel, b"4")
    damage_object(store, slot_key(number), DAMAGES[kind])
    assert ss.verify(URL).loss.skipped == {"fast": ((1, 3),)}
    assert ss.repair(URL).loss.skipped == {"fast": ((1, 3),)}
    assert contents_of(["fast"]).groups["fast"] == {4: b"4"}


@pytest.mark.parametrize("kind", ["missing", "cut short", "one byte of the rest"])
@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_group_whose_creation_is_destroyed_is_there_if_it_ever_had_an_owner(
    store: MemoryStore, kind: str, is_given_up: bool, set_limits: SetLimits
) -> None:
    with open_here() as channel:
        channel.consumer("other")
    channel = open_here()
    channel.consumer("g")
    creation = int(keys_of("log/", store)[-1][-20:])
    put(channel, b"first")
    kill(channel)
    channel = open_here()
    set_limits(answer_seconds=0)
    channel.consumer("g")
    put(channel, b"last")
    if is_given_up:
        channel.close()
    else:
        kill(channel)
    damage_object(store, slot_key(creation), DAMAGES[kind])
    assert ss.repair(URL).loss.repeated["g"] == ((1, 1),)
    with open_here() as channel:
        set_limits(answer_seconds=0)
        assert channel.stats().groups.keys() == {"g", "other"}
        assert take(channel, 9, "g") == [b"first", b"last"]


def test_a_group_that_was_dropped_behind_damage_does_not_come_back(store: MemoryStore) -> None:
    channel = open_here()
    channel.consumer("other")
    channel.consumer("g")
    channel.checkpoint()
    put(channel, b"destroyed")
    destroyed = int(keys_of("log/", store)[-1][-20:])
    channel.drop_group("g")
    put(channel, b"later")
    channel.close(checkpoint=False)
    damage_object(store, slot_key(destroyed), DAMAGES["cut short"])
    ss.repair(URL)
    with open_here() as channel:
        assert channel.stats().groups.keys() == {"other"}


def test_a_group_whose_creation_is_destroyed_is_where_a_seek_moved_it(store: MemoryStore) -> None:
    with open_here(retention_bytes=1 << 30) as channel:
        put(channel, *numbered(0, 5))
        channel.consumer("other")
        channel.consumer("g")
        creation = int(keys_of("log/", store)[-1][-20:])
        channel.seek("g", 4)
    damage_object(store, slot_key(creation), DAMAGES["cut short"])
    ss.repair(URL)
    assert list(contents_of(["g"]).groups["g"]) == [4, 5]


@pytest.mark.parametrize("kind", ["missing", "cut short"])
def test_delayed_events_whose_delivery_is_lost_are_counted_and_come_once_more(store: MemoryStore, kind: str) -> None:
    channel = open_here()
    clock = clock_of(channel)
    clock.pass_by(-1000)  # so that what is delivered was due by now
    put_late(channel, 10, b"0", b"1")
    put_late(channel, 1_000_000, b"later")
    clock.pass_by(11)
    deliver_all(channel)
    delivery = keys_of("log/", store)[-1]
    put(channel, b"2")
    kill(channel)
    damage_object(store, delivery, DAMAGES[kind])
    assert ss.verify(URL).loss.redelivered == ss.repair(URL).loss.redelivered == 2
    with open_here(create=False) as channel:
        deliver_all(channel)
        assert sorted(peek(channel)) == numbered(0, 3)


# ── handles that were open ──────────────────────────────────────────────────────────────────────


def test_a_handle_that_slept_before_a_hole_finds_damage_and_not_the_end_of_the_log(store: MemoryStore) -> None:
    sleeper = open_here()
    put(sleeper, b"0")
    with open_here() as channel:
        for i in range(1, 5):
            put(channel, b"%d" % i)
        channel.checkpoint()
    hole = next(key for key in keys_of("log/", store) if store.objects[key][-1:] == b"2" or key == slot_key(3))
    damage_object(store, hole, DAMAGES["missing"])
    ss.repair(URL)
    with pytest.raises(ss.CorruptionError):
        put(sleeper, b"into the hole")
    kill(sleeper)
    with open_here(create=False) as channel:
        assert b"into the hole" not in peek(channel)


def test_a_hole_whose_filling_meets_another_request_is_filled_by_the_next_one(store: MemoryStore) -> None:
    """Otherwise a handle that slept before it would commit there what nobody reads."""
    sleeper = open_here()
    put(sleeper, b"0")
    with open_here() as channel:
        for i in range(1, 5):
            put(channel, b"%d" % i)
        channel.checkpoint()
    damage_object(store, slot_key(3), DAMAGES["missing"])
    with stores_in_memory(lambda inner: FaultyStore(inner, once("create", Fault.CONFLICT, slot_key(3)))) as others:
        others[URL] = store
        ss.repair(URL)
    with pytest.raises(ss.CorruptionError):
        put(sleeper, b"into the hole")
    kill(sleeper)
    with open_here(create=False) as channel:
        assert peek(channel, 10) == [b"0", b"1", b"3", b"4"]


def test_a_hole_whose_filling_always_meets_another_request_leaves_the_channel_as_it_was(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_repair, "_TIMEOUT_SECONDS", 0.0)
    fill_store()
    damage_object(store, slot_key(3), DAMAGES["missing"])
    whole = dict(store.objects)

    def conflict(request: Request) -> Fault | None:
        return Fault.CONFLICT if (request.kind, request.key) == ("create", slot_key(3)) else None

    with stores_in_memory(lambda inner: FaultyStore(inner, conflict)) as others:
        others[URL] = store
        with pytest.raises(ss.ChannelBusyError, match="is being written: each request for slot 3 meets another one"):
            ss.repair(URL)
    assert {key: data for key, data in store.objects.items() if not key.startswith("quarantine/")} == whole


def lose_newest(store: MemoryStore) -> str:
    """Destroy the header of the newest slot, and return the key of the one that a repair puts behind it."""
    fill_store()
    newest = keys_of("log/", store)[-1]
    damage_object(store, newest, DAMAGES["one byte of the header"])
    return slot_key(int(newest.rpartition("/")[2]) + 1)


def test_a_fence_that_meets_another_request_is_created_by_the_next_one(store: MemoryStore) -> None:
    key = lose_newest(store)
    with stores_in_memory(lambda inner: FaultyStore(inner, once("create", Fault.CONFLICT, key))) as others:
        others[URL] = store
        ss.repair(URL)
    assert ss.verify(URL).healthy


def test_a_fence_that_always_meets_another_request_leaves_the_channel_as_it_was(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_repair, "_TIMEOUT_SECONDS", 0.0)
    key = lose_newest(store)
    before = dict(store.objects)

    def conflict(request: Request) -> Fault | None:
        return Fault.CONFLICT if (request.kind, request.key) == ("create", key) else None

    with stores_in_memory(lambda inner: FaultyStore(inner, conflict)) as others:
        others[URL] = store
        with pytest.raises(ss.ChannelBusyError, match=r"is being written: each request for slot \d+ meets another one"):
            ss.repair(URL)
    assert {key: data for key, data in store.objects.items() if not key.startswith("quarantine/")} == before


@pytest.mark.parametrize("kind", ["replace", "create"], ids=["before it fills the hole", "after"])
def test_of_two_repairs_of_one_hole_one_is_done_and_the_other_one_says_so(store: MemoryStore, kind: str) -> None:
    fill_store()
    damage_object(store, slot_key(3), DAMAGES["missing"])
    done = list[str]()

    def another(inner: Store, request: Request) -> None:
        if request.kind == kind and request.key.endswith(("report.json", slot_key(3))) and not done:
            done.append(request.key)
            with stores_in_memory() as stores:
                stores[URL] = inner  # type: ignore[assignment]
                ss.repair(URL)

    with stores_in_memory(lambda inner: FaultyStore(inner, after=lambda r: another(inner, r))) as others:
        others[URL] = store
        with pytest.raises(ss.ChannelBusyError, match="is being written: slot"):
            ss.repair(URL)
    assert done and ss.verify(URL).healthy
    with open_here(create=False) as channel:
        put(channel, b"after")


def test_a_handle_that_knows_the_newest_slot_continues_behind_the_repair(store: MemoryStore) -> None:
    with open_here() as live:
        for i in range(4):
            put(live, b"%d" % i)
        damage_object(store, slot_key(2), DAMAGES["missing"])
        ss.repair(URL)
        put(live, b"4")
        with open_here(create=False) as channel:
            assert peek(channel) == [b"0", b"2", b"3", b"4"]


@pytest.mark.parametrize("looks", [True, False])
def test_a_live_handle_has_the_repaired_state_and_not_what_it_remembers(store: MemoryStore, looks: bool) -> None:
    live = open_here()
    damaged_take(live, store)
    ss.repair(URL)
    if looks:
        assert live.stats().groups["fast"].lag == 11
    live.checkpoint()
    put(live, b"later")
    live.checkpoint()
    assert ss.verify(URL).healthy
    assert peek(live) == [*numbered(0, 10), b"next", b"later"]
    kill(live)
    assert list(contents_of(["fast"]).groups["fast"].values()) == [*numbered(0, 10), b"next", b"later"]


def test_a_checkpoint_that_a_live_handle_had_on_its_way_is_not_replayed_across_a_repair(store: MemoryStore) -> None:
    live = open_here()
    damaged_take(live, store)
    live.checkpoint()
    late = {key: data for key, data in store.objects.items() if key == "hint" or key.startswith("checkpoints/")}
    damage_object(store, slot_key(1), DAMAGES["one byte of the rest"])
    for key in late:
        if key != "hint":
            damage_object(store, key, DAMAGES["missing"])
    report = ss.repair(URL)
    assert "fast" in report.loss.repeated
    store.objects |= late
    assert len(contents_of(["fast"]).groups["fast"]) == 11 - sum(b - a + 1 for a, b in report.loss.lost)
    assert ss.verify(URL).healthy
    kill(live)


def test_a_hint_to_a_checkpoint_from_before_the_damage_does_not_lead_into_it(store: MemoryStore) -> None:
    """A handle that was open writes it with a checkpoint that it had on its way."""
    live = open_here()
    put(live, b"1")
    live.checkpoint()
    late = {key: data for key, data in store.objects.items() if key == "hint" or key.startswith("checkpoints/")}
    put(live, b"2")
    damage_object(store, keys_of("log/", store)[-1], DAMAGES["nonsense"])
    ss.repair(URL)
    store.objects |= late
    with open_here(create=False) as channel:
        put(channel, b"3")
        assert peek(channel) == [b"1", b"3"]
    kill(live)


def test_a_late_checkpoint_of_a_damaged_slot_does_not_make_a_repaired_channel_damaged(store: MemoryStore) -> None:
    live = open_here()
    put(live, b"1")
    channel_uuid, tail, state = live.uuid, live.engine().log.tail, live.engine().follow()  # type: ignore[attr-defined]
    damage_object(store, keys_of("log/", store)[-1], DAMAGES["one byte of the header"])
    kill(live)
    ss.repair(URL)
    Checkpoints(store, channel_uuid).write(tail, state)
    assert ss.verify(URL).healthy
    with open_here(create=False) as channel:
        put(channel, b"2")
        assert peek(channel) == [b"1", b"2"]


def test_a_checkpoint_from_before_the_damage_does_not_make_a_repaired_channel_damaged(store: MemoryStore) -> None:
    """A handle that was open made it late: nobody begins with it, and nothing between it and the repair counts."""
    live = open_here()
    put(live, b"1")
    live.checkpoint()
    late = {key: data for key, data in store.objects.items() if key.startswith("checkpoints/")}
    put(live, b"2")
    put(live, b"3")
    damage_object(store, keys_of("log/", store)[-2], DAMAGES["nonsense"])
    assert ss.repair(URL).loss.lost == ((2, 2),)
    store.objects |= late
    report = ss.verify(URL)
    assert report.healthy and [str(f.path) for f in report.findings] == list(late)
    assert ss.repair(URL).quarantine is None
    kill(live)
    with open_here(create=False) as channel:
        assert peek(channel) == [b"1", b"3"]


def test_a_repair_that_was_killed_before_its_checkpoint_is_done_again(store: MemoryStore) -> None:
    """The checkpoint of a handle that was open lies behind the damage, but does not say what the repair found."""
    live = open_here()
    damaged_take(live, store)
    tail, state = live.engine().log.tail, live.engine().state  # type: ignore[attr-defined]
    with stores_in_memory(lambda inner: FaultyStore(inner, once("create", Fault.REFUSED, "checkpoints/"))) as others:
        others[URL] = store
        with pytest.raises(ss.StorageError):
            ss.repair(URL)
    live.engine().log.checkpoints.write(tail, state)  # type: ignore[attr-defined]
    assert not ss.verify(URL).healthy
    with pytest.raises(
        ss.CorruptionError, match=f"a repair was not finished: wait .* otherwise run 'spillable repair {URL}' again"
    ):
        open_here(create=False)
    with pytest.raises(ss.CorruptionError, match="a repair was not finished"):
        put(live, b"x")
    ss.repair(URL)
    assert ss.verify(URL).healthy
    put(live, b"later")
    kill(live)
    assert list(contents_of(["fast"]).groups["fast"].values())[-2:] == [b"next", b"later"]


def test_events_that_come_again_are_not_collected_by_a_trim_from_before_the_repair(
    store: MemoryStore, set_limits: SetLimits
) -> None:
    live = open_here()
    checkpointing = live.engine().checkpointing
    assert isinstance(checkpointing, ObjectCheckpointing)
    clock = FakeTime()
    set_limits(worth_a_trim=1)
    checkpointing.monotonic = clock.monotonic
    damaged_take(live, store)
    for _ in range(2):
        make_two_checkpoints(live)
    assert live.engine().state.trimmed.through > 3
    for key in keys_of("checkpoints/", store):
        damage_object(store, key, DAMAGES["missing"])
    assert ss.repair(URL).loss.repeated == {"fast": ((1, 10),)}
    for _ in range(3):
        clock.now += 3601
        make_two_checkpoints(live)
    assert list(contents_of(["fast"]).groups["fast"].values()) == [*numbered(0, 10), b"next"]
    kill(live)


def test_a_slot_that_appears_meanwhile_makes_a_repair_give_up(store: MemoryStore) -> None:
    fill_store()
    damage_object(store, slot_key(3), DAMAGES["missing"])
    whole = dict(store.objects)
    with stores_in_memory(lambda inner: FaultyStore(inner, after=lambda r: appear(inner, r.key))) as others:
        others[URL] = store
        with pytest.raises(ss.ChannelBusyError, match="is being written: slot"):
            ss.repair(URL)
    assert {key: store.objects[key] for key in whole} == whole


def appear(store: object, key: str) -> None:
    """Let another handle append, once the report is written."""
    if key.endswith("report.json"):
        with suppress(ss.SpillableError), stores_in_memory() as stores:
            stores[URL] = store  # type: ignore[assignment]
            with open_here(create=False) as channel:
                put(channel, b"meanwhile")


def test_a_slot_that_a_removed_channel_left_in_the_way_is_moved_aside(store: MemoryStore) -> None:
    """Its writer was sending it while the channel was removed, and another one was created there."""
    with open_here() as removed:
        for i in range(3):
            put(removed, b"%d" % i)
    late = store.objects[slot_key(3)]
    store.objects.clear()
    with open_here() as channel:
        put(channel, b"one")
        store.objects[slot_key(3)] = late
        with pytest.raises(
            ss.CorruptionError, match=r"is another channel's, .* run `spillable repair s3://bucket/orders`"
        ) as refused:
            for _ in range(3):
                put(channel, b"more")
        assert refused.value.path == f"{URL}/{slot_key(3)}"
    assert not ss.repair(URL).loss.lost
    with open_here(create=False) as channel:
        put(channel, b"two")
        assert peek(channel) == [b"one", b"more", b"two"]


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_channel_with_collected_slots_is_repaired(store: MemoryStore, kind: str) -> None:
    with open_here(gc_delay=0) as channel:
        for i in range(12):
            put(channel, *numbered(2 * i, 2))
        take(channel, 15)
        collect_now(channel)
        collect_now(channel)
        put(channel, b"last")
    before = contents_of(["default"])
    assert slot_key(3) not in store.objects
    whole = dict(store.objects)
    for key in [*keys_of("log/", store), *keys_of("checkpoints/", store)]:
        store.objects.clear()
        store.objects |= whole
        damage_object(store, key, DAMAGES[kind])
        require_repaired(before, ss.repair(URL), contents_of(["default"]))


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_merged_object_that_is_damaged_costs_what_is_damaged_of_it(store: MemoryStore, kind: str) -> None:
    with open_here() as channel:
        for i in range(8):
            put(channel, *numbered(2 * i, 2))
        take(channel, 3)
        merge_now(channel)
    before = contents_of(["default"])
    (key,) = keys_of("segments/", store)
    damage_object(store, key, DAMAGES[kind])
    require_repaired(before, ss.repair(URL), contents_of(["default"]))


@pytest.mark.parametrize(("each", "left"), [(1, [6, 7, 8]), (3, [])])
def test_a_hole_that_puts_have_filled_refuses_the_next_one_and_a_repair_keeps_what_is_behind_it(
    store: MemoryStore, each: int, left: list[int]
) -> None:
    with open_here() as channel:
        for i in range(1, 9):
            put(channel, b"%d" % i)
    for number in (4, 5):
        del store.objects[slot_key(number)]
    with open_here(create=False) as channel:
        for _ in range(2):
            put(channel, *[b"in the hole"] * each)
        for _ in range(2):
            with pytest.raises(ss.DataLossError, match="slot 6 was appended after a slot 5"):
                put(channel, b"never")
    with pytest.raises(ss.DataLossError, match="slot 6 was appended after a slot 5"):
        open_here(create=False)
    assert [str(found.path) for found in ss.verify(URL).findings] == [slot_key(6)]
    ss.repair(URL)
    assert ss.verify(URL).healthy
    with open_here(create=False) as channel:
        assert peek(channel) == [b"1", b"2", b"3", *[b"in the hole"] * 2 * each, *[b"%d" % i for i in left]]
        put(channel, b"9")
