"""What tells a file from its copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.storage import file_identity as module


@pytest.fixture(params=["statx", "stat"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask in both ways."""
    if request.param == "stat":
        monkeypatch.setattr(module, "raw_identity_of", module._by_stat)
    elif module._by_statx() is None:
        pytest.skip("this system has no statx")


def test_it_is_what_stat_says(asked: None, tmp_path: Path) -> None:
    file = tmp_path / "a f\u00efle"
    file.touch()
    (tmp_path / "link").symlink_to(file)
    for path in (tmp_path, file, tmp_path / "link", Path("/dev/shm"), Path("/proc/self")):
        found = os.stat(path)
        assert module.identity_of(os.fsencode(path)) == (found.st_dev, found.st_ino)


def test_a_missing_file_is_missing(asked: None, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        module.identity_of(os.fsencode(tmp_path / "nothing"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        module.identity_of(os.fsencode(tmp_path / "file" / "below"))
