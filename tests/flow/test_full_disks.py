"""A full disk, or quota, of what a flow writes beside its channels is a `DiskSpaceError` that says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.flow.durable_file import make_directory, replace_file
from spillable_stream.flow.sinks.destinations import LocalFiles
from spillable_stream.flow.sinks.naming import rename
from spillable_stream.flow.sinks.output_file import OutputFile
from spillable_stream.flow.slot_file import SlotFile
from spillable_stream.flow.sources.position_file import PositionFile, SavedPositions


def written_slot(place: Path) -> Callable[[], object]:
    slot = SlotFile(place / "note")
    slot.replace(b"1")
    return lambda: slot.write(b"2")


def added_position(place: Path) -> Callable[[], object]:
    file = PositionFile(place / "positions.json")
    file.write(SavedPositions({}))
    return lambda: file.add([], 1)


def appended(place: Path) -> Callable[[], object]:
    file = OutputFile(place / "out")
    return lambda: file.append(b"x")


def synced(place: Path) -> Callable[[], object]:
    file = OutputFile(place / "out")
    return file.sync


def published(place: Path) -> Callable[[], object]:
    files = LocalFiles()
    stream = files.create(str(place / ".out"))
    return lambda: files.publish(stream, str(place / ".out"), str(place / "out"))


def renamed(place: Path) -> Callable[[], object]:
    (place / "a").touch()
    return lambda: rename(str(place / "a"), str(place / "b"))


CALLS = {
    "a note that is replaced": ("fsync", lambda place: lambda: replace_file(place / "note", b"x")),
    "a note in place": ("pwrite", written_slot),
    "the positions of a taildir": ("pwrite", added_position),
    "a new directory": ("mkdir", lambda place: lambda: make_directory(place / "new")),
    "a new file of a sink": ("open", lambda place: lambda: OutputFile(place / "out")),
    "a file of a sink": ("pwrite", appended),
    "the sync of a file of a sink": ("fdatasync", synced),
    "a file that is closed": ("fsync", published),
    "the name of a file": ("rename", renamed),
}


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "make room on its file system"), (errno.EDQUOT, "make room, or raise the quota")],
)
@pytest.mark.parametrize("what", CALLS)
def test_a_full_disk_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int, advice: str
) -> None:
    name, prepare = CALLS[what]
    call = prepare(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(os, name, refuse)
        with pytest.raises(DiskSpaceError, match=f"{tmp_path.parent}.* \\({os.strerror(number)}\\); {advice}$"):
            call()


def test_another_refusal_is_none_of_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = appended(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", refuse)
        with pytest.raises(StorageError, match=r"\(Input/output error\); check the disk$") as caught:
            call()
    assert not isinstance(caught.value, DiskSpaceError)
