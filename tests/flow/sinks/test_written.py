from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Channel
from spillable_stream.flow.sinks.written import NotedEvents, WrittenEvents, ranges_of, uncommitted, without
from tests.support.events import put, take


@given(st.sets(st.integers(1, 60)))
def test_ids_are_told_as_ranges(ids: set[int]) -> None:
    found = ranges_of(pa.array(sorted(ids), pa.int64()))
    assert [i for first, last in found for i in range(first, last + 1)] == sorted(ids)
    assert all(b[0] > a[1] + 1 for a, b in itertools.pairwise(found))


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_ranges_are_taken_from_ranges(some: set[int], others: set[int]) -> None:
    ids, gone = (ranges_of(pa.array(sorted(values), pa.int64())) for values in (some, others))
    assert without(ids, gone) == ranges_of(pa.array(sorted(some - others), pa.int64()))


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60), min_size=1))
def test_events_that_are_written_are_left_out(written: set[int], taken: set[int]) -> None:
    events, ids = WrittenEvents(), pa.chunked_array([pa.array(sorted(taken), pa.int64())])
    events.add(ranges_of(pa.array(sorted(written), pa.int64())))
    keep = events.missing(ids)
    left = ids if keep is None else ids.filter(keep)
    assert left.to_pylist() == sorted(taken - written)
    events.remove(ranges_of(ids))
    assert bool(events) == bool(written - taken)


def test_a_note_names_what_is_written_until_it_is_committed() -> None:
    written = WrittenEvents()
    written.add([(50, 60)])  # another sink's
    noted = NotedEvents(written, [(1, 3)])
    assert written.among([(1, 9)]) == [(1, 3)]
    assert noted.with_more([(4, 6)]) == ((1, 6),)
    assert noted.with_more([(8, 9)]) == ((1, 3), (8, 9))  # 4 to 6 could not be written
    written.add([(8, 9)])
    written.remove([(1, 2)])
    assert noted.with_more() == ((3, 3), (8, 9))


def test_what_a_group_has_committed_is_known(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    put(channel, b"1", b"2", b"3", b"4")
    assert uncommitted(channel, "default", [(1, 2), (4, 4)]) == [(1, 2), (4, 4)]
    take(channel, 1)
    assert uncommitted(channel, "default", [(1, 2), (4, 4)]) == [(2, 2), (4, 4)]
    take(channel)
    assert uncommitted(channel, "default", [(1, 2), (4, 4)]) == []
