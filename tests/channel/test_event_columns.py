from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Event, SchemaError
from spillable_stream.channel.event_columns import EventColumns, batch_from_columns
from spillable_stream.format.batch import EVENT_SCHEMA, decode_batch
from tests.support.any_events import EVENTS


@pytest.mark.parametrize("sizes", [[100] * 3_000, [200_000, 0, 1, 70_000, 3], [1] * 65_537, [65_536]])
def test_bodies_of_any_size_are_joined_in_order(sizes: list[int]) -> None:
    bodies = [bytes((i % 251,)) * size for i, size in enumerate(sizes)]
    batch = batch_from_columns(bodies, {})
    batch.validate(full=True)
    assert batch.column("body").to_pylist() == bodies


def test_many_bodies_are_joined_in_memory_that_arrow_has_already() -> None:
    """In new memory the kernel would have to find a page for every 4 KiB of every batch."""
    before = pa.total_allocated_bytes()
    batch = batch_from_columns([bytes(100)] * 3_000, {})
    assert pa.total_allocated_bytes() - before >= 300_000
    assert batch.num_rows == 3_000


class Body(bytes):
    """A body that lies about its length."""

    def __len__(self) -> int:
        return 2**30


def test_more_than_two_gibibytes_in_one_batch_are_refused() -> None:
    with pytest.raises(SchemaError, match="larger than 2 GiB; put fewer events at once"):
        batch_from_columns([Body(), Body()], {})


@given(st.lists(EVENTS, max_size=20), st.integers(0, 50))
def test_pieces_have_the_same_events(events: list[Event], most_bytes: int) -> None:
    columns = EventColumns.of(events)
    pieces = columns.pieces(most_bytes)
    assert all(len(piece) == 1 or piece.size_bytes <= most_bytes for piece in pieces) or not events
    joined = EventColumns()
    for piece in pieces:
        joined.extend(piece)
    assert joined.batch().equals(columns.batch()) and joined.size_bytes == columns.size_bytes


@given(st.lists(EVENTS, min_size=1, max_size=20))
def test_a_small_message_has_the_batch(events: list[Event]) -> None:
    columns = EventColumns.of(events)
    message = columns.small_message()
    assert message is not None and decode_batch(message, EVENT_SCHEMA).equals(columns.batch())


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(Event(bytes(70_000)), id="a large body"),
        pytest.param(Event(b"", {"k": "v" * 70_000}), id="a large value"),
        pytest.param(Event(b"", {"k" * 70_000: None}), id="a large key"),
        pytest.param(Event(b"", {f"{i}": "" for i in range(257)}), id="many headers"),
    ],
)
def test_a_message_that_is_not_small_is_left_to_arrow(event: Event) -> None:
    assert EventColumns.of([event]).small_message() is None
