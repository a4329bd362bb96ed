"""`repair` of a channel in a store loses what it says, and nothing else; what it touches is in quarantine."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.object_inventory import take_object_inventory
from spillable_stream.objects.slots import Slots, slot_key
from spillable_stream.objects.void_slots import declare_void
from tests.support.events import numbered, peek, put, take
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, kill
from tests.support.object_damage import (
    DAMAGES,
    MemoryStoreOf,
    contents_of,
    damage_object,
    fill_store,
    keys_of,
    open_here,
    require_repaired,
    wrong,
)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])  # each kind begins at another one
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("prefix", ["log/", "segments/", "checkpoints/", "channel.json"])
def test_any_damaged_object_costs_what_the_report_says_and_the_channel_can_be_used(
    store: MemoryStore, prefix: str, kind: str, every: int
) -> None:
    fill_store()
    before = contents_of()
    whole = dict(store.objects)
    keys = keys_of(prefix, store)
    for key in keys[[*DAMAGES].index(kind) % min(every, len(keys)) :: every]:
        store.objects.clear()
        store.objects |= whole
        damage_object(store, key, DAMAGES[kind])
        found = ss.verify(URL)
        said = ss.repair(URL)
        assert (said.loss, said.findings) == (found.loss, found.findings)
        require_repaired(before, said, contents_of())
        with open_here(create=False) as channel:
            put(channel, b"later")
        assert list(contents_of(["slow"]).groups["slow"].values())[-1] == b"later"
        assert ss.verify(URL).healthy
        assert ss.repair(URL).quarantine is None


def test_a_repair_that_comes_to_a_void_slot_passes_it(store: MemoryStore) -> None:
    """Its fence takes the place of the lost slot, and its record would take that of the void one."""
    channel = open_here()
    put(channel, b"first")
    newest = keys_of("log/", store)[-1]
    with store.put_back():
        put(channel, b"lost")
    with pytest.raises(ss.CommitOutcomeUnknownError):
        put(channel, b"void")
    kill(channel)
    damage_object(store, newest, lambda data: data[:40] + b"x" + data[41:])
    ss.repair(URL)
    with open_here(create=False) as channel:
        assert put(channel, b"later")
        assert peek(channel) == [b"first", b"later"]
    assert ss.verify(URL).healthy


def put_in_vain_behind(store: MemoryStore, channel: ss.Channel) -> bytes:
    """Lose the newest slot, let its handle leave a void one behind it, and return the lost one."""
    lost = store.objects.pop(keys_of("log/", store)[-1])
    with pytest.raises((ss.CommitOutcomeUnknownError, ss.UnsafeStoreError)):
        put(channel, b"void")
    kill(channel)
    return lost


@pytest.mark.parametrize("lost", [1, 3])
def test_a_void_slot_whose_writer_told_nobody_of_the_loss_says_which_events_are_lost(
    store: MemoryStore, lost: int
) -> None:
    """Other processes had put them. A repair records the loss, and no other event gets their IDs."""
    channel, other = open_here(), open_here()
    put(channel, b"first")
    with store.put_back():
        for _ in range(lost):
            put(other, b"lost", b"lost")
        channel.stats()
    kill(other)
    with pytest.raises(ss.CommitOutcomeUnknownError):
        put(channel, b"void")
    kill(channel)
    last = 1 + 2 * lost
    for report in (ss.verify(URL), ss.repair(URL)):
        (finding,) = report.findings
        assert (finding.severity.name, str(finding.path)) == ("DAMAGE", slot_key(lost + 2))
        assert finding.events == report.loss.lost == ((2, last),)
        assert f"which knew the events up to {last}, found" in finding.text
    assert ss.verify(URL).healthy
    with open_here(create=False) as channel:
        assert channel.stats().lost == ((2, last),)
        assert put(channel, b"later")[0] == last + 1
        assert peek(channel) == [b"first", b"later"]
    assert ss.verify(URL).healthy


@pytest.mark.parametrize("is_late", [False, True])
def test_a_void_slot_names_lost_events_whose_ids_others_got_since(store: MemoryStore, is_late: bool) -> None:
    """These were put into the hole, or behind it."""
    channel = open_here()
    put(channel, b"first")
    put(channel, b"lost")
    put_in_vain_behind(store, channel)
    with open_here() as other:
        if is_late:
            other.consumer("in-the-hole")
        put(other, b"another one")
    report = ss.verify(URL)
    assert [(f.severity.name, f.events) for f in report.findings] == [("DAMAGE", ((2, 2),))]
    assert report.loss.lost == ()
    ss.repair(URL)
    assert ss.verify(URL).healthy
    with open_here(create=False) as channel:
        assert peek(channel) == [b"first", b"another one"]


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("is_filled", [False, True])
def test_a_damaged_void_slot_counts_for_nobody_and_a_repair_passes_it(
    store: MemoryStore, is_filled: bool, kind: str
) -> None:
    channel = open_here()
    put(channel, b"first")
    put(channel, b"lost")
    put_in_vain_behind(store, channel)
    bodies = [b"first"]
    if is_filled:
        with open_here() as other:
            put(other, b"in the hole")
            bodies.append(b"in the hole")
    damage_object(store, slot_key(3), DAMAGES[kind])
    ss.repair(URL)
    for body in (b"1", b"2", b"3"):
        with open_here(create=False) as channel:
            put(channel, body)
            bodies.append(body)
            assert peek(channel) == bodies
    assert ss.verify(URL).healthy


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_slot_that_others_have_planned_on_counts_whatever_its_writer_has_said(
    store: MemoryStore, is_filled: bool
) -> None:
    """The lost slot was there again for a while, and its loss has brought another one in its place, or none."""
    channel = open_here()
    put(channel, b"first")
    put(channel, b"lost for a while")
    store.objects[slot_key(2)] = put_in_vain_behind(store, channel)
    other = open_here()
    put(other, b"planned on it")
    kill(other)
    del store.objects[slot_key(2)]
    if is_filled:
        with pytest.MonkeyPatch.context() as patch:
            patch.delitem(store.objects, slot_key(3))
            patch.delitem(store.objects, slot_key(4))
            late = open_here()
            put(late, b"in the hole")
            kill(late)
    report = ss.repair(URL)
    assert report.loss.lost == (() if is_filled else ((2, 2),))
    with open_here(create=False) as channel:
        assert peek(channel) == [b"first", *[b"in the hole"] * is_filled, b"void", b"planned on it"]


def test_a_slot_that_its_writer_has_said_to_be_void_does_not_count_behind_a_damaged_header(store: MemoryStore) -> None:
    """Its writer knows that, and has put the events again."""
    channel = open_here()
    put(channel, b"first")
    put(channel, b"lost")
    store.objects.pop(slot_key(2))
    other = open_here()
    put(other, b"in the hole")
    with pytest.raises(ss.UnsafeStoreError):
        put(channel, b"void")
    kill(channel)
    kill(other)
    damage_object(store, slot_key(2), DAMAGES["one byte of the header"])
    ss.repair(URL)
    with open_here(create=False) as channel:
        put(channel, b"void")
        assert peek(channel) == [b"first", b"in the hole", b"void"]


def test_no_event_gets_the_ids_of_a_slot_that_counts_though_it_is_still_said_to_be_void(store: MemoryStore) -> None:
    """Its writer has proven it since, and could not take that back; then its header is damaged."""
    channel = open_here()
    put(channel, b"first")
    last = put(channel, b"proven")[0]
    kill(channel)
    slots = Slots(store, take_object_inventory(store, Findings()).channel)
    token = slots.token(2)
    assert token is not None
    declare_void(slots, 2, token)
    assert keys_of("log/", store)[-2] == slot_key(2)
    damage_object(store, slot_key(2), DAMAGES["one byte of the header"])
    assert ss.verify(URL).loss.doubtful
    report = ss.repair(URL)
    assert report.loss.doubtful and report.loss.doubtful[0][0] == last
    with open_here(create=False) as channel:
        assert put(channel, b"later")[0] > report.loss.doubtful[-1][1]
        assert peek(channel) == [b"first", b"later"]
    assert ss.verify(URL).healthy


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
    require_repaired(before, report, contents_of())


@pytest.mark.parametrize("where", ["a slot", "a segment", "a side object"])
def test_a_typed_channel_without_its_first_slot_cannot_be_repaired(store: MemoryStore, where: str) -> None:
    schema = pa.schema([("id", pa.int64())])
    limit = 100 if where == "a segment" else 10_000
    with open_here(schema=schema, max_inline_bytes=limit) as channel, channel.put_transaction() as tx:
        rows = pa.record_batch({"id": list(range(200))}, schema)
        if where == "a side object":
            tx.put_batch(rows, deliver_after="1h")
        else:
            tx.put_batch(rows)
    for key in keys_of("checkpoints/", store):
        damage_object(store, key, DAMAGES["missing"])
    damage_object(store, slot_key(0), DAMAGES["cut short"])
    with pytest.raises(ss.CorruptionError, match="nothing else says the channel's schema"):
        ss.repair(URL)
