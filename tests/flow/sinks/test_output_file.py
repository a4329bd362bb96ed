from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks import output_file
from spillable_stream.flow.sinks.output_file import OutputFile, cut_back
from tests.support.one_module import replace_in


def test_only_what_is_kept_counts(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "below" / "f")
    file.append(b"one")
    file.sync()
    file.keep()
    file.append(b"two")
    assert (file.length, file.size_bytes) == (3, 6)
    file.cut()
    file.append(b"three")
    file.keep()
    file.close()
    file.close()
    assert (tmp_path / "below" / "f").read_bytes() == b"onethree"
    with pytest.raises(FileExistsError):
        OutputFile(tmp_path / "below" / "f")


def test_a_file_of_an_earlier_run_is_cut_back(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert cut_back(tmp_path / "f", 3)
    assert (tmp_path / "f").read_bytes() == b"123"
    assert not cut_back(tmp_path / "f", 4)
    with pytest.raises(FileNotFoundError):
        cut_back(tmp_path / "none", 1)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is done to files, of which the first sync of a cut fails."""
    found: list[str] = []

    def truncate(descriptor: int, length: int) -> None:
        before = os.fstat(descriptor).st_size
        real["ftruncate"](descriptor, length)
        if before != length:  # else the system would have nothing to write
            found.append("changed")

    def sync(descriptor: int) -> None:
        found.append("synced")
        if found.count("synced") == 1:
            raise OSError(errno.EIO, "Input/output error")
        real["fsync"](descriptor)

    real = {name: getattr(os, name) for name in ("ftruncate", "fsync")}
    replace_in(monkeypatch, output_file, "os", ftruncate=truncate, fsync=sync)
    yield found


def test_a_cut_whose_sync_failed_is_created_again_and_not_only_synced(tmp_path: Path, steps: list[str]) -> None:
    file = OutputFile(tmp_path / "f")
    file.append(b"one")
    file.keep()
    file.append(b"two")
    with pytest.raises(StorageError, match="Input/output error"):
        file.cut()
    assert steps[-2:] == ["changed", "synced"]
    steps.append("the second attempt")
    file.cut()
    assert steps[-2:] == ["changed", "synced"]
    assert (tmp_path / "f").read_bytes() == b"one"


def test_a_cut_of_an_earlier_runs_file_whose_sync_failed_is_created_again(tmp_path: Path, steps: list[str]) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with pytest.raises(StorageError, match="Input/output error"):
        cut_back(tmp_path / "f", 3)
    steps.append("the second attempt")
    assert cut_back(tmp_path / "f", 3)
    assert steps[-2:] == ["changed", "synced"]
    assert (tmp_path / "f").read_bytes() == b"123"


def test_a_file_that_is_removed_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(output_file, "sync_directory", synced.append)
    OutputFile(tmp_path / "f").remove()
    assert synced == [tmp_path]


def test_what_the_file_system_refuses_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="/proc/none"):
        OutputFile(Path("/proc/none/f"))
    with pytest.raises(StorageError, match=str(tmp_path)):
        cut_back(tmp_path, 1)
