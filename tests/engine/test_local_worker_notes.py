"""The files in which workers say what they do."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local_worker_notes import LocalWorkerNotes
from spillable_stream.integrity.verify import verify
from spillable_stream.log.layout import Layout
from tests.support.events import put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    channel = open_channel(fs=FaultyFileSystem())
    put(channel, b"a")
    take(channel, 1, "g")
    return channel


def notes_of(channel: Channel) -> LocalWorkerNotes:
    notes = channel.engine().worker_notes
    assert isinstance(notes, LocalWorkerNotes)
    return notes


def test_what_was_said_last_is_read_by_whoever_looks(channel: Channel) -> None:
    notes, seen = notes_of(channel), notes_of(channel)
    assert seen.read() == {}
    note = notes.open("g")
    assert note is not None
    for value in (b"a longer value", b"short"):
        note.write(value)
        assert seen.read() == {"g": value}
    note.close(None)
    assert seen.read() == {"g": b"short"}


def test_a_note_that_is_torn_or_another_channels_is_left_out(channel: Channel, tmp_path: object) -> None:
    notes = notes_of(channel)
    note = notes.open("g")
    assert note is not None
    note.write(b"whole")
    note.close(None)
    file = channel.engine().log.layout.group_worker("g")  # type: ignore[attr-defined]
    file.write_bytes(file.read_bytes()[:-1])
    assert notes.read() == {}


def test_the_groups_are_listed_again_only_after_a_change(channel: Channel) -> None:
    notes, fs = notes_of(channel), channel.engine().log.fs  # type: ignore[attr-defined]
    note = notes.open("g")
    assert note is not None
    note.write(b"one")
    groups = channel.engine().log.layout.groups  # type: ignore[attr-defined]
    os.utime(groups, (1e9, 1e9))
    notes.read()
    before = len(fs.calls)
    note.write(b"two")
    written = len(fs.calls)
    assert notes.read() == {"g": b"two"}
    assert not [call for call in fs.calls[written:] if call.name in ("scandir", "listdir", "list_files")]
    assert written > before
    note.close(None)


def test_a_worker_that_comes_after_the_clock_was_set_back_is_seen(channel: Channel) -> None:
    directory = channel.engine().layout.groups  # type: ignore[attr-defined]
    seen = notes_of(channel)
    assert seen.read() == {}
    note = notes_of(channel).open("g")
    assert note is not None
    note.write(b"here")
    an_hour_ago = directory.stat().st_mtime - 3600
    os.utime(directory, (an_hour_ago, an_hour_ago))
    assert seen.read() == {"g": b"here"}
    note.close(None)


def test_a_channel_without_the_directory_has_no_notes(channel: Channel) -> None:
    layout: Layout = channel.engine().log.layout  # type: ignore[attr-defined]
    assert LocalWorkerNotes(channel.engine().log.fs, layout).read() == {}  # type: ignore[attr-defined]


def test_verify_knows_the_files(channel: Channel) -> None:
    note = notes_of(channel).open("g")
    assert note is not None
    note.write(b"x")
    note.close(None)
    channel.close()
    assert verify(channel.path).findings == ()
