from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks


def index_of(counts: list[int], frame_bytes: int = 1000, file: int = 1) -> Blocks:
    """Return an index of PUT frames of ``counts`` events that lie one after the other in one file."""
    index, first, offset = Blocks(), 1, 0
    for count in counts:
        index.add(Block(first, count, file, offset, frame_bytes, 5))
        first, offset = first + count, offset + frame_bytes
    return index


def test_small_frames_that_follow_each_other_share_a_block() -> None:
    index = index_of([10] * 1000)
    assert len(index) == 4  # of 256 KiB each
    assert sum(b.count for b in index) == 10_000


def trickle(seconds: float, every_seconds: float) -> Blocks:
    """Return an index of small frames, one each so often."""
    index = Blocks()
    for i in range(round(seconds / every_seconds)):
        index.add(Block(i + 1, 1, 1, i * 100, 100, round(i * every_seconds * 1e6)))
    return index


def test_a_trickle_is_known_by_its_times_to_a_quarter_of_a_second() -> None:
    index = trickle(60, 0.02)
    for event_id in range(1, 3000, 7):
        put_us = (event_id - 1) * 20_000
        assert put_us - 250_000 <= index.time_of(event_id) <= put_us  # type: ignore[operator]


def test_times_of_a_long_backlog_are_known_less_exactly_and_take_little_room() -> None:
    day = 86_400
    index = trickle(day, 0.5)
    assert len(index) < 25_000
    for event_id in range(1, 2 * day, 1009):
        put_us = (event_id - 1) * 500_000
        assert put_us - max(250_000, put_us // 4096) <= index.time_of(event_id) <= put_us  # type: ignore[operator]
    index.drop_through(2 * day - 100)
    index.add(Block(2 * day + 1, 1, 1, day * 1000, 100, day * 1_000_000))
    index.add(Block(2 * day + 2, 1, 1, day * 1001, 100, day * 1_000_000 + 500_000))
    assert index.time_of(2 * day + 2) == day * 1_000_000 + 500_000


def test_an_index_continues_from_its_image_as_it_would_have() -> None:
    whole, half = trickle(4000, 0.5), trickle(2000, 0.5)
    again = Blocks(Block(*b) for b in half.image())  # type: ignore[arg-type]
    for i in range(4000, 8000):
        again.add(Block(i + 1, 1, 1, i * 100, 100, i * 500_000))
    assert again.image() == whole.image()


def test_another_file_or_a_gap_begins_a_block() -> None:
    index = index_of([10])
    index.add(Block(11, 10, 2, 0, 1, 0))
    index.add(Block(31, 10, 2, 100, 1, 0))
    index.add(Block(41, 10, "segment.a", 0, 1, 0, 41, 7, 2))
    index.add(Block(51, 10, "segment.a", 0, 1, 0, 51, 8, 3))
    assert len(index) == 5
    assert index.segments() == {"segment.a"}
    assert index.oldest_data_file() == 1
    index.drop_through(40)
    assert index.oldest_data_file() == 2  # which holds the COMMIT of the segment


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.data())
def test_extents_cover_exactly_what_is_asked(counts: list[int], data: st.DataObject) -> None:
    index, total = index_of(counts, frame_bytes=50_000), sum(counts)
    first = data.draw(st.integers(1, total))
    last = data.draw(st.integers(first, total))
    extents = index.extents(first, last)
    assert [i for e in extents for i in range(e.first_id, e.last_id + 1)] == list(range(first, last + 1))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.data())
def test_dropping_keeps_every_later_event(counts: list[int], data: st.DataObject) -> None:
    index, total = index_of(counts, frame_bytes=50_000), sum(counts)
    through = data.draw(st.integers(0, total))
    index.drop_through(through)
    later = [e for e in index.extents(through + 1, total)]
    assert sum(e.last_id - e.first_id + 1 for e in later) == total - through
    assert all(b.last_id > through for b in index)


def test_sizes_are_of_the_events_asked_for() -> None:
    index = index_of([10] * 10, frame_bytes=300_000)
    assert index.payload_bytes(1, 100) == 3_000_000
    assert index.payload_bytes(1, 10) == 300_000
    assert index.payload_bytes(6, 15) == 300_000
    assert index.payload_bytes(101, 200) == 0


def test_a_size_limit_gives_at_least_one_event_and_never_more_than_asked() -> None:
    index = index_of([10] * 10, frame_bytes=300_000)
    assert index.last_id_within(1, 100, 1) == 1
    assert index.last_id_within(1, 100, 600_000) == 20
    assert index.last_id_within(1, 100, 10**9) == 100
    assert index.last_id_within(5, 12, 10**9) == 12
    assert index.last_id_within(95, 100, 60_000) == 96


def test_an_image_reads_back() -> None:
    index = index_of([10] * 500)
    assert list(Blocks(Block(*b) for b in index.image())) == list(index)  # type: ignore[arg-type]


def test_an_empty_index_holds_nothing() -> None:
    index = Blocks()
    assert (list(index), index.time_of(5), index.extents(1, 5), index.oldest_data_file()) == ([], None, [], None)


def test_the_blocks_around_a_time_are_found_in_both_tiers() -> None:
    index, memory = Blocks(), 1 << 32 | 1
    for i in range(6):
        index.add(Block(10 * i + 1, 10, memory if i in (2, 3) else 1, 1 << 20 * i, 10, 100 * i))
    found = [tuple(b and b.first_id for b in index.around(time)) for time in (0, 1, 200, 201, 350, 500, 501)]
    assert found == [(None, 1), (1, 11), (11, 21), (21, 31), (31, 41), (41, 51), (51, None)]
    assert Blocks().around(0) == (None, None)
