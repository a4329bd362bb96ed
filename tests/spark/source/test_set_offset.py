"""Offsets in a set of channels, as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spillable_stream.errors import CheckpointMismatchError
from spillable_stream.spark.source.set_offset import MemberOffset, SetOffset

OFFSETS = {
    "b": MemberOffset("/data/2", {"channel": "b", "writeOrderId": 7}),
    "a": MemberOffset("s3://bucket/1", {"channel": "a", "group": "auto-1", "start": 3, "writeOrderId": 5}),
}


def test_an_offset_is_the_same_text_whatever_the_order_of_its_channels() -> None:
    texts = {json.dumps(SetOffset(dict(order)).to_json()) for order in (OFFSETS.items(), reversed(OFFSETS.items()))}
    assert texts == {
        '{"channels": {"a": {"group": "auto-1", "path": "s3://bucket/1", "start": 3, "writeOrderId": 5}, '
        '"b": {"path": "/data/2", "writeOrderId": 7}}}'
    }


def test_what_was_written_is_read() -> None:
    assert SetOffset.parse(json.loads(json.dumps(SetOffset(OFFSETS).to_json())), "the set") == SetOffset(OFFSETS)


@pytest.mark.parametrize(
    ("value", "whose"),
    [
        ({"channel": "a", "writeOrderId": 1}, "the channel a alone"),
        ({"logOffset": 3}, "another source"),
        ({"channels": {"a": {"writeOrderId": 1}}}, "another source"),
        ({"channels": {"a": {"path": "/data/1", "writeOrderId": "1"}}}, "another source"),
        ({"channels": ["a"]}, "another source"),
        (None, "another source"),
    ],
)
def test_another_sources_offset_is_refused(value: Any, whose: str) -> None:
    with pytest.raises(CheckpointMismatchError, match=f"belongs to {whose}.* and the set is read as a set of channels"):
        SetOffset.parse(value, "the set")


def test_the_offset_of_another_source_is_shown_in_short() -> None:
    with pytest.raises(CheckpointMismatchError) as e:
        SetOffset.parse({"partitions": list(range(10_000))}, "the set")
    assert len(str(e.value)) < 1000
