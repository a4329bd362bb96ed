"""When events are due, in bytes, and the stretches of time of side files."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import CorruptionError
from spillable_stream.format.dues import dues_frame, parse_dues, parse_puts, stretch_of
from spillable_stream.format.frame import FrameType

YEAR_MS = 366 * 86_400_000
NOW_MS = 1_800_000_000_000


@given(st.lists(st.integers(0, 1 << 50), min_size=1, max_size=50).map(sorted))
def test_dues_are_read_as_they_were_written(dues: list[int]) -> None:
    frame = dues_frame(dues)
    assert (frame.type, frame.count) == (FrameType.DUES, len(dues))
    assert parse_dues(bytes(frame.payload), frame.count) == array("q", dues)


def test_one_number_says_when_events_are_due_at_once() -> None:
    assert len(dues_frame([7] * 1000).payload) == 8


@pytest.mark.parametrize("dues", [[7], [7, 7], [7, 7, 9]])
def test_a_frame_of_several_puts_says_of_each_event_which_it_was(dues: list[int]) -> None:
    puts = list(range(3, 3 + len(dues)))
    payload, plain = bytes(dues_frame(dues, puts).payload), bytes(dues_frame(dues).payload)
    assert (list(parse_dues(payload, len(dues))), list(parse_puts(payload, len(dues)))) == (dues, puts)
    assert (list(parse_dues(plain, len(dues))), list(parse_puts(plain, len(dues)))) == (dues, [])


def test_dues_of_another_number_of_events_are_refused() -> None:
    with pytest.raises(CorruptionError, match="3 events"):
        parse_dues(bytes(16), 3)


@given(st.integers(-YEAR_MS, YEAR_MS))
def test_a_stretch_has_the_event_and_is_a_part_of_the_time_until_then(delay_ms: int) -> None:
    begin_ms, width_ms = stretch_of(NOW_MS + delay_ms, NOW_MS)
    assert begin_ms <= NOW_MS + delay_ms < begin_ms + width_ms
    assert width_ms == 1 << 16 or width_ms <= delay_ms / 4


def test_there_are_few_stretches_up_to_any_time() -> None:
    assert len({stretch_of(NOW_MS + at, NOW_MS) for at in range(0, YEAR_MS, 30_000)}) < 200
