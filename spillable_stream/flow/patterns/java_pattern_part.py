"""A part of a Java pattern, as other engines write it, and what is known of what it matches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from spillable_stream.flow.patterns.character_run import Ways, either, in_a_row

__all__ = ["NOTHING", "PatternPart"]


class PatternPart(NamedTuple):
    """A part of a pattern in both languages.

    Args:
        python: for `re`.
        re2: for RE2; anything where the pattern has a reason against it.
        may_be_empty: whether it may match nothing.
        has_group: whether a group is in it.
        prefix: what a match begins with, as far as that is the same.
        is_text: whether it matches its prefix and nothing else.
        ways: the same as characters that are repeated; None where it is more than such.
    """

    python: str
    re2: str
    may_be_empty: bool = False
    has_group: bool = False
    prefix: str = ""
    is_text: bool = False
    ways: Ways = None

    @classmethod
    def in_a_row(cls, parts: Sequence[PatternPart]) -> PatternPart:
        """Return parts one after the other."""
        texts = list(takewhile(lambda p: p.is_text, parts))
        return cls(
            "".join(p.python for p in parts),
            "".join(p.re2 for p in parts),
            all(p.may_be_empty for p in parts),
            any(p.has_group for p in parts),
            "".join(p.prefix for p in parts[: len(texts) + 1]),
            texts == parts,
            in_a_row([p.ways for p in parts]),
        )

    @classmethod
    def either(cls, parts: Sequence[PatternPart]) -> PatternPart:
        """Return alternatives."""
        return cls(
            "|".join(p.python for p in parts),
            "|".join(p.re2 for p in parts),
            any(p.may_be_empty for p in parts),
            any(p.has_group for p in parts),
            ways=either([p.ways for p in parts]),
        )


NOTHING = PatternPart("", "", True, ways=((),))
