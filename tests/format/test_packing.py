"""Values of records, and what is none."""

from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.packing import nonsense, pack, unpack


def test_binary_and_text_stay_apart() -> None:
    value = {"schema": b"\x00\xff", "name": "größer", 3: [None, True, 2**63]}
    assert unpack(pack(value)) == value


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x81\xa1", b"\x01\x02"])
def test_what_is_not_msgpack_is_corruption(payload: bytes) -> None:
    with pytest.raises(CorruptionError, match="not valid msgpack"):
        unpack(payload)


def test_what_no_dictionary_can_hold_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="not valid msgpack"):
        unpack(b"\x81\x90\x01")


def test_the_error_of_an_invalid_record_names_the_record_and_the_cause() -> None:
    assert str(nonsense(dict, KeyError("start"))) == "a dict is invalid: KeyError: 'start'"
