"""A TAKE reads back, with what expired if anything did."""

from __future__ import annotations

from spillable_stream.format.frame import MAX_COUNT
from spillable_stream.format.packing import unpack
from spillable_stream.format.take_record import TakeRecord


def test_a_take_reads_back() -> None:
    record = TakeRecord("group", [(1, 10), (2**40, 2**63)])
    frame = record.frame(5)
    assert frame.count == 5
    assert TakeRecord.parse(bytes(frame.payload)) == record


def test_what_had_expired_is_told_only_if_something_had() -> None:
    plain, passed = TakeRecord("g", [(1, 4)]), TakeRecord("g", [(1, 4)], [(2, 2)])
    assert "expired" not in unpack(bytes(plain.frame(4).payload))
    assert TakeRecord.parse(bytes(passed.frame(4).payload)) == passed


def test_a_take_of_more_events_than_a_frame_counts_is_about_as_many_as_it_can() -> None:
    assert TakeRecord("g", [(1, 5 << 30)]).frame(5 << 30).count == MAX_COUNT
