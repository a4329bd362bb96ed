"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from spillable_stream.counted import agreeing, counted


@pytest.mark.parametrize(
    ("number", "noun", "verb", "said"),
    [
        (0, "event", "", "0 events"),
        (1, "event", "", "1 event"),
        (2, "event", "", "2 events"),
        (1234, "row", "", "1,234 rows"),
        (0, "event", "are", "0 events are"),
        (1, "event", "are", "1 event is"),
        (2, "batch", "are", "2 batches are"),
        (1, "event", "were", "1 event was"),
        (1, "event", "have", "1 event has"),
        (2, "event", "do", "2 events do"),
    ],
)
def test_a_noun_and_its_verb_agree_with_their_number(number: int, noun: str, verb: str, said: str) -> None:
    assert counted(number, noun, verb) == said


def test_a_verb_by_itself_agrees_with_a_number() -> None:
    assert [agreeing(number, "are") for number in (0, 1, 2)] == ["are", "is", "are"]
