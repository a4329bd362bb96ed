"""``onCorruption``: a read that fails at damage, or goes on without what is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from spillable_stream.errors import CorruptionError
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import FrameType, file_seed
from spillable_stream.integrity.verify import verify
from spillable_stream.log.frames import walk
from spillable_stream.log.layout import Layout
from spillable_stream.log.salvage import Unreadable
from spillable_stream.spark.schema import struct_type
from spillable_stream.spark.source.batch_reader import SpillableBatchReader
from spillable_stream.spark.source.on_corruption import quarantine
from spillable_stream.spark.source.read_options import BatchOptions, StreamOptions
from spillable_stream.spark.source.stream_reader import SpillableStreamReader
from spillable_stream.storage.filesystem import FileSystem

QUARANTINE = {"on_corruption": "quarantine"}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A channel of four transactions of five events, of which the second, 6 to 10, can't be read."""
    fs = FileSystem()
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        channel.consumer("another")
        for first in range(1, 21, 5):
            with channel.put_transaction() as tx:
                tx.put_many(ss.Event(b"%d" % i) for i in range(first, first + 5))
        layout: Layout = channel.engine().layout
    file = fs.open(layout.log_file(1), readonly=True)
    frames = walk(file, file_seed(layout.channel, seed_name(1)), 0, file.size())
    puts = [f.offset for f in frames if f.header and f.header.type == FrameType.PUT]
    file.close()
    data = bytearray(layout.log_file(1).read_bytes())
    data[puts[1] + 70] ^= 4
    layout.log_file(1).write_bytes(data)
    return tmp_path / "c"


def stream(path: Path, **options: Any) -> SpillableStreamReader:
    with ss.Channel(path) as channel:
        schema = struct_type(channel.schema)
    return SpillableStreamReader(str(path), StreamOptions.of(options), schema)


def run(reader: Any, *offsets: Any) -> list[int]:
    """Return the events of all partitions of a batch, by the numbers in their bodies."""
    parts = reader.partitions(*offsets)
    return [int(b.as_py()) for part in parts for batch in reader.read(part) for b in batch["body"]]


def batch_of(reader: SpillableStreamReader) -> tuple[Any, Any]:
    start = reader.initialOffset()
    return start, reader.latestOffset(start)


EVERYTHING_READABLE = [*range(1, 6), *range(11, 21)]


def test_read_fails_at_damage_by_default(path: Path) -> None:
    reader = stream(path)
    with pytest.raises(CorruptionError, match=r"a frame is damaged .*log-000001, offset"):
        run(reader, *batch_of(reader))


def test_stream_continues_without_the_damaged_events(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = stream(path, **QUARANTINE)
    assert run(reader, *batch_of(reader)) == EVERYTHING_READABLE
    assert "the read continues without the damaged events" in caplog.text


def test_damaged_events_are_reported_lost_and_their_bytes_kept(path: Path) -> None:
    reader = stream(path, **QUARANTINE)
    run(reader, *batch_of(reader))
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ((6, 10),)
        with channel.take_transaction("another") as tx:
            assert [int(e.body) for e in tx.take_many(100)] == EVERYTHING_READABLE
    (kept,) = (path / "quarantine").iterdir()
    report = json.loads((kept / "report.json").read_text())
    assert kept.name == "events-6-10" and report["events"] == [6, 10]
    damaged = (path / "data" / "log-000001").read_bytes()[report["offset"] :][: report["size"]]
    assert (kept / f"log-000001-{report['offset']}").read_bytes() == damaged


def test_batch_that_is_replayed_is_the_same(path: Path) -> None:
    reader = stream(path, **QUARANTINE)
    start, end = batch_of(reader)
    assert run(reader, start, end) == EVERYTHING_READABLE
    reader.stop()
    again = stream(path, **QUARANTINE)
    assert again.latestOffset(start)["writeOrderId"] == end["writeOrderId"]
    assert run(again, start, end) == EVERYTHING_READABLE
    again.commit(end)
    assert again.latestOffset(end) == end


def test_other_streams_fail_at_the_loss_unless_they_quarantine_too(path: Path) -> None:
    reader = stream(path, **QUARANTINE)
    run(reader, *batch_of(reader))
    other = stream(path, group="another")
    with pytest.raises(CorruptionError, match="the events 6 to 10 are lost"):
        run(other, *batch_of(other))
    other.stop()
    third = stream(path, group="another", **QUARANTINE)
    assert run(third, *batch_of(third)) == EVERYTHING_READABLE


def test_batch_read_continues_too_and_changes_nothing(path: Path) -> None:
    with ss.Channel(path) as channel:
        schema = struct_type(channel.schema)
    assert run(SpillableBatchReader(str(path), BatchOptions.of(QUARANTINE), schema)) == EVERYTHING_READABLE
    assert not (path / "quarantine").exists()
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ()
    with pytest.raises(CorruptionError):
        run(SpillableBatchReader(str(path), BatchOptions.of(), schema))


def test_channel_is_as_sound_as_before(path: Path) -> None:
    before = [f.text for f in verify(path).findings]
    reader = stream(path, **QUARANTINE)
    start, end = batch_of(reader)
    run(reader, start, end)
    reader.commit(end)
    reader.stop()
    with ss.Channel(path) as channel:
        with channel.take_transaction("another") as tx:
            tx.take_many(100)
        assert channel.engine().follow().stored() == 0
    assert len([f for f in verify(path).findings if f.severity == "damage"]) <= len(before)


def test_another_channel_at_the_path_is_told_about_no_loss(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ss.Channel(path) as channel:
        [plan] = channel.port().plan_read([[(1, 20)]])
    events = plan.open()
    shutil.rmtree(path)
    with ss.Channel(path, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_many(ss.Event(b"%d" % i) for i in range(20))
    (log,) = (path / "data").glob("log-*")
    quarantine(events, Unreadable(6, 10, log, 0, 10))
    events.close()
    with ss.Channel(path) as channel:
        assert channel.stats().lost == ()
    assert "there is another channel" in caplog.text
