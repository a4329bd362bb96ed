"""What tells the disk tier's log from the memory tier's."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier, memory_file_id
from spillable_stream.log.layout import Layout
from spillable_stream.log.tier_files import DiskFiles, MemoryFiles
from tests.support.fake_files import FaultyFileSystem


@pytest.fixture
def disk(fs: FaultyFileSystem, layout: Layout) -> DiskFiles:
    return DiskFiles(fs, layout)


@pytest.fixture
def memory(fs: FaultyFileSystem, layout: Layout) -> MemoryFiles:
    layout.memory.mkdir()
    return MemoryFiles(fs, layout)


def test_a_new_data_file_and_its_name_are_synced(disk: DiskFiles, fs: FaultyFileSystem, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "log")
    fs.calls.clear()
    disk.sync_new(file)
    assert fs.calls == [("sync", "log"), ("sync_directory", tmp_path.name)]


def test_a_data_file_that_is_there_is_not_made_again(disk: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"theirs")
    with pytest.raises(StorageError):
        disk.create(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"theirs"


def test_a_data_file_is_removed_for_good(disk: DiskFiles, fs: FaultyFileSystem, tmp_path: Path) -> None:
    disk.create(tmp_path / "log").close()
    fs.calls.clear()
    disk.remove(tmp_path / "log")
    assert fs.calls == [("remove", "log"), ("sync_directory", tmp_path.name)]


def test_what_is_reserved_of_a_full_data_file_is_given_back_once(disk: DiskFiles, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "log")
    disk.reserve(file, 0, 100, 1 << 20)
    file.write(0, [bytes(100)])
    assert file.size() > 100
    assert [disk.trim(lambda: file, 100), disk.trim(lambda: file, 100)] == [True, False]
    assert file.size() == 100


def test_memory_is_neither_synced_nor_reserved(memory: MemoryFiles, fs: FaultyFileSystem, layout: Layout) -> None:
    file = memory.create(layout.log_file(memory_file_id(1, 1)))
    fs.calls.clear()
    memory.sync_new(file)
    assert not memory.is_synced
    memory.reserve(file, 0, 1000, 1 << 20)
    assert not memory.trim(lambda: file, 0)
    assert fs.calls == []
    assert file.size() == 0


def test_a_file_of_memory_that_is_not_needed_any_more_is_used_again(memory: MemoryFiles, layout: Layout) -> None:
    for number in (1, 2):
        layout.spare_file(memory_file_id(1, number)).write_bytes(b"old pages %d" % number)
    path = layout.log_file(memory_file_id(1, 3))
    file = memory.create(path, memory.spare_for(path))
    assert file.read(0, 100) == b"old pages 2", "the one that was used last"
    assert [p.name for p in layout.spares(FaultyFileSystem(), Tier.MEMORY)] == ["spare-memory-000001-000001"]
    memory.create(layout.log_file(memory_file_id(1, 4)), memory.spare_for(path))
    assert memory.spare_for(path) is None


@pytest.mark.parametrize("size", [100, (1 << 20) + 7, 3 << 20])
def test_what_is_discarded_of_memory_is_zeros_and_keeps_its_pages(
    memory: MemoryFiles, layout: Layout, size: int
) -> None:
    file = memory.create(layout.log_file(memory_file_id(1, 1)))
    file.write(0, [b"x" * size])
    memory.discard_behind(file, 60)
    assert file.read(0, size) == b"x" * 60 + bytes(size - 60)
    assert file.size() == size


def test_what_is_discarded_of_a_data_file_is_cut(disk: DiskFiles, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "log")
    file.write(0, [b"x" * 100])
    disk.discard_behind(file, 60)
    assert file.size() == 60


def test_a_file_of_memory_may_be_larger_where_the_image_in_it_is(disk: DiskFiles, memory: MemoryFiles) -> None:
    assert [memory.most_bytes(1000, image) for image in (10, 250, 1000)] == [1000, 1000, 4000]
    assert disk.most_bytes(1000, 10_000) == 1000
