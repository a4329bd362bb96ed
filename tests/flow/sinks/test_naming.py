from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks import naming as naming_module
from spillable_stream.flow.sinks.naming import Naming, rename
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.output_file import OutputFile


def closed(path: Path) -> OpenFile:
    file = OutputFile(path / "a.tmp")
    file.append(b"123")
    file.keep()
    file.close()
    return OpenFile(str(path / "a"), str(path / "dir" / "a"), str(path / "a.tmp"), Content(), appended=file)


def test_a_file_is_named_when_the_file_system_permits_it(tmp_path: Path) -> None:
    naming = Naming(0, 0)
    naming.name(closed(tmp_path))  # there is no such directory
    naming.again()
    assert naming.lengths() == {str(tmp_path / "a.tmp"): 3}
    (tmp_path / "dir").mkdir()
    naming.again()
    assert (tmp_path / "dir" / "a").read_bytes() == b"123"
    assert naming.lengths() == {} and naming.next_at() == float("inf")


def test_it_is_tried_again_when_its_time_has_come_or_at_the_end(tmp_path: Path) -> None:
    naming = Naming(0, 3600)
    naming.name(closed(tmp_path))
    (tmp_path / "dir").mkdir()
    naming.again()
    assert not (tmp_path / "dir" / "a").exists()
    naming.again(at_end=True)
    assert (tmp_path / "dir" / "a").exists()


def test_a_file_keeps_the_name_that_it_has_after_the_last_try(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    naming = Naming(2, 0)
    naming.name(closed(tmp_path))
    naming.again()
    assert naming.lengths() == {}
    assert f"it keeps the name {tmp_path}/a.tmp" in caplog.text


def test_a_file_that_has_its_name_stays_and_one_that_is_gone_is_an_error(tmp_path: Path) -> None:
    rename("/none/a", "/none/a")
    with pytest.raises(StorageError, match="can't rename"):
        rename(str(tmp_path / "none"), str(tmp_path / "b"))


def test_a_file_that_has_its_name_already_is_not_named_again_and_again(tmp_path: Path) -> None:
    """An interrupt may come between the change of the name and what follows."""
    naming, file = Naming(0, 0), closed(tmp_path)
    (tmp_path / "dir").mkdir()
    naming.name(file)
    naming.name(file)
    assert (tmp_path / "dir" / "a").read_bytes() == b"123"
    assert naming.lengths() == {} and naming.next_at() == float("inf")


def test_files_that_wait_for_their_names_are_trouble_said_seldom_and_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try was logged, nothing else said so, and memory and each note grew with every file."""
    monkeypatch.setattr(naming_module, "_MOST_UNNAMED", 2)
    naming = Naming(0, 0)
    naming.begin("a1.k1")
    assert naming.trouble == ""
    naming.name(closed(tmp_path))
    naming.again()
    assert naming.trouble.startswith(f"1 closed file can't get a final name yet: can't rename {tmp_path}/a.tmp to")
    assert caplog.text.count("1 file is tried again in 0 s") == 1
    naming.require_few()
    (tmp_path / "b").mkdir()
    naming.name(closed(tmp_path / "b"))
    with pytest.raises(StorageError, match=r"2 closed files can't get .* No event is written until some have theirs"):
        naming.require_few()
    (tmp_path / "dir").mkdir()
    (tmp_path / "b" / "dir").mkdir()
    naming.again()
    naming.require_few()
    assert naming.trouble == ""


def test_a_name_that_the_disk_cannot_look_at_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.tmp").write_text("new")
    (tmp_path / "f").write_text("another file")
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("/f"):
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, **options)

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fails)
        with pytest.raises(StorageError, match=f"can't look at {tmp_path}/f .Input/output error.; check the disk"):
            rename(f"{tmp_path}/f.tmp", f"{tmp_path}/f")
    assert (tmp_path / "f").read_text() == "another file"
