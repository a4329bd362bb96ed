"""Segments that were taken are staged in again, and nobody ever sees the bytes of one in another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spillable_stream.errors import CorruptionError, DataLossError, StorageError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.file_names import MOST_SPARE_SEGMENTS
from spillable_stream.log import event_reader, staged_file
from spillable_stream.log.abandoned_segments import remove_abandoned_segments
from spillable_stream.log.layout import Layout
from spillable_stream.log.spares import Spares
from spillable_stream.log.staged_file import StagedFileWriter
from spillable_stream.storage.lock import FileLock
from tests.support.fake_files import Call, FaultyFileSystem, nth
from tests.support.segments import numbers, stage, staged

MIB = 1 << 20
LARGE, SMALL = 50_000, 10


def retire(fs: FaultyFileSystem, layout: Layout, *live: str, most_bytes: int = 64 * MIB) -> list[str]:
    """Let all segments but the live ones go, and return the names of the spares."""
    remove_abandoned_segments(fs, layout, set(live), {"query": 9}, 3600, most_spare_bytes=most_bytes)
    return [path.name for path in layout.spare_segments(fs)]


def test_a_segment_that_nobody_needs_becomes_a_spare_durably(fs: FaultyFileSystem, layout: Layout) -> None:
    stage(fs, layout, 0, LARGE)
    live = stage(fs, layout, 0, LARGE)
    fs.calls.clear()
    assert retire(fs, layout, live) == ["spare-segment-01"]
    assert fs.calls[-1] == Call("sync_directory", "data")
    assert layout.segments(fs) == [live]


@pytest.mark.parametrize("count", [SMALL, LARGE, 2 * LARGE])
def test_a_segment_is_staged_in_a_spare_and_has_its_own_events_only(
    fs: FaultyFileSystem, layout: Layout, count: int
) -> None:
    stage(fs, layout, 7, LARGE)
    [spare] = retire(fs, layout)
    inode = (layout.data_dirs[0] / spare).stat().st_ino
    writer = StagedFileWriter(fs, layout, "query", 2)
    writer.write(encode_batch(numbers(100, count)))
    found = writer.finish()
    writer.close()
    assert (writer.path.stat().st_ino, writer.path.stat().st_size) == (inode, found.end)
    assert staged(fs, layout, found.name, count) == list(range(100, 100 + count))
    assert layout.spare_segments(fs) == []


def test_what_was_staged_in_a_spare_is_synced_after_it_was_cut(fs: FaultyFileSystem, layout: Layout) -> None:
    stage(fs, layout, 0, LARGE)
    retire(fs, layout)
    writer = StagedFileWriter(fs, layout)
    writer.write(encode_batch(numbers(0, SMALL)))
    fs.calls.clear()
    writer.finish()
    assert [c.name for c in fs.calls] == ["truncate", "sync", "sync_directory"]
    writer.discard()


def test_spares_of_both_kinds_share_a_limit_and_data_files_come_first(fs: FaultyFileSystem, layout: Layout) -> None:
    size_bytes = layout.segment_file(stage(fs, layout, 0, LARGE)).stat().st_size
    layout.spare_file(1).write_bytes(bytes(size_bytes))
    assert len(retire(fs, layout, most_bytes=2 * size_bytes)) == 1
    stage(fs, layout, 0, LARGE)  # in the spare
    stage(fs, layout, 0, LARGE)
    assert len(retire(fs, layout, most_bytes=2 * size_bytes)) == 1
    Spares(fs, layout).keep(size_bytes)
    assert layout.spare_segments(fs) == [] and layout.spare_file(1).exists()
    assert Spares(fs, layout).are_any()
    Spares(fs, layout).keep(0)
    assert not Spares(fs, layout).are_any()


def test_there_are_no_more_than_a_few_however_small_they_are(fs: FaultyFileSystem, layout: Layout) -> None:
    for _ in range(MOST_SPARE_SEGMENTS + 5):
        stage(fs, layout, 0, SMALL)
    assert len(retire(fs, layout)) == MOST_SPARE_SEGMENTS
    assert layout.segments(fs) == []


def test_without_a_limit_none_is_kept(fs: FaultyFileSystem, layout: Layout) -> None:
    stage(fs, layout, 0, SMALL)
    assert retire(fs, layout, most_bytes=0) == layout.segments(fs) == []


def test_a_segment_that_is_read_or_has_another_name_is_removed(
    fs: FaultyFileSystem, layout: Layout, tmp_path: Path
) -> None:
    read, linked, local = stage(fs, layout, 0, SMALL), stage(fs, layout, 0, SMALL), stage(fs, layout, 0, SMALL, "local")
    os.link(layout.segment_file(linked), tmp_path / "backup")
    locks = [FileLock.open(fs, layout.segment_file(name)) for name in (read, local)]
    for lock in locks:
        assert lock.try_acquire(shared=True)
    assert retire(fs, layout) == layout.segments(fs) == []
    for lock in locks:
        lock.close()


def test_a_writer_whose_batch_is_over_loses_its_segment_and_harms_none(fs: FaultyFileSystem, layout: Layout) -> None:
    """A task that Spark gave up writes on for a while."""
    late = StagedFileWriter(fs, layout, "query", 1)
    assert retire(fs, layout) == layout.segments(fs) == []
    late.write(encode_batch(numbers(0, SMALL)))
    late.close()


def test_a_spare_is_not_used_before_its_name_is_durable(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(fs, layout, 0, SMALL)
    real, writers = fs.sync_directory, list[StagedFileWriter]()

    def sync_directory(path: Path) -> None:
        assert layout.spare_segments(fs) != []
        writers.append(StagedFileWriter(fs, layout))
        real(path)

    monkeypatch.setattr(fs, "sync_directory", sync_directory)
    assert len(retire(fs, layout)) == 1
    monkeypatch.undo()
    writers[0].discard()


def test_a_spare_that_cannot_be_obtained_is_left_and_a_new_file_is_created(
    fs: FaultyFileSystem, layout: Layout
) -> None:
    stage(fs, layout, 0, SMALL)
    [spare] = retire(fs, layout)
    with fs.failing(nth("rename", 1)):
        name = stage(fs, layout, 5, SMALL)
    assert staged(fs, layout, name, SMALL) == list(range(5, 5 + SMALL))
    assert [path.name for path in layout.spare_segments(fs)] == [spare]


def test_of_two_writers_one_gets_a_spare(fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(fs, layout, 0, SMALL)
    retire(fs, layout)
    real, names = fs.rename, list[str]()

    def rename(source: Path, target: Path) -> None:
        monkeypatch.undo()
        names.append(stage(fs, layout, 10, SMALL))
        real(source, target)

    monkeypatch.setattr(fs, "rename", rename)
    names.append(stage(fs, layout, 20, SMALL))
    assert [staged(fs, layout, name, SMALL)[0] for name in names] == [10, 20]


def test_a_reader_that_comes_late_to_a_spare_keeps_nobody_from_staging(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opened the file while that was a segment, and locks it between the rename and the writer's own lock."""
    monkeypatch.setattr(staged_file, "_LOCK_SECONDS", 0.01)
    name = stage(fs, layout, 0, SMALL)
    late = FileLock.open(fs, layout.segment_file(name))
    retire(fs, layout)
    real = fs.rename

    def rename(source: Path, target: Path) -> None:
        real(source, target)
        assert late.try_acquire(shared=True)

    monkeypatch.setattr(fs, "rename", rename)
    name = stage(fs, layout, 5, SMALL)
    late.close()
    assert staged(fs, layout, name, SMALL) == list(range(5, 5 + SMALL))
    remove_abandoned_segments(fs, layout, {name}, {"query": 9}, 3600)
    assert layout.segments(fs) == [name]


@pytest.mark.parametrize("again", [False, True])
def test_a_reader_that_is_overtaken_is_told_that_its_events_are_gone(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    name = stage(fs, layout, 0, SMALL)
    real = fs.open

    def open_then_use_again(path: Path, **options: bool) -> object:
        file = real(path, **options)
        if path.name == name:
            monkeypatch.undo()
            retire(fs, layout)
            if again:
                stage(fs, layout, 100, SMALL)
        return file

    monkeypatch.setattr(fs, "open", open_then_use_again)
    try:
        assert staged(fs, layout, name, SMALL) == list(range(SMALL)), "the file was removed, since it was open"
    except DataLossError as e:
        assert "are gone" in str(e)
    except CorruptionError as e:
        pytest.fail(f"called damaged: {e}")


def test_staging_lists_no_directory(fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """One may hold the segments of a long backlog."""
    monkeypatch.setattr(fs, "list_files", lambda _: pytest.fail("listed"))
    stage(fs, layout, 0, SMALL)


def test_an_empty_segment_is_not_a_spare(fs: FaultyFileSystem, layout: Layout) -> None:
    layout.spare_segment_files(layout.data_dirs[0])[0].write_bytes(b"x" * 1000)
    (layout.data_dirs[0] / f"segment.query.1.{'0' * 32}").touch()
    assert retire(fs, layout, most_bytes=0) == ["spare-segment-01"]
    assert layout.spare_segments(fs)[0].stat().st_size == 1000
    assert layout.segments(fs) == []


def test_a_segment_whose_header_finds_no_room_leaves_nothing(fs: FaultyFileSystem, layout: Layout) -> None:
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        StagedFileWriter(fs, layout)
    assert layout.segments(fs) == []


def test_a_spare_that_a_backup_has_another_name_of_is_not_used(
    fs: FaultyFileSystem, layout: Layout, tmp_path: Path
) -> None:
    stage(fs, layout, 0, SMALL)
    [spare] = retire(fs, layout)
    os.link(layout.data_dirs[0] / spare, tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    stage(fs, layout, 5, SMALL)
    assert (tmp_path / "backup").read_bytes() == before


def test_segments_whose_new_names_are_not_durable_are_not_spares(fs: FaultyFileSystem, layout: Layout) -> None:
    stage(fs, layout, 0, SMALL)
    with fs.failing(nth("sync_directory", 1)), pytest.raises(StorageError):
        retire(fs, layout)
    assert layout.spare_segments(fs) == layout.segments(fs) == []


def test_a_segment_that_cannot_be_opened_is_removed_anyway(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to another user, or was restored by one."""
    name, real = stage(fs, layout, 0, SMALL), fs.open

    def refuse(path: Path, **options: bool) -> object:
        if path.name == name:
            raise StorageError("Permission denied")
        return real(path, **options)

    monkeypatch.setattr(fs, "open", refuse)
    assert retire(fs, layout) == layout.segments(fs) == []


@pytest.mark.parametrize("moment", [1, 2])
@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_reader_without_a_lock_whose_segment_is_staged_in_meanwhile_is_told_that_its_events_are_gone(
    fs: FaultyFileSystem, layout: Layout, monkeypatch: pytest.MonkeyPatch, moment: int, count: int
) -> None:
    """As one that only looks: between the read of a header and that of its payload, the file may even be cut."""
    name, real, reads = stage(fs, layout, 0, LARGE), event_reader._read, [0]

    def read_later(*arguments: object) -> object:
        reads[0] += 1
        if reads[0] == moment:
            retire(fs, layout)
            stage(fs, layout, 100, count)
        return real(*arguments)  # type: ignore[arg-type]

    acquire = FileLock.try_acquire
    monkeypatch.setattr(FileLock, "try_acquire", lambda lock, *, shared=False: shared or acquire(lock))
    monkeypatch.setattr(event_reader, "_read", read_later)
    with pytest.raises(DataLossError, match="are gone"):
        staged(fs, layout, name, LARGE)
