"""The files in which workers say what they do."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine.local.local_worker_statuses import LocalWorkerStatuses
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


def statuses_of(channel: Channel) -> LocalWorkerStatuses:
    statuses = channel.engine().worker_statuses
    assert isinstance(statuses, LocalWorkerStatuses)
    return statuses


def test_what_was_said_last_is_read_by_whoever_looks(channel: Channel) -> None:
    statuses, seen = statuses_of(channel), statuses_of(channel)
    assert seen.read() == {}
    writer = statuses.open("g")
    assert writer is not None
    for value in (b"a longer value", b"short"):
        writer.write(value)
        assert seen.read() == {"g": value}
    writer.close(None)
    assert seen.read() == {"g": b"short"}


def test_a_status_that_is_torn_or_another_channels_is_left_out(channel: Channel, tmp_path: object) -> None:
    statuses = statuses_of(channel)
    writer = statuses.open("g")
    assert writer is not None
    writer.write(b"whole")
    writer.close(None)
    file = channel.engine().log.layout.group_worker("g")  # type: ignore[attr-defined]
    file.write_bytes(file.read_bytes()[:-1])
    assert statuses.read() == {}


def test_the_groups_are_listed_again_only_after_a_change(channel: Channel) -> None:
    statuses, fs = statuses_of(channel), channel.engine().log.fs  # type: ignore[attr-defined]
    writer = statuses.open("g")
    assert writer is not None
    writer.write(b"one")
    groups = channel.engine().log.layout.groups  # type: ignore[attr-defined]
    os.utime(groups, (1e9, 1e9))
    statuses.read()
    before = len(fs.calls)
    writer.write(b"two")
    written = len(fs.calls)
    assert statuses.read() == {"g": b"two"}
    assert not [call for call in fs.calls[written:] if call.name in ("scandir", "listdir", "list_files")]
    assert written > before
    writer.close(None)


def test_a_worker_that_comes_after_the_clock_was_set_back_is_seen(channel: Channel) -> None:
    directory = channel.engine().layout.groups  # type: ignore[attr-defined]
    seen = statuses_of(channel)
    assert seen.read() == {}
    writer = statuses_of(channel).open("g")
    assert writer is not None
    writer.write(b"here")
    an_hour_ago = directory.stat().st_mtime - 3600
    os.utime(directory, (an_hour_ago, an_hour_ago))
    assert seen.read() == {"g": b"here"}
    writer.close(None)


def test_a_channel_without_the_directory_has_no_statuses(channel: Channel) -> None:
    layout: Layout = channel.engine().log.layout  # type: ignore[attr-defined]
    assert LocalWorkerStatuses(channel.engine().log.fs, layout).read() == {}  # type: ignore[attr-defined]


def test_verify_knows_the_files(channel: Channel) -> None:
    writer = statuses_of(channel).open("g")
    assert writer is not None
    writer.write(b"x")
    writer.close(None)
    channel.close()
    assert verify(channel.path).findings == ()
