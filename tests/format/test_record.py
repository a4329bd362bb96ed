from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.frame import FrameType
from spillable_stream.format.packing import pack
from spillable_stream.format.record import FileHeader, parse_record
from spillable_stream.format.take_record import TakeRecord


@pytest.mark.parametrize("previous", [None, (1, 4096)])
def test_a_file_header_reads_back(previous: tuple[int, int] | None) -> None:
    header = FileHeader("uuid", 2, previous, {"nextId": 9, "sinks": {"q": 3}})
    assert FileHeader.parse(bytes(header.frame().payload)) == header


@pytest.mark.parametrize("parse", [FileHeader.parse, TakeRecord.parse, CommitRecord.parse])
@pytest.mark.parametrize(
    "value", [None, 7, [], "text", {}, {"start": []}, {"group": 1, "ranges": [1]}, {"previous": 3}]
)
def test_a_record_that_is_invalid_is_corruption(parse: Callable[[bytes], object], value: object) -> None:
    with pytest.raises(CorruptionError, match="is invalid"):
        parse(pack(value))


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
