from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.block import Block
from spillable_stream.state.block_index import BlockIndex


def index_of(counts: list[int], frame_bytes: int = 1000) -> BlockIndex:
    """Return an index of PUT frames of ``counts`` events that lie one after the other in one file."""
    index, first, offset = BlockIndex(), 1, 0
    for count in counts:
        index.add(Block(first, count, 1, offset, frame_bytes, 5))
        first, offset = first + count, offset + frame_bytes
    return index


def counts(index: BlockIndex) -> tuple[int, int, int, int]:
    return index.kept_events, index.kept_bytes, index.events, index.payload_bytes


def test_whole_blocks_are_kept_and_the_others_held() -> None:
    index = index_of([10] * 4, frame_bytes=300_000)
    assert counts(index) == (0, 0, 40, 1_200_000)
    index.keep_through(25)
    assert counts(index) == (20, 600_000, 20, 600_000)
    first = index.first_held()
    assert first is not None and first.first_id == 21
    assert [b.first_id for b in index.kept()] == [1, 11]
    index.drop_through(10)
    assert counts(index) == (10, 300_000, 20, 600_000)
    index.remove(11)
    index.remove(31)
    assert counts(index) == (0, 0, 10, 300_000)


def test_a_kept_block_that_grows_is_held_again() -> None:
    index = index_of([10])
    index.keep_through(10)
    index.add(Block(11, 5, 1, 1000, 500, 5))
    assert counts(index) == (0, 0, 15, 1500)
    assert len(index) == 1
    index.keep_through(15)
    assert counts(index) == (15, 1500, 0, 0)


def test_events_that_move_among_kept_ones_are_kept() -> None:
    index = BlockIndex()
    index.add(Block(1, 5, 1, 0, 50, 5))
    index.add(Block(11, 5, 1, 100, 50, 5))
    index.keep_through(15)
    index.insert(Block(6, 5, 2, 0, 50, 5))
    assert counts(index) == (15, 150, 0, 0)


def test_moved_events_join_the_last_block_and_are_kept_at_once() -> None:
    index = index_of([5, 5])
    index.keep_through(25)
    index.join(Block(11, 5, 1, 2000, 50, 5))
    assert (len(index), index.kept_events, index.events) == (1, 15, 0)
    index.join(Block(21, 5, 1, 3000, 50, 5))
    index.join(Block(16, 5, 1, 4000, 50, 5))  # not where its neighbors are
    assert [b.first_id for b in index] == [1, 16, 21]
    assert (index.kept_events, index.events) == (25, 0)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.data())
def test_what_is_kept_and_what_is_held_is_everything(sizes: list[int], data: st.DataObject) -> None:
    index, total = index_of(sizes, frame_bytes=50_000), sum(sizes)
    for through in sorted(data.draw(st.lists(st.integers(0, total), max_size=3))):
        index.keep_through(through)
        index.drop_through(data.draw(st.integers(0, through)))
        kept = [b for b in index if b.last_id <= through]
        assert index.kept() == kept
        assert (index.kept_events, index.kept_bytes) == (sum(b.count for b in kept), sum(b.payload_bytes for b in kept))
        assert index.events + index.kept_events == sum(b.count for b in index)
        assert index.payload_bytes + index.kept_bytes == sum(b.payload_bytes for b in index)
