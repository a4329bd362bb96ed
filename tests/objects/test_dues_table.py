"""The table of a large object's due times: it says what the frames say, and is believed only if it is whole."""

from __future__ import annotations

import pytest

from spillable_stream.format.dues import dues_frame
from spillable_stream.format.frame import Frame, FrameType, encode, total_size
from spillable_stream.log.delayed_frames import DelayedFrame
from spillable_stream.objects.dues_table import dues_table, parse_dues_table

SEED = 7
HEADER_BYTES = 96


def frames() -> list[Frame]:
    return [
        dues_frame([5, 5]),
        Frame.of(FrameType.PUT, b"a" * 13, 2),
        dues_frame([6, 9, 9], [3, 1, 2]),
        Frame.of(FrameType.PUT, b"b" * 40, 3),
    ]


def table() -> bytes:
    return b"".join(bytes(part) for part in encode(dues_table(frames(), HEADER_BYTES), SEED))


def parsed(data: bytes, start: int = 0) -> list[DelayedFrame] | None:
    found = parse_dues_table(data, SEED, start)
    return None if found is None else list(found)


def test_a_table_says_where_each_frame_is_and_when_its_events_are_due() -> None:
    first, second = parsed(table()) or []
    dues, put, more, _ = frames()
    assert (first.offset, first.length) == (HEADER_BYTES + total_size([dues]), 13)
    assert (list(first.dues), list(first.puts)) == ([5, 5], [])
    assert (second.offset, second.length) == (first.offset + total_size([put, more]), 40)
    assert (list(second.dues), list(second.puts)) == ([6, 9, 9], [3, 1, 2])
    assert parsed(table(), first.offset + 1) == [second]


@pytest.mark.parametrize("damaged", [b"", table()[:-1], table()[:40]])
def test_a_table_that_is_cut_is_none(damaged: bytes) -> None:
    assert parsed(damaged) is None


def test_a_table_with_a_wrong_bit_and_another_objects_are_none() -> None:
    for at in range(0, len(table()), 5):
        data = bytearray(table())
        data[at] ^= 4
        assert parsed(bytes(data)) in (None, parsed(table())), "padding has no checksum"
    assert parse_dues_table(table(), SEED + 1, 0) is None
