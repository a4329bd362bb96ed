from __future__ import annotations

import pytest

from spillable_stream.errors import CorruptionError
from spillable_stream.format.packing import pack
from spillable_stream.producer.key_share import KeyShare

SHARE = KeyShare((1, 3), 3, 64, False, ("u1", "u2", "u1"))


def test_a_note_is_values_and_no_words() -> None:
    note = b"keys:" + pack([[1, 3], 3, 64, False, ["u1", "u2", "u1"]])
    assert SHARE.note() == note
    assert KeyShare.of_note(note) == SHARE


def test_a_note_of_something_else_says_nothing_of_a_share() -> None:
    assert KeyShare.of_note(b"") is None
    assert KeyShare.of_note(pack([1, 2, 3])) is None


def test_a_later_version_may_note_more() -> None:
    assert KeyShare.of_note(b"keys:" + pack([*SHARE, "more"])) == SHARE


def test_a_note_that_is_cut_is_damage() -> None:
    with pytest.raises(CorruptionError):
        KeyShare.of_note(SHARE.note()[:-1])


def test_the_words_say_what_differs() -> None:
    assert SHARE.unlike(SHARE._replace(buckets=2)) == "channel 1 and 3 of 3 by 64 buckets of hashes"
    assert SHARE._replace(adjusted=True, buckets=1).unlike(SHARE) == "channel 1 and 3 of 3 by 1 bucket"
    assert SHARE.unlike(SHARE._replace(receivers=("u1", "u4", "u1"))) == "one of u1, u2, u1"
