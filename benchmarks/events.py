"""The events that are measured: bodies of text that compresses as records do, and headers."""

from __future__ import annotations

import base64
import random
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

import spillable_stream as ss

__all__ = ["Shape", "bodies", "event_batch", "python_events"]

_HEADERS = (("country", ("NL", "BE", "DE", "FR")), ("type", ("order", "return", "offer")), ("source", ("web", "app")))


class Shape(NamedTuple):
    """What one transaction puts.

    Args:
        events: how many events.
        body_bytes: the size of each body.
        headers: how many headers each has, up to 3.
    """

    events: int
    body_bytes: int
    headers: int = 0

    def __str__(self) -> str:
        size = f"{self.body_bytes // 1024} KiB" if self.body_bytes >= 1024 else f"{self.body_bytes} B"
        return f"{self.events:,} × {size}" + (f", {self.headers} headers" if self.headers else "")

    @property
    def payload_bytes(self) -> int:
        """The bodies' size together."""
        return self.events * self.body_bytes


@lru_cache(maxsize=2)
def bodies(events: int, body_bytes: int) -> list[bytes]:
    """Return bodies that begin as JSON does, and continue with letters, each body with others."""
    letters = base64.b64encode(random.Random(0).randbytes(events * body_bytes * 3 // 4 + 3))
    found = []
    for i in range(events):
        text = b'{"id":%d,"at":%d,"user":"user-%d","amount":%d,"note":"' % (i, 1_700_000_000 + i, i % 50, i % 900)
        found.append((text + letters[i * body_bytes : (i + 1) * body_bytes])[:body_bytes])
    return found


def _headers(shape: Shape) -> list[dict[str, str]]:
    return [{name: words[i % len(words)] for name, words in _HEADERS[: shape.headers]} for i in range(shape.events)]


def event_batch(schema: pa.Schema, shape: Shape) -> pa.RecordBatch:
    """Return one transaction's events as an Arrow batch."""
    headers = pa.array([list(h.items()) for h in _headers(shape)], schema.field("headers").type)
    body = pa.array(bodies(shape.events, shape.body_bytes), pa.binary())
    return pa.RecordBatch.from_arrays([headers, body], schema=schema)


def python_events(shape: Shape) -> list[ss.Event]:
    """Return one transaction's events as objects."""
    pairs = zip(bodies(shape.events, shape.body_bytes), _headers(shape), strict=True)
    return [ss.Event(body, headers) for body, headers in pairs]
