"""A channel for the length of one of Spark's calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spillable_stream.channel.channel import Channel

__all__ = ["visit"]


@contextmanager
def visit(path: str, **arguments: Any) -> Iterator[Channel]:
    """Open a channel and close it without a checkpoint and without a flush.

    Takes and raises what `Channel` does.
    """
    channel = Channel(path, **arguments)
    try:
        yield channel
    finally:
        channel.close(checkpoint=False, flush=False)
