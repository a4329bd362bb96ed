"""What is no file of the channel, in its directories: it stops nothing, and nothing touches it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.staged_file import StagedFileWriter
from tests.support.damage import flip, log_file, memory_of, reboot
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]

HEX = "0123456789abcdef" * 2
NO_TEXT = os.fsdecode(b"caf\xe9")
IN_DATA = [
    *("segment.bak", "segment.", "segment.local.0.bak", f"segment.local.x.{HEX}", f"segment.a.b.0.{HEX}"),
    *("log-000001.bak", "log-1", "log-000000", "log-0000001", "log-4294967296", "log-99999999999999999999"),
    *(
        "log-\u0660\u0660\u0660\u0660\u0660\u0669",
        "log-000009\n",
        "log-000009.tmp",
        "memory-000001-000001",
        "checkpoint-000001-000000000100",
    ),
    *("foo.tmp", f"segment.{NO_TEXT}", f"log-{NO_TEXT}", NO_TEXT),
]
IN_CHECKPOINT = [
    *(
        "checkpoint-1-2.old",
        "checkpoint-1-2",
        "checkpoint-000001-000000000100.bak",
        "checkpoint-\u0660\u0660\u0660\u0660\u0660\u0661-\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0661\u0660\u0660",
    ),
    *("checkpoint-0000001-000000000100", "checkpoint-99999999999999999999-000000000100", "foo.tmp", NO_TEXT),
]
IN_MEMORY = [
    *("memory-segment.bak", "memory-1-1", "memory-000001-99999999999999999999", "spare-foo", "spare-", "foo.tmp"),
    *("spare-memory-000001-1", NO_TEXT),
]
IN_GROUPS = ["foo bar.lock", ".lock", f"{NO_TEXT}.lock", f"{NO_TEXT}.position", "x.bak", "a b.position"]
DIRECTORIES = {
    "data": ["log-000099", f"segment.local.0.{HEX}", f"segment.query.0.{HEX}"],
    "checkpoint": ["checkpoint-000001-000000000100", "checkpoint-999999-000000000100", "checkpoint-000001-1.tmp"],
    "memory": ["memory-000001-000099", "spare-memory-000001-000099", f"memory-segment.local.0.{HEX}"],
    "groups": ["stray.position", "stray.lock"],
}


def scatter(directory: Path, names: list[str], make: Callable[[Path], None]) -> list[Path]:
    """Make something under every name, and return where."""
    paths = [directory / name for name in names]
    for path in paths:
        make(path)
    return paths


def write(path: Path) -> None:
    path.write_bytes(b"somebody's")


def untouched(paths: list[Path]) -> bool:
    return all(p.is_dir() or p.is_fifo() or p.read_bytes() == b"somebody's" for p in paths)


def work(channel: Channel) -> None:
    """Do everything that looks at names: rolls, segments, checkpoints, a Spark batch's end, takes."""
    for i in range(3):
        put(channel, *[bytes(200)] * 10)
        writer = StagedFileWriter(channel.engine().fs, channel.engine().layout, "query", i)
        writer.close()
        channel.engine().drained.remove_staging("query", i)
        take(channel, 8)
        channel.checkpoint()


def check(path: Path, strays: list[Path], open_channel: Open, **options: object) -> None:
    """Use, close, recover, examine and repair a channel in whose directories strays are."""
    for rebooted in (False, True):
        with open_channel(max_file_size=2000, max_inline_bytes=700, staging_ttl=0, **options) as channel:
            before = channel.stats().channel_size
            work(channel)
            assert channel.stats().channel_size == before + 6
            channel.close(checkpoint=True)
        if rebooted:
            reboot(path)
    report = verify(path)
    assert report.healthy, report.findings
    reboot(path)
    assert untouched(strays)
    assert len([p for p in (path / "data").glob("log-*") if p not in strays]) <= 4
    with open_channel(create=False) as channel:
        put(channel, *numbered(0, 5))
    assert len(list((path / "checkpoint").glob("checkpoint-*"))) == 2 + len(
        [s for s in strays if s.match("checkpoint/checkpoint-*")]
    )
    newest = max(p for p in (path / "data").glob("log-??????") if p.is_file() and p not in strays)
    flip(newest, 60)
    flip(newest, newest.stat().st_size // 2)
    assert not verify(path).healthy
    repair(path)
    assert verify(path).healthy
    assert untouched(strays)


@pytest.mark.parametrize(
    ("directory", "names"), [("data", IN_DATA), ("checkpoint", IN_CHECKPOINT), ("groups", IN_GROUPS)]
)
def test_files_with_other_names_are_left_alone(
    path: Path, open_channel: Open, directory: str, names: list[str]
) -> None:
    with open_channel() as channel:
        put(channel, b"x")
    check(path, scatter(path / directory, names, write), open_channel)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directories", "pipes"])
@pytest.mark.parametrize("directory", ["data", "checkpoint", "groups"])
def test_what_is_not_a_file_is_left_alone(
    path: Path, open_channel: Open, directory: str, make: Callable[[Path], None]
) -> None:
    with open_channel() as channel:
        put(channel, b"x")
    check(path, scatter(path / directory, DIRECTORIES[directory], make), open_channel)


@pytest.mark.parametrize("name", ["segment.bak", "log-99999999999999999999", "log-1"])
def test_a_channel_is_created_beside_what_is_in_its_data_directory(
    tmp_path: Path, open_channel: Open, name: str
) -> None:
    """`dataDirs` may hold other things."""
    data = tmp_path / "disk"
    data.mkdir()
    strays = scatter(data, [name], write)
    with open_channel(data_dirs=str(data)) as channel:
        put(channel, b"x")
        channel.checkpoint()
        assert take(channel) == [b"x"]
    assert untouched(strays)


@pytest.mark.parametrize("make", [write, Path.mkdir, os.mkfifo], ids=["files", "directories", "pipes"])
def test_a_memory_tier_leaves_alone_what_is_not_its_own(
    path: Path, open_channel: Open, make: Callable[[Path], None]
) -> None:
    names = IN_MEMORY if make is write else DIRECTORIES["memory"]
    options = {"memory_capacity": 30, "overflow_timeout": 0, "byte_capacity": 1 << 20}
    with open_channel(**options) as channel:
        put(channel, b"x")
        memory = memory_of(path)
        strays = scatter(memory, names, make)
        assert verify(path).healthy
        for _ in range(20):
            put(channel, *[bytes(5000)] * 10)
            take(channel, 10)
            channel.checkpoint()
        assert untouched(strays)
    assert untouched(strays)
    assert len(list(memory.iterdir())) == len(strays)
    with open_channel(**options) as channel:
        put(channel, b"y")
        assert channel.stats().memory.events == 1
        put(channel, *[b"z"] * 30)
        assert take(channel) == [bytes(5000), b"y", *[b"z"] * 30]
    assert untouched(strays)
    for stray in strays:
        stray.rmdir() if stray.is_dir() else stray.unlink()
    memory.rmdir()


def test_verify_notes_what_is_not_the_channels(path: Path, open_channel: Open) -> None:
    with open_channel() as channel:
        put(channel, b"x")
        channel.checkpoint()
    scatter(path / "data", ["segment.bak", f"log-{NO_TEXT}"], write)
    report = verify(path)
    assert report.healthy
    (note,) = [f for f in report.findings if f.path == path / "data"]
    assert note.text == r"2 names in it are not the channel's and are left alone: 'log-caf\xe9', 'segment.bak'"
    assert log_file(path).exists()
    str(note.as_dict()).encode()
