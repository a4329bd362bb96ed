"""How much memory a producer holds for what was sent: what counts towards ``total_size_in_bytes``."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from spillable_stream.counted import counted
from spillable_stream.errors import EventTooLargeError
from spillable_stream.format.value_leaf import GC_HEAD_BYTES
from spillable_stream.format.views import copy_of

__all__ = [
    "ATTEMPT_BYTES",
    "BATCH_BYTES",
    "BODY_BYTES",
    "CALLBACK_BYTES",
    "DEAD_LETTER_BYTES",
    "JOINED_BYTES",
    "TIMES_BYTES",
    "TINY_BODIES",
    "TINY_BODY_BYTES",
    "copy_of_batch",
    "headers_bytes",
    "text_bytes",
]

BODY_BYTES = 64
"""What a body takes beside its bytes: the object's head and its place in a list."""

TINY_BODY_BYTES = 9
"""What a body of no or one byte takes, which is one of `TINY_BODIES`: its place in a list."""

TINY_BODIES = {body: body for body in (b"", *(bytes((i,)) for i in range(256)))}
"""Every body of no or one byte, once."""

CALLBACK_BYTES = 112
"""What a callback takes: a tuple, a number and a place in a list."""

JOINED_BYTES = 18
"""What a send of several events takes beside them: where it begins and ends."""

TIMES_BYTES = 200
"""What times of its own take: of a send, two tuples, their numbers and a place in a list."""

BATCH_BYTES = 680
"""What a batch takes beside its events: its fields, its list, its lock, and its place wherever batches are kept."""

ATTEMPT_BYTES = 160
"""What an attempt takes that a batch remembers, beside what the error said."""

DEAD_LETTER_BYTES = 700
"""What a batch takes on its way to the dead-letter channel, beside what the error said."""

_HEADERS_PLACE_BYTES = 96


def text_bytes(text: str | None) -> int:
    """Return what a text holds; names and values of one letter of Latin 1 are everybody's."""
    return 0 if text is None or (len(text) < 2 and text <= "\xff") else text.__sizeof__()


def headers_bytes(headers: Mapping[str, str]) -> int:
    """Return what the headers of one event hold."""
    own = headers.__sizeof__() + GC_HEAD_BYTES + _HEADERS_PLACE_BYTES
    return own + sum(map(text_bytes, headers)) + sum(map(text_bytes, headers.values()))


def copy_of_batch(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return a copy of a batch, which nobody else can change, and what that holds.

    Raises:
        EventTooLargeError: it is larger than Arrow can write at once.
    """
    try:
        return copy_of(batch)
    except pa.ArrowCapacityError as e:
        raise EventTooLargeError(
            f"a batch of {counted(batch.num_rows, 'event')} is too large to send at once: {e}"
        ) from e
