from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spillable_stream.durable_names import sync_directory, sync_names
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
