"""Notes that are written over in place: whoever reads one knows whether it is whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.format.sealed_note import seal, unseal


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_note_says_its_value_whatever_a_longer_one_left_behind_it(value: bytes, rest: bytes) -> None:
    assert unseal(seal(value, 7) + rest, 7) == value


@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_note_that_is_cut_or_changed_says_nothing(value: bytes, data: st.DataObject) -> None:
    note = seal(value, 7)
    assert unseal(note[: data.draw(st.integers(0, len(note) - 1))], 7) is None
    changed = bytearray(note)
    changed[data.draw(st.integers(4, len(note) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert unseal(bytes(changed), 7) is None


def test_a_note_of_another_file_says_nothing() -> None:
    assert unseal(seal(b"value", 7), 8) is None
