"""What a read past damage keeps of the events that it can't read, and which events it knows by that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillable_stream import StorageError
from spillable_stream.log.quarantine import keep_damaged, not_quarantined
from spillable_stream.log.salvage import Unreadable
from spillable_stream.storage.filesystem import FileSystem
from tests.support.fake_files import FaultyFileSystem

FS = FileSystem()


def test_damaged_bytes_are_kept_with_a_report(tmp_path: Path) -> None:
    (tmp_path / "log-1").write_bytes(b"..damaged..")
    keep_damaged(FS, tmp_path, Unreadable(6, 10, tmp_path / "log-1", 2, 7))
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.name == "events-6-10" and (kept / "log-1-2").read_bytes() == b"damaged"
    report = json.loads((kept / "report.json").read_text())
    assert report == {"path": str(tmp_path / "log-1"), "offset": 2, "size": 7, "events": [6, 10]}


def test_a_quarantine_that_a_killed_process_has_made_has_its_name_synced_before_it_is_relied_on(tmp_path: Path) -> None:
    (tmp_path / "log-1").write_bytes(b"..damaged..")
    (tmp_path / "quarantine" / "events-6-10").mkdir(parents=True)
    fs = FaultyFileSystem()
    with fs.failing(lambda call: call == ("sync_directory", tmp_path.name)), pytest.raises(StorageError):
        keep_damaged(fs, tmp_path, Unreadable(6, 10, tmp_path / "log-1", 2, 7))
    assert list(tmp_path.rglob("report.json")) == []


def test_damage_that_is_gone_by_now_leaves_no_report(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        keep_damaged(FS, tmp_path, Unreadable(6, 10, tmp_path / "log-1", 2, 7))
    assert list(tmp_path.rglob("report.json")) == []


def test_events_in_quarantine_are_not_missed_and_those_around_them_are(tmp_path: Path) -> None:
    assert not_quarantined(FS, tmp_path, [(1, 20)]) == [(1, 20)]
    for name in ("events-6-10", "events-18-30", "2026-11-23"):  # the last one is a repair's
        (tmp_path / "quarantine" / name).mkdir(parents=True)
    assert not_quarantined(FS, tmp_path, [(1, 7), (9, 20), (25, 30)]) == [(1, 5), (11, 17)]
    assert not_quarantined(FS, tmp_path, []) == []
