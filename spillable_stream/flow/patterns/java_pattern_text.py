"""The text of a Java pattern, read character by character: what counts, and what escapes stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from spillable_stream.errors import OptionError
from spillable_stream.shown_value import shown

__all__ = ["Flags", "PatternText"]

_MOST_SHOWN = 1000  # of an expression, so that a place in it can be found

_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a pattern, or of a part of it: ``i``, ``m``, ``s``, ``x`` and ``d``."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    comments: bool = False
    unix_lines: bool = False


@dataclass(slots=True)
class PatternText:
    """A pattern, and how far it was read.

    Args:
        text: the pattern.
        at: where the next character is.
        flags: those that hold here.
        limits: for which texts RE2 does not find what Java does.
        ascii_only: whether RE2 finds the same in ASCII texts only.
    """

    text: str
    at: int = 0
    flags: Flags = field(default_factory=Flags)
    limits: list[str] = field(default_factory=list)
    ascii_only: bool = False

    def refuse(self, why: str) -> NoReturn:
        """Say that the pattern can't be used.

        Raises:
            OptionError: always; it names the place.
        """
        raise OptionError(
            f"the regular expression {shown(self.text, _MOST_SHOWN)} can't be used: {why}, at position {self.at}"
        )

    def peek(self) -> str:
        """Return the next character that counts; "" at the end."""
        while self.flags.comments and self.at < len(self.text):
            c = self.text[self.at]
            if c in " \t\n\v\f\r":
                self.at += 1
            elif c == "#":
                while self.at < len(self.text) and ord(self.text[self.at]) not in (10, 13, 0x85, 0x2028, 0x2029):
                    self.at += 1
            else:
                break
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        """Return the next character that counts, and pass it."""
        c = self.peek()
        if not c:
            self.refuse("it ends too early")
        self.at += 1
        return c

    def raw(self) -> str:
        """Return the next character, whatever it is."""
        if self.at >= len(self.text):
            self.refuse("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def skip(self, text: str) -> bool:
        """Pass a text if it is next, and return whether it was."""
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def digits(self, kind: str, most: int) -> str:
        """Return the characters of a kind that are next, ``most`` at most, and pass them."""
        found = self.at
        while self.at < len(self.text) and self.at - found < most and self.text[self.at] in kind:
            self.at += 1
        return self.text[found : self.at]

    def quoted(self) -> str:
        r"""Return what is quoted, up to ``\E`` or the end, and pass it; the ``\Q`` was read."""
        end = self.text.find(r"\E", self.at)
        found = self.text[self.at :] if end < 0 else self.text[self.at : end]
        self.at = len(self.text) if end < 0 else end + 2
        return found

    def escaped_character(self) -> int:
        """Return the character that an escape stands for; its backslash was read."""
        c = self.raw()
        if c in _CONTROLS:
            return _CONTROLS[c]
        match c:
            case "0":
                return self._octal()
            case "x":
                if self.skip("{"):
                    digits = self.digits("0123456789abcdefABCDEF", 8)
                    if not digits or not self.skip("}") or int(digits, 16) > 0x10FFFF:
                        self.refuse("\\x{…} needs hexadecimal digits of a character")
                    return int(digits, 16)
                return self._hexadecimal(2)
            case "u":
                return self._utf16()
            case "c":
                return ord(self.raw()) ^ 64
        if c.isascii() and c.isalpha():
            self.refuse(f"there is no escape \\{c}")
        return ord(c)

    def _octal(self) -> int:
        digits = self.digits("01234567", 3)
        if len(digits) == 3 and digits[0] not in "0123":
            self.at -= 1
            digits = digits[:2]
        if not digits:
            self.refuse("\\0 needs octal digits")
        return int(digits, 8)

    def _hexadecimal(self, count: int) -> int:
        digits = self.digits("0123456789abcdefABCDEF", count)
        if len(digits) < count:
            self.refuse(f"it needs {count} hexadecimal digits")
        return int(digits, 16)

    def _utf16(self) -> int:
        code = self._hexadecimal(4)
        if 0xD800 <= code < 0xDC00 and self.skip(r"\u"):
            low = self._hexadecimal(4)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + (code - 0xD800 << 10) + (low - 0xDC00)
            self.at -= 6
        if 0xD800 <= code < 0xE000:
            self.refuse("half of a character beyond U+FFFF can't be matched")
        return code
