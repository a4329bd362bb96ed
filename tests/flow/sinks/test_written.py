from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.flow.sinks.written import WrittenEvents, ranges_of


@given(st.sets(st.integers(1, 60)))
def test_ids_are_told_as_ranges(ids: set[int]) -> None:
    found = ranges_of(pa.array(sorted(ids), pa.int64()))
    assert [i for first, last in found for i in range(first, last + 1)] == sorted(ids)
    assert all(b[0] > a[1] + 1 for a, b in itertools.pairwise(found))


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60), min_size=1))
def test_events_that_are_written_are_left_out(written: set[int], taken: set[int]) -> None:
    events, ids = WrittenEvents(), pa.chunked_array([pa.array(sorted(taken), pa.int64())])
    events.add(ranges_of(pa.array(sorted(written), pa.int64())))
    keep = events.missing(ids)
    left = ids if keep is None else ids.filter(keep)
    assert left.to_pylist() == sorted(taken - written)
    events.remove(ranges_of(ids))
    assert bool(events) == bool(written - taken)
