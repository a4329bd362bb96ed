"""Repairs of channels in a store that fails, and of anything that can be damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spillable_stream as ss
from spillable_stream.integrity.findings import Report
from spillable_stream.objects.slots import slot_key
from spillable_stream.state.ranges import RangeSet
from tests.support.events import numbered, put, take
from tests.support.examples import examples
from tests.support.faulty_store import APPLICABLE, Fault, FaultyStore, Request, at
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import URL, collect_now, kill, stores_in_memory
from tests.support.object_damage import (
    DAMAGES,
    GROUPS,
    Contents,
    MemoryStoreOf,
    contents_of,
    damage_object,
    damaged_take,
    fill_store,
    flip_at,
    keys_of,
    merge_now,
    open_here,
    require_repaired,
)


def fill_and_damage(store: MemoryStore, place: str) -> Contents:
    """Fill a channel, and damage it; return what was in it."""
    fill_store()
    before = contents_of()
    if place == "a hole":
        damage_object(store, slot_key(3), DAMAGES["missing"])
    else:
        damage_object(store, keys_of("log/", store)[-1], DAMAGES["nonsense"])
    return before


def requests_of_a_repair(damaged: dict[str, bytes]) -> list[Request]:
    faulty = FaultyStore(MemoryStoreOf(dict(damaged)))
    with stores_in_memory(lambda _: faulty):
        ss.repair(URL)
    return faulty.requests


def is_write(request: Request) -> bool:
    return request.kind not in ("get", "get_range", "list")


def chosen(requests: list[Request], fault: Fault) -> list[int]:
    """Return the numbers of those that write, but one for all copies, and of the first read of each kind of object."""
    kinds: dict[tuple[str, str, str], int] = {}
    for request in requests:
        place, _, name = request.key.partition("/")
        is_one_of_many = not is_write(request) or (place == "quarantine" and "/files/" in name)
        kinds.setdefault((request.kind, place, "" if is_one_of_many else name), request.number)
    numbers = {request.number: request for request in requests}
    return [n for n in kinds.values() if fault in APPLICABLE[numbers[n].kind]]


@pytest.mark.parametrize("place", ["a hole", "the newest"])
def test_a_repair_writes_in_the_order_in_which_each_step_needs_the_one_before(store: MemoryStore, place: str) -> None:
    fill_and_damage(store, place)
    damage_object(store, "channel.json", DAMAGES["nonsense"])
    last, checkpoints = int(keys_of("log/", store)[-1][-20:]), keys_of("checkpoints/", store)
    writes = list(filter(is_write, requests_of_a_repair(store.objects)))
    copies = [write.key for write in writes if write.key.startswith("quarantine/")]
    assert copies[-1].endswith("/report.json") and len(copies) > len(checkpoints)
    slots = [slot_key(3), slot_key(last + 1)] if place == "a hole" else [slot_key(last + 1), slot_key(last + 2)]
    assert [(write.kind, write.key) for write in writes] == [
        *[("replace", key) for key in copies],
        *[("create", key) for key in slots],
        ("create", f"checkpoints/{slots[-1][-20:]}"),
        ("replace", "hint"),
        *[("delete", key) for key in checkpoints],
        ("replace", "channel.json"),
    ]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])  # or those that are chosen
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.ANSWER_LOST, Fault.RETRIED, Fault.CONFLICT])
@pytest.mark.parametrize("place", ["a hole", "the newest"])
def test_a_repair_that_fails_at_any_request_is_completed_by_the_next(
    store: MemoryStore, fault: Fault, place: str, every: bool
) -> None:
    before = fill_and_damage(store, place)
    damaged = dict(store.objects)
    with stores_in_memory() as others:
        others[URL] = MemoryStoreOf(dict(damaged))
        expected = ss.repair(URL)
        wanted = contents_of()
    assert wanted.gone == [*expected.loss.lost, *expected.loss.doubtful] != []
    for number in count(1) if every else chosen(requests_of_a_repair(damaged), fault):
        inner = MemoryStoreOf(dict(damaged))
        faulty = FaultyStore(inner, at(number, fault))
        with stores_in_memory(lambda _, faulty=faulty: faulty) as others:  # type: ignore[misc]
            others[URL] = inner
            with suppress(ss.StorageError, ss.ChannelBusyError):
                ss.repair(URL)
        with stores_in_memory() as others:
            others[URL] = inner
            ss.repair(URL)
            found = contents_of()
            assert found == wanted, number
            require_repaired(before, expected, found)
        if not faulty.faults and number >= len(faulty.requests):
            break
    assert number > 50 or not every


class Killed(BaseException):
    """The repair's process is no more."""


def dies_at(number: int) -> Callable[[Request], None]:
    def die(request: Request) -> None:
        if request.number >= number:
            raise Killed

    return die


def channel_with_a_damaged_take() -> tuple[MemoryStore, ss.Channel]:
    """Return the store of a channel whose newest slot but one is damaged, and a handle that is open."""
    inner = MemoryStore(URL)
    with stores_in_memory() as stores:
        stores[URL] = inner
        live = open_here()
        damaged_take(live, inner)
    return inner, live


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])  # or those that write
def test_a_handle_that_is_open_and_a_repair_that_is_killed_at_any_request_lose_nothing_together(every: bool) -> None:
    inner, live = channel_with_a_damaged_take()
    writes = [request.number for request in requests_of_a_repair(inner.objects) if is_write(request)]
    kill(live)
    assert len(writes) > 5
    is_reached = True
    for number in count(1) if every else [1, *writes]:
        inner, live = channel_with_a_damaged_take()
        acknowledged = list[bytes]()
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
        if not is_reached:
            break
    assert number > 30


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
