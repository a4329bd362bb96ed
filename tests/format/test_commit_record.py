"""A COMMIT reads back, with every part that it can have."""

from __future__ import annotations

import pytest

from spillable_stream.format.commit_record import CommitRecord, DelayedRun, DeliveredRun, Merged, MergedRun, SegmentRef
from spillable_stream.format.packing import unpack


@pytest.mark.parametrize(
    "record",
    [
        CommitRecord("put", 48),
        CommitRecord("take", 0),
        CommitRecord("put", 1 << 40, [SegmentRef("segment.q.1.a", 100, 2, 60), SegmentRef("b", 1, 1, 1)], ("q", 7)),
        CommitRecord("move", 0, [SegmentRef("a", 100, 2, 60, 7, 3, 5), SegmentRef("b", 1, 1, 1, 9, 3, 5, 10, 20)]),
        CommitRecord("put", 0, spilled="full", seen={"next": 9, "groups": {"g": [4, [[6, 7]]]}}),  # type: ignore[typeddict-item]
        CommitRecord("merge", 0, merged=Merged("k", [MergedRun(1, 2, 0, 3, 4, 5), MergedRun(3, 1, 9, 1, 5, 6, 7, 8)])),
        CommitRecord("put", 0, delayed=[DelayedRun(1, 40, 60, 0, 500, 3, 300, 41)]),
        CommitRecord("merge", 0, delayed=[DelayedRun(1, 40, 0, 0, 500, 3, 300, 41, "segments/x")]),
        CommitRecord("put", 0, delivered=[DeliveredRun(1, 41, 96, 0, 1, 0)]),
        CommitRecord("take", 0, recovery="0123456789abcdef"),
    ],
)
def test_a_commit_reads_back(record: CommitRecord) -> None:
    assert CommitRecord.parse(bytes(record.frame(3).payload)) == record


def test_a_part_that_a_commit_does_not_have_takes_no_room() -> None:
    assert unpack(bytes(CommitRecord("put", 48).frame(1).payload)) == {"kind": "put", "start": 48}


def test_a_segment_and_a_run_say_only_what_is_set() -> None:
    assert SegmentRef("a", 100, 2, 60).fields() == ("a", 100, 2, 60)
    assert len(SegmentRef("a", 100, 2, 60, 7, 3, 5).fields()) == 7
    assert len(MergedRun(1, 2, 0, 3, 4, 5).fields()) == 6
    assert DelayedRun(1, 40, 60, 0, 500, 3, 300, 41).fields() == (1, 40, 60, 0, 500, 3, 300, 41)
