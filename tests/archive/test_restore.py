"""`restore`: channels that are created from backups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream import (
    Channel,
    ChannelBusyError,
    CorruptionError,
    ForeignDirectoryError,
    NotAChannelError,
    OptionError,
)
from tests.support.events import numbered, peek, put, take


def test_the_successor_keeps_the_identity_once_the_original_is_gone(copy: Path, path: Path, tmp_path: Path) -> None:
    with Channel(path, create=False) as channel:
        uuid = channel.uuid
    with pytest.raises(ForeignDirectoryError, match=f"is still at {path}, and two channels of one identity"):
        ss.restore(copy, tmp_path / "r")
    assert not (tmp_path / "r").exists()
    path.rename(tmp_path / "old")
    report = ss.restore(copy, path)
    assert (report.channel, report.events, report.last_id, report.is_new) == (uuid, 9, 10, False)
    with Channel(path, create=False) as channel:
        assert channel.uuid == uuid and peek(channel) == numbered(2, 9)
        assert channel.fixed_options["mode"] == "0770" and channel.fixed_options["data_dirs"] == [path / "data"]


@pytest.mark.parametrize("is_in_store", [False, True], ids=["directory", "store"])
def test_a_restore_counts_the_events_that_are_there_and_none_that_has_left(
    is_in_store: bool, path: Path, tmp_path: Path
) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))  # one frame, which a backup has whole
        assert take(channel, 4) == numbered(0, 4)
        ss.backup(path, tmp_path / "copy")
    to = f"object+file://{tmp_path}/store/r" if is_in_store else str(tmp_path / "r")
    report = ss.restore(tmp_path / "copy", to, new_identity=True)
    with Channel(to, create=False, readonly=True) as channel:
        assert report.events == channel.stats().channel_size == 6


def test_a_place_without_a_backup_and_an_address_where_nothing_can_be_are_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAChannelError, match=f"there is no backup at {tmp_path / 'nothing'}"):
        ss.restore(tmp_path / "nothing", tmp_path / "r")
    with pytest.raises(OptionError, match="without options or credentials"):
        ss.restore(copy, "s3://key@bucket/orders")
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=f"no channel or backup can be at {tmp_path / 'file'}: it, or a part of it"):
        ss.restore(tmp_path / "file", tmp_path / "r")


def test_a_directory_that_is_not_a_backup_is_named_as_the_user_named_it(path: Path, tmp_path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        put(channel, b"a")
    with pytest.raises(NotAChannelError, match=f"^{path} is neither empty nor a backup: it holds 'checkpoint'"):
        ss.restore(path, tmp_path / "restored")


def test_a_backup_that_another_one_replaces_while_it_is_read_is_not_damaged(
    copy: Path, path: Path, tmp_path: Path
) -> None:
    def replace_it(*_: object) -> None:
        with Channel(path, create=False) as channel:
            if channel.stats().channel_size:
                take(channel, 100)
                ss.backup(channel, copy)

    with pytest.raises(ChannelBusyError, match=r"another backup to .* was created meanwhile.*; restore again"):
        ss.restore(copy, tmp_path / "r", new_identity=True, progress=replace_it)
    assert not (tmp_path / "r").exists()
    assert ss.restore(copy, tmp_path / "r", new_identity=True).number == 2


@pytest.mark.parametrize("folder", ["events", "states", "backups"])
@pytest.mark.parametrize("size_bytes", [None, 0, 100], ids=["gone", "empty", "cut"])
def test_damage_of_a_backup_names_the_file_as_users_do_and_says_what_to_do(
    copy: Path, tmp_path: Path, folder: str, size_bytes: int | None
) -> None:
    """It named an address in a store that nobody gave, and said no more than what was damaged."""
    (file,) = (copy / folder).iterdir()
    if size_bytes is not None:
        os.truncate(file, size_bytes)
    elif folder == "backups":
        return  # then there is no backup
    else:
        file.unlink()
    with pytest.raises(CorruptionError) as raised:
        ss.restore(copy, tmp_path / "r", new_identity=True)
    assert raised.value.path == str(file)
    assert ": put it back from a copy of the backup, or use another backup [" in str(raised.value)
    assert not (tmp_path / "r").exists()
