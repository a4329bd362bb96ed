from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.output_file import OutputFile, cut_back


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


def test_what_the_file_system_refuses_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="/proc/none"):
        OutputFile(Path("/proc/none/f"))
    with pytest.raises(StorageError, match=str(tmp_path)):
        cut_back(tmp_path, 1)
