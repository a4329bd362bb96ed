"""Makes the golden channels of the format that this package writes: python -m tests.golden.make DIRECTORY [NAME …]

Run once for each channel of a format version, kept for ever, and never run again for an old one.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

from spillable_stream import Channel, Event, MemoryLossWarning
from spillable_stream.engine.requests import Put
from spillable_stream.format.batch import encode_batch
from spillable_stream.log.staged_file import StagedFileWriter
from tests.golden.dump import dump
from tests.support.damage import kill, lose_memory, trim

BASE: dict[str, Any] = {"minimum_required_space": 0, "checkpoint_on_close": False}


def put(channel: Channel, *events: Any) -> None:
    """Put one transaction."""
    with channel.put_transaction() as tx:
        tx.put_many(events)


def take(channel: Channel, group: str, limit: int) -> None:
    """Take one transaction."""
    with channel.take_transaction(group) as tx:
        tx.take_many(limit)


def events_channel(path: Path) -> None:
    """An event channel with every kind of frame, several files, a segment and two checkpoints."""
    with Channel(path, **BASE, max_file_size=1800, max_inline_bytes=3000) as channel:
        put(channel, *(Event(b"first %d" % i, {"n": str(i), "empty": ""}) for i in range(10)))
        slow, fast = channel.consumer("slow"), channel.consumer("fast")
        gone = channel.consumer("gone")
        gone.commit(gone.claim(1))
        channel.drop_group("gone")
        ranges = slow.claim(3)
        prepared = slow.prepare(ranges)
        slow.release(ranges, prepared)  # a ROLLBACK
        held, ahead = slow.claim(2), slow.claim(3)
        slow.commit(ahead, slow.prepare(ahead))  # taken ahead of what is held
        channel.checkpoint()
        take(channel, "fast", 4)
        put(channel, *(Event(b"staged" * 500) for _ in range(3)))
        channel.checkpoint()
        put(channel, Event(b""), Event("größer".encode(), {"ключ": "значение"}))
        writer = StagedFileWriter(channel.engine().fs, channel.engine().layout, "0f0e0d0c-query", 7)
        writer.write(encode_batch(pa.RecordBatch.from_pylist([{"headers": [], "body": b"sink"}], channel.schema)))
        channel.engine().commit(Put([], [writer.finish()], ("0f0e0d0c-query", 7)))
        writer.close()
        slow.prepare(held)  # in flight when the channel was closed
        fast.commit(fast.claim(2))


def typed_channel(path: Path) -> None:
    """A typed channel whose schema grew, with compressed batches."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    with Channel(path, schema=schema, **BASE) as channel:
        put(channel, *({"n": i, "at": i * 1_000_000} for i in range(5)))
        channel.evolve(schema.append(pa.field("tags", pa.map_(pa.string(), pa.list_(pa.decimal128(9, 2))))))
    for compression in ("lz4", "zstd"):
        with Channel(path, compression=compression) as channel:
            put(
                channel, {"n": 5, "tags": {"a": [1, None]}}, *({"n": i, "at": None, "tags": None} for i in range(6, 60))
            )
    with Channel(path, keep_alive=1.5) as channel:
        take(channel, "default", 7)


def spilled_channel(path: Path) -> None:
    """An event channel whose memory tier spilled, was moved to disk, and then lost."""
    options: dict[str, Any] = {**BASE, "memory_capacity": 10, "overflow_timeout": 0, "byte_capacity": 1 << 20}
    with Channel(path, **options) as channel:
        for count in (6, 8, 3):  # to memory, to disk, to memory
            put(channel, *(Event(b"moved %d" % i) for i in range(count)))
        take(channel, "slow", 2)
        channel.consumer("slow").prepare([(3, 4)])
        channel.checkpoint()
    channel = Channel(path)
    put(channel, *(Event(b"lost %d" % i) for i in range(4)))
    put(channel, *(Event(b"kept %d" % i) for i in range(9)))
    take(channel, "fast", 19)
    kill(channel)
    lose_memory(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryLossWarning)
        Channel(path).close()


CHANNELS = {"events": events_channel, "typed": typed_channel, "spilled": spilled_channel}


def main(directory: Path, *names: str) -> None:
    """Make channels, all by default, keep only what the format promises, and write down what they hold."""
    for name in names or CHANNELS:
        path = directory / name
        CHANNELS[name](path)
        for file in sorted((path / "data").glob("log-*")):
            trim(path, int(file.name[4:]))
        for file in [path / "head", *path.glob("*.lock"), path / "lock", *(path / "groups").iterdir()]:
            file.unlink()
        (path / "groups").rmdir()
        expected = json.dumps(dump(path), indent=1, ensure_ascii=False, default=str)
        (directory / f"{name}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
