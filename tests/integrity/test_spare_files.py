"""What `verify` says of files beside the log: those that the channel can do without, and those of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.integrity.findings import Severity
from spillable_stream.integrity.inspection import inspect
from spillable_stream.integrity.verify import verify
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import three_puts
from tests.support.damage import flip, kill
from tests.support.events import numbered, put, take
from tests.support.fake_files import InMemory

Open = Callable[..., Channel]

FS = FileSystem()
MEMORY = {"memory_capacity": 20, "overflow_timeout": 0}


def test_a_damaged_position_is_a_warning_while_there_is_memory(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    take(channel, 4)
    kill(channel)
    flip(path / "groups" / "default.position", 9)
    (found,) = verify(path).findings
    assert (found.severity, found.path) == (Severity.WARNING, path / "groups" / "default.position")


def test_a_damaged_position_that_nothing_needs_is_a_note(path: Path, open_channel: Open) -> None:
    channel = open_channel(**MEMORY)
    put(channel, *numbered(0, 10))
    take(channel, 4)
    channel.close()
    position = path / "groups" / "default.position"
    position.write_bytes(b"\7" * 40)
    found = inspect(FS, path)
    assert [(f.severity, f.path) for f in found.findings.all()] == [(Severity.NOTE, position)]
    assert found.bad_positions == []


def test_what_is_not_the_channels_is_noted_in_few_words(path: Path) -> None:
    three_puts(path)
    (path / "groups" / "notes.txt").touch()
    for number in range(12):
        (path / "data" / f"stray-{number:02d}").touch()
    texts = {f.path: f.text for f in inspect(FS, path).findings.all()}
    assert texts[path / "groups"] == "1 name in it is not the channel's and is left alone: 'notes.txt'"
    assert texts[path / "data"].startswith("12 names in it are not the channel's and are left alone: 'stray-00', ")
    assert texts[path / "data"].endswith("'stray-09', and 2 more")


def test_a_segment_that_no_event_is_in_is_a_note(path: Path) -> None:
    three_puts(path)
    with Channel(path, create=False, checkpoint_on_close=False) as channel:
        writer = channel.engine().log.stage()
        writer.close()
    (note,) = inspect(FS, path).findings.all()
    assert (note.severity, note.path) == (Severity.NOTE, writer.path)
    assert note.text.startswith("no event in the channel is in this segment")


def test_a_channel_that_ends_with_the_host_is_healthy_and_noted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_puts(path)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    report = verify(path, fs=InMemory(path))
    assert report.healthy
    (found,) = report.findings
    assert (found.severity, found.path) == (Severity.NOTE, path)
    assert found.text == "it is on a file system in memory: the events end with the host. Move the channel to a disk"
