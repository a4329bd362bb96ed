from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow import durable_file
from spillable_stream.flow.durable_file import make_directory, read_file, replace_file, sync_directory


def test_a_file_is_replaced_as_a_whole_and_synced_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "below" / "f", list[str]()
    make_directory(tmp_path)  # whose name is durable from here on
    assert read_file(path) is None
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real: (calls.append(_n), _r(*a))[1])
    replace_file(path, b"one")
    assert calls == ["fsync", "fsync", "replace", "fsync"], "the directory above, the file, and its directory"
    replace_file(path, b"two")
    assert read_file(path) == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["f"]


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(tmp_path / "f", b"old")

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StorageError, match="No space left"):
        replace_file(tmp_path / "f", b"new")
    assert read_file(tmp_path / "f") == b"old"


def test_a_directory_is_created_with_those_above_it_and_each_has_its_name_durably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[Path]()
    make_directory(tmp_path)
    monkeypatch.setattr(durable_file, "sync_directory", synced.append)
    for _ in range(2):
        make_directory(tmp_path / "2026" / "11" / "28")
    assert (tmp_path / "2026" / "11" / "28").is_dir()
    assert synced == [tmp_path, tmp_path / "2026", tmp_path / "2026" / "11"]


def test_a_directory_that_another_process_has_made_has_its_name_synced_once_before_it_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_directory(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)  # and was killed before it synced them
    synced = list[Path]()
    monkeypatch.setattr(durable_file, "sync_directory", synced.append)
    for _ in range(2):
        make_directory(tmp_path / "a" / "b")
    assert sorted(synced) == [tmp_path, tmp_path / "a"]


def test_a_directory_that_is_removed_and_made_again_has_its_name_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_directory(tmp_path / "a")
    synced = list[Path]()
    monkeypatch.setattr(durable_file, "sync_directory", synced.append)
    monkeypatch.setattr(durable_file, "_identity", lambda _: (1, 1))  # file systems give an inode again at once
    make_directory(tmp_path / "a")
    make_directory(tmp_path / "a")
    before = len(synced)
    (tmp_path / "a").rmdir()
    make_directory(tmp_path / "a")
    assert synced[before:] == [tmp_path]


def test_above_a_directory_that_others_made_only_what_this_process_may_sync_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs" / "a").mkdir(parents=True)
    make_directory(tmp_path)
    tried = list[Path]()

    def sync(path: Path) -> None:
        tried.append(path)
        if path == tmp_path / "theirs":
            raise StorageError("can't sync") from PermissionError(13, "Permission denied")

    monkeypatch.setattr(durable_file, "sync_directory", sync)
    make_directory(tmp_path / "theirs" / "a")
    make_directory(tmp_path / "theirs" / "a")
    assert tried == [tmp_path / "theirs"]
    with pytest.raises(StorageError, match="can't sync"):
        make_directory(tmp_path / "theirs" / "b")
    assert not (tmp_path / "theirs" / "b").exists(), "what this process makes must be durable"


def test_a_sync_of_a_name_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    synced = list[Path]()

    def fails(path: Path) -> None:
        raise StorageError("can't sync") from OSError(5, "Input/output error")

    with monkeypatch.context() as once:
        once.setattr(durable_file, "sync_directory", fails)
        with pytest.raises(StorageError, match="can't sync"):
            make_directory(tmp_path / "a")
    monkeypatch.setattr(durable_file, "sync_directory", synced.append)
    make_directory(tmp_path / "a")
    assert tmp_path in synced


def test_only_so_many_directories_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_file, "_durable", {})
    monkeypatch.setattr(durable_file, "_MOST_KNOWN", 20)
    for i in range(50):
        make_directory(tmp_path / str(i))
        assert len(durable_file._durable) <= 20


def test_a_directory_whose_name_is_not_durable_is_not_left_for_the_next_attempt_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise StorageError(f"can't sync {path}")

    with monkeypatch.context() as once:
        once.setattr(durable_file, "sync_directory", refuse)
        with pytest.raises(StorageError, match="can't sync"):
            make_directory(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    make_directory(tmp_path / "a" / "b")


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(StorageError, match=f"can't create the directory {tmp_path / 'f'} "):
        make_directory(tmp_path / "f" / below)


def test_what_cannot_be_read_or_synced_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=str(tmp_path)):
        read_file(tmp_path)
    with pytest.raises(StorageError, match="none"):
        sync_directory(tmp_path / "none")
