from collections.abc import Callable
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.errors import CorruptionError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, file_seed
from spillable_stream.log.event_reader import EventReader, ReadBatch
from spillable_stream.log.frames import walk
from spillable_stream.log.layout import Layout
from spillable_stream.log.salvage import Unreadable, salvage
from spillable_stream.storage.filesystem import FileSystem

pytestmark = pytest.mark.usefixtures("one_block")

FS = FileSystem()
SIZES = [3, 1, 4, 2]  # transactions; their events have the IDs 1 to 10


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[list[int], int], tuple[Layout, list[Extent]]]:
    """Create a channel, flip a bit of some of its PUT frames, and return where the events are."""

    def damage(which: list[int], at: int, **options: int) -> tuple[Layout, list[Extent]]:
        with ss.Channel(tmp_path / "c", minimum_required_space=0, **options) as channel:
            for size in SIZES:
                with channel.put_transaction() as tx:
                    tx.put_many([ss.Event(b"x" * 50)] * size)
            state, layout = channel.engine().follow(), channel.engine().layout
            extents = state.blocks.extents(1, state.last_id)
        puts = []
        for file in dict.fromkeys(e.file for e in extents):
            seed = file_seed(layout.channel, seed_name(file))
            handle = FS.open(layout.file(file), readonly=True)
            frames_of_file = walk(handle, seed, 0, handle.size())
            puts += [(file, f.offset) for f in frames_of_file if f.header and f.header.type == FrameType.PUT]
            handle.close()
        assert len(puts) == len(SIZES)
        for i in which:
            file, offset = puts[i]
            data = bytearray(layout.file(file).read_bytes())
            data[offset + at] ^= 1
            layout.file(file).write_bytes(data)
        return layout, extents

    return damage


def read(layout: Layout, extent: Extent) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the IDs that can be read and the ranges that can't."""
    found = list(salvage(FS, layout, lambda _: EVENT_SCHEMA, extent))
    ids = [i for f in found if isinstance(f, ReadBatch) for i in range(f.first_id, f.last_id + 1)]
    lost = [f[:2] for f in found if isinstance(f, Unreadable)]
    assert all(f.size > 0 for f in found if isinstance(f, Unreadable))
    return ids, lost


HEADER, PAYLOAD = 20, HEADER_SIZE_BYTES + 40


@pytest.mark.parametrize("at", [HEADER, PAYLOAD], ids=["header", "payload"])
@pytest.mark.parametrize(
    ("frames", "lost"),
    [([0], [(1, 3)]), ([1], [(4, 4)]), ([3], [(9, 10)]), ([1, 2], [(4, 8)]), ([0, 2], [(1, 3), (5, 8)])],
)
def test_events_around_damage_are_read(damaged, at: int, frames: list[int], lost: list[tuple[int, int]]) -> None:
    layout, (extent,) = damaged(frames, at)
    ids, found = read(layout, extent)
    assert found == lost
    assert sorted([*ids, *(i for a, b in lost for i in range(a, b + 1))]) == list(range(1, 11))


def test_part_of_an_extent_reports_no_event_outside_of_it(damaged) -> None:
    layout, (extent,) = damaged([2], PAYLOAD)
    assert read(layout, extent._replace(first_id=4, last_id=6)) == ([4], [(5, 6)])
    assert read(layout, extent._replace(first_id=7, last_id=9)) == ([9], [(7, 8)])


def test_damage_says_where_it_is(damaged) -> None:
    layout, (extent,) = damaged([1], PAYLOAD)
    (lost,) = [f for f in salvage(FS, layout, lambda _: EVENT_SCHEMA, extent) if isinstance(f, Unreadable)]
    reader = EventReader(FS, layout, lambda _: EVENT_SCHEMA)
    with pytest.raises(CorruptionError) as error:
        list(reader.read(extent))
    reader.close()
    assert (str(lost.path), lost.offset) == (error.value.path, error.value.offset)


def test_undamaged_extent_is_read_whole(damaged) -> None:
    layout, (extent,) = damaged([], 0)
    assert read(layout, extent) == (list(range(1, 11)), [])


def test_damage_of_a_segment_is_passed_too(damaged) -> None:
    layout, extents = damaged([1], PAYLOAD, max_inline_bytes=0)
    assert len(extents) == len(SIZES)
    assert [read(layout, e)[1] for e in extents] == [[], [(4, 4)], [], []]
