"""What a repair keeps of what it found and changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillable_stream import StorageError
from spillable_stream.integrity.repair import repair
from tests.support.channels import contents, fill, repaired, snapshot, spread, three_puts
from tests.support.damage import flip, log_file
from tests.support.fake_files import Call, FaultyFileSystem


def test_copies_the_damaged_bytes_and_a_report_are_in_quarantine(path: Path) -> None:
    at = three_puts(path, checkpoint=True)
    flip(log_file(path), at[1] + 60)
    checkpoint = max((path / "checkpoint").glob("checkpoint-*"))
    damaged, image = log_file(path).read_bytes(), checkpoint.read_bytes()
    report = repaired(path)
    assert report.quarantine is not None and report.quarantine.parent == path / "quarantine"
    kept = {str(p.relative_to(report.quarantine)): p.read_bytes() for p in report.quarantine.rglob("*") if p.is_file()}
    assert kept["files/data/log-000001"] == damaged
    assert kept[f"files/checkpoint/{checkpoint.name}"] == image
    piece = kept[f"damaged/log-000001-{at[1]}"]
    assert len(piece) > 48 and piece == damaged[at[1] : at[1] + len(piece)]
    said = json.loads(kept["report.json"])
    assert (said["loss"]["lost"], said["findings"][0]["offset"]) == ([[3, 4]], at[1])
    assert "files/head" in kept


def test_a_second_repair_has_a_directory_of_its_own(path: Path) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    first = repaired(path)
    flip(log_file(path), at[2] + 60)
    second = repaired(path)
    assert first.quarantine != second.quarantine
    assert (first.loss.lost, second.loss.lost) == (((3, 4),), ((5, 6),))
    assert list(contents(path).groups["default"]) == [2]


def test_nothing_is_changed_before_the_quarantine_that_a_killed_repair_made_is_durable(
    path: Path,
) -> None:
    at = three_puts(path, checkpoint=True)
    flip(log_file(path), at[1] + 60)
    (path / "quarantine").mkdir()
    before = snapshot(path / "data", path / "head")
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("sync_directory", path.name)), pytest.raises(StorageError):
        repair(path, fs=fs)
    assert snapshot(path / "data", path / "head") == before


def test_a_repair_that_has_no_room_for_its_copies_leaves_none(path: Path) -> None:
    at = three_puts(path, checkpoint=True)
    flip(log_file(path), at[1] + 60)
    fs = FaultyFileSystem()
    for name in ("report.json", "log-000001-", "head"):

        def is_copy(call: Call, name: str = name) -> bool:
            return call.name == "create" and call.file.startswith(name)

        with fs.failing(is_copy), pytest.raises(StorageError):
            repair(path, fs=fs)
        assert not list((path / "quarantine").iterdir()), name
    repaired(path)


def test_a_repair_that_has_no_room_for_all_its_copies_leaves_those_of_owner_files_which_it_has_written(
    path: Path,
) -> None:
    at = three_puts(path)
    flip(log_file(path), at[1] + 60)
    (path / "owner.json").write_text("{")
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call.name == "create" and call.file.startswith("head.")), pytest.raises(StorageError):
        repair(path, fs=fs)
    (left,) = (path / "quarantine").iterdir()
    names = {str(p.relative_to(left)) for p in left.rglob("*") if p.is_file()}
    assert names == {"report.json", "files/owner.json", "files/data/owner.json"}
    assert (left / "files" / "owner.json").read_text() == "{"
    repaired(path)


def test_owner_files_of_two_data_directories_have_a_copy_each(tmp_path: Path) -> None:
    path = spread(tmp_path)
    for name in ("d0", "d1"):
        (tmp_path / name / "owner.json").write_text(name)
    quarantine = repair(path, claim=[tmp_path / "d0", tmp_path / "d1"]).quarantine
    assert quarantine is not None
    copies = [quarantine / "files" / role / "owner.json" for role in ("data", "data-1")]
    assert [copy.read_text() for copy in copies] == ["d0", "d1"]


def test_nothing_is_changed_before_the_copies_are_complete(path: Path) -> None:
    fill(path)
    flip(log_file(path, 6), 100)
    before = snapshot(path / "data", path / "checkpoint", path / "head")
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("rename", "report.json")), pytest.raises(StorageError):
        repair(path, fs=fs)
    assert snapshot(path / "data", path / "checkpoint", path / "head") == before
