"""Java's regular expressions in Python's words, and in RE2's where these mean the same.

A pattern is parsed as Java (17) does. Each of its parts is written so that the other engine finds what Java finds:
``.`` and ``$`` with Java's line ends, classes as ranges, letters in both cases where case is ignored. RE2 is ten times
faster on columns, and is left out where it lacks a construct, or where nothing proves that it finds the same. Where it
does so for some texts only, the translation says for which.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spillable_stream.flow.patterns.character_run import CharacterRun, one_character, repetition, runs_of
from spillable_stream.flow.patterns.code_points import CodePoints, python_char, re2_char
from spillable_stream.flow.patterns.java_classes import LINE_END, PREDEFINED, bracketed, class_escape
from spillable_stream.flow.patterns.java_pattern_part import NOTHING, PatternPart
from spillable_stream.flow.patterns.java_pattern_text import PatternText

__all__ = ["Translation", "translate"]

_MOST_RE2_REPEATS = 1000
_LAST_LINE_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_LAST_UNIX_LINE_END = r"(?=\n?\Z)"


@dataclass(frozen=True, slots=True)
class Translation:
    """A Java pattern in the words of other engines.

    Args:
        java: the pattern.
        python: the same for Python's `re`.
        re2: the same for RE2, with the groups named g1, g2, …; None where RE2 can't be used.
        why_not_re2: why RE2 can't be used, or not for all texts; "" where it can.
        ascii_only: whether RE2 finds the same in texts of ASCII only.
        without_cr: whether RE2 finds the same in texts without carriage returns only.
        takes_line_end: whether RE2's match may have a line end that Java's has not: fine to find and extract, and
            not to replace.
        may_be_empty: whether a match may be empty.
        groups: how many groups it has.
        names: the numbers of named groups.
        prefix: what every match begins with, as far as that is the same.
        runs: characters in a row; the pattern is found where one of them is. Empty where it looks for more than such.
    """

    java: str
    python: str
    re2: str | None
    why_not_re2: str
    ascii_only: bool
    without_cr: bool
    takes_line_end: bool
    may_be_empty: bool
    groups: int
    names: dict[str, int]
    prefix: str
    runs: tuple[CharacterRun, ...]


def translate(pattern: str) -> Translation:
    """Return a Java pattern in Python's words, and in RE2's.

    Raises:
        OptionError: Java refuses the pattern, or it has what nothing here can express; names the place.
    """
    parser = _Parser(pattern)
    whole = parser.parse()
    reasons = list(dict.fromkeys(parser.reasons))
    limits = list(dict.fromkeys(parser.limits))
    return Translation(
        java=pattern,
        python=whole.python,
        re2=None if reasons else whole.re2,
        why_not_re2="; ".join(reasons or limits),
        ascii_only=parser.ascii_only,
        without_cr=parser.takes_line_end,
        takes_line_end=parser.takes_line_end,
        may_be_empty=whole.may_be_empty,
        groups=parser.groups,
        names=parser.names,
        prefix=whole.prefix,
        runs=runs_of(whole.ways),
    )


_FLAG_NAMES = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "x": "comments", "d": "unix_lines"}


@dataclass(slots=True)
class _Parser(PatternText):
    """Parses one pattern, and writes its parts as it goes."""

    depth: int = 0
    groups: int = 0
    closed: set[int] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    takes_line_end: bool = False

    def parse(self) -> PatternPart:
        whole = self._alternatives()
        if self.at < len(self.text):
            self.refuse("a ) without its (")
        return whole

    def _not_re2(self, why: str) -> None:
        self.reasons.append(why)

    # ── structure ───────────────────────────────────────────────────────────────────────────

    def _alternatives(self) -> PatternPart:
        flags = self.flags
        found = [self._sequence()]
        while self.peek() == "|":
            self.at += 1
            found.append(self._sequence())
        self.flags = flags
        if len(found) == 1:
            return found[0]
        return PatternPart.either(found)

    def _sequence(self) -> PatternPart:
        parts: list[PatternPart] = []
        while (c := self.peek()) and c not in "|)":
            parts.append(self._quantified(self._atom()))
        return PatternPart.in_a_row(parts)

    def _quantified(self, part: PatternPart) -> PatternPart:
        c = self.peek()
        if not c or c not in "*+?{":
            return part
        if not part.python:
            self.refuse(f"a {c} that repeats nothing")
        begin = self.at
        self.at += 1
        if c == "{":
            least, most = self._bounds()
            written = self.text[begin : self.at]
        else:
            least, most, written = int(c == "+"), 1 if c == "?" else None, c
        if self.peek() and self.text[self.at] in "?+":
            mode = self.text[self.at]
            self.at += 1
        else:
            mode = ""
        if mode == "+":
            self._not_re2("RE2 has no possessive repetition")
        if max(least, most or 0) > _MOST_RE2_REPEATS:
            self._not_re2("RE2 repeats at most 1,000 times")
        if part.may_be_empty:
            self._not_re2("engines differ in the repetition of what may be empty")
        if self.peek() and self.text[self.at] in "*+?{":
            self.refuse(f"{self.text[self.at]} repeats a repetition; put that into (?:…)")
        written += mode
        return PatternPart(
            f"(?:{part.python}){written}",
            f"(?:{part.re2}){written}",
            part.may_be_empty or least == 0,
            part.has_group,
            ways=repetition(part.ways, least, most, is_possessive=mode == "+"),
        )

    def _bounds(self) -> tuple[int, int | None]:
        """Return the bounds of a repetition whose brace was read."""
        low = self.digits("0123456789", 10)
        if not low:
            self.refuse("a { that begins no repetition; write \\{ for the character")
        least = most = int(low)
        if self.skip(","):
            high = self.digits("0123456789", 10)
            if not high:
                if not self.skip("}"):
                    self.refuse("a repetition without its }")
                return least, None
            most = int(high)
        if not self.skip("}"):
            self.refuse("a repetition without its }")
        if most < least:
            self.refuse("a repetition whose bounds are the wrong way round")
        return least, most

    def _atom(self) -> PatternPart:
        c = self.take()
        match c:
            case "(":
                return self._group()
            case "[":
                return self._set(bracketed(self))
            case ".":
                return self._set(self._dot())
            case "^":
                return self._caret()
            case "$":
                return self._dollar()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self.at -= 1
                self.refuse(f"a {c} that repeats nothing")
            case "{":
                self.refuse("a { that repeats nothing; write \\{ for the character")
        return self._literal(ord(c))

    def _literal(self, code: int) -> PatternPart:
        if self.flags.ignore_case:
            return self._set(CodePoints([(code, code)]))
        ways = one_character(CodePoints([(code, code)]))
        return PatternPart(python_char(code), re2_char(code), prefix=chr(code), is_text=True, ways=ways)

    def _set(self, points: CodePoints) -> PatternPart:
        if self.flags.ignore_case and points.only() is not None:
            points = points.in_both_cases()
        return PatternPart(points.python(), points.re2(), ways=one_character(points))

    def _dot(self) -> CodePoints:
        if self.flags.dot_all:
            return ~CodePoints()
        return ~CodePoints.of("\n") if self.flags.unix_lines else ~LINE_END

    def _caret(self) -> PatternPart:
        if not self.flags.multiline:
            return PatternPart(r"\A", r"\A", True)
        self._not_re2("RE2's lines end with \\n only")
        if self.flags.unix_lines:
            return PatternPart(r"(?:(?:\A|(?<=\n))(?!\Z))", "", True)
        return PatternPart(r"(?:(?:\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n))(?!\Z))", "", True)

    def _dollar(self) -> PatternPart:
        if self.flags.multiline:
            self._not_re2("RE2's lines end with \\n only")
            if self.flags.unix_lines:
                return PatternPart(r"(?=\n|\Z)", "", True)
            return PatternPart(r"(?:(?<!\r)(?=\n)|(?=[\r\x85\u2028\u2029])|\Z)", "", True)
        return self._end_of_text()

    def _end_of_text(self) -> PatternPart:
        """Return what matches at the end of the text, and before a line end that is its last."""
        python = _LAST_UNIX_LINE_END if self.flags.unix_lines else _LAST_LINE_END
        if self.depth or self.peek() not in ("", "|"):
            self._not_re2("RE2 can't look behind a $ inside of a pattern")
            return PatternPart(python, "", True)
        self.takes_line_end = True
        self.limits.append("texts with carriage returns: RE2 can't look before a line end")
        ends = "\n" if self.flags.unix_lines else r"[\n\r\x{85}\x{2028}\x{2029}]"
        return PatternPart(python, rf"(?:{ends}?\z)", True)

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def _group(self) -> PatternPart:
        if not self.skip("?"):
            return self._capturing(None)
        for opening, python, why in (
            ("=", "(?=", "RE2 has no look-ahead"),
            ("!", "(?!", "RE2 has no look-ahead"),
            ("<=", "(?<=", "RE2 has no look-behind"),
            ("<!", "(?<!", "RE2 has no look-behind"),
            (">", "(?>", "RE2 has no atomic groups"),
        ):
            if self.skip(opening):
                self._not_re2(why)
                inner = self._inner()
                return PatternPart(
                    f"{python}{inner.python})", "", opening != ">" or inner.may_be_empty, inner.has_group
                )
        if self.skip("<"):
            return self._capturing(self._name(">"))
        return self._flagged()

    def _name(self, end: str) -> str:
        begin = self.at
        while self.at < len(self.text) and self.text[self.at].isascii() and self.text[self.at].isalnum():
            self.at += 1
        name = self.text[begin : self.at]
        if not name or name[0].isdigit() or not self.skip(end):
            self.refuse("a group's name must be letters and digits, a letter first")
        return name

    def _capturing(self, name: str | None) -> PatternPart:
        self.groups += 1
        number = self.groups
        if name is not None:
            if name in self.names:
                self.refuse(f"two groups are named {name}")
            self.names[name] = number
        inner = self._inner()
        self.closed.add(number)
        re2 = f"(?P<g{number}>{inner.re2})"
        return PatternPart(f"({inner.python})", re2, inner.may_be_empty, True, ways=inner.ways)

    def _inner(self) -> PatternPart:
        self.depth += 1
        inner = self._alternatives()
        self.depth -= 1
        if not self.skip(")"):
            self.refuse("a ( without its )")
        return inner

    def _flagged(self) -> PatternPart:
        """Return a group without a number, or nothing where flags change up to the end of the group around."""
        value, before, changed = True, self.flags, self.flags
        while (c := self.raw()) not in ":)":
            if c == "-":
                value = False
            elif c in _FLAG_NAMES:
                changed = replace(changed, **{_FLAG_NAMES[c]: value})
            else:
                known = "the flags u and U are not supported" if c in "uU" else f"there is no group (?{c}"
                self.refuse(known)
        self.flags = changed
        if c == ")":
            return NOTHING
        inner = self._inner()
        self.flags = before
        python, re2 = f"(?:{inner.python})", f"(?:{inner.re2})"
        return PatternPart(python, re2, inner.may_be_empty, inner.has_group, ways=inner.ways)

    # ── escapes ─────────────────────────────────────────────────────────────────────────────

    def _escape(self) -> PatternPart:
        c = self.raw()
        if c.lower() in PREDEFINED or c in "pP":
            self.at -= 1
            return self._set(class_escape(self))
        match c:
            case "Q":
                return self._quoted()
            case "A":
                return PatternPart(r"\A", r"\A", True)
            case "z":
                return PatternPart(r"\Z", r"\z", True)
            case "Z":
                return self._end_of_text()
            case "b" | "B":
                self.ascii_only = True
                self.limits.append("texts beyond ASCII: RE2 knows ASCII words only")
                return PatternPart(r"(?u:\b)" if c == "b" else r"(?!(?u:\b))", rf"\{c}", True)
            case "R":
                ends = r"\x0a-\x0d\x{85}\x{2028}\x{2029}"
                return PatternPart(r"(?:\r\n|[\n-\r\x85\u2028\u2029])", rf"(?:\r\n|[{ends}])")
            case "k":
                if not self.skip("<") or (name := self._name(">")) not in self.names:
                    self.refuse("a \\k needs the <name> of a group before it")
                return self._reference(self.names[name])
            case _ if c in "123456789":
                number = int(c)
                while self.at < len(self.text) and self.text[self.at].isdigit():
                    if (longer := number * 10 + int(self.text[self.at])) > self.groups:
                        break
                    number = longer
                    self.at += 1
                return self._reference(number)
        self.at -= 1
        return self._literal(self.escaped_character())

    def _reference(self, number: int) -> PatternPart:
        if number not in self.closed:
            self.refuse(f"group {number} does not end before it is referred to")
        if self.flags.ignore_case:
            self.refuse("a reference to a group where case is ignored is not supported")
        self._not_re2("RE2 has no references to groups")
        return PatternPart(rf"(?:\{number})", "", True)

    def _quoted(self) -> PatternPart:
        quoted = self.quoted()
        if not quoted:
            return NOTHING
        *before, last = map(self._literal, map(ord, quoted))
        return PatternPart.in_a_row([*before, self._quantified(last)])
