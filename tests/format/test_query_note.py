"""The note of the Spark query that reads as a group."""

from __future__ import annotations

import pytest

from spillable_stream.format.frame import file_seed
from spillable_stream.format.packing import pack
from spillable_stream.format.query_note import FirstBatch, QueryNote, packed, unpacked
from spillable_stream.format.sealed_note import seal

QUERY = "6e7c06a2-1f9d-48a8-a6b8-01fb7ecf4fa3"
FIRST = FirstBatch(3, 5, 9, "reset")


@pytest.mark.parametrize(
    "note",
    [QueryNote(QUERY), QueryNote(QUERY, "run"), QueryNote(QUERY, "run", FIRST), QueryNote(QUERY, "run", FIRST, (7, 9))],
)
def test_a_note_comes_back_for_its_group_alone(note: QueryNote) -> None:
    data = packed(note, "channel", "g")
    assert unpacked(data, "channel", "g") == note
    assert unpacked(data + b"the rest of a longer one", "channel", "g") == note
    assert unpacked(data, "channel", "h") is None
    assert unpacked(data, "another", "g") is None


def test_a_note_that_a_crash_cut_is_none() -> None:
    data = packed(QueryNote(QUERY, "run", FIRST), "channel", "g")
    assert [unpacked(data[:end], "channel", "g") for end in range(len(data))] == [None] * len(data)


def test_a_note_of_an_earlier_version_is_the_query_alone() -> None:
    assert unpacked(QUERY.encode(), "channel", "g") == QueryNote(QUERY)


@pytest.mark.parametrize("value", [[], ["query"], ["query", "run", [1, 2]], ["query", "run", 7], 5, {"query": 1}])
def test_a_note_of_a_later_version_is_none(value: object) -> None:
    assert unpacked(seal(pack(value), file_seed("channel", "query/g")), "channel", "g") is None


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (FIRST, True),
        (FIRST._replace(first_id=6, last_id=8), True),  # others took the rest meanwhile
        (FIRST._replace(last_id=10), False),
        (FIRST._replace(first_id=4), False),
        (FIRST._replace(batch_id=4), False),
        (FIRST._replace(reset=None), False),
    ],
)
def test_a_batch_is_the_same_if_no_event_is_new_in_it(other: FirstBatch, is_same: bool) -> None:
    assert FIRST.has(other) == is_same
