from __future__ import annotations

from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import OptionError
from spillable_stream.flow.sinks.buckets import Bucketing, Names, RollRules, Times
from spillable_stream.flow.sources.event_columns import events_of


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.integers(0, 6),
    st.integers(0, 12),
    st.integers(0, 8),
    st.integers(0, 15),
)
def test_files_are_full_as_if_events_came_one_by_one(
    sizes: list[int], count: int, size_bytes: int, events: int, body_bytes: int
) -> None:
    expected: list[list[int]] = [[]]
    has_events, has_bytes = events, body_bytes
    for i, size in enumerate(sizes):
        if (count and has_events >= count) or (size_bytes and has_bytes >= size_bytes):
            expected.append([])
            has_events = has_bytes = 0
        expected[-1].append(i)
        has_events, has_bytes = has_events + 1, has_bytes + size
    batch = events_of([b"x" * size for size in sizes], [{}] * len(sizes))
    ids = pa.array(range(len(sizes)), pa.int64())
    found = list(RollRules(0, size_bytes, count).pieces(batch, ids, events, body_bytes))
    assert [piece.to_pylist() for _, piece, _ in found] == expected
    assert [size for _, _, size in found] == [sum(sizes[i] for i in piece) for piece in expected]
    assert all(piece.num_rows == len(of) for piece, of, _ in found)


@pytest.mark.parametrize(
    ("rolling", "end"),
    [
        (RollRules(0), float("inf")),
        (RollRules(30), 130),
        (RollRules(30, idle_seconds=5), 115),
        (RollRules(0, idle_seconds=5), 115),
    ],
)
def test_a_file_ends_with_the_time(rolling: RollRules, end: float) -> None:
    assert rolling.ends_at(100, 110) == end
    assert rolling.is_over(100, 110, min(end, 1e9)) == (end < float("inf"))


def test_a_time_zone_that_is_not_there_is_refused() -> None:
    assert Times("Europe/Berlin").zone == ZoneInfo("Europe/Berlin") and Times().zone is None
    with pytest.raises(OptionError, match="no time zone 'Mars'"):
        _ = Times("Mars").zone


def test_an_event_is_asked_about_once_so_that_it_is_written_or_buried() -> None:
    """What is neither would be committed, and lost."""
    answers = iter([True, False])
    batch = events_of([b"x"], [{"a": "1"}])
    parts, misfits = Bucketing("/out/%{a}", Times(), lambda place: next(answers)).divide(batch, pa.array([7]))
    assert [part.ids.to_pylist() for part in parts] == [[7]] and not misfits


def test_names_are_made_of_their_parts() -> None:
    names = Names(".log", "_", ".tmp")
    assert names.final("/a/b", 7) == "/a/b.7.log"
    assert names.in_use("/a/b.7.log") == "/a/_b.7.log.tmp"


def test_a_slice_of_views_counts_as_its_own_rows() -> None:
    whole = pa.record_batch({"text": pa.array(["x" * 1000] * 1000, pa.string_view())})
    ids = pa.array(range(10), pa.int64())
    pieces = RollRules(0, 5000, 0).pieces(whole.slice(500, 10), ids, 0, 0)
    assert [piece.num_rows for piece, _, _ in pieces] == [5, 5]
