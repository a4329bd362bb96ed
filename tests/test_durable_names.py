from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spillable_stream.durable_names import is_not_ours, is_there, sync_directory, sync_names
from spillable_stream.errors import StorageError


def synced(path: Path, *, durable: Path | None = None, fails: dict[Path, int] | None = None) -> list[Path]:
    """Return the directories that were synced for the name of a path."""
    found: list[Path] = []

    def sync(directory: Path) -> None:
        found.append(directory)
        if number := (fails or {}).get(directory):
            raise StorageError("no") from OSError(number, "no")

    sync_names(path, sync, lambda directory: directory == durable)
    return found


def test_each_directory_above_is_synced_up_to_a_name_that_is_durable(tmp_path: Path) -> None:
    assert synced(tmp_path / "a" / "b", durable=tmp_path) == [tmp_path / "a", tmp_path]
    assert synced(tmp_path, durable=tmp_path) == []


def test_the_walk_ends_at_a_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    assert synced(tmp_path / "a" / "b") == [tmp_path / "a", tmp_path]
    assert synced(Path("/"))[:1] == [Path("/")]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_the_walk_ends_below_what_others_own_and_a_disk_that_fails_is_told(tmp_path: Path, number: int) -> None:
    assert synced(tmp_path / "a" / "b" / "c", fails={tmp_path / "a": number}) == [tmp_path / "a" / "b", tmp_path / "a"]
    with pytest.raises(StorageError):
        synced(tmp_path / "a", fails={tmp_path: errno.EIO})


def test_only_a_directory_is_synced_as_one(tmp_path: Path) -> None:
    sync_directory(tmp_path)
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "f")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP, errno.ENOSYS])
def test_what_this_process_may_not_or_cannot_sync_is_not_its_own(number: int) -> None:
    assert is_not_ours(OSError(number, "refused"))


@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed"), OSError(errno.ENOSPC, "full"), ValueError(), None])
def test_a_write_that_failed_and_what_is_not_a_refusal_are_its_own(error: BaseException | None) -> None:
    assert not is_not_ours(error)


def test_a_path_is_there_or_not_and_a_disk_that_can_not_say_it_says_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    assert is_there(tmp_path / "f") and not is_there(tmp_path / "g") and not is_there(tmp_path / "f" / "g")

    def failing(path: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(OSError, match="Input/output error"):
        is_there(tmp_path / "f")
