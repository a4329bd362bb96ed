"""A batch that is appended to files: what counts of it, and what is left where it does not count."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream.errors import StorageError
from spillable_stream.flow.sinks.appended_batch import AppendedBatch
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.output_file import OutputFile


class Lines(Content):
    """Numbers, behind a title."""

    def begin(self) -> bytes:
        return b"title:"

    def encode(self, batch: pa.RecordBatch) -> bytes:
        return b"".join(b"%d " % n for n in batch.column(0).to_pylist())


def events(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": numbers})


def made(path: Path) -> OpenFile:
    return OpenFile(path.name, str(path), str(path), Lines(), appended=OutputFile(path))


@pytest.fixture
def old(tmp_path: Path) -> OpenFile:
    """A file with a batch that counts."""
    file, batch = made(tmp_path / "old"), AppendedBatch([(1, 2)])
    batch.fresh.append(file)
    batch.add(file, events(1, 2), 20)
    batch.write()
    batch.keep(5.0)
    return file


def test_a_file_begins_once_and_has_the_events_in_order(old: OpenFile, tmp_path: Path) -> None:
    batch, new = AppendedBatch([(3, 6)]), made(tmp_path / "new")
    batch.fresh.append(new)
    batch.add(old, events(3), 1)
    batch.add(new, events(4), 1)
    batch.add(new, events(5, 6), 2)
    batch.write()
    assert (tmp_path / "old").read_bytes() == b"title:1 2 3 "
    assert (tmp_path / "new").read_bytes() == b"title:4 5 6 "


def test_events_count_once_they_are_kept_and_once_only(old: OpenFile) -> None:
    batch = AppendedBatch([(3, 3)])
    batch.add(old, events(3), 7)
    batch.write()
    assert (old.events, old.body_bytes, old.written_at) == (2, 20, 5.0)
    for _ in range(2):
        batch.keep(6.0)
    assert (old.events, old.body_bytes, old.written_at) == (3, 27, 6.0)
    batch.undo()
    assert Path(old.final).read_bytes() == b"title:1 2 3 ", "what counts is not cut"


def test_what_is_taken_back_leaves_the_files_as_they_were(old: OpenFile, tmp_path: Path) -> None:
    batch, new = AppendedBatch([(3, 5)]), made(tmp_path / "new")
    batch.fresh.append(new)
    batch.fresh.append(OpenFile("never made", "x", "x", Lines()))
    batch.add(old, events(3), 1)
    batch.add(new, events(4, 5), 1)
    batch.write()
    batch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"title:1 2 "
    assert old.events == 2


def test_a_file_that_cannot_be_cut_is_refused_when_the_others_are_and_is_cut_by_the_next_attempt(
    old: OpenFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    def refuse_to_cut() -> None:
        raise StorageError("can't cut it")

    stuck, new = made(tmp_path / "stuck"), made(tmp_path / "new")
    batch = AppendedBatch([(3, 5)])
    batch.fresh.append(new)
    batch.add(stuck, events(3), 1)
    batch.add(old, events(4), 1)
    batch.add(new, events(5), 1)
    batch.write()
    assert stuck.appended is not None
    with monkeypatch.context() as once:
        once.setattr(stuck.appended, "cut", refuse_to_cut)
        once.setattr(Path, "unlink", refuse)
        with pytest.raises(StorageError, match=f"can't remove {tmp_path / 'new'} .Read-only file system"):
            batch.undo()
    assert (tmp_path / "old").read_bytes() == b"title:1 2 "
    batch.undo()
    assert (tmp_path / "stuck").read_bytes() == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old", "stuck"]
