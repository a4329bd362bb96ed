r"""Patterns that look for some characters in a row, as ``.*ERROR.*`` and ``"amount":\d+`` do, searched as bytes.

Whether such a pattern is found does not depend on what it may repeat at its ends. A run of characters is left,
each of a set. Of ASCII characters, bytes tell the same as texts, whether or not these are UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from spillable_stream.flow.patterns.byte_search import first_places, occurrences
from spillable_stream.flow.patterns.code_points import CodePoints
from spillable_stream.flow.text_columns import text_data, text_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CharacterRun",
    "Repeated",
    "Ways",
    "either",
    "find_runs",
    "in_a_row",
    "one_character",
    "repetition",
    "runs_of",
]

_MOST_WAYS = 6  # more take longer than RE2
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


_ONCE = (1, 1, False)

Ways: TypeAlias = "tuple[tuple[Repeated, ...], ...] | None"
"""The ways in which a pattern, or a part of one, matches: repeated characters in a row; None where it is more."""


def one_character(points: CodePoints) -> Ways:
    """Return a part that is one character of a set."""
    return ((Repeated(points),),)


def in_a_row(parts: Iterable[Ways]) -> Ways:
    """Return parts one after the other."""
    found: tuple[tuple[Repeated, ...], ...] = ((),)
    for part in parts:
        if part is None or len(found) * len(part) > _MOST_WAYS:
            return None
        found = tuple((*before, *behind) for before in found for behind in part)
    return found


def either(parts: Iterable[Ways]) -> Ways:
    """Return alternatives."""
    found: list[tuple[Repeated, ...]] = []
    for part in parts:
        if part is None or len(found) + len(part) > _MOST_WAYS:
            return None
        found += part
    return tuple(found)


def repetition(part: Ways, least: int, most: int | None, *, is_possessive: bool) -> Ways:
    """Return a part that is repeated, if that is a character. The other arguments are those of `Repeated`."""
    if part is None or len(part) != 1 or len(part[0]) != 1 or part[0][0][1:] != _ONCE:
        return None
    return ((Repeated(part[0][0].points, least, most, is_possessive),),)


def runs_of(pattern: Ways) -> tuple[CharacterRun, ...]:
    """Return runs, one for each way; a pattern is found where one is. None where there are no such, or not of ASCII."""
    found = [CharacterRun.of(way) for way in pattern or ()]
    runs = tuple(run for run in found if run is not None)
    return runs if len(runs) == len(found) else ()


def find_runs(runs: Sequence[CharacterRun], bodies: pa.Array) -> pa.Array | None:
    """Return for each body whether one of some runs is in it; None where RE2 tells sooner.

    Args:
        runs: the runs.
        bodies: an array of binary values without nulls.

    Returns:
        An array of booleans.
    """
    is_found = None
    for run in runs:
        of_run = run.find(bodies)
        if of_run is None:
            return None
        is_found = of_run if is_found is None else is_found | of_run
    return None if is_found is None else pa.array(is_found)


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
        """Return the run that is found wherever some parts in a row are; None if there is none, or none of ASCII."""
        sets = _one_by_one(_trimmed(list(parts)))
        if any(points & ~_ASCII for points in sets):
            return None
        begin, text = max(_texts_in(sets), key=lambda found: len(found[1]), default=(0, b""))
        return cls(sets, begin, text) if text else None

    def find(self, bodies: pa.Array) -> NDArray[np.bool_] | None:
        """Return for each body whether the run is in it; None where RE2 tells sooner.

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
        return first_places(places, len(self.sets), ends - ends[0]) >= 0


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
