"""The owners of groups on this host: their locks and notes, who has one, and what is beside a group that is dropped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, GroupOwnedError, OptionError, StorageError
from spillable_stream.engine.group_changes import GroupChanges
from spillable_stream.engine.group_owners import OwnerSeen
from spillable_stream.engine.local.local_owners import look_for_owner, remove_files_of
from spillable_stream.engine.local.position_hint import NO_HINT, read_position_hint
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.support.events import numbered, put
from tests.support.groups import give_up

Open = Callable[..., Channel]


def seen(channel: Channel, group: str = "g") -> OwnerSeen:
    """Look for the owner of a group."""
    return look_for_owner(channel.engine().fs, channel.engine().layout, group)


def test_an_owner_is_seen_with_its_note_while_it_lives_and_its_note_after_that(open_channel: Open) -> None:
    channel = open_channel()
    owner = channel.consumer("g", note="for a test").owner
    assert seen(channel) == (True, owner)
    give_up(channel, "g")
    assert seen(channel) == (False, owner)
    assert owner.endswith(", for a test")


def test_a_group_without_a_lock_file_has_no_owner_and_gets_none(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    for name in ("g", "../g", ""):
        assert seen(channel, name) == (False, "")
    assert os.listdir(path / "groups") == []


def test_others_that_look_are_not_owners(open_channel: Open) -> None:
    channel = open_channel()
    channel.consumer("g")
    give_up(channel, "g")
    look = FileLock.open(FileSystem(), channel.engine().layout.group_lock("g"))
    assert look.try_acquire(shared=True)
    assert not seen(channel).is_alive
    look.close()


def test_a_look_leaves_the_group_free(open_channel: Open) -> None:
    channel = open_channel()
    channel.consumer("g")
    give_up(channel, "g")
    seen(channel)
    channel.consumer("g", owner_timeout_seconds=0)


def test_a_lock_file_that_cannot_be_read_is_an_error(open_channel: Open) -> None:
    channel = open_channel()
    channel.engine().layout.group_lock("g").mkdir()
    with pytest.raises(StorageError):
        seen(channel)


# ── owning ──────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_has_the_note_that_is_beside_the_group_and_the_next_one_gets_another(open_channel: Open) -> None:
    engine = open_channel().engine()
    first = engine.owners.own("g", 0, "first")
    assert engine.owners.owner_of("g") == first.note
    assert first.note.startswith(f"pid {os.getpid()} on ") and first.note.endswith(", first")
    with pytest.raises(GroupOwnedError, match=r"the group 'g' of .* is owned by pid .*, first, which is this process"):
        engine.owners.own("g", 0, "second")
    first.close()
    second = engine.owners.own("g", 0, "second")
    assert engine.owners.owner_of("g") == second.note != first.note
    second.close()


def test_an_owner_whose_lock_file_was_replaced_cannot_prove_that_it_is_one(open_channel: Open) -> None:
    engine = open_channel().engine()
    owner = engine.owners.own("g", 0, "")
    owner.require()
    engine.layout.group_lock("g").unlink()
    with pytest.raises(GroupOwnedError, match="which said that this handle owns the group 'g', was moved, removed or"):
        owner.require()
    owner.close()


def test_an_owner_that_gave_its_group_up_cannot_prove_that_it_is_one(open_channel: Open) -> None:
    """A take that another thread leads may be planned only now, when somebody else is given its events."""
    owner = open_channel().engine().owners.own("g", 5, "")
    owner.close()
    with pytest.raises(GroupOwnedError, match="this handle has given up the group 'g'; its events are back"):
        owner.require()
    assert owner.lost is None


def test_a_group_that_is_changed_has_its_last_owners_note_and_no_other_owner(open_channel: Open) -> None:
    channel = open_channel()
    note = channel.consumer("g").owner
    give_up(channel, "g")
    owners = channel.engine().owners
    with owners.without_owner("g") as hold:
        assert hold.note == note
        with pytest.raises(GroupOwnedError), owners.without_owner("g", timeout_seconds=0):
            pytest.fail("two change it at once")
        hold.require()
        channel.engine().layout.group_lock("g").unlink()
        with pytest.raises(GroupOwnedError, match="try again"):
            hold.require()


def test_a_group_that_the_channel_does_not_have_is_not_held_and_leaves_no_file(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    with pytest.raises(OptionError, match="has no group 'g'"), channel.engine().owners.without_owner("g"):
        pytest.fail("there is no such group")
    assert os.listdir(path / "groups") == []


def test_what_a_dropped_group_had_taken_is_forgotten_before_another_gets_its_name(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 5))
    consumer = channel.consumer("g")
    consumer.commit(consumer.claim(3))
    engine = channel.engine()
    engine.owners.forget_former("g")
    assert read_position_hint(engine.fs, engine.layout, "g") == (3, []), "the group exists"
    give_up(channel, "g")
    engine.commit(GroupChanges([{"group": "g", "drop": True}]))
    engine.owners.forget_former("g")
    assert read_position_hint(engine.fs, engine.layout, "g") == NO_HINT


# ── the files of a group that is dropped ────────────────────────────────────────────────────────


def test_its_files_are_removed(open_channel: Open, path: Path) -> None:
    channel = open_channel(memory_capacity=100)
    put(channel, *numbered(0, 5))
    channel.consumer("g").commit([(1, 3)])
    give_up(channel, "g")
    engine = channel.engine()
    engine.layout.group_query("g").touch()
    assert len(os.listdir(path / "groups")) == 3
    remove_files_of(engine.fs, engine.layout, "g")
    assert os.listdir(path / "groups") == []
    remove_files_of(engine.fs, engine.layout, "g")


def test_files_that_cannot_be_removed_stay(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel()
    channel.consumer("g")
    give_up(channel, "g")
    engine = channel.engine()

    def refuse(path: Path) -> None:
        raise StorageError(f"removing {path}: read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(engine.fs, "remove", refuse)
        remove_files_of(engine.fs, engine.layout, "g")
    assert engine.layout.group_lock("g").exists()


def test_a_consumer_that_waits_for_a_group_whose_lock_file_goes_creates_both_anew(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 5))
    channel.consumer("g").commit([(1, 3)])
    give_up(channel, "g")
    engine = channel.engine()
    fs, open_file = engine.fs, engine.fs.open

    def drop_after_it_is_opened(path: Path, **how: bool) -> object:
        monkeypatch.undo()
        file = open_file(path, **how)
        engine.commit(GroupChanges([{"group": "g", "drop": True}]))
        remove_files_of(fs, engine.layout, "g")
        return file

    monkeypatch.setattr(fs, "open", drop_after_it_is_opened)
    consumer = channel.consumer("g")
    assert consumer.position() == 3  # where the channel begins
    assert engine.layout.group_lock("g").read_text() == consumer.owner
    consumer.commit([(4, 5)])
