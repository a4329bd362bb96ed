from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import OptionError, StorageError
from spillable_stream.flow.sinks import output_file
from spillable_stream.flow.sources.base import Status
from tests.support.bucket_sinks import sink
from tests.support.events import put, take


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_events_are_committed_by_batch_or_by_file(
    open_channel: Callable[..., Channel], tmp_path: Path, can_be_cut: bool
) -> None:
    channel, made = open_channel(), sink(str(tmp_path / "out" / "%{app}"), can_be_cut=can_be_cut)
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"%d" % i, {"app": "ab"[i % 2]}) for i in range(6)])
    made.name = "a1.k1"
    made.open(channel)
    while made.process() is Status.READY:
        pass
    assert made.held_events() == (0 if can_be_cut else 6)
    assert channel.stats().groups["default"].lag == made.held_events()
    made.close()
    assert channel.stats().channel_size == 0
    # A file that can be cut at any batch has no end.
    end = b"" if can_be_cut else b"]"
    found = {p.parent.name: p.read_bytes() for p in (tmp_path / "out").glob("?/f.*")}
    assert found == {"a": b"[024" + end, "b": b"[135" + end}


def test_nothing_follows_a_batch_that_failed_before_its_file_can_be_cut_back(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    channel, made = open_channel(), sink(str(tmp_path / "out"), can_be_cut=True)
    put(channel, b"0")
    made.name = "a1.k1"
    made.open(channel)
    made.process()
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"a long one"), Event(b"1")])
    with monkeypatch.context() as readonly:
        readonly.setattr(output_file.os, "fdatasync", refuse)
        readonly.setattr(output_file.os, "ftruncate", refuse)
        for _ in range(2):
            with pytest.raises(StorageError):
                made.process()
    # Another sink of the channel gets what had failed, so this one writes less.
    assert take(channel, 1) == [b"a long one"]
    made.process()
    made.close()
    assert [p.read_bytes() for p in (tmp_path / "out").glob("f.*")] == [b"[01"]


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_a_relative_path_has_its_files_and_note_in_the_working_directory_and_a_start_there_finds_those_of_a_crash(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_cut: bool
) -> None:
    work = tmp_path / "100%Y"  # no escape
    work.mkdir()
    monkeypatch.chdir(work)
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"0", {"app": "a"}))
    for is_killed in (True, False):
        made = sink("out/%{app}", can_be_cut=can_be_cut)
        made.name = "a1.k1"
        made.open(channel)
        while made.process() is Status.READY:
            pass
        if is_killed:
            made._notes.close()
        else:
            made.close()
        channel.close()
        channel = open_channel()
    (file,) = (work / "out" / "a").iterdir()
    assert file.read_bytes() == (b"[0" if can_be_cut else b"[0]")
    assert file.suffix != ".tmp"
    assert [p.name for p in (work / "out").iterdir() if p.is_file()] == [".spillable-a1.k1.note"]


def test_a_wrong_escape_is_refused_before_it_is_opened() -> None:
    with pytest.raises(OptionError):
        sink("/out/%[planet]", can_be_cut=True)
