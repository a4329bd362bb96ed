from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.log.identity_file import read_identity
from spillable_stream.log.layout import require_name_of_lock
from spillable_stream.storage.filesystem import FileSystem
from tests.support.logs import identified

FS = FileSystem()


def test_a_layout_reads_back(tmp_path: Path) -> None:
    options = {
        "data_dirs": [str(tmp_path / "d1"), str(tmp_path / "d2")],
        "checkpoint_dir": str(tmp_path / "c"),
        "backup_checkpoint_dir": str(tmp_path / "b"),
    }
    layout = identified(FS, tmp_path / "channel", **options)
    assert read_identity(FS, tmp_path / "channel") == layout
    assert all((tmp_path / d).is_dir() for d in ("d1", "d2", "c", "b", "channel/groups"))


def test_a_channel_that_is_moved_finds_its_files(tmp_path: Path) -> None:
    identified(FS, tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    layout = read_identity(FS, tmp_path / "new")
    assert layout.data_dirs == (tmp_path / "new" / "data",)
    assert layout.checkpoint_dir == tmp_path / "new" / "checkpoint"


def test_files_are_spread_over_the_data_directories(tmp_path: Path) -> None:
    layout = identified(FS, tmp_path / "channel", data_dirs=[str(tmp_path / "d1"), str(tmp_path / "d2")])
    for file_id in (1, 2, 3, 1_000_000):
        layout.log_file(file_id).touch()
    (tmp_path / "d1" / "log-x").touch()
    (tmp_path / "d1" / "log-000009.tmp").touch()
    assert layout.log_files(FS) == [1, 2, 3, 1_000_000]
    assert {layout.log_file(i).parent.name for i in (1, 2)} == {"d1", "d2"}


def test_segments_are_found_by_name_alone(tmp_path: Path) -> None:
    layout = identified(FS, tmp_path / "channel", data_dirs=[str(tmp_path / "d1"), str(tmp_path / "d2")])
    names = [f"segment.q.{i}.{'0a' * 16}" for i in range(4)]
    for name in names:
        layout.segment_file(name).touch()
    assert sorted(layout.segments(FS)) == names


def test_a_copy_in_another_data_directory_is_not_the_channels(tmp_path: Path) -> None:
    layout = identified(FS, tmp_path / "channel", data_dirs=[str(tmp_path / "d1"), str(tmp_path / "d2")])
    names = ["log-000001", "log-000002", f"segment.q.0.{'0a' * 16}"]
    for name in names:
        for directory in layout.data_dirs:
            (directory / name).touch()
    assert layout.log_files(FS) == [1, 2]
    assert layout.segments(FS) == names[2:]


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_a_name_that_is_not_ascii_is_locked_only_where_files_are_named_in_utf_8(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_name_of_lock("grüße")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    require_name_of_lock("gruesse")
    with pytest.raises(OptionError, match=f"'grüße' are named in UTF-8, and .* in {encoding}: set PYTHONUTF8=1"):
        require_name_of_lock("grüße")


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_the_files_of_a_group_have_the_same_bytes_in_every_encoding(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = identified(FS, tmp_path / "channel")
    assert layout.group_lock("grüße").name == "grüße.lock"
    monkeypatch.setattr(os, "fsdecode", lambda name: name.decode(encoding, "surrogateescape"))
    monkeypatch.setattr(os, "fsencode", lambda name: name.encode(encoding, "surrogateescape"))
    for kind, file in (
        ("lock", layout.group_lock),
        ("position", layout.group_position),
        ("query", layout.group_query),
        ("worker", layout.group_worker),
        ("lock", layout.producer_lock),
    ):
        name = file("grüße").name
        assert name.encode(encoding, "surrogateescape") == f"grüße.{kind}".encode()
        assert layout.group_of(name, kind) == "grüße"
