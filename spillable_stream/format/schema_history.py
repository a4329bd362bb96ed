"""The schemas that a channel has had, as a plan takes them to a task: the newest one, and how wide the others were.

A new column is the last one, and none is ever removed or changed (`merge_schemas`). So an older schema is the beginning
of the newest, and is not sent with it: a plan of a channel of 1,000 columns that has got 20 more would have a megabyte,
and there is one for each task.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from spillable_stream.format.batch import decode_schema

__all__ = ["SchemaHistory"]


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """A channel's schemas. Picklable.

    Args:
        newest: the newest one, as an Arrow IPC message.
        widths: how many columns each had, oldest first.
        others: all of them, as such messages, if one is not the beginning of the newest; else empty.
    """

    newest: bytes
    widths: tuple[int, ...]
    others: tuple[bytes, ...] = ()

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, messages: tuple[bytes, ...]) -> SchemaHistory:
        """Return the history of schemas, which are Arrow IPC messages, oldest first; there is one at least."""
        schemas = [decode_schema(message) for message in messages]
        history = cls(messages[-1], tuple([len(schema) for schema in schemas]))
        if all(schema.equals(found) for schema, found in zip(schemas, history.decoded(), strict=True)):
            return history
        return cls(messages[-1], history.widths, messages)

    def decoded(self) -> list[pa.Schema]:
        """Return the schemas, oldest first."""
        if self.others:
            return [decode_schema(message) for message in self.others]
        newest = decode_schema(self.newest)
        columns = list(newest)
        return [
            newest if width == len(columns) else pa.schema(columns[:width], newest.metadata) for width in self.widths
        ]
