"""The manifests of backups."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import CorruptionError, NotAChannelError, UnsupportedFormatError
from spillable_stream.archive.manifest import (
    ArchivedFile,
    LastEvent,
    Manifest,
    manifest_key,
    newest_manifest,
    write_manifest,
)
from spillable_stream.objects.directory_store import DirectoryStore

FILE = ArchivedFile("events/1-a", 10, 5, 1, 9)
MANIFEST = Manifest(
    3,
    "uuid",
    "/c",
    "2026-01-31T00:00:00+00:00",
    "0700",
    9,
    replace(FILE, key="states/3"),
    (FILE,),
    LastEvent(9, 2, 5, 7),
)


def test_the_greatest_number_counts_and_comes_back_as_it_was(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert newest_manifest(store) is None
    for number in (9, 10, 2):
        assert write_manifest(store, replace(MANIFEST, number=number))
    assert newest_manifest(store) == replace(MANIFEST, number=10)
    assert MANIFEST.keys() == {"states/3", "events/1-a"}


def test_what_a_backup_left_that_was_killed_as_it_wrote_its_first_manifest_is_not_another_object(
    tmp_path: Path,
) -> None:
    script = f"""
import os, signal
from unittest import mock
from spillable_stream.objects.directory_store import DirectoryStore
with mock.patch("os.link", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
    DirectoryStore({tmp_path!r}).create({manifest_key(1)!r}, b"a manifest")
"""
    script = script.replace("PosixPath", "__import__('pathlib').Path")
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert [p.is_dir() for p in tmp_path.iterdir()] == [True]
    store = DirectoryStore(tmp_path)
    assert newest_manifest(store) is None
    assert write_manifest(store, replace(MANIFEST, number=1))


def test_a_directory_of_other_things_that_are_called_backups_is_not_a_backup(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "photos.tar").write_bytes(b"others'")
    with pytest.raises(NotAChannelError, match=r"is neither empty nor a backup: it holds 'backups'"):
        newest_manifest(DirectoryStore(tmp_path))


def test_a_file_beside_the_manifests_is_not_taken_for_the_newest_one(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert write_manifest(store, MANIFEST)
    (tmp_path / "backups" / "notes.json").write_text("{}")
    assert newest_manifest(store) == MANIFEST


class StoreOfOthers(DirectoryStore):
    """A store on which another process creates a backup, in the place of the one before, after the first listing."""

    def get(self, key: str) -> pa.Buffer:
        if not self.exists(4):
            write_manifest(self, replace(MANIFEST, number=4))
            self.delete(manifest_key(3))
        return super().get(key)

    def exists(self, number: int) -> bool:
        return manifest_key(number) in [info.key for info in self.list("backups/")]


def test_a_manifest_that_a_later_one_replaces_while_it_is_looked_for_is_not_missing(tmp_path: Path) -> None:
    store = StoreOfOthers(tmp_path)
    write_manifest(store, MANIFEST)
    assert newest_manifest(store) == replace(MANIFEST, number=4)


def test_a_number_is_given_once(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert write_manifest(store, MANIFEST) and not write_manifest(store, replace(MANIFEST, channel="other"))
    assert newest_manifest(store) == MANIFEST


def test_side_files_are_what_earlier_versions_are_told_about(tmp_path: Path) -> None:
    store, delays = DirectoryStore(tmp_path), (replace(FILE, key="delays/1-2-a"),)
    write_manifest(store, MANIFEST)
    before = json.loads((tmp_path / manifest_key(3)).read_text())
    assert before["format"] == 1 and "delays" not in before
    later = replace(MANIFEST, number=4, delays=delays)
    write_manifest(store, later)
    assert json.loads((tmp_path / manifest_key(4)).read_text())["format"] == 2
    assert newest_manifest(store) == later
    assert later.keys() == MANIFEST.keys() | {"delays/1-2-a"}


def test_a_manifest_that_was_changed_or_cut_is_refused(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    write_manifest(store, MANIFEST)
    file = tmp_path / manifest_key(3)
    whole = file.read_text()
    for text in (whole.replace('"last_id": 9', '"last_id": 8', 1), whole[:-20], "[]", ""):
        file.write_text(text)
        with pytest.raises(CorruptionError, match="the manifest of the backup can't be read"):
            newest_manifest(store)


def test_a_later_format_is_refused_and_so_is_another_thing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    write_manifest(store, MANIFEST)
    file = tmp_path / manifest_key(3)
    value = json.loads(file.read_text())
    from spillable_stream.archive import manifest

    del value["checksum"]
    value["format"] = 3
    file.write_text(json.dumps({**value, "checksum": manifest._checksum(value)}))
    with pytest.raises(UnsupportedFormatError, match="format version 3; this package reads up to 2"):
        newest_manifest(store)
    (tmp_path / "b" / "data").mkdir(parents=True)
    (tmp_path / "b" / "data" / "log-000001").touch()
    with pytest.raises(NotAChannelError, match="it holds 'data'"):
        newest_manifest(DirectoryStore(tmp_path / "b"))
