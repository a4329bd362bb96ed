"""After a crash the files of a bucket sink are whole up to what was noted, and the events in them are known."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event, StorageError
from spillable_stream.flow.sinks.bucket_notes import BucketNotes
from spillable_stream.flow.sinks.buckets import Names
from spillable_stream.flow.sinks.destinations import LocalFiles
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.written import WrittenEvents


def notes(directory: Path, channel: Channel, written: WrittenEvents, names: Names = Names()) -> BucketNotes:  # noqa: B008
    return BucketNotes("k1", directory, channel, "default", written, LocalFiles(), names)


def filled(open_channel: Callable[..., Channel]) -> Channel:
    channel: Channel = open_channel()
    channel.consumer("default")
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"x")] * 9)
    return channel


def test_a_file_that_counts_batch_by_batch_is_cut_and_named(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel, names = filled(open_channel), Names()
    in_use = names.in_use(f"{tmp_path}/f.1")
    Path(in_use).write_bytes(b"123456")
    notes(tmp_path, channel, WrittenEvents()).write_lengths({in_use: 4, names.in_use(f"{tmp_path}/f.2"): 0}, [(1, 3)])
    written = WrittenEvents()
    notes(tmp_path, channel, written).recover()
    assert written.among([(1, 9)]) == [(1, 3)]
    assert [p.read_bytes() for p in tmp_path.glob("f.*")] == [b"1234"]


def test_a_file_that_counts_when_it_is_closed_is_removed_and_its_events_come_again(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel = filled(open_channel)
    file = OpenFile("f", f"{tmp_path}/f.1", f"{tmp_path}/f.1.tmp", Content(), ranges=[(1, 3)])
    Path(file.in_use).touch()
    notes(tmp_path, channel, WrittenEvents()).write_open([file])
    written = WrittenEvents()
    notes(tmp_path, channel, written).recover()
    assert not written and not list(tmp_path.glob("f.*"))


def test_a_closing_file_counts_if_it_has_its_name(open_channel: Callable[..., Channel], tmp_path: Path) -> None:
    channel = filled(open_channel)
    file = OpenFile("f", f"{tmp_path}/f.1", f"{tmp_path}/f.1.tmp", Content(), ranges=[(1, 3)])
    notes(tmp_path, channel, WrittenEvents()).write_open([], closing=file)
    written = WrittenEvents()
    notes(tmp_path, channel, written).recover()
    assert not written
    Path(file.final).touch()
    notes(tmp_path, channel, written).recover()
    assert written.among([(1, 9)]) == [(1, 3)] and Path(file.final).exists()


def test_a_name_that_a_note_relies_on_is_synced_before_its_events_count(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was killed between a rename and its sync: a power cut would take the name back."""
    channel, names = filled(open_channel), Names()
    out = tmp_path / "out"
    out.mkdir()
    file = OpenFile("f", f"{out}/f.1", f"{out}/f.1.tmp", Content(), ranges=[(1, 3)])
    notes(tmp_path, channel, WrittenEvents()).write_open([], closing=file)
    Path(file.final).touch()
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    notes(tmp_path, channel, WrittenEvents())
    assert str(out) in synced
    notes(tmp_path, channel, WrittenEvents()).write_lengths({names.in_use(f"{out}/f.2"): 4}, [(4, 5)])
    Path(f"{out}/f.2").touch()
    synced.clear()
    notes(tmp_path, channel, WrittenEvents()).recover()
    assert str(out) in synced


def test_a_directory_that_the_disk_cannot_look_at_does_not_pass_for_gone(
    open_channel: Callable[..., Channel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Python 3.14, `Path.is_dir` says no then, and a name was not synced on which the note relies."""
    channel, out = filled(open_channel), tmp_path / "out"
    out.mkdir()
    notes(tmp_path, channel, WrittenEvents()).write_lengths({Names().in_use(f"{out}/f.2"): 4}, [(4, 5)])
    (out / "f.2").touch()
    recovered, stat = notes(tmp_path, channel, WrittenEvents()), os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if str(path) == str(out):
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)
    monkeypatch.setattr(Path, "is_dir", os.path.isdir)
    with pytest.raises(StorageError, match=f"can't look at {out} .Input/output error."):
        recovered.recover()


def test_events_of_a_closed_file_are_in_later_notes_until_they_are_committed(
    open_channel: Callable[..., Channel], tmp_path: Path
) -> None:
    channel, written = filled(open_channel), WrittenEvents()
    file = OpenFile("f", f"{tmp_path}/f.1", f"{tmp_path}/f.1.tmp", Content(), ranges=[(1, 3)])
    first = notes(tmp_path, channel, written)
    written.add(file.ranges)
    first.closed(file)
    first.write_open([])
    again = WrittenEvents()
    notes(tmp_path, channel, again)
    assert again.among([(1, 9)]) == [(1, 3)]
    written.remove(file.ranges)
    first.write_open([])
    again = WrittenEvents()
    notes(tmp_path, channel, again)
    assert not again
