from __future__ import annotations

import pytest

from spillable_stream.errors import StorageError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.extent import Extent
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.layout import Layout
from spillable_stream.log.staged_file import StagedFileWriter
from tests.support.fake_files import FaultyFileSystem, nth
from tests.support.segments import SCHEMA, numbers


def test_a_segment_is_read_at_the_ids_that_its_commit_gave(fs: FaultyFileSystem, layout: Layout) -> None:
    writer = StagedFileWriter(fs, layout, "query", 3)
    writer.write(encode_batch(numbers(0, 10)))
    writer.write(encode_batch(numbers(10, 5)))
    ref = writer.finish()
    writer.close()
    assert (ref.count, ref.end) == (15, writer.path.stat().st_size)

    reader = EventReader(fs, layout, lambda _: SCHEMA)
    found = list(reader.read(Extent(ref.name, 0, 1008, 1012, 1000, 77, 99)))
    reader.close()
    assert [(b.first_id, b.last_id, b.transaction_id, b.time_us) for b in found] == [
        (1008, 1009, 77, 99),
        (1010, 1012, 77, 99),
    ]
    assert [x for b in found for x in b.batch.column(0).to_pylist()] == [8, 9, 10, 11, 12]


def test_a_finished_segment_and_its_name_are_synced(fs: FaultyFileSystem, layout: Layout) -> None:
    writer = StagedFileWriter(fs, layout)
    writer.write(encode_batch(numbers(0, 1)))
    fs.calls.clear()
    writer.finish()
    assert [c.name for c in fs.calls] == ["sync", "sync_directory"]
    writer.discard()


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_a_segment_whose_sync_failed_can_only_be_discarded(fs: FaultyFileSystem, layout: Layout, call: str) -> None:
    writer = StagedFileWriter(fs, layout)
    writer.write(encode_batch(numbers(0, 1)))
    with fs.failing(nth(call, 1)), pytest.raises(StorageError):
        writer.finish()
    for use in (writer.finish, lambda: writer.write(encode_batch(numbers(1, 1)))):
        with pytest.raises(StorageError, match=rf"discard.*{call}"):
            use()
    writer.discard()
    assert not writer.path.exists()


def test_a_segment_that_could_not_be_moved_to_disk_can_only_be_discarded(fs: FaultyFileSystem, layout: Layout) -> None:
    layout.memory.mkdir()
    writer = StagedFileWriter(fs, layout, memory_bytes=1_000)
    writer.write(encode_batch(numbers(0, 10)))
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        writer.write(encode_batch(numbers(10, 1_000)))
    for use in (writer.finish, lambda: writer.write(encode_batch(numbers(10, 1)))):
        with pytest.raises(StorageError, match="discard"):
            use()
    writer.discard()
    assert layout.segments(fs) == []


def test_a_segment_that_memory_has_no_room_for_nor_disk_leaves_nothing(fs: FaultyFileSystem, layout: Layout) -> None:
    layout.memory.mkdir()
    writer = StagedFileWriter(fs, layout, memory_bytes=1_000)
    writer.write(encode_batch(numbers(0, 10)))
    assert writer.path.parent == layout.memory
    with fs.failing(nth("write", 1)), pytest.raises(StorageError):
        writer.write(encode_batch(numbers(10, 1_000)))
    writer.discard()
    assert layout.segments(fs) == []
