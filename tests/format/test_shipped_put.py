"""The note that says which put of a spool a store has last."""

from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.packing import pack
from spillable_stream.format.shipped_put import ShippedPut

PUT = ShippedPut(7, 1_700_000_000_000_000, 0xFFFF_FFFF)


def test_a_put_comes_back_from_its_note() -> None:
    assert ShippedPut.parse(PUT.packed()) == PUT


def test_a_note_of_a_later_version_may_say_more() -> None:
    assert ShippedPut.parse(pack([*PUT, "more"])) == PUT


@pytest.mark.parametrize("note", [b"", b"\xc1", pack([1, 2]), pack({"a": 1}), pack(5), pack(["a", 1, 2])])
def test_what_is_not_a_note_of_a_spool_is_damage(note: bytes) -> None:
    with pytest.raises(CorruptionError):
        ShippedPut.parse(note)
