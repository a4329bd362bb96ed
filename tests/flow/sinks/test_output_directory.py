"""A sink's directory is created once, and not again behind a disk that is away."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.flow import descriptor
from spillable_stream.flow.sinks.base import Sink
from spillable_stream.flow.sinks.file_roll import FileRoll
from spillable_stream.flow.sinks.hdfs import Hdfs
from spillable_stream.flow.sinks.output_directory import OutputDirectory
from spillable_stream.flow.sinks.parquet import Parquet
from tests.support.events import put
from tests.support.one_module import replace_in

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


def test_an_event_is_not_buried_for_a_file_in_place_of_the_directory(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    """Events were buried, as if their headers had led the path through it."""
    channel, out = open_channel(), tmp_path / "out"
    sink = opened(channel, Hdfs(f"file://{out}/%{{app}}", file_type="DataStream"))
    shutil.rmtree(out)
    out.touch()
    put(channel, b"a")
    with Channel(tmp_path / "dead", minimum_required_space=0) as sink.dead_letter:
        with pytest.raises(StorageError, match=GONE):
            sink.process()
        assert sink.dead_letter.stats().channel_size == 0
    out.unlink()


@pytest.mark.parametrize("kind", ["file_roll", "parquet"])
def test_a_sink_that_gets_another_directory_creates_it(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: str
) -> None:
    channel = open_channel()
    before = opened(channel, SINKS[kind](tmp_path))
    before.close()
    opened(channel, SINKS[kind](tmp_path / "other"), before).close()
    assert (tmp_path / "other" / "out").is_dir()


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("/out", "/out"),
        ("/out/", "/out"),
        ("/out/%Y/x", "/out"),
        ("/out/x%Y/", "/out"),
        ("/%Y/x", "/"),
        ("%Y", "."),
        ("/100%%Y/out/%Y", "/100%Y/out"),
        ("/100%%", "/100%"),
    ],
)
def test_the_directory_of_a_path_with_escapes_is_the_one_above_the_first_of_them(path: str, directory: str) -> None:
    assert OutputDirectory.of_pattern(path).path == Path(directory)


@pytest.mark.parametrize("kind", SINKS)
def test_the_note_is_in_the_directory(open_channel: Callable[..., Channel], tmp_path: Path, kind: str) -> None:
    """That of /out/%Y/x was beside /out: on another disk than the files, or where the user may not write."""
    channel = open_channel()
    put(channel, b"a")
    sink = opened(channel, SINKS[kind](tmp_path))
    sink.process()
    sink.close()
    assert [p.parent for p in tmp_path.rglob(".spillable-a1.k1.note")] == [tmp_path / "out"]


def test_a_disk_that_cannot_say_whether_the_directory_is_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Python 3.14, `Path.exists` says no then."""

    def fails(*_: object, **__: object) -> os.stat_result:
        raise OSError(errno.EIO, "Input/output error")

    directory = OutputDirectory(tmp_path)
    directory.make()
    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fails)
        broken.setattr(Path, "exists", os.path.exists)
        with pytest.raises(StorageError, match=r"can't look at .*, where the sink writes \(Input/output error\)"):
            directory.require()


def bodies(out: Path) -> str:
    return "".join(sorted(p.read_text() for p in out.iterdir() if not p.name.endswith(".note")))


APPENDING: dict[str, Callable[[Path], Sink]] = {
    "file_roll": SINKS["file_roll"],
    "hdfs": lambda base: Hdfs(f"file://{base}/out", file_type="DataStream", roll_count=0, roll_size=0),
}


@pytest.mark.parametrize("kind", APPENDING)
@pytest.mark.parametrize("is_directory", [True, False], ids=["directory", "file"])
def test_later_events_go_to_a_new_file_when_somebody_has_removed_the_open_one(
    open_channel: Callable[..., Channel],
    tmp_path: Path,
    kind: str,
    is_directory: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The removed file took it, the take was committed, and nobody ever found it."""
    channel, out = open_channel(), tmp_path / "out"
    put(channel, b"a")
    sink = opened(channel, APPENDING[kind](tmp_path))
    sink.process()
    (written,) = (p for p in out.iterdir() if not p.name.endswith(".note"))
    if is_directory:
        shutil.rmtree(out)
    else:
        written.unlink()
    put(channel, b"b")
    if is_directory:
        with pytest.raises(StorageError, match=GONE):
            sink.process()
        assert not out.exists() and channel.stats().groups["default"].lag == 1
        out.mkdir()
    sink.process()
    assert f"{written} is gone, and later events go to a new file" in caplog.text
    put(channel, b"c")
    sink.process()
    sink.close()
    assert bodies(out) == "b\nc\n" and channel.stats().groups["default"].lag == 0


@pytest.mark.parametrize("kind", APPENDING)
def test_a_disk_that_cannot_say_whether_the_open_file_is_there_is_an_error(
    open_channel: Callable[..., Channel], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for one that somebody had removed, and never got its final name."""
    channel, out = open_channel(), tmp_path / "out"
    put(channel, b"a")
    sink = opened(channel, APPENDING[kind](tmp_path))
    sink.process()
    (written,) = (p for p in out.iterdir() if not p.name.endswith(".note"))
    put(channel, b"b")

    def stat(path: object, *arguments: Any, **keywords: Any) -> os.stat_result:
        if path == written:
            raise OSError(errno.EIO, "Input/output error")
        return os.stat(path, *arguments, **keywords)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        replace_in(broken, descriptor, "os", stat=stat)
        with pytest.raises(StorageError, match=f"can't look at {written} .Input/output error."):
            sink.process()
    assert channel.stats().groups["default"].lag == 1
    sink.process()
    sink.close()
    assert bodies(out) == "a\nb\n" and channel.stats().groups["default"].lag == 0
    assert len([p for p in out.iterdir() if not p.name.endswith(".note")]) == 1 and not list(out.glob("*.tmp"))
