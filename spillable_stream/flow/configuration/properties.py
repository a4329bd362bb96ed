r"""Files of Java properties: keys and values, each with its file and line.

They are read as Java reads them: ``=``, ``:`` or a blank after the key, ``#`` and ``!`` before a comment, a backslash
at the end of a line that continues, and before another character one that vanishes: the value ``.*\.log`` arrives as
``.*.log``. The reading itself is javaproperties'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Entry", "Reading", "decode", "read_properties", "trim"]

_BLANKS = " \t\f"  # those that may begin a line
_JAVAS_BLANKS = "".join(map(chr, range(33)))
_LINE_END = re.compile(r"\r\n|\r|\n")
_LOST_BACKSLASH = re.compile(r"(?<!\\)(?:\\\\)*(\\[^tnrfu\\:=#! \t\r\n])")
_SHOWN = 3
_TRAILING_COMMENT = re.compile(r"\s#(?:\s.*)?$")
_FOREIGN_COMMENT = re.compile(r"\s*(//|/\*|;|--)")


class Entry(NamedTuple):
    """A key and its value.

    Args:
        key: the key, trimmed.
        value: the value, trimmed.
        file: the file, as it was given.
        line: the line where it begins, from 1.
        raw: the value as the file has it, before anything was substituted.
    """

    key: str
    value: str
    file: str
    line: int
    raw: str


class Problem(NamedTuple):
    """Something about a line: the code of a finding, its text, and the line."""

    code: str
    text: str
    at: Entry


class Reading(NamedTuple):
    """What a file says, in order, a key that it gives twice included, and what is wrong with its lines."""

    entries: list[Entry]
    problems: list[Problem]


def decode(content: bytes) -> tuple[str, bool]:
    """Return the text of a file, and whether it is UTF-8: if not, it is Latin-1, as all files are to Java."""
    try:
        return content.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        return content.decode("latin-1"), False


def trim(text: str) -> str:
    """Return a text without blanks and control characters around it, as Java trims: a no-break space stays."""
    return text.strip(_JAVAS_BLANKS)


def read_properties(content: bytes, file: str) -> Reading:
    """Return what a file says.

    Args:
        content: the file's bytes.
        file: how the findings name it.

    Raises:
        ImportError: the extra ``flow`` is not installed.
    """
    text, is_utf_8 = decode(content)
    reading = Reading([], [])
    if not is_utf_8:
        at = Entry("", "", file, 0, "")
        reading.problems.append(Problem("latin-1", "it is not UTF-8, so it was read as Latin-1: save it as UTF-8", at))
    for line, key, value, source in _key_values(text):
        at = Entry(trim(key), trim(value or ""), file, line, trim(value or ""))
        if _FOREIGN_COMMENT.match(key):
            reading.problems.append(Problem("comment", f"{key!r} is read as a key: begin a comment with #", at))
        elif value is None:
            text = r"a \u is followed by something other than four hexadecimal digits: write \\u for a backslash"
            reading.problems.append(Problem("malformed-line", text, at))
        else:
            reading.entries.append(at)
            reading.problems.extend(_no_break_spaces(at))
            reading.problems.extend(_lost(at, source))
    reading.problems.extend(_duplicates(reading.entries))
    return reading


def _no_break_spaces(at: Entry) -> Iterator[Problem]:
    for what, text in ("key", at.key), ("value", at.value):
        if "\N{NO-BREAK SPACE}" in text:
            yield Problem("no-break-space", f"the {what} {text!r} contains a no-break space: make it a blank", at)


def _lost(at: Entry, source: str) -> Iterator[Problem]:
    """Yield the backslashes that vanish, and a comment that is a part of the value."""
    lost = list(dict.fromkeys(_LOST_BACKSLASH.findall(source)))
    if lost:
        shown = " and ".join(f"{pair} becomes {pair[1:]}" for pair in lost[:_SHOWN])
        more = f", and {len(lost) - _SHOWN} more likewise" if len(lost) > _SHOWN else ""
        text = f"a single backslash vanishes, so {shown}{more}: write two, as \\{lost[0]}"
        yield Problem("lost-backslash", text, at)
    comment = _TRAILING_COMMENT.search(at.value.rpartition("\n")[2])
    if comment and "\\#" not in source:
        text = f"{comment[0].strip()!r} is a part of the value: a comment needs a line of its own"
        yield Problem("comment-in-value", text, at)


def _duplicates(entries: Iterable[Entry]) -> Iterator[Problem]:
    seen: dict[str, Entry] = {}
    for entry in entries:
        if entry.key in seen:
            what = "again" if seen[entry.key].value == entry.value else "with another value"
            text = f"{entry.key} was given in line {seen[entry.key].line} already, and here {what}: this one counts"
            yield Problem("duplicate-key", text, entry)
        seen[entry.key] = entry


def _key_values(text: str) -> Iterator[tuple[int, str, str | None, str]]:
    """Yield line, key, value and the lines as they are; a value of None for a line that Java can't read."""
    try:
        import javaproperties
    except ImportError as e:
        raise ImportError("reading a configuration needs javaproperties: pip install 'spillable-stream[flow]'") from e
    lines, line, start = _LogicalLines(text), 1, 0
    while start < len(text):
        try:
            for element in javaproperties.parse(lines):  # type: ignore[arg-type]
                source = text[start : lines.at]
                if isinstance(element, javaproperties.KeyValue):
                    yield line, element.key, element.value, source
                line += len(_LINE_END.findall(source))
                start = lines.at
        except javaproperties.InvalidUEscapeError:
            source = text[start : lines.at]
            yield line, re.split(r"[=:\s]", source.strip(), maxsplit=1)[0], None, source
            line += len(_LINE_END.findall(source))
            start = lines.at


class _LogicalLines:
    """The lines of a text, one at a time, each joined with those that continue it.

    Attributes:
        at: where the next one begins.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.at: int = 0

    def readline(self) -> str:
        """Return the next line with its end; "" at the end of the text."""
        line = self._physical()
        if not _is_continued(line) or line.lstrip(_BLANKS).startswith(("#", "!")):
            return line
        parts: list[str] = []
        while _is_continued(line):
            parts.append(line.lstrip(_BLANKS).rstrip("\r\n")[:-1])
            line = self._physical()
        joined = "".join(parts) + line.lstrip(_BLANKS) or "\n"
        return f"\\{joined}" if joined.startswith(("#", "!")) else joined  # it does not begin a comment there

    def _physical(self) -> str:
        found, start = _LINE_END.search(self._text, self.at), self.at
        self.at = len(self._text) if found is None else found.end()
        return self._text[start : self.at]


def _is_continued(line: str) -> bool:
    bare = line.rstrip("\r\n")
    return (len(bare) - len(bare.rstrip("\\"))) % 2 == 1
