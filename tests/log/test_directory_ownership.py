"""Whose a directory is: what its owner file proves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel, ForeignDirectoryError
from spillable_stream.log.claim import make_directories
from spillable_stream.log.directory_ownership import (
    is_held,
    is_original_elsewhere,
    is_outside,
    ownership_fault,
    whereabouts,
)
from spillable_stream.log.identity_file import planned_layout, read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import HOME, OWNER_FILE, DirectoryOwner, read_owner, write_owner
from spillable_stream.option_types import CreationOptions
from spillable_stream.storage.file_identity import FileIdentity
from spillable_stream.storage.filesystem import FileSystem
from tests.support.channels import first_bytes, snapshot, spread

FS = FileSystem()


Open = Callable[..., Channel]


def test_the_data_directory_of_another_channel_is_refused(tmp_path: Path) -> None:
    path = spread(tmp_path / "one")
    spread(tmp_path / "two")
    (tmp_path / "one" / "d0").rename(tmp_path / "away")
    shutil.copytree(tmp_path / "two" / "d0", tmp_path / "one" / "d0")
    with pytest.raises(ForeignDirectoryError, match=f"it belongs to the channel .* at {tmp_path}/two/channel"):
        Channel(path)


def test_directories_that_were_exchanged_are_refused(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for source, target in (("d0", "x"), ("d1", "d0"), ("x", "d1")):
        (tmp_path / source).rename(tmp_path / target)
    with pytest.raises(ForeignDirectoryError, match="it is data-1 of the channel"):
        Channel(path)


def test_a_copy_does_not_get_the_originals_data_directories(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(ForeignDirectoryError, match=f"belongs to the channel at {path}, and this is a copy of that"):
        Channel(tmp_path / "copy")
    assert first_bytes(path) == [b"a", b"b"]


def test_what_a_move_left_behind_does_not_fit_any_more(tmp_path: Path) -> None:
    """A backup that is restored at the old path, after the channel went on at the new one."""
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "backup")
    path.rename(tmp_path / "moved")
    assert first_bytes(tmp_path / "moved") == [b"a", b"b"]
    shutil.rmtree(tmp_path / "moved")
    (tmp_path / "backup").rename(path)
    with pytest.raises(
        ForeignDirectoryError, match=f"it is of an older or another state of the channel at {tmp_path}/moved"
    ):
        Channel(path)


def test_an_original_that_cannot_be_read_is_still_there(tmp_path: Path) -> None:
    path = spread(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    (path / "channel.json").write_text("{")
    with pytest.raises(ForeignDirectoryError, match=f"belongs to the channel at {path}, and this is a copy of that"):
        Channel(tmp_path / "copy")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The layout of a channel with one data directory of two elsewhere."""
    path = tmp_path / "channel"
    layout = planned_layout(path, CreationOptions(data_dirs=[str(path / "data"), str(tmp_path / "d1")]))
    make_directories(FS, layout)
    return layout


def owner_of(directory: Path) -> DirectoryOwner:
    found = read_owner(FS, directory)
    assert found is not None
    return found


def test_a_directory_that_was_given_to_a_channel_is_proven(layout: Layout) -> None:
    home = owner_of(layout.path)
    assert ownership_fault(FS, layout, HOME, layout.path, home, home) is None
    for role, directory in layout.directories().items():
        assert ownership_fault(FS, layout, role, directory, owner_of(directory), home) is None


def test_a_directory_without_an_owner_file_is_not_proven(layout: Layout, tmp_path: Path) -> None:
    assert ownership_fault(FS, layout, "data-1", tmp_path / "d1", None, None) == "it has no owner.json"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"channel": "another"}, "it belongs to the channel another at "),
        ({"role": "data-0"}, "it is data-0 of the channel at "),
        ({"token": "another"}, "it is of an older or another state of the channel at "),
    ],
)
def test_what_does_not_fit_is_named_with_the_channel_that_it_is_of(
    layout: Layout, tmp_path: Path, changed: dict[str, str], fault: str
) -> None:
    found = replace(owner_of(tmp_path / "d1"), **changed)
    said = ownership_fault(FS, layout, "data-1", tmp_path / "d1", found, owner_of(layout.path))
    assert said is not None and said.startswith(fault + found.home)


def test_a_directory_within_the_channels_own_follows_it_whatever_its_token_is(layout: Layout) -> None:
    """It comes along when that is copied or moved."""
    inside = layout.path / "data"
    found = replace(owner_of(inside), token="another")
    assert ownership_fault(FS, layout, "data-0", inside, found, owner_of(layout.path)) is None


def test_a_directory_is_outside_unless_it_comes_along_with_the_channels_own(layout: Layout, tmp_path: Path) -> None:
    (layout.path / "link").symlink_to(tmp_path / "d1")
    (layout.path / "inner").symlink_to(layout.path / "data")
    (layout.path / "data" / "deep").mkdir()
    outside = {d: is_outside(FS, layout, layout.path / d) for d in ("data", "data/deep", "inner", "link", "../d1")}
    assert outside == {"data": False, "data/deep": False, "inner": False, "link": True, "../d1": True}


def test_a_channel_is_where_it_is_without_links(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(layout.path)
    there = replace(layout, path=tmp_path / "link")
    assert whereabouts(FS, there) == whereabouts(FS, layout) == (str(layout.path), layout.path.stat().st_ino)


def test_an_original_is_elsewhere_only_if_that_channel_is_there(tmp_path: Path) -> None:
    path, other = spread(tmp_path / "one"), spread(tmp_path / "two")
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    layout, owner = read_identity(FS, copy), owner_of(copy)
    assert is_original_elsewhere(FS, owner, layout)
    assert not is_original_elsewhere(FS, replace(owner, home=str(tmp_path / "gone")), layout)
    assert not is_original_elsewhere(FS, replace(owner, home=str(copy)), layout)
    assert not is_original_elsewhere(FS, replace(owner, home=str(other)), layout), "another channel is there now"
    (path / "channel.json").unlink()
    assert is_original_elsewhere(FS, owner, layout), "its owner file is there"
    (path / OWNER_FILE).unlink()
    assert not is_original_elsewhere(FS, owner, layout)


class OneDirectory(FileSystem):
    """The real file system, in which every path leads to the same directory, as bind mounts of it do."""

    def identity(self, path: Path) -> FileIdentity:
        return FileIdentity(1, 2)


def test_a_bind_mount_of_the_channel_is_not_an_original_elsewhere(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    owner = replace(owner_of(layout.path), home=str(tmp_path / "mounted"))
    write_owner(FS, tmp_path / "mounted", owner)
    assert is_original_elsewhere(FS, owner, layout)
    assert not is_original_elsewhere(OneDirectory(), owner, layout)


def test_a_channel_is_held_while_some_handle_is_open_and_a_look_writes_nothing(path: Path, open_channel: Open) -> None:
    channel = open_channel()
    before = snapshot(path)
    assert is_held(FS, path)
    assert snapshot(path) == before
    channel.close()
    assert not is_held(FS, path)
