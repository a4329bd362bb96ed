"""Repairs in a store where events were lost and others have their IDs: the bucket was put back, or has a hole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream import Channel
from spillable_stream.engine.store.object_checkpointing import ObjectCheckpointing
from spillable_stream.objects.slots import slot_key
from tests.support.delay_merging import put_two
from tests.support.delays import clock_of, deliver_all, deliveries_of, put_late
from tests.support.events import numbered, peek, put, take
from tests.support.faulty_store import Fault, Request
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, faulty_stores_in_memory, kill, store_of
from tests.support.object_damage import DAMAGES, damage_object, keys_of, merge_now, open_here
from tests.support.store_limits import SetLimits

pytestmark = pytest.mark.usefixtures("no_word_of_void_slots")


def require_that_the_group_takes(bodies: list[bytes], set_limits: SetLimits) -> None:
    """Repair the channel, and require that its group takes events that it has not taken, which the report says."""
    report = ss.repair(URL)
    assert sum(last - first + 1 for first, last in report.loss.repeated["g"]) >= len(bodies)
    set_limits(answer_seconds=0)
    with open_here(create=False) as channel:
        assert take(channel, group="g") == bodies


@pytest.mark.parametrize(
    ("lost", "before", "after"), [(1, 0, 1), (1, 1, 0), (2, 1, 0), (3, 1, 1), (3, 0, 3), (3, 3, 0)]
)
def test_a_take_that_notices_that_the_bucket_was_put_back_leaves_out_no_event_that_others_put_there(
    store: MemoryStore, set_limits: SetLimits, lost: int, before: int, after: int
) -> None:
    """They have the IDs of those that it took, which are lost, and its slot lies behind theirs."""
    channel, other = open_here(), open_here()
    put(channel, b"first")
    take(channel, group="g")
    tx = channel.take_transaction("g")
    tx.begin()
    with store.put_back():
        for _ in range(lost):
            put(channel, b"lost")
        assert len(tx.take_many(100)) == lost
    for number in range(before):
        put(other, b"%d" % number)
    with pytest.raises((ss.CommitOutcomeUnknownError, ss.UnsafeStoreError)):
        tx.commit()
    for number in range(before, before + after):
        put(other, b"%d" % number)
    kill(channel)
    kill(other)
    require_that_the_group_takes(numbered(0, before + after), set_limits)


def test_a_put_that_notices_that_the_bucket_was_put_back_names_the_repair_that_lets_the_log_continue(
    store: MemoryStore,
) -> None:
    channel = open_here()
    put(channel, b"first")
    with store.put_back():
        put(channel, b"lost")
    with pytest.raises(ss.CommitOutcomeUnknownError, match=f"`spillable repair {URL}` lets the log continue"):
        put(channel, b"behind it")
    kill(channel)
    assert ss.repair(URL).loss.lost == ((2, 2),)
    with open_here(create=False) as channel:
        assert peek(channel) == [b"first", b"behind it"]


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("use", [lambda channel: take(channel, group="g"), lambda channel: channel.seek("g", "latest")])
def test_what_is_behind_a_hole_leaves_out_no_event_that_others_put_into_it(
    store: MemoryStore, set_limits: SetLimits, use: Callable[[Channel], object], is_new: bool
) -> None:
    channel, other = open_here(), open_here()
    put(channel, b"first")
    if not is_new:
        take(channel, group="g")
    lost = keys_of("log/", store)
    for _ in range(2):
        put(channel, b"lost")
    channel.consumer("g")
    lost = keys_of("log/", store)[len(lost) :]
    use(channel)
    for key in lost:
        damage_object(store, key, DAMAGES["missing"])
    put(other, b"0")
    kill(channel)
    kill(other)
    require_that_the_group_takes([*([b"first"] if is_new else []), b"0"], set_limits)


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_a_batch_that_a_producer_has_sent_again_since_the_bucket_was_put_back_is_there_once(
    store: MemoryStore, lost: int
) -> None:
    channel = open_here()
    put(channel, b"first")
    producer = ss.Producer(channel, producer_id="p", linger_ms=0)
    with store.put_back():
        for _ in range(lost):
            put(channel, b"lost")
    for body in (b"sent again", b"last"):
        producer.send(ss.Event(body))
        producer.flush()
    with suppress(ss.SpillableError):
        producer.close()
    kill(channel)
    report = ss.repair(URL)
    assert "a batch that is in the log before was put once more" in [finding.text for finding in report.findings]
    with open_here(create=False) as channel:
        assert peek(channel) == [b"first", b"sent again", b"last"]


@pytest.mark.parametrize(("lost", "new"), [(1, 1), (2, 1), (2, 2)])
def test_a_delivery_of_lost_events_that_waited_leaves_out_none_that_others_delayed_since(lost: int, new: int) -> None:
    """Their side objects have the same numbers."""
    with faulty_stores_in_memory():
        channel, other = open_here(), open_here()
        clock = clock_of(channel, other)
        put_late(channel, 1000, b"waits")
        faulty = store_of(channel)
        objects: dict[str, bytes] = faulty.inner.objects  # type: ignore[attr-defined]
        before = dict(objects)
        for _ in range(lost):
            put_late(channel, 10, b"lost")
        clock.pass_by(11)

        def put_back(request: Request) -> Fault | None:
            if request.kind == "create" and request.key.startswith("log/"):
                faulty.schedule = None
                objects.clear()
                objects.update(before)
                for number in range(new):
                    put_late(other, 50, b"%d" % number)
            return None

        faulty.schedule = put_back
        deliveries_of(channel).deliver()
        kill(channel)
        kill(other)
        ss.repair(URL)
        with open_here(create=False) as channel:
            assert channel.stats().delayed.events == 1 + new
            clock_of(channel).pass_by(1000)
            deliver_all(channel)
            assert peek(channel)[-1 - new :] == [*numbered(0, new), b"waits"]


def merging_of(channel: Channel) -> ObjectCheckpointing:
    checkpointing = channel.engine().checkpointing
    assert isinstance(checkpointing, ObjectCheckpointing)
    return checkpointing


def merge_after_the_bucket_was_put_back(
    merging: Any, store: MemoryStore, before: dict[str, bytes], meanwhile: Callable[[], object]
) -> None:
    """Copy small objects together; before the commit the bucket is put back, but for the copies, and others use it."""
    copied = merging._copied

    def copied_meanwhile(*arguments: object, **named: object) -> object:
        known = set(store.objects)
        found = copied(*arguments, **named)
        copies = {key: data for key, data in store.objects.items() if key not in known}
        store.objects.clear()
        store.objects.update(before | copies)
        meanwhile()
        return found

    merging._copied = copied_meanwhile
    with suppress(ss.SpillableError):
        merging.merge()


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize(("lost", "new"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)])
def test_a_merge_of_lost_events_replaces_none_that_others_put_under_their_ids(
    store: MemoryStore, set_limits: SetLimits, lost: int, new: int, is_staged: bool
) -> None:
    set_limits(many_slots=1, quiet_seconds=-1)
    channel, other = open_here(max_inline_bytes=1000), open_here()
    put(channel, b"first")
    before = dict(store.objects)
    bodies = [body * (2000 if is_staged else 1) for body in numbered(0, new)]
    for number in range(lost):
        put(channel, b"lost %d" % number)
    merge_after_the_bucket_was_put_back(
        merging_of(channel).merging, store, before, lambda: [put(other, body) for body in bodies]
    )
    kill(channel)
    kill(other)
    report = ss.repair(URL)
    with open_here(create=False) as channel:
        copies = [b"lost %d" % number for number in range(new, lost)]
        assert peek(channel) == [b"first", *bodies, *copies]
        put(channel, b"later")
        assert peek(channel)[-1] == b"later"
    assert "the events that are there stay where they are" in str([finding.text for finding in report.findings])
    assert ss.verify(URL).healthy


@pytest.mark.parametrize(("new", "back"), [(1, [b"last"]), (2, [b"last"]), (4, [])])
def test_a_merge_brings_no_part_of_a_lost_transaction_back(
    store: MemoryStore, set_limits: SetLimits, new: int, back: list[bytes]
) -> None:
    set_limits(many_slots=1, quiet_seconds=-1)
    channel, other = open_here(), open_here()
    put(channel, b"first")
    before = dict(store.objects)
    put(channel, *[b"lost"] * 3)
    put(channel, b"last")
    merge_after_the_bucket_was_put_back(
        merging_of(channel).merging, store, before, lambda: put(other, *numbered(0, new))
    )
    kill(channel)
    kill(other)
    lost = ss.repair(URL).loss.lost
    assert sum(last - first + 1 for first, last in lost) == max(0, 3 - new)
    with open_here(create=False) as channel:
        assert peek(channel) == [b"first", *numbered(0, new), *back]


@pytest.mark.parametrize(("lost", "new"), [(1, 1), (2, 1), (2, 2), (1, 2), (2, 4)])
def test_a_merge_of_lost_events_that_waited_replaces_none_that_others_delayed_since(
    store: MemoryStore, set_limits: SetLimits, lost: int, new: int
) -> None:
    """Their side objects, or the copies, have the same numbers."""
    set_limits(many_puts=1)
    channel, other = open_here(), open_here()
    put_two(channel, 0)
    before = dict(store.objects)
    for _ in range(lost):
        put_two(channel, 900)
    for _ in range(new - lost):  # as many slots are lost as others fill
        put(channel, b"lost")

    def meanwhile() -> None:
        for number in range(2, 2 * new + 2, 2):
            put_two(other, number)

    merge_after_the_bucket_was_put_back(merging_of(channel).delay_merging, store, before, meanwhile)
    kill(channel)
    kill(other)
    report = ss.repair(URL)
    with open_here(create=False) as channel:
        clock_of(channel).pass_by(2_000_000)
        deliver_all(channel)
        bodies = {body: count for body, count in Counter(peek(channel)).items() if body[-3:] != b"900"}
    expected = {b"%d" % (seconds + number) for seconds in (1_000, 1_000_000) for number in range(0, 2 * new + 2, 2)}
    assert bodies.keys() == expected
    assert sorted(body for body, count in bodies.items() if count > 1) == [b"1000", b"1000000"] * (lost > new)
    assert "the events that are there stay where they are" in str([finding.text for finding in report.findings])
    assert ss.verify(URL).healthy


def test_a_merge_behind_a_hole_brings_back_the_events_that_were_in_it(store: MemoryStore) -> None:
    channel = open_here()
    for number in range(6):
        put(channel, b"%d" % number)
    merge_now(channel)
    for key in keys_of("checkpoints/", store):
        damage_object(store, key, DAMAGES["missing"])
    kill(channel)
    damage_object(store, slot_key(3), DAMAGES["missing"])
    ss.repair(URL)
    with open_here(create=False) as channel:
        assert peek(channel) == numbered(0, 6)
