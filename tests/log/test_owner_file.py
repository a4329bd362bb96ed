from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream.errors import ForeignDirectoryError, StorageError
from spillable_stream.log.owner_file import OWNER_FILE, DirectoryOwner, read_owner, write_owner
from spillable_stream.storage.filesystem import FileSystem

FS = FileSystem()
OWNER = DirectoryOwner("c1", "data-0", "t1", "/data/channel", 7)


def test_an_owner_file_reads_back(tmp_path: Path) -> None:
    assert read_owner(FS, tmp_path) is None
    for owner in (OWNER, replace(OWNER, role="home", next="t2", layout={"channel": "c1"})):
        write_owner(FS, tmp_path, owner)
        assert read_owner(FS, tmp_path) == owner


def test_a_directory_is_known_by_its_token_and_by_the_one_of_a_move_that_was_cut_short() -> None:
    assert OWNER.tokens() == {"t1"}
    assert replace(OWNER, next="t2").tokens() == {"t1", "t2"}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "no object"])
def test_a_damaged_owner_file_says_nothing(tmp_path: Path, damage: str) -> None:
    write_owner(FS, tmp_path, OWNER)
    file = tmp_path / OWNER_FILE
    whole = file.read_bytes()
    value = {**json.loads(whole), "channel": "c2"}
    damaged = {"cut": whole[:40], "changed": json.dumps(value).encode(), "empty": b"", "no object": b"[]"}
    file.write_bytes(damaged[damage])
    with pytest.raises(ForeignDirectoryError, match="restore it, or run 'spillable repair'"):
        read_owner(FS, tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    write_owner(FS, tmp_path / "theirs", OWNER)
    (tmp_path / OWNER_FILE).symlink_to(tmp_path / "theirs" / OWNER_FILE)
    with pytest.raises(StorageError, match="it is a symbolic link, which is not followed"):
        read_owner(FS, tmp_path)


def test_another_directory_of_the_channel_says_the_same_but_its_role_and_what_only_the_channels_own_says() -> None:
    home = DirectoryOwner("c1", "home", "t1", "/data/channel", 7, next="t2")
    assert home.of("checkpoint") == DirectoryOwner("c1", "checkpoint", "t1", "/data/channel", 7)
