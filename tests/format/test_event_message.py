from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.format.batch import EVENT_SCHEMA, decode_batch
from spillable_stream.format.event_message import event_message

Headers = list[tuple[bytes, bytes]]
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(str.encode)
_HEADERS = st.lists(st.tuples(_TEXT, _TEXT), max_size=4)


def message_of(events: list[tuple[Headers, bytes]]) -> bytes:
    pairs = [pair for headers, _ in events for pair in headers]
    ends = list(accumulate((len(headers) for headers, _ in events), initial=0))
    return event_message(ends, [key for key, _ in pairs], [value for _, value in pairs], [body for _, body in events])


def of_arrow(events: list[tuple[Headers, bytes]]) -> pa.RecordBatch:
    headers = [[(key.decode(), value.decode()) for key, value in headers] for headers, _ in events]
    columns = [pa.array(headers, EVENT_SCHEMA.field(0).type), pa.array([body for _, body in events], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)


@given(st.lists(st.tuples(_HEADERS, st.binary(max_size=40)), min_size=1, max_size=12))
def test_arrow_reads_the_events_that_were_written_without_it(events: list[tuple[Headers, bytes]]) -> None:
    batch = decode_batch(message_of(events), EVENT_SCHEMA)
    batch.validate(full=True)
    assert batch.equals(of_arrow(events))


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([([], b"")], id="nothing in it"),
        pytest.param([([], b"x" * 100)], id="one"),
        pytest.param([([], b"x" * 100)] * 500, id="many of one length"),
        pytest.param([([], b"x" * size) for size in range(40)], id="of each length"),
        pytest.param([([(b"k" * n, b"v" * (n % 5))] * (n % 3), b"x" * n) for n in range(40)], id="with headers"),
    ],
)
def test_the_bytes_are_those_that_arrow_writes(events: list[tuple[Headers, bytes]]) -> None:
    """No reader, of whatever version, can tell them apart."""
    assert message_of(events) == of_arrow(events).serialize().to_pybytes()
