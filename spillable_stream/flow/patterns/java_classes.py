"""Java's classes of characters: predefined ones, properties, and those in brackets."""

from __future__ import annotations

from spillable_stream.flow.patterns.code_points import CodePoints
from spillable_stream.flow.patterns.java_pattern_text import PatternText

__all__ = ["LINE_END", "PREDEFINED", "bracketed", "class_escape"]

_SPACE = CodePoints([(9, 13), (32, 32)])
_DIGIT = CodePoints([(48, 57)])
_LOWER = CodePoints([(97, 122)])
_UPPER = CodePoints([(65, 90)])
_WORD = _DIGIT | _LOWER | _UPPER | CodePoints.of("_")
_HORIZONTAL = CodePoints([(9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A)])
_HORIZONTAL |= CodePoints([(0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)])
_VERTICAL = CodePoints([(10, 13), (0x85, 0x85), (0x2028, 0x2029)])
LINE_END = CodePoints([(10, 10), (13, 13), (0x85, 0x85), (0x2028, 0x2029)])
_PUNCT = CodePoints([(33, 47), (58, 64), (91, 96), (123, 126)])

PREDEFINED = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
_POSIX = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": CodePoints([(0, 127)]),
    "Alpha": _LOWER | _UPPER,
    "Digit": _DIGIT,
    "Alnum": _LOWER | _UPPER | _DIGIT,
    "Punct": _PUNCT,
    "Graph": CodePoints([(33, 126)]),
    "Print": CodePoints([(32, 126)]),
    "Blank": CodePoints.of(" \t"),
    "Cntrl": CodePoints([(0, 31), (127, 127)]),
    "XDigit": _DIGIT | CodePoints([(65, 70), (97, 102)]),
    "Space": _SPACE,
}


def class_escape(pattern: PatternText) -> CodePoints:
    """Return the characters of an escape that stands for a class; its backslash was read."""
    c = pattern.raw()
    if c in "pP":
        found = _property(pattern)
        return ~found if c == "P" else found
    found = PREDEFINED[c.lower()]
    return ~found if c.isupper() else found


def _property(pattern: PatternText) -> CodePoints:
    name = pattern.raw()
    if name == "{":
        end = pattern.text.find("}", pattern.at)
        if end < 0:
            pattern.refuse("\\p{ without its }")
        name, pattern.at = pattern.text[pattern.at : end], end + 1
    if name in _POSIX:
        found = _POSIX[name]
        return found.in_both_cases() if pattern.flags.ignore_case and name in ("Lower", "Upper") else found
    category = name.removeprefix("Is").removeprefix("general_category=").removeprefix("gc=")
    found = CodePoints.of_category(category) if len(category) in (1, 2) else CodePoints()
    if not found:
        pattern.refuse(f"\\p{{{name}}} is not supported; give the characters as ranges, as in [a-z\\u00c0-\\u024f]")
    pattern.ascii_only = True
    pattern.limits.append("texts beyond ASCII: versions of Unicode differ")
    return found


def bracketed(pattern: PatternText) -> CodePoints:
    """Return the characters of a class; its bracket was read."""
    is_negated = pattern.peek() == "^"
    if is_negated:
        pattern.at += 1
    operands: list[CodePoints] = []
    current, is_first = CodePoints(), True
    while True:
        c = pattern.peek()
        if not c:
            pattern.refuse("a [ without its ]")
        if c == "]" and not is_first:
            pattern.at += 1
            break
        if pattern.text.startswith("&&", pattern.at):
            if is_first:
                pattern.refuse("a && without characters before it")
            pattern.at += 2
            if pattern.peek() == "]":
                pattern.refuse("a && without characters behind it")
            operands.append(current)
            current = CodePoints()
            continue
        current = current | _class_item(pattern)
        is_first = False
    for operand in operands:
        current = current & operand
    return ~current if is_negated else current


def _class_item(pattern: PatternText) -> CodePoints:
    c = pattern.take()
    if c == "[":
        return bracketed(pattern)
    if c == "\\":
        if pattern.peek() and (pattern.text[pattern.at].lower() in PREDEFINED or pattern.text[pattern.at] in "pP"):
            return class_escape(pattern)
        if pattern.skip("Q"):
            return _cased(pattern, CodePoints.of(pattern.quoted()))
        first = pattern.escaped_character()
    else:
        first = ord(c)
    return _cased(pattern, CodePoints([(first, _end_of_range(pattern, first))]))


def _end_of_range(pattern: PatternText, first: int) -> int:
    if pattern.peek() != "-":
        return first
    after = pattern.text[pattern.at + 1 : pattern.at + 2]
    if after in ("", "]", "["):
        return first
    pattern.at += 1
    c = pattern.take()
    if c == "\\":
        if pattern.text[pattern.at : pattern.at + 1].lower() in ("d", "w", "s", "h", "v", "p"):
            pattern.refuse("a range that ends with a class")
        last = pattern.escaped_character()
    else:
        last = ord(c)
    if last < first:
        pattern.refuse("a range whose ends are the wrong way round")
    return last


def _cased(pattern: PatternText, points: CodePoints) -> CodePoints:
    return points.in_both_cases() if pattern.flags.ignore_case else points
