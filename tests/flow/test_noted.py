"""What a source is told of its newest batch."""

from __future__ import annotations

from spillable_stream.flow.noted import Noted


def test_it_is_number_note_and_whether_all_have_it() -> None:
    number, note, complete = Noted(7, b"where", False)
    assert (number, note, complete) == (7, b"where", False)
