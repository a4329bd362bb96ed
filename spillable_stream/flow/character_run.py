"""Patterns that look for some characters in a row, as ``.*ERROR.*`` and ``"amount":\\d+`` do, searched as bytes.

Whether such a pattern is found does not depend on what it may repeat at its ends. A run of characters is left,
each of a set. Of ASCII characters, bytes tell the same as texts, whether or not these are UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from spillable_stream.flow.byte_search import first_places, occurrences
from spillable_stream.flow.code_points import CodePoints
from spillable_stream.flow.text_columns import text_data, text_ends

__all__ = ["CharacterRun", "Repeated", "Run", "in_a_row", "repetition"]

_MOST_CHARACTERS = 64
_ASCII = CodePoints([(0, 0x7F)])


class Repeated(NamedTuple):
    """A part of a pattern: a character of a set, so many times.

    Args:
        points: the set.
        least: how often at least.
        most: how often at most; None without a limit.
        is_possessive: whether it gives nothing back.
    """

    points: CodePoints
    least: int = 1
    most: int | None = 1
    is_possessive: bool = False


Run: TypeAlias = "tuple[Repeated, ...] | None"
"""A pattern, or a part of one, as repeated characters; None where it is more than such."""


def in_a_row(parts: Iterable[Run]) -> Run:
    """Return parts one after the other."""
    found: list[Repeated] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return tuple(found)


def repetition(part: Run, least: int, most: int | None, *, is_possessive: bool) -> Run:
    """Return a part that is repeated, if that is a character. The arguments are those of `Repeated`."""
    if part is None or len(part) != 1 or part[0] != Repeated(part[0].points):
        return None
    return (Repeated(part[0].points, least, most, is_possessive),)


@dataclass(frozen=True, slots=True)
class CharacterRun:
    """ASCII characters in a row, each of a set; some of them are of one character only.

    Args:
        sets: the sets.
        begin: where the longest part begins that is one text.
        text: that text.
    """

    sets: tuple[CodePoints, ...]
    begin: int
    text: bytes

    @classmethod
    def of(cls, parts: Sequence[Repeated]) -> CharacterRun | None:
        """Return the run that is found wherever a pattern is; None for a pattern that has none, or none of ASCII.

        Args:
            parts: the pattern's parts, in order.
        """
        sets = _one_by_one(_trimmed(list(parts)))
        if any(points & ~_ASCII for points in sets):
            return None
        begin, text = max(_texts_in(sets), key=lambda found: len(found[1]), default=(0, b""))
        return cls(sets, begin, text) if text else None

    def find(self, bodies: pa.Array) -> pa.Array | None:
        """Return for each body whether the run is in it, as an array of booleans; None where RE2 tells sooner.

        Args:
            bodies: an array of binary values without nulls.
        """
        ends = text_ends(bodies).astype(np.int64)
        data = text_data(bodies)[ends[0] : ends[-1]]
        places = occurrences(data, self.text)
        if places is None:
            return None
        places = places - self.begin
        places = places[(places >= 0) & (places <= len(data) - len(self.sets))]
        for i, points in enumerate(self.sets):
            if not self.begin <= i < self.begin + len(self.text):
                places = places[_table(points)[data[places + i]]]
        return pa.array(first_places(places, len(self.sets), ends - ends[0]) >= 0)


def _trimmed(parts: list[Repeated]) -> list[Repeated]:
    """Return parts without what their ends may repeat or leave out, which changes nothing about where they are found.

    What is possessive at the beginning stays: it takes from what follows.
    """
    while parts and not parts[-1].least:
        parts.pop()
    if parts:
        parts[-1] = Repeated(parts[-1].points, parts[-1].least, parts[-1].least)
    while parts and not parts[0].least and not parts[0].is_possessive:
        parts.pop(0)
    if parts and not parts[0].is_possessive:
        parts[0] = Repeated(parts[0].points, parts[0].least, parts[0].least)
    return parts


def _one_by_one(parts: Sequence[Repeated]) -> tuple[CodePoints, ...]:
    """Return the set of each character in a row; none if these are too many, or not as many in every match."""
    if any(part.least != part.most for part in parts) or sum(part.least for part in parts) > _MOST_CHARACTERS:
        return ()
    return tuple(part.points for part in parts for _ in range(part.least))


def _texts_in(sets: Sequence[CodePoints]) -> Iterator[tuple[int, bytes]]:
    """Yield where the neighbours begin that have one character each, and what these are."""
    characters = [points.only() for points in sets]
    for is_text, numbers in groupby(range(len(sets)), lambda i: characters[i] is not None):
        if is_text:
            found = list(numbers)
            yield found[0], bytes(characters[i] or 0 for i in found)


def _table(points: CodePoints) -> np.ndarray:
    """Return for each byte whether it is a character of a set."""
    table = np.zeros(256, bool)
    for first, last in points.ranges:
        table[first : last + 1] = True
    return table
