"""The files of a bucket sink have names that no other file has, and those that failed are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.bucket_files import BucketFiles
from spillable_stream.flow.sinks.buckets import Names
from spillable_stream.flow.sinks.destinations import LocalFiles
from spillable_stream.flow.sinks.open_file import Content


def bucket_files(*, can_be_cut: bool = True) -> BucketFiles:
    return BucketFiles(LocalFiles(), Names(".txt"), Content, 7, can_be_cut=can_be_cut)


@pytest.mark.parametrize("taken", ["f.7.txt", "f.7.txt.tmp"])
def test_a_name_that_a_file_has_is_passed_over(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).touch()
    file = bucket_files().new(str(tmp_path / "f"))
    assert (file.final, file.in_use) == (f"{tmp_path}/f.8.txt", f"{tmp_path}/f.8.txt.tmp")


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_a_name_that_another_process_takes_in_between_is_refused(tmp_path: Path, can_be_cut: bool) -> None:
    made = bucket_files(can_be_cut=can_be_cut)
    file = made.new(str(tmp_path / "f"))
    Path(file.in_use).touch()
    with pytest.raises(StorageError, match="was created by another process"):
        made.create(file)


def test_a_file_whose_final_name_was_taken_meanwhile_gets_another_one(tmp_path: Path) -> None:
    made = bucket_files()
    file = made.new(str(tmp_path / "f"))
    made.create(file)
    (tmp_path / "f.7.txt").touch()
    made.have_own_name(file)
    assert file.final == f"{tmp_path}/f.8.txt"
    assert file.appended is not None
    file.appended.close()


def test_files_that_failed_are_removed_again_and_again_until_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(files: LocalFiles, path: str) -> None:
        raise StorageError(f"can't remove {path}")

    made = bucket_files()
    paths = [str(tmp_path / name) for name in ("a", "b", "missing")]
    for path in paths[:2]:
        Path(path).touch()
    made.fail(paths)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="can't remove"):
        patch.setattr(LocalFiles, "remove", refuse)
        made.remove_failed()
    made.remove_failed()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_a_place_is_taken_if_its_longest_name_is_one_of_a_local_file(tmp_path: Path, can_be_cut: bool) -> None:
    made, longest = bucket_files(can_be_cut=can_be_cut), 255 - len(".7.txt.tmp")
    assert made.takes(f"{tmp_path}/{'x' * longest}") and not made.takes(f"{tmp_path}/{'x' * (longest + 1)}")
    assert made.takes(f"/{'x' * 255}/f") and not made.takes(f"/{'ä' * 128}/f")
    assert not made.takes("/x" * 2500)
    made.create(made.new(f"{tmp_path}/{'x' * longest}"))
