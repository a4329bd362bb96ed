"""Makes the golden channels of the format that this package writes: python -m tests.golden.make DIRECTORY [NAME …]

Run once for each channel of a format version, kept for ever, and never run again for an old one.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from spillable_stream import Channel, Event, MemoryLossWarning
from spillable_stream.engine.local.upkeep import Upkeep
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.requests import Control
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.sources.position_file import FilePosition
from spillable_stream.flow.sources.tail_note import Span, write_note
from spillable_stream.flow.sources.tailed_file import Mark
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import ControlRecord
from spillable_stream.log.identity_file import read_identity, write_identity
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.filesystem import FileSystem
from tests.golden.dump import CLOCK_MS, dump
from tests.support.damage import kill, lose_memory, trim
from tests.support.delays import Clock, deliver_all, deliveries_of

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


def kept_channel(path: Path) -> None:
    """An event channel that keeps what was taken, with groups that went back, lost some to age, or are a stream's."""
    options: dict[str, Any] = {**BASE, "max_file_size": 1800, "retention_ms": _CENTURY_MS, "retention_bytes": 1 << 30}
    with mock.patch.object(Upkeep, "ensure"):  # nothing leaves but what is said here
        channel = Channel(path, **options, retention_untaken="drop", auto_group_ttl="100d")
        change(channel, FrameType.RETENTION, {"clock": ("00" * 16, 1_000_000, 1_700_000_000_000_000, 0)})
        put(channel, *(Event(b"old %d" % i) for i in range(8)))
        for group in ("back", "ahead"):
            take(channel, group, 8)
        late = channel.consumer("late")
        late.commit([(1, 1)], late.prepare([(1, 1)]))
        channel.checkpoint()
        change(channel, FrameType.RETENTION, {"through": 4})  # 2 to 4 expire for the group "late"
        after = ("00" * 16, 61_000_000, 1_700_003_660_000_000, 1_700_000_000_000_001)
        jump = (1_700_000_062_000_000, 3_600_000_000, 1_700_003_660_000_000)
        change(channel, FrameType.RETENTION, {"clock": after, "jump": jump})
        put(channel, *(Event(b"kept %d" % i) for i in range(8)))
        change(channel, FrameType.GROUP, {"group": "auto-query", "position": 10, "auto": True, "since": 8})
        stream = channel.consumer("auto-query")
        stream.commit([(11, 12)], stream.prepare([(11, 12)]))
        change(channel, FrameType.GROUP, {"group": "auto-query", "idle": 61_000})
        take(channel, "ahead", 3)
        channel.consumer("back").seek(5, "a query's reset")
        channel.checkpoint()
        put(channel, Event(b"last"))
        change(channel, FrameType.OPTIONS, {"retention_bytes": 1 << 20})
        kill(channel)


def expiring_channel(path: Path) -> None:
    """An event channel in which some events have expired: taken, prepared, yet to be judged, inline and staged."""
    with Channel(path, **BASE, max_file_size=3000, max_inline_bytes=3000) as channel:
        for round_ in range(3):
            with channel.put_transaction() as tx:
                tx.put_many([Event(b"short %d" % round_)] * 2, ttl=1e-6)
                tx.put(Event(b"long %d" % round_), ttl=_CENTURY_MS // 1000)
                tx.put(Event(b"plain %d" % round_))
        take(channel, "taker", 3)
        prepared = channel.consumer("preparer")
        prepared.prepare([(1, 6)])
        channel.checkpoint()
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"staged" * 500)] * 2, ttl=1e-6)
            tx.put(Event(b"staged" * 500), ttl=_CENTURY_MS // 1000)
        kill(channel)


def delayed_channel(path: Path) -> None:
    """An event channel with side files: of several stretches, with ttls, delivered in part, inline and staged."""
    with Channel(path, **BASE, max_file_size=3000, max_inline_bytes=3000) as channel:
        clock = deliveries_of(channel).clock_ms = Clock(CLOCK_MS)
        for round_ in range(3):
            with channel.put_transaction() as tx:
                for seconds in (200, 100, 86_400):
                    tx.put(Event(b"in %d s, %d" % (seconds, round_), {"n": str(round_)}), deliver_after=seconds)
                tx.put(Event(b"at once, %d" % round_), deliver_after=100, ttl=_CENTURY_MS // 1000)
                tx.put(Event(b"now %d" % round_))
        take(channel, "taker", 2)
        clock.pass_by(100)
        deliver_all(channel)
        channel.checkpoint()
        with channel.put_transaction() as tx:
            tx.put_many([Event(b"staged" * 500)] * 2, deliver_after=300 * 86_400)
        kill(channel)


def spooled_channel(path: Path) -> None:
    """An event channel as a spool is: its PUT frames say when their events are due, with a ttl and without."""
    with Channel(path, **BASE, max_file_size=3000, max_inline_bytes=3000) as channel:
        deliveries_of(channel).clock_ms = Clock(CLOCK_MS)
        for size in (1, 1500):  # inline, and staged
            tx = channel.put_transaction()
            tx.carries_dues = True
            with tx:
                tx.put(Event(b"now" * size))
                tx.put_many([Event(b"a" * size), Event(b"b" * size)], deliver_after=200)
                tx.put(Event(b"c" * size), deliver_after=100)
                tx.put(Event(b"d" * size), deliver_after=100, ttl=_CENTURY_MS // 1000)
        take(channel, "taker", 2)
        channel.checkpoint()
        kill(channel)


def noted_channel(path: Path) -> None:
    """An event channel with the notes of a flow's sources: one in a checkpoint and the log, one in the log alone."""
    with Channel(path, **BASE) as channel, ChannelProcessor({"c1": channel}, producer="a1.r1") as processor:
        for number, note in NOTES.items():
            processor.process([Event(b"line %d" % number)], number=number, note=note)
            if number == 1:
                take(channel, "slow", 1)
                channel.checkpoint()


NOTES = {
    number: write_note(
        Span(1001, 7 * number - 7, 7 * number, "/var/log/größe.log", "g"),
        number - 1,
        {1001: FilePosition("/var/log/größe.log", Mark(1001, 7 * number, 7, 3735928559, 7, 2**32 - number))},
    )
    for number in (1, 2)
}
"""What the sources of the channel `noted` say with their batches, by number."""

_CENTURY_MS = 100 * 365 * 86_400_000


def change(channel: Channel, type_: FrameType, value: ControlRecord) -> None:
    """Append a control record."""
    channel.engine().commit(Control(type_, value))


CHANNELS = {
    "events": events_channel,
    "typed": typed_channel,
    "spilled": spilled_channel,
    "kept": kept_channel,
    "expiring": expiring_channel,
    "delayed": delayed_channel,
    "spooled": spooled_channel,
    "noted": noted_channel,
}


def disown(path: Path) -> None:
    """Make the channel one without owner files, which say where it was made."""
    fs = FileSystem()
    layout = read_identity(fs, path)
    write_identity(fs, replace(layout, owned=False))
    for file in path.rglob("owner.json"):
        file.unlink()


def main(directory: Path, *names: str) -> None:
    """Make channels, all by default, keep only what the format promises, and write down what they hold."""
    for name in names or CHANNELS:
        path = directory / name
        CHANNELS[name](path)
        for file in sorted((path / "data").glob("log-*")):
            trim(path, int(file.name[4:]))
        disown(path)
        for file in [path / "head", *path.glob("*.lock"), path / "lock"]:
            file.unlink()
        for locks in ("groups", "producers"):
            shutil.rmtree(path / locks, ignore_errors=True)
        expected = json.dumps(dump(path), indent=1, ensure_ascii=False, default=str)
        (directory / f"{name}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
