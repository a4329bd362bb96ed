from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import (
    BY_PRODUCER,
    CommitRecord,
    FileHeader,
    NumberedBatch,
    Numbers,
    SegmentRef,
    TakeRecord,
    pack,
    parse_record,
    unpack,
)


@pytest.mark.parametrize("previous", [None, (1, 4096)])
def test_a_file_header_reads_back(previous: tuple[int, int] | None) -> None:
    header = FileHeader("uuid", 2, previous, {"nextId": 9, "sinks": {"q": 3}})
    assert FileHeader.parse(bytes(header.frame().payload)) == header


def test_a_take_reads_back() -> None:
    record = TakeRecord("group", [(1, 10), (2**40, 2**63)])
    frame = record.frame(5)
    assert frame.count == 5
    assert TakeRecord.parse(bytes(frame.payload)) == record


@pytest.mark.parametrize(
    "record",
    [
        CommitRecord("put", 48),
        CommitRecord("take", 0),
        CommitRecord("put", 1 << 40, [SegmentRef("segment.q.1.a", 100, 2, 60), SegmentRef("b", 1, 1, 1)], ("q", 7)),
        CommitRecord("put", 0, producer=NumberedBatch("p", Numbers(7, 1 << 40))),
        CommitRecord("put", 0, producer=NumberedBatch("p", Numbers(7, 9, BY_PRODUCER))),
        CommitRecord("put", 0, producer=NumberedBatch("p", Numbers(7, 9, 2**32 - 1))),
        CommitRecord("put", 0, producer=NumberedBatch("p", Numbers(7, 9, BY_PRODUCER), b"a note")),
    ],
)
def test_a_commit_reads_back(record: CommitRecord) -> None:
    assert CommitRecord.parse(bytes(record.frame(3).payload)) == record


def test_binary_and_text_stay_apart() -> None:
    value = {"schema": b"\x00\xff", "name": "größer", 3: [None, True, 2**63]}
    assert unpack(pack(value)) == value


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x81\xa1", b"\x01\x02"])
def test_what_is_not_msgpack_is_corruption(payload: bytes) -> None:
    with pytest.raises(CorruptionError, match="not valid msgpack"):
        unpack(payload)


@pytest.mark.parametrize("parse", [FileHeader.parse, TakeRecord.parse, CommitRecord.parse])
@pytest.mark.parametrize(
    "value", [None, 7, [], "text", {}, {"start": []}, {"group": 1, "ranges": [1]}, {"previous": 3}]
)
def test_a_record_that_makes_no_sense_is_corruption(parse: Callable[[bytes], object], value: object) -> None:
    with pytest.raises(CorruptionError, match="is invalid"):
        parse(pack(value))


def test_what_no_dictionary_can_hold_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="not valid msgpack"):
        unpack(b"\x81\x90\x01")


@pytest.mark.parametrize(
    "value",
    [
        {"through": 2**40},
        {"clock": ["0a" * 16, 5, 2**50, 2**50]},
        {"clock": ["0a" * 16, 5, 2**50, 0], "jump": [2**50, -(2**40), 2**50]},
        {},
    ],
)
def test_what_leaves_reads_back(value: dict[str, Any]) -> None:
    assert parse_record(FrameType.RETENTION, pack(value)) == value


def test_a_group_record_reads_back() -> None:
    value = {"group": "größer", "seek": 2**40, "reset": "token", "left": [[3, 4]]}
    assert parse_record(FrameType.GROUP, pack(value)) == value
