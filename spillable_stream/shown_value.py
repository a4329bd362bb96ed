"""How messages show a value that somebody gave: whole where it is short, else its beginning, and how long it is."""

from __future__ import annotations

import re
import reprlib
from functools import cache

__all__ = ["command", "encodable", "printable", "shown"]

_MOST = 200  # characters, or bytes, of a text
_MOST_ELEMENTS = 20
_MOST_LEVELS = 3
_MOST_IN_ALL = 5  # times as much
_OF_SHELLS = re.compile(r"[^\w@%+=:,./-]")


def shown(value: object, most: int = _MOST) -> str:
    """Return a short representation of any value; of a long text, without a copy of all of it.

    Args:
        value: the value.
        most: how many characters, or bytes, of a text it may have.
    """
    try:
        text = _shortened(most).repr(value)
    except Exception:  # from the value's own __repr__
        return f"a {type(value).__name__}"
    return text if len(text) <= _MOST_IN_ALL * most else f"{text[: _MOST_IN_ALL * most]}…"


def printable(text: str) -> str:
    """Return a text as one line that commands no terminal: characters that can't be printed are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: what is not UTF-8 in a path's name is escaped, and names stay different."""
    return text.encode(errors="backslashreplace").decode()


def command(verb: str, *words: object) -> str:
    """Return a command that works as it is pasted, for a message to name.

    Args:
        verb: what `spillable` is to do.
        words: what is behind that: paths and addresses, options, and names in capitals for what the reader gives.
    """
    return " ".join(["spillable", verb, *(_OF_SHELLS.sub(r"\\\g<0>", str(word)) for word in words)])


class _Shortened(reprlib.Repr):
    def repr_str(self, x: str, level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}… ({len(x):,} characters)"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}… ({len(x):,} bytes)"

    repr_bytearray = repr_bytes

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() <= 4 * self.maxlong:
            return super().repr_int(x, level)
        return f"an integer of {x.bit_length():,} bits"  # whose digits cost much, or are refused


@cache
def _shortened(most: int) -> _Shortened:
    found = _Shortened()
    found.maxstring = found.maxother = found.maxlong = most
    found.maxlist = found.maxtuple = found.maxdict = found.maxset = found.maxfrozenset = _MOST_ELEMENTS
    found.maxlevel = _MOST_LEVELS
    return found
