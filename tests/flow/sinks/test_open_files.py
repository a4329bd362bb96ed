from __future__ import annotations

import pyarrow as pa

from spillable_stream import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.flow.sinks.buckets import BucketPart, RollRules
from spillable_stream.flow.sinks.open_file import Content, OpenFile
from spillable_stream.flow.sinks.open_files import OpenFiles


def file(place: str, at: float = 0, events: int = 0) -> OpenFile:
    return OpenFile(place, f"{place}.1", f"{place}.1.tmp", Content(), opened_at=at, written_at=at, events=events)


def part(place: str, count: int) -> BucketPart:
    return BucketPart(place, batch_from_events([Event(b"x")] * count), pa.array(range(1, count + 1)))


def test_a_place_has_one_file_and_a_later_one_is_not_forgotten_with_it() -> None:
    files, first, second = OpenFiles(RollRules(), 9), file("a"), file("a")
    files.add(first)
    files.add(second)
    files.forget(first)
    assert list(files) == [second]
    files.forget(second)
    assert files.get("a") is None


def test_the_open_file_is_filled_before_others_are_opened() -> None:
    files, begun = OpenFiles(RollRules(0, 0, count=3), 9), file("a", events=2)
    files.add(begun)
    assert [(f, b.num_rows, i.to_pylist()) for f, b, i, _ in files.pieces(part("a", 5))] == [
        (begun, 1, [1]),
        (None, 3, [2, 3, 4]),
        (None, 1, [5]),
    ]
    assert [f for f, *_ in files.pieces(part("b", 1))] == [None]


def test_a_full_file_gets_nothing_more() -> None:
    files = OpenFiles(RollRules(0, 0, count=3), 9)
    files.add(file("a", events=3))
    assert [f for f, *_ in files.pieces(part("a", 1))] == [None]


def test_files_end_by_the_clock() -> None:
    files, old, new = OpenFiles(RollRules(interval_seconds=10), 9), file("a", at=5), file("b", at=7)
    assert files.next_end() == float("inf")
    files.add(old)
    files.add(new)
    assert files.next_end() == 15
    assert (files.over(14), files.over(15), files.over(17)) == ([], [old], [old, new])


def test_those_that_were_written_first_are_too_many() -> None:
    files, found = (
        OpenFiles(RollRules(), 2),
        [file(place, at) for place, at in (("a", 3), ("b", 1), ("c", 2), ("d", 4))],
    )
    for each in found:
        files.add(each)
    assert [each.place for each in files.surplus()] == ["b", "c"]
