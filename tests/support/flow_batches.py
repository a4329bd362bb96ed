"""Batches of a flow, and a world that stands still."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from spillable_stream import Event
from spillable_stream.flow.event_batch import as_event_batch, events_of
from spillable_stream.flow.interceptors.base import EventInterceptor
from spillable_stream.flow.surroundings import Surroundings

__all__ = ["EVENTS", "STILL", "Picky", "batch_of", "headers_of"]

STILL = Surroundings(
    now_ms=lambda: 1_700_000_000_123,
    host_name=lambda: "host.example",
    host_address=lambda: "192.0.2.1",
    random_bytes=lambda count: bytes(i % 251 for i in range(count)),
    monotonic=lambda: 0.0,
)

_TEXT = st.text("abé", max_size=3)
EVENTS = st.lists(st.builds(Event, st.binary(max_size=4), st.dictionaries(_TEXT, _TEXT, max_size=3)), max_size=8)
"""Events with few different headers."""


def batch_of(*bodies: bytes, **headers: str) -> pa.RecordBatch:
    """Return a batch of bodies, all with the same headers."""
    return as_event_batch([Event(body, headers) for body in bodies])


def headers_of(batch: pa.RecordBatch) -> list[dict[str, str]]:
    """Return the headers of each event."""
    batch.validate(full=True)
    return [dict(event.headers) for event in events_of(batch)]


class Picky(EventInterceptor):
    """Refuses bodies with the word bad."""

    def intercept(self, event: Event) -> Event | None:
        if b"bad" in event.body:
            raise ValueError("it is bad")
        return event
