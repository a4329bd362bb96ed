"""Sets of characters, as a character class of a regular expression says them."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

__all__ = ["CodePoints", "python_char", "re2_char"]

_LAST = sys.maxunicode


class CodePoints:
    """A set of code points, as ranges in order; nobody changes it.

    Args:
        ranges: first and last code points, both inside, in any order.
    """

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        self.ranges: tuple[tuple[int, int], ...] = tuple(joined)

    @classmethod
    def of(cls, characters: str) -> CodePoints:
        """Return the set of some characters."""
        return cls((ord(c), ord(c)) for c in characters)

    @classmethod
    def of_category(cls, name: str) -> CodePoints:
        """Return the characters of a general category of Unicode, as ``L`` or ``Lu``; none for another name."""
        return cls(_of_category(name))

    def __or__(self, other: CodePoints) -> CodePoints:
        return CodePoints((*self.ranges, *other.ranges))

    def __and__(self, other: CodePoints) -> CodePoints:
        return ~(~self | ~other)

    def __invert__(self) -> CodePoints:
        gaps, following = [], 0
        for first, last in self.ranges:
            if first > following:
                gaps.append((following, first - 1))
            following = last + 1
        if following <= _LAST:
            gaps.append((following, _LAST))
        return CodePoints(gaps)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def only(self) -> int | None:
        """Return the code point of a set that has one; None for another set."""
        (first, last), *others = self.ranges or ((0, 1),)
        return first if first == last and not others else None

    def in_both_cases(self) -> CodePoints:
        """Return the set with both cases of each of its ASCII letters."""
        others = []
        for first, last in self.ranges:
            for low, high, shift in ((65, 90, 32), (97, 122, -32)):
                if first <= high and last >= low:
                    others.append((max(first, low) + shift, min(last, high) + shift))
        return CodePoints((*self.ranges, *others))

    def python(self) -> str:
        """Return the set as Python's `re` writes it."""
        return self._written(python_char) if self.ranges else "(?!)"

    def re2(self) -> str:
        """Return the set as RE2 writes it."""
        return self._written(re2_char) if self.ranges else r"[^\x{0}-\x{10ffff}]"

    def _written(self, char: Callable[[int], str]) -> str:
        parts = [char(a) if a == b else f"{char(a)}-{char(b)}" for a, b in self.ranges]
        return f"[{''.join(parts)}]"


def python_char(code: int) -> str:
    """Return a character as a pattern of Python's `re` has it, inside of a class or not."""
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def re2_char(code: int) -> str:
    """Return a character as a pattern of RE2 has it, inside of a class or not."""
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\x{{{code:x}}}"


@lru_cache(maxsize=64)
def _of_category(name: str) -> tuple[tuple[int, int], ...]:
    found, first = [], -1
    for code in range(_LAST + 2):
        is_inside = code <= _LAST and unicodedata.category(chr(code)).startswith(name)
        if is_inside and first < 0:
            first = code
        elif not is_inside and first >= 0:
            found.append((first, code - 1))
            first = -1
    return tuple(found)
