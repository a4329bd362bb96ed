"""A sink's directory is created once, and not again behind a disk that is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.file_roll import FileRoll
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sinks.output_directory import OutputDirectory
from spillable_stream.flow.sinks.parquet import Parquet
from tests.support.events import put

GONE = "/out, where the sink writes, is gone; its disk may not be mounted. Mount it; or"

SINKS: dict[str, Callable[[Path], Sink]] = {
    "file_roll": lambda base: FileRoll(base / "out"),
    "hdfs": lambda base: Hdfs(f"file://{base}/out/%Y/x", file_type="DataStream", use_local_time_stamp=True),
    "hdfs, compressed": lambda base: Hdfs(f"file://{base}/out/", file_type="CompressedStream", codec="gzip"),
    "parquet": lambda base: Parquet(f"file://{base}/out/"),
}


def test_it_is_created_once(tmp_path: Path) -> None:
    directory = OutputDirectory(tmp_path / "a" / "out")
    with pytest.raises(StorageError, match=GONE):
        directory.require()
    directory.make()
    directory.require()
    (tmp_path / "a" / "out").rmdir()
    with pytest.raises(StorageError, match=GONE):
        directory.make()
    assert not (tmp_path / "a" / "out").exists()
    (tmp_path / "a" / "out").mkdir()
    directory.make()


def opened(channel: Channel, sink: Sink, before: Sink | None = None) -> Sink:
    sink.name = "a1.k1"
    if before is not None:
        sink.succeed(before)
    sink.open(channel)
    return sink


@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_writes_nothing_while_its_directory_is_gone_and_continues_when_it_is_back(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: str
) -> None:
    """It created the directory below the mount point, and wrote to another disk."""
    channel, out = open_channel(), tmp_path / "out"
    put(channel, b"a")
    sink = opened(channel, SINKS[kind](tmp_path))
    sink.process()
    sink.close()
    sink.open(channel)
    out.rename(tmp_path / "away")
    put(channel, b"b")
    with pytest.raises(StorageError, match=GONE):
        sink.process()
    sink.close()
    with pytest.raises(StorageError, match=GONE):
        opened(channel, SINKS[kind](tmp_path), sink)
    assert not out.exists() and channel.stats().groups["default"].lag == 1
    (tmp_path / "away").rename(out)
    again = opened(channel, SINKS[kind](tmp_path), sink)
    again.process()
    again.close()
    assert channel.stats().groups["default"].lag == 0


@pytest.mark.parametrize("kind", ["file_roll", "parquet"])
def test_a_sink_that_gets_another_directory_creates_it(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: str
) -> None:
    channel = open_channel()
    before = opened(channel, SINKS[kind](tmp_path))
    before.close()
    opened(channel, SINKS[kind](tmp_path / "other"), before).close()
    assert (tmp_path / "other" / "out").is_dir()
