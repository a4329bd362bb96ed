"""Sets of channels, and their readers, called as Spark calls them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.channel.channel_set import ChannelSet
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.options import SOURCE, parse_options
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source import idle_polls, set_members
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_reader import SpillableSetReader

__all__ = [
    "Json",
    "Open",
    "Source",
    "bodies",
    "by_channel",
    "channels_at",
    "drain",
    "events",
    "names",
    "place",
    "set_readers",
]

Json = dict[str, Any]
Open = Callable[..., ss.Channel]
Source = Callable[..., SpillableSetReader]


def place(kind: str, path: Path) -> str:
    """Return a directory as the place of channels, or as a store of a kind."""
    return str(path) if kind == "directory" else f"object+file://{path}"


@contextmanager
def channels_at(root: str) -> Iterator[Open]:
    """Open channels by their names, below a directory or a store, and close them at the end."""
    with ExitStack() as stack:

        def open_at(name: str, **options: Any) -> ss.Channel:
            given = {} if "://" in root else {"minimum_required_space": 0}
            return stack.enter_context(ss.Channel(f"{root}/{name}", **given, **options))

        open_at.root = root  # type: ignore[attr-defined]
        yield open_at


@contextmanager
def set_readers(open_at: Open, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """Create readers of all channels that are called orders-…, or of others, which look for new ones each time."""
    for name in ("_LOCAL_LOOK_SECONDS", "_REMOTE_LOOK_SECONDS"):
        monkeypatch.setattr(set_members, name, 0.0)
    monkeypatch.setattr(idle_polls, "_LONGEST_WAIT_SECONDS", 0.01)
    with ExitStack() as stack:

        def source(*names: str, schema: pa.Schema | None = None, **options: Any) -> SpillableSetReader:
            channels = ChannelSet([f"{open_at.root}/{name}" for name in names or ("orders-*",)])  # type: ignore[attr-defined]
            parsed = StreamOptions.of(parse_options(options, (SOURCE,), where="a test"))
            columns = struct_type(schema or EVENT_SCHEMA)
            reader = SpillableSetReader(channels, parsed, columns)
            stack.callback(reader.stop)
            return reader

        yield source


def bodies(reader: SpillableSetReader, start: Json, end: Json) -> list[str]:
    """Plan a micro-batch and return what its partitions have, as executors read it."""
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    of_task = pickle.loads(pickle.dumps(reader))
    return [row["body"].decode() for p in partitions for batch in of_task.read(p) for row in batch.to_pylist()]


def drain(reader: SpillableSetReader, start: Json | None = None, most: int = 50) -> tuple[Json, list[list[str]]]:
    """Run micro-batches until nothing is new; return where that is, and what each had."""
    start = reader.initialOffset() if start is None else start
    found = []
    while (end := json.loads(json.dumps(reader.latestOffset(start)))) != start:
        found.append(bodies(reader, start, end))
        reader.commit(end)
        start = end
        assert len(found) < most
    return start, found


def events(letter: str, first: int, count: int) -> list[bytes]:
    """Return bodies that begin with a letter, numbered from the first on."""
    return [b"%s%d" % (letter.encode(), i) for i in range(first, first + count)]


def names(letter: str, count: int) -> list[str]:
    """Return the first bodies of a letter, as texts."""
    return [f"{letter}{i}" for i in range(count)]


def by_channel(found: list[list[str]]) -> dict[str, list[str]]:
    """Return what came of each channel, in order; bodies begin with their channel's letter."""
    sorted_out: dict[str, list[str]] = {}
    for body in (b for batch in found for b in batch):
        sorted_out.setdefault(body[0], []).append(body)
    return sorted_out
