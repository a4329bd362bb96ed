"""Whether a group has an owner: asked without being in the way of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, StorageError
from spillable_stream.engine.group_owner import OwnerSeen, has_owner, look_for_owner
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
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
        assert not has_owner(channel.engine().fs, channel.engine().layout, name)
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
