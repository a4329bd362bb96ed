"""HDFS sinks to a directory, and what they wrote."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from spillable_stream import Channel, Event
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sources.base import Status

__all__ = ["KINDS", "NO_ROLLS", "drain", "files", "lines", "opened", "put"]

NO_ROLLS = {"roll_interval": 0, "roll_size": 0, "roll_count": 0}
KINDS: list[dict[str, Any]] = [
    {"file_type": "DataStream"},
    {"file_type": "CompressedStream", "codec": "gzip"},
]


def put(channel: Channel, *bodies: str, **headers: str) -> None:
    """Put texts with headers in one transaction."""
    with channel.put_transaction() as tx:
        tx.put_many([Event(b.encode(), headers) for b in bodies])


def opened(channel: Channel, path: Path | str, **options: Any) -> Hdfs:
    """Return an open sink of plain text, if the options do not say otherwise."""
    sink = Hdfs(str(path), **{"file_type": "DataStream", "now": lambda: 1.0, **options})
    sink.name = "a1.k1"
    sink.open(channel)
    return sink


def drain(sink: Hdfs) -> None:
    """Let a sink write what the channel has."""
    while sink.process() is Status.READY:
        pass


def files(out: Path) -> dict[str, str]:
    """Return what is in the files of a directory that are not hidden, by their paths there."""
    found = {}
    for p in sorted(out.rglob("*")):
        if p.is_file() and not p.name.startswith("."):
            data = p.read_bytes()
            text = gzip.decompress(data) if p.suffix == ".gz" else data
            found[str(p.relative_to(out))] = text.decode(errors="replace")  # half of a file may be in use
    return found


def lines(out: Path) -> list[str]:
    """Return the lines of all these files."""
    return [line for text in files(out).values() for line in text.splitlines()]
