"""Repairs of channels in a store that fails, and of anything that can be damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spillable_stream as ss
from spillable_stream.integrity.findings import Report
from spillable_stream.objects.slots import slot_key
from spillable_stream.state.ranges import RangeSet
from tests.support.events import numbered, put, take
from tests.support.examples import examples
from tests.support.faulty_store import Fault, FaultyStore, Request, at
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


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])  # at every one in the end
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
            require_repaired(before, expected, found)
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
