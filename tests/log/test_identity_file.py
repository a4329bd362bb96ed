"""The identity file: what it says, and what is none."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.errors import CorruptionError, NotAChannelError, StorageError, UnsupportedFormatError
from spillable_stream.integrity.repair import repair
from spillable_stream.integrity.verify import verify
from spillable_stream.log.identity_file import extend_identity, read_identity
from spillable_stream.storage.filesystem import FileSystem
from tests.support.fake_files import FaultyFileSystem, nth
from tests.support.logs import identified

FS = FileSystem()


def test_a_missing_directory_and_an_empty_one_are_not_channel(tmp_path: Path) -> None:
    with pytest.raises(NotAChannelError, match="is not a channel: it is missing"):
        read_identity(FS, tmp_path / "none")
    with pytest.raises(NotAChannelError, match=r"is not a channel: it has no channel\.json"):
        read_identity(FS, tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    identified(FS, tmp_path)
    identity = tmp_path / "channel.json"
    value = json.loads(identity.read_text())
    del value["checksum"]
    identity.write_text(json.dumps({**value, "format": 4}))
    with pytest.raises(UnsupportedFormatError, match=r"format version 4; this package reads up to 3: upgrade"):
        read_identity(FS, tmp_path)


def test_an_extended_channel_says_a_version_that_earlier_versions_refuse(tmp_path: Path) -> None:
    layout = identified(FS, tmp_path)
    extend_identity(FS, layout)
    written = (tmp_path / "channel.json").read_bytes()
    assert json.loads(written)["format"] == 3
    assert read_identity(FS, tmp_path) == replace(layout, format=3)
    extend_identity(FS, layout)
    assert (tmp_path / "channel.json").read_bytes() == written


def test_an_extension_that_was_not_synced_is_synced_by_the_next_one(tmp_path: Path) -> None:
    """A power cut would let an earlier version open a channel with records that it can't read."""
    fs, layout = FaultyFileSystem(), identified(FS, tmp_path)
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StorageError):
        extend_identity(fs, layout)
    assert read_identity(FS, tmp_path).format == 3, "it has its name, which may not be durable"
    before = fs.count("sync_directory", tmp_path.name)
    extend_identity(fs, layout)
    assert fs.count("sync_directory", tmp_path.name) == before + 1


def test_a_channel_of_objects_is_not_one_of_files_whatever_its_version(tmp_path: Path) -> None:
    for version in (2, 3):
        (tmp_path / "channel.json").write_text(json.dumps({"format": version, "channel": "x"}))
        with pytest.raises(NotAChannelError, match=r"holds a channel of objects, not of files"):
            read_identity(FS, tmp_path)


def test_an_identity_that_is_not_what_was_written_is_corruption(tmp_path: Path) -> None:
    identified(FS, tmp_path)
    identity = tmp_path / "channel.json"
    text = identity.read_text()
    identity.write_text(text.replace("data", "date"))
    with pytest.raises(CorruptionError, match="its checksum does not match"):
        read_identity(FS, tmp_path)
    value = json.loads(text)
    del value["checksum"]  # as of the first channels, or by hand
    identity.write_text(json.dumps(value))
    assert read_identity(FS, tmp_path).channel == value["channel"]


def test_a_file_is_not_a_channel(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotAChannelError, match="it is a file, and a channel is a directory"):
        read_identity(FS, tmp_path / "file")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "x"}', '{"format": 1}'])
def test_a_damaged_identity_is_corruption(tmp_path: Path, text: str) -> None:
    (tmp_path / "channel.json").write_text(text)
    with pytest.raises(CorruptionError, match="identity can't be read"):
        read_identity(FS, tmp_path)


def test_a_recovery_removes_an_identity_that_was_being_written(path: Path) -> None:
    Channel(path).close()
    unfinished = path / "channel.json.tmp"
    unfinished.write_bytes(b"{")
    (path / "head").unlink()
    Channel(path).close()
    assert not unfinished.exists()


def test_a_path_at_which_no_directory_can_be_is_not_a_channel(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    for path, why in (
        (tmp_path / "circle", "its symbolic links lead in a circle"),
        (tmp_path / ("n" * 300), "too long for the file system"),
        (tmp_path / "pipe", "is a file and not a directory"),
    ):
        with pytest.raises(NotAChannelError, match=f"is not a channel: .*{why}") as raised:
            read_identity(FileSystem(), path)
        assert not raised.value.is_missing


@pytest.mark.parametrize("name", ["data", "checkpoint"])
def test_where_another_directory_of_a_channel_was_given_for_it_no_repair_is_advised_but_the_channel_named(
    tmp_path: Path, name: str
) -> None:
    """A repair was advised, which advised a repair."""
    path = tmp_path / "channel"
    Channel(path, minimum_required_space=0).close()
    for call in (lambda: Channel(path / name, create=False), lambda: Channel(path / name), lambda: repair(path / name)):
        with pytest.raises(NotAChannelError, match=f", and is a directory of a channel: give {path}$") as refused:
            call()
        assert "spillable repair" not in str(refused.value)
        assert not refused.value.is_missing, "nobody creates one there"
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(NotAChannelError, match=f"give {tmp_path}/copy$"):
        read_identity(FS, tmp_path / "copy" / name)


def test_a_directory_elsewhere_names_where_its_channel_was_and_what_to_do_if_that_is_gone(tmp_path: Path) -> None:
    path, data = tmp_path / "channel", tmp_path / "d0"
    Channel(path, data_dirs=[data], minimum_required_space=0).close()
    with pytest.raises(NotAChannelError, match=f"is a directory of a channel: give {path}$"):
        read_identity(FS, data)
    path.rename(tmp_path / "moved")
    gone = f"give {path}, or where that is now; remove {data}/owner.json if that channel is gone$"
    with pytest.raises(NotAChannelError, match=gone):
        verify(data)


def test_a_directory_above_channels_names_one_and_one_of_others_none(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAChannelError, match=r"it has no channel\.json$"):
        Channel(tmp_path, create=False)
    for name in ("orders", "returns"):
        Channel(tmp_path / name, minimum_required_space=0).close()
    said = f"is above a channel: give {tmp_path / 'orders'}, or another one there$"
    with pytest.raises(NotAChannelError, match=rf"it has no channel\.json, but {said}"):
        Channel(tmp_path, create=False)
    with pytest.raises(NotAChannelError, match=rf"not empty .*, but {said}"):
        Channel(tmp_path)
