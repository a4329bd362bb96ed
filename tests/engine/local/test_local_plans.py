"""What a task opens on its host, what it asks of the host before, and what it writes beside a group."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.engine.port import ReadPlan, StagePlan
from spillable_stream.format.query_note import FirstBatch, QueryNote
from spillable_stream.storage import filesystem
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import memory_of
from tests.support.events import numbered, put


def plans(path: Path, **options: object) -> tuple[ReadPlan, StagePlan]:
    """Create a channel of five events, and return the plans of reading them and of staging others."""
    with ss.Channel(path, minimum_required_space=0, **options) as channel:
        put(channel, *numbered(1, 5))
        [read] = channel.port().plan_read([[(1, 5)]])
        return read, channel.port().plan_stage()


BEGIN: dict[str, Callable[[ReadPlan, StagePlan], None]] = {
    "read": lambda read, _: read.open().close(),
    "stage": lambda _, stage: stage.ask_here()(),
}


@pytest.fixture(params=BEGIN)
def begin(request: pytest.FixtureRequest) -> Callable[[ReadPlan, StagePlan], None]:
    """What a task does first by one of its plans."""
    return BEGIN[request.param]


def test_a_host_that_has_the_channel_is_accepted(tmp_path: Path, begin: Callable[..., None]) -> None:
    begin(*plans(tmp_path / "channel", data_dirs=[tmp_path / "disk"]))


def test_a_host_without_the_channel_is_refused(tmp_path: Path, begin: Callable[..., None]) -> None:
    made = plans(tmp_path / "channel")
    (tmp_path / "channel").rename(tmp_path / "elsewhere")
    with pytest.raises(ss.NotAChannelError, match=f"no channel at {tmp_path}/channel, and every executor must see"):
        begin(*made)


def test_a_host_with_another_channel_of_that_name_is_refused(tmp_path: Path, begin: Callable[..., None]) -> None:
    made = plans(tmp_path / "channel")
    (tmp_path / "channel").rename(tmp_path / "elsewhere")
    plans(tmp_path / "channel")
    with pytest.raises(ss.NotAChannelError, match=f"another channel at {tmp_path}/channel, and every executor must"):
        begin(*made)


def test_a_host_without_one_of_the_data_directories_is_refused(tmp_path: Path, begin: Callable[..., None]) -> None:
    made = plans(tmp_path / "channel", data_dirs=[tmp_path / "disk1", tmp_path / "disk2"])
    (tmp_path / "disk2").rename(tmp_path / "elsewhere")
    with pytest.raises(ss.NotAChannelError, match=f"no directory {tmp_path}/disk2 of the channel {tmp_path}/channel"):
        begin(*made)


def test_a_host_without_the_memory_tier_is_refused_what_is_in_it(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "channel", memory_capacity=100, minimum_required_space=0) as channel:
        put(channel, *numbered(1, 5))
        [plan] = channel.port().plan_read([[(1, 5)]])
        memory = memory_of(tmp_path / "channel")
        hidden = memory.rename(memory.with_name(f"{memory.name}-hidden"))
        try:
            with pytest.raises(ss.OtherHostError, match=r"the events 1 to 5 of .*run Spark there"):
                plan.open()
        finally:
            hidden.rename(memory)
        events = plan.open()
        assert [events.may_move(extent) for extent in plan.extents] == [True]
        events.close()


def test_events_of_a_later_plan_are_read_behind_what_was_the_end(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "channel", minimum_required_space=0) as channel:
        put(channel, *numbered(1, 5))
        [before] = channel.port().plan_read([[(1, 5)]])
        events = before.open()
        put(channel, *numbered(6, 5))
        [now] = channel.port().plan_read([[(6, 10)]])
        with pytest.raises(ss.CorruptionError):
            list(events.read(now.extents[0]))
        events.catch_up(now)
        assert [read.batch["body"].to_pylist() for read in events.read(now.extents[0])] == [numbered(6, 5)]
        assert not events.may_move(now.extents[0])
        events.close()


def test_a_reader_says_which_channel_it_reads_and_where(tmp_path: Path) -> None:
    plan, stage = plans(tmp_path / "channel")
    events = plan.open()
    with ss.Channel(tmp_path / "channel") as channel:
        assert (events.path, events.channel, stage.channel) == (str(channel.path), channel.uuid, channel.uuid)
    events.close()


def test_the_query_that_reads_as_a_group_is_noted_and_replaced(tmp_path: Path) -> None:
    events = plans(tmp_path / "channel")[0].open()
    assert events.query_note("g") is None
    for note in (QueryNote("one", "run", FirstBatch(0, 1, 10, "reset")), QueryNote("two", "run"), QueryNote("three")):
        assert events.note_query("g", note)
        assert events.query_note("g") == note
    assert events.query_note("another") is None
    events.close()


def test_a_note_is_on_the_medium_before_events_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut that takes Spark's first offset must not take the note, too."""
    events = plans(tmp_path / "channel")[0].open()
    synced: list[str] = []
    sync, sync_directory = File.sync, FileSystem.sync_directory
    monkeypatch.setattr(File, "sync", lambda self: (synced.append(self.path.name), sync(self))[1])
    monkeypatch.setattr(
        FileSystem, "sync_directory", lambda self, path: (synced.append(path.name), sync_directory(self, path))[1]
    )
    events.note_query("g", QueryNote("query", "run"))
    assert synced == ["g.query", "groups"]
    events.close()


def test_without_a_right_to_write_no_query_is_noted_and_a_full_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = plans(tmp_path / "channel")[0].open()
    code = errno.EROFS

    def refuse(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(filesystem.os, "open", refuse)
    assert not events.note_query("g", QueryNote("query"))
    code = errno.ENOSPC
    with pytest.raises(ss.StorageError, match=r"g\.query failed: No space left"):
        events.note_query("g", QueryNote("query"))
    monkeypatch.undo()
    assert events.query_note("g") is None
    events.close()


def test_a_group_that_is_created_anew_has_no_query_of_the_dropped_one(tmp_path: Path) -> None:
    events = plans(tmp_path / "channel")[0].open()
    events.note_query("default", QueryNote("query"))
    events.close()
    with ss.Channel(tmp_path / "channel") as channel:
        channel.consumer("default").close()
        assert channel.port().query_note("default") == QueryNote("query")
        channel.drop_group("default")
        channel.consumer("default").close()
        assert channel.port().query_note("default") is None
