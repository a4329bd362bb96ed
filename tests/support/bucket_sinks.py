"""Sinks that divide events among files, with a content of their own."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream.flow.sinks.bucket_sink import BucketSink
from spillable_stream.flow.sinks.buckets import Names, RollRules, Times
from spillable_stream.flow.sinks.open_file import Content

__all__ = ["Bracketed", "sink"]


class Bracketed(Content):
    """Bodies between brackets."""

    def begin(self) -> bytes:
        return b"["

    def encode(self, batch: pa.RecordBatch) -> bytes:
        return b"".join(batch.column(1).to_pylist())

    def end(self) -> bytes:
        return b"]"


def sink(path: str, *, can_be_cut: bool, roll_count: int = 0) -> BucketSink:
    """Return a sink whose files are below a path."""
    return BucketSink(
        path,
        "f",
        names=Names(),
        rolling=RollRules(0, 0, roll_count, 0),
        times=Times("UTC"),
        content=Bracketed,
        can_be_cut=can_be_cut,
        max_open_files=9,
        close_tries=0,
        retry_interval=1,
        batch_size=2,
        channel="",
    )
