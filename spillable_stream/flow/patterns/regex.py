"""Java's patterns on columns of bodies: by RE2 on texts for which it finds what Java finds, by `re` on the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.counted import counted
from spillable_stream.errors import OptionError
from spillable_stream.flow.checked_arguments import checked
from spillable_stream.flow.patterns.character_run import find_runs
from spillable_stream.flow.patterns.java_regex import Translation, translate
from spillable_stream.flow.patterns.re2_groups import groups_of
from spillable_stream.shown_value import shown

__all__ = ["JavaPattern", "Replacement", "Texts"]

_Part: TypeAlias = "str | int"


class Texts(NamedTuple):
    """Bodies as text.

    Args:
        column: the texts, as an array of strings.
        invalid: which bodies are not UTF-8, as an array of booleans; None if all are. Their texts have U+FFFD where
            they are not.
    """

    column: pa.Array
    invalid: pa.Array | None = None

    @classmethod
    def of(cls, bodies: pa.Array) -> Texts:
        """Return the texts of bodies, which share their bytes if all are UTF-8."""
        try:
            return cls(bodies.cast(pa.string()))
        except pa.ArrowInvalid:
            found = [_decoded(body) for body in bodies.to_pylist()]
        return cls(pa.array([text for text, _ in found], pa.string()), pa.array([not valid for _, valid in found]))


def _decoded(body: bytes) -> tuple[str, bool]:
    try:
        return body.decode(), True
    except UnicodeDecodeError:
        return body.decode(errors="replace"), False


class Replacement:
    """What takes the place of a match, as Java writes it: ``$1`` and ``${name}`` are groups, a backslash quotes.

    Args:
        text: the replacement.
        pattern: the pattern's translation.

    Raises:
        OptionError: it names a group that the pattern does not have, or ends too early.
    """

    def __init__(self, text: str, pattern: Translation) -> None:
        self.parts: list[_Part] = []
        literal, at = "", 0
        while at < len(text):
            c = text[at]
            if c == "\\":
                if at + 1 == len(text):
                    raise OptionError(
                        f"the replacement {shown(text)} ends with a backslash; write two for the character"
                    )
                literal, at = literal + text[at + 1], at + 2
            elif c == "$":
                self.parts += [literal] if literal else []
                number, at = _group_of(text, at + 1, pattern)
                self.parts.append(number)
                literal = ""
            else:
                literal, at = literal + c, at + 1
        self.parts += [literal] if literal else []

    def re2(self) -> str:
        """Return it as RE2 writes it."""
        return "".join(f"\\{p}" if isinstance(p, int) else p.replace("\\", "\\\\") for p in self.parts)

    def of_match(self, match: re.Match[str]) -> str:
        """Return it with the groups of a match."""
        return "".join(p if isinstance(p, str) else match[p] or "" for p in self.parts)


def _group_of(text: str, at: int, pattern: Translation) -> tuple[int, int]:
    """Return the number of the group that a replacement names behind a ``$``, and where the text continues."""
    if text[at : at + 1] == "{":
        end = text.find("}", at)
        name = text[at + 1 : end]
        if end < 0 or name not in pattern.names:
            raise OptionError(
                f"the replacement {shown(text)} names a group that {shown(pattern.java)} does not have: {shown(name)}"
            )
        return pattern.names[name], end + 1
    if not (text[at : at + 1].isascii() and text[at : at + 1].isdigit()):
        raise OptionError(f"the replacement {shown(text)} has a $ without a group; write \\$ for the character")
    number, at = int(text[at]), at + 1
    while at < len(text) and text[at] in "0123456789" and number * 10 + int(text[at]) <= pattern.groups:
        number, at = number * 10 + int(text[at]), at + 1
    if number > pattern.groups:
        raise OptionError(
            f"the replacement {shown(text)} names group {number}, and {shown(pattern.java)} has "
            f"{counted(pattern.groups, 'group')}"
        )
    return number, at


class JavaPattern:
    """A regular expression of Java's, and what is done with it to a column of texts.

    Args:
        pattern: the expression.

    Attributes:
        translation: how it is run; `Translation.why_not_re2` says why not by RE2.

    Raises:
        OptionError: Java refuses it, or it has what can't be expressed here.
    """

    @checked
    def __init__(self, pattern: str) -> None:
        self.translation: Translation = translate(pattern)
        try:
            self.compiled: re.Pattern[str] = re.compile(self.translation.python, re.ASCII)
            self._whole = re.compile(rf"(?:{self.translation.python})\Z", re.ASCII)
        except (re.error, OverflowError) as e:
            raise OptionError(f"the regular expression {shown(pattern)} can't be used: {e}") from e
        self._re2 = self._sound_re2()

    def _sound_re2(self) -> str | None:
        """Return the pattern for RE2, if that takes it: a large one may need too much memory."""
        if self.translation.re2 is None:
            return None
        try:
            pc.match_substring_regex(pa.array([""]), self.translation.re2)
        except pa.ArrowInvalid:
            return None
        return self.translation.re2

    @property
    def engine(self) -> str:
        """What runs it: "RE2", or "re"."""
        return "re" if self._re2 is None else "RE2"

    # ── one text ────────────────────────────────────────────────────────────────────────────

    def fits_whole(self, text: str) -> bool:
        """Tell whether a whole text fits (Java's ``matches``)."""
        return self._whole.match(text) is not None

    def split(self, text: str) -> list[str]:
        """Return what is between the matches in a text (Java's ``split``: nothing empty at the end)."""
        found, begin = [], 0
        for match in self.compiled.finditer(text):
            if match.end() == 0:  # an empty match at the beginning makes no empty text there
                continue
            found.append(text[begin : match.start()])
            begin = match.end()
        found.append(text[begin:])
        if begin == 0:
            return found
        while found and not found[-1]:
            found.pop()
        return found

    # ── columns ─────────────────────────────────────────────────────────────────────────────

    def find(self, bodies: pa.Array) -> pa.Array:
        """Return for each body whether the pattern is found in it, as an array of booleans.

        Args:
            bodies: an array of binary values without nulls.
        """
        search = self.compiled.search
        if (by_bytes := find_runs(self.translation.runs, bodies)) is not None:
            return by_bytes
        column = Texts.of(bodies).column
        if self._re2 is None:
            return pa.array([search(text) is not None for text in column.to_pylist()], pa.bool_())
        found = pc.match_substring_regex(column, self._re2)
        return self._mended(column, found, lambda text: search(text) is not None)

    def extract(self, texts: Texts) -> tuple[pa.Array, list[pa.Array]]:
        """Return the groups of the first match in each text.

        Returns:
            Which texts have a match, as an array of booleans; and for each group an array of strings: null without a
            match, "" for a group that took no part.
        """
        column, search = texts.column, self.compiled.search
        numbers = range(1, self.translation.groups + 1)
        if self._re2 is None or not self.translation.groups:
            matches = [search(text) for text in column.to_pylist()]
            groups = [pa.array([m and (m[i] or "") for m in matches], pa.string()) for i in numbers]
            return pa.array([m is not None for m in matches], pa.bool_()), groups
        valid, groups = groups_of(column, self._re2, len(numbers), self.translation.prefix)
        odd = self._odd(column)
        if odd is None:
            return valid, groups
        matches = [search(text) for text in column.filter(odd).to_pylist()]
        mended = [
            pc.replace_with_mask(group, odd, pa.array([m and (m[i] or "") for m in matches], pa.string()))
            for i, group in zip(numbers, groups, strict=True)
        ]
        return pc.replace_with_mask(valid, odd, pa.array([m is not None for m in matches], pa.bool_())), mended

    def replace(self, bodies: pa.Array, replacement: Replacement) -> pa.Array:
        """Return bodies with a replacement for each match; bytes that are not UTF-8 stay as they are.

        Args:
            bodies: an array of binary values.
            replacement: what takes the place of a match.
        """
        texts, t = Texts.of(bodies), self.translation
        is_by_re2 = self._re2 is not None and not t.takes_line_end and not t.may_be_empty
        if texts.invalid is not None or not is_by_re2:
            changed = [_encoded(self.replace_in(_lenient(body), replacement)) for body in bodies.to_pylist()]
            return pa.array(changed, pa.binary())
        found = pc.replace_substring_regex(texts.column, self._re2, replacement.re2())
        return self._mended(texts.column, found, lambda text: self.replace_in(text, replacement)).cast(pa.binary())

    def replace_in(self, text: str, replacement: Replacement) -> str:
        """Return a text with a replacement for each match (Java's ``replaceAll``)."""
        if not self.translation.may_be_empty:
            return self.compiled.sub(replacement.of_match, text)
        parts, copied, at = [], 0, 0
        while at <= len(text) and (match := self.compiled.search(text, at)) is not None:
            parts += [text[copied : match.start()], replacement.of_match(match)]
            copied = match.end()
            at = copied + (match.start() == copied)  # an empty match is looked for one character further on
        return "".join([*parts, text[copied:]])

    def _mended(self, column: pa.Array, found: pa.Array, by_python: Callable[[str], Any]) -> pa.Array:
        """Return what RE2 found, with Python's answer for those texts for which it may differ."""
        odd = self._odd(column)
        if odd is None:
            return found
        answers = [by_python(text) for text in column.filter(odd).to_pylist()]
        return pc.replace_with_mask(found, odd, pa.array(answers, found.type))

    def _odd(self, column: pa.Array) -> pa.Array | None:
        """Return which texts RE2 must not decide, as an array of booleans; None if it decides all."""
        odd: Sequence[pa.Array] = (
            *([pc.invert(pc.string_is_ascii(column))] if self.translation.ascii_only else []),
            *([pc.match_substring(column, "\r")] if self.translation.without_cr else []),
        )
        if not odd:
            return None
        together = odd[0] if len(odd) == 1 else pc.or_(*odd)
        return together if pc.any(together).as_py() else None


def _lenient(body: bytes) -> str:
    return body.decode(errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
