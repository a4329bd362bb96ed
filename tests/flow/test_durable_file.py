from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.durable_file import read_file, replace_file, sync_directory


def test_a_file_is_replaced_as_a_whole_and_synced_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "below" / "f", list[str]()
    assert read_file(path) is None
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real: (calls.append(_n), _r(*a))[1])
    replace_file(path, b"one")
    assert calls == ["fsync", "replace", "fsync"]
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


def test_what_can_not_be_read_or_synced_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=str(tmp_path)):
        read_file(tmp_path)
    with pytest.raises(StorageError, match="none"):
        sync_directory(tmp_path / "none")
