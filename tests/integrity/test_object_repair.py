"""`repair` of a channel in a store loses what it says, and nothing else; what it touches is in quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spillable_stream as ss
from spillable_stream.engine.object_checkpointing import ObjectCheckpointing
from spillable_stream.integrity.findings import Report
from spillable_stream.objects.checkpoints import Checkpoints
from spillable_stream.objects.slots import slot_key
from spillable_stream.state.ranges import RangeSet
from tests.support.events import numbered, peek, put, take
from tests.support.examples import examples
from tests.support.faulty_store import Fault, FaultyStore, Request, at, once
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, kill, make_two_checkpoints, stores_in_memory
from tests.support.object_damage import (
    DAMAGES,
    GROUPS,
    Contents,
    contents_of,
    damage_object,
    fill_store,
    flip_at,
    merge_now,
    open_here,
    wrong,
)
from tests.support.object_logs import FakeTime


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with stores_in_memory() as stores:
        stores[URL] = MemoryStore(URL)
        yield stores[URL]


def keys_of(kind: str, store: MemoryStore) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(kind))


def check(before: Contents, report: Report, after: Contents) -> None:
    """Prove that a repaired channel has all that was there, without what the report says, and nothing altered."""
    gone = RangeSet([*report.loss.lost, *report.loss.kept, *report.loss.doubtful])
    for group, events in before.groups.items():
        repeated = RangeSet(report.loss.repeated.get(group, ()))
        found = after.groups[group]
        kept = {number: body for number, body in events.items() if number not in gone}
        again = {number for number in found if number not in kept}
        assert {n: body for n, body in found.items() if n in kept} == kept
        assert all(number in repeated for number in again)
    assert ss.verify(URL).healthy


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("prefix", ["log/", "segments/", "checkpoints/", "channel.json"])
def test_any_damaged_object_costs_what_the_report_says_and_the_channel_can_be_used(
    store: MemoryStore, prefix: str, kind: str
) -> None:
    fill_store()
    before = contents_of()
    whole = dict(store.objects)
    for key in keys_of(prefix, store):
        store.objects.clear()
        store.objects |= whole
        damage_object(store, key, DAMAGES[kind])
        found = ss.verify(URL)
        said = ss.repair(URL)
        assert (said.loss, said.findings) == (found.loss, found.findings)
        check(before, said, contents_of())
        with open_here(create=False) as channel:
            put(channel, b"later")
        assert list(contents_of(["slow"]).groups["slow"].values())[-1] == b"later"
        assert ss.verify(URL).healthy
        assert ss.repair(URL).quarantine is None


def test_a_healthy_channel_is_not_touched(store: MemoryStore) -> None:
    fill_store()
    before = dict(store.objects)
    report = ss.repair(URL)
    assert (report.healthy, report.quarantine) == (True, None)
    assert store.objects == before


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_hint_that_is_nonsense_is_written_anew(store: MemoryStore, checkpoints: bool) -> None:
    fill_store(checkpoints=checkpoints)
    store.objects["hint"] = b"nonsense"
    assert ss.repair(URL).healthy
    newest = int(keys_of("checkpoints/", store)[-1][-20:]) if checkpoints else 0
    assert json.loads(store.objects["hint"]) == {
        "tail": int(keys_of("log/", store)[-1][-20:]),
        "checkpoint": newest,
    }
    assert ss.verify(URL).findings == ()


def test_copies_of_what_was_damaged_and_removed_are_in_quarantine(store: MemoryStore) -> None:
    fill_store()
    damage_object(store, slot_key(3), DAMAGES["one byte of the rest"])
    before = dict(store.objects)
    report = ss.repair(URL)
    prefix = str(report.quarantine).removeprefix(f"{URL}/")
    kept = {key.removeprefix(f"{prefix}/"): data for key, data in store.objects.items() if key.startswith(prefix)}
    assert json.loads(kept.pop("report.json")) == json.loads(json.dumps(report.as_dict()))
    for key in [slot_key(3), "hint", *keys_of("checkpoints/", MemoryStoreOf(before))]:
        assert kept.pop(f"files/{key}") == before[key]
    (damaged,) = wrong(report)
    assert damaged.offset is not None and damaged.size is not None
    piece = kept.pop(f"damaged/{slot_key(3)}-{damaged.offset}")
    assert piece == before[slot_key(3)][damaged.offset : damaged.offset + damaged.size]
    assert kept == {}


class MemoryStoreOf(MemoryStore):
    """A store with these objects."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects = objects


def test_no_slot_and_no_segment_is_changed_or_removed(store: MemoryStore) -> None:
    fill_store()
    damage_object(store, slot_key(3), DAMAGES["cut short"])
    damage_object(store, keys_of("segments/", store)[0], DAMAGES["one byte of the rest"])
    before = dict(store.objects)
    ss.repair(URL)
    for key in [*keys_of("log/", MemoryStoreOf(before)), *keys_of("segments/", MemoryStoreOf(before))]:
        assert store.objects[key] == before[key]


def test_a_segment_that_only_a_damaged_slot_named_is_kept_in_quarantine(store: MemoryStore) -> None:
    with open_here(max_inline_bytes=1000) as channel:
        put(channel, b"x" * 1500)
        put(channel, b"later")
    adopting = next(key for key in keys_of("log/", store) if b"segments/" in store.objects[key])
    (segment,) = keys_of("segments/", store)
    damage_object(store, adopting, DAMAGES["missing"])
    report = ss.repair(URL)
    assert report.loss.lost == ((1, 1),)
    assert store.objects[f"{str(report.quarantine).removeprefix(URL + '/')}/files/{segment}"] == store.objects[segment]


# ── the log's end, and its holes ────────────────────────────────────────────────────────────────


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
    store: MemoryStore, kind: str, is_given_up: bool
) -> None:
    with open_here() as channel:
        channel.consumer("other")
    channel = open_here()
    channel.consumer("g")
    creation = int(keys_of("log/", store)[-1][-20:])
    put(channel, b"first")
    kill(channel)
    channel = open_here()
    channel.engine().owners.answer_seconds = 0  # type: ignore[attr-defined]
    channel.consumer("g")
    put(channel, b"last")
    if is_given_up:
        channel.close()
    else:
        kill(channel)
    damage_object(store, slot_key(creation), DAMAGES[kind])
    assert ss.repair(URL).loss.repeated["g"] == ((1, 1),)
    with open_here() as channel:
        channel.engine().owners.answer_seconds = 0  # type: ignore[attr-defined]
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


def test_a_handle_that_knows_the_newest_slot_continues_behind_the_repair(store: MemoryStore) -> None:
    with open_here() as live:
        for i in range(4):
            put(live, b"%d" % i)
        damage_object(store, slot_key(2), DAMAGES["missing"])
        ss.repair(URL)
        put(live, b"4")
        with open_here(create=False) as channel:
            assert peek(channel) == [b"0", b"2", b"3", b"4"]


def damaged_take(live: ss.Channel, store: MemoryStore) -> None:
    """Put 10 events, and let the group "fast" take them; damage alone says that it did but for this handle."""
    put(live, *numbered(0, 10))
    take(live, 10, "fast")
    damage_object(store, keys_of("log/", store)[-1], DAMAGES["one byte of the rest"])
    put(live, b"next")


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
        ss.CorruptionError, match=f"a repair was not finished: wait .* else run 'spillable repair {URL}' again"
    ):
        open_here(create=False)
    with pytest.raises(ss.CorruptionError, match="a repair was not finished"):
        put(live, b"x")
    ss.repair(URL)
    assert ss.verify(URL).healthy
    put(live, b"later")
    kill(live)
    assert list(contents_of(["fast"]).groups["fast"].values())[-2:] == [b"next", b"later"]


def test_events_that_come_again_are_not_collected_by_a_trim_from_before_the_repair(store: MemoryStore) -> None:
    live = open_here()
    checkpointing = live.engine().checkpointing
    assert isinstance(checkpointing, ObjectCheckpointing)
    clock = FakeTime()
    checkpointing.worth_a_trim, checkpointing.collector._monotonic = 1, clock.monotonic
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
    """Its writer was sending it while the channel was removed, and another one was made there."""
    with open_here() as removed:
        for i in range(3):
            put(removed, b"%d" % i)
    late = store.objects[slot_key(3)]
    store.objects.clear()
    with open_here() as channel:
        put(channel, b"one")
        store.objects[slot_key(3)] = late
        with pytest.raises(ss.CorruptionError, match=r"is another channel's, .* run `spillable repair`") as refused:
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
        check(before, ss.repair(URL), contents_of(["default"]))


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
    check(before, ss.repair(URL), contents_of(["default"]))


# ── what can't be repaired ──────────────────────────────────────────────────────────────────────


def test_without_a_checkpoint_and_the_slots_before_it_nothing_is_touched(store: MemoryStore) -> None:
    with open_here(gc_delay=0) as channel:
        for i in range(12):
            put(channel, *numbered(2 * i, 2))
        take(channel, 15)
        collect_now(channel)
        collect_now(channel)
    for key in keys_of("checkpoints/", store):
        damage_object(store, key, DAMAGES["cut short"])
    before = dict(store.objects)
    report = ss.verify(URL)
    assert report.unrepairable.startswith("no checkpoint can be read, and the slots before ")
    with pytest.raises(ss.CorruptionError, match=f"{URL} can't be repaired: no checkpoint can be read"):
        ss.repair(URL)
    assert store.objects == before


def test_an_event_channel_without_its_first_slot_is_repaired_and_another_one_is_not(store: MemoryStore) -> None:
    fill_store(checkpoints=False)
    before = contents_of()
    damage_object(store, slot_key(0), DAMAGES["missing"])
    report = ss.repair(URL)
    assert report.loss.lost == ()
    check(before, report, contents_of())


def test_a_typed_channel_without_its_first_slot_can_not_be_repaired(store: MemoryStore) -> None:
    schema = pa.schema([("id", pa.int64())])
    with open_here(schema=schema) as channel, channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"id": [1, 2]}, schema))
    damage_object(store, slot_key(0), DAMAGES["cut short"])
    with pytest.raises(ss.CorruptionError, match="nothing else says the channel's schema"):
        ss.repair(URL)


# ── a store that fails ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])  # at every one in the end
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize("place", ["a hole", "the newest"])
def test_a_repair_that_fails_at_any_request_is_completed_by_the_next(
    store: MemoryStore, fault: Fault, place: str, step: int
) -> None:
    fill_store()
    before = contents_of()
    if place == "a hole":
        damage_object(store, slot_key(3), DAMAGES["missing"])
    else:
        damage_object(store, keys_of("log/", store)[-1], DAMAGES["nonsense"])
    damaged = dict(store.objects)
    with stores_in_memory() as others:
        others[URL] = MemoryStoreOf(dict(damaged))
        expected = ss.repair(URL)
        wanted = contents_of()
    assert wanted.gone == [*expected.loss.lost, *expected.loss.doubtful] != []
    number, is_reached = 0, True
    while is_reached:
        number += step
        inner = MemoryStoreOf(dict(damaged))
        faulty = FaultyStore(inner, at(number, fault))
        with stores_in_memory(lambda _, faulty=faulty: faulty) as others:  # type: ignore[misc]
            others[URL] = inner
            with suppress(ss.StorageError):
                ss.repair(URL)
            is_reached = bool(faulty.faults) or number < len(faulty.requests)
        with stores_in_memory() as others:
            others[URL] = inner
            ss.repair(URL)
            found = contents_of()
            assert found == wanted, number
            check(before, expected, found)
    assert number > 50


class Killed(BaseException):
    """The repair's process is no more."""


def dies_at(number: int) -> Callable[[Request], None]:
    def die(request: Request) -> None:
        if request.number >= number:
            raise Killed

    return die


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_handle_that_is_open_and_a_repair_that_is_killed_at_any_request_lose_nothing_together(step: int) -> None:
    number, is_reached = 0, True
    while is_reached:
        number += step
        inner, acknowledged = MemoryStore(URL), list[bytes]()
        with stores_in_memory() as stores:
            stores[URL] = inner
            live = open_here()
            damaged_take(live, inner)
        dying = FaultyStore(inner, after=dies_at(number))
        with stores_in_memory(lambda _, dying=dying: dying):  # type: ignore[misc]
            try:
                ss.repair(URL)
                is_reached = False
            except Killed:
                pass
        with stores_in_memory() as stores:
            stores[URL] = inner
            for call in (lambda: put(live, b"meanwhile"), live.checkpoint):  # noqa: B023
                with suppress(ss.CorruptionError):
                    if call() is not None:
                        acknowledged.append(b"meanwhile")
            ss.repair(URL)
            put(live, b"later")
            kill(live)
            found = list(contents_of(["fast"]).groups["fast"].values())
            rest = [b"next", *acknowledged, b"later"]
            # A checkpoint that the handle made before the repair came to its slot says the take, too.
            assert found in ([*numbered(0, 10), *rest], rest), number
            assert ss.verify(URL).healthy, number
    assert number > 30


# ── anything at all ─────────────────────────────────────────────────────────────────────────────


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 4), st.sampled_from([1, 60, 700])),
            st.tuples(st.just("take"), st.integers(1, 6), st.sampled_from(GROUPS)),
            st.tuples(st.just("seek"), st.sampled_from(GROUPS), st.sampled_from(["earliest", "latest"])),
            st.tuples(st.sampled_from(["checkpoint", "merge", "collect", "reopen"])),
        ),
        min_size=3,
        max_size=14,
    ),
    st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([*DAMAGES, "a byte"]), st.floats(0, 1)), min_size=1, max_size=4
    ),
)
def test_whatever_is_damaged_a_repair_loses_no_more_than_it_says(
    steps: list[tuple[object, ...]], damages: list[tuple[float, str, float]]
) -> None:
    with stores_in_memory() as stores:
        store = stores[URL] = MemoryStore(URL)
        channel = open_here(max_inline_bytes=1000, gc_delay=0)
        put(channel, b"first", b"second")
        for group in GROUPS:
            take(channel, 1, group)
        for number, step in enumerate(steps):
            channel = _done(channel, number, *step)
        channel.close()
        before = contents_of()
        assert ss.verify(URL).healthy
        for where, kind, offset in damages:
            _damage(store, where, kind, offset)
        damaged = dict(store.objects)
        try:
            report = ss.verify(URL)
            assert store.objects == damaged
            said = ss.repair(URL)
        except ss.SpillableError:
            return
        assert said.loss == report.loss
        _check_after(before, said)


def _done(channel: ss.Channel, number: int, kind: str, *arguments: object) -> ss.Channel:
    if kind == "put":
        count, size = arguments
        put(channel, *[b"%d/%d " % (number, i) + b"x" * size for i in range(count)])  # type: ignore[call-overload,operator]
    elif kind == "take":
        take(channel, *arguments)  # type: ignore[arg-type]
    elif kind == "seek":
        channel.seek(*arguments)  # type: ignore[arg-type]
    elif kind == "checkpoint":
        channel.checkpoint()
    elif kind == "merge":
        merge_now(channel)
    elif kind == "collect":
        collect_now(channel)
    else:
        channel.close()
        return open_here(create=False, max_inline_bytes=1000)
    return channel


def _damage(store: MemoryStore, where: float, kind: str, offset: float) -> None:
    keys = sorted(key for key in store.objects if not key.startswith("quarantine/"))
    key = keys[min(int(where * len(keys)), len(keys) - 1)]
    if kind == "a byte":
        data = store.objects[key]
        store.objects[key] = flip_at(data, min(int(offset * len(data)), len(data) - 1))
    elif kind != "missing" or key != keys_of("log/", store)[-1]:  # nothing says that there was one more slot
        damage_object(store, key, DAMAGES[kind])


def _check_after(before: Contents, said: Report) -> None:
    """Prove that each event is there or reported, and each one more that comes again."""
    with open_here(create=False) as channel:
        groups = [group for group in GROUPS if group in channel.stats().groups]
    after = contents_of(groups)
    gone = RangeSet([*said.loss.lost, *said.loss.kept, *said.loss.doubtful])
    for group in groups:
        events, found = before.groups[group], after.groups[group]
        assert {n: body for n, body in found.items() if n in events} == {n: events[n] for n in found if n in events}
        skipped = RangeSet(said.loss.skipped.get(group, ()))
        assert [n for n in events if n not in found and n not in gone and n not in skipped] == []
        again = RangeSet([*said.loss.repeated.get(group, ()), *said.loss.skipped.get(group, ())])
        assert [n for n in found if n not in events and n not in again] == []
    assert ss.verify(URL).healthy


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
            with pytest.raises(ss.DataLossError, match="slot 6 was appended behind another slot 5"):
                put(channel, b"never")
    with pytest.raises(ss.DataLossError, match="slot 6 was appended behind another slot 5"):
        open_here(create=False)
    assert [str(found.path) for found in ss.verify(URL).findings] == [slot_key(6)]
    ss.repair(URL)
    assert ss.verify(URL).healthy
    with open_here(create=False) as channel:
        assert peek(channel) == [b"1", b"2", b"3", *[b"in the hole"] * 2 * each, *[b"%d" % i for i in left]]
        put(channel, b"9")
