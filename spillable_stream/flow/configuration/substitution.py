"""Values with ``${…}`` in them: the environment, options of the command line, the date, other keys.

It is Apache Commons Text's StringSubstitutor, as Flume sets it up: ``${prefix:name}``, ``${key}``, a default after
``:-``, references inside of references, and ``$${…}`` for a text that stays. Only values are substituted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.properties import Entry, Problem, trim

__all__ = ["Lookups", "referenced", "substitute", "unresolved"]

_OPEN, _CLOSE, _DEFAULT = "${", "}", ":-"
_PLAIN_ENVIRONMENT = "org.apache.flume.node.EnvVarResolverProperties"
_BRACE = re.compile(r"\$\{|\}")
_INNERMOST = re.compile(r"\$\{[^{}]*\}")
_ESCAPED = re.compile(r"\$(\$\{[^{}]*\})")

_DEEPEST = 100  # references in references, or one that leads to the next
_MOST_CHARACTERS = 16 << 20  # that all answers may have together, those on the way included
_AT_LEAST = 100  # characters that each answer counts for: it takes time, too
_MOST_PATTERNS = 100


@dataclass(frozen=True, slots=True)
class Lookups:
    """What references are answered from.

    Args:
        environment: for ``${env:X}``.
        system: for ``${sys:X}``: what ``-DX=…`` gives.
        date: for ``${date:FORMAT}``: formats the time as Java's SimpleDateFormat does, or raises OptionError.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    date: Callable[[str], str] | None = None

    def find(self, name: str, keys: Mapping[str, str]) -> str | None:
        """Return what a reference stands for; None if nothing answers.

        Args:
            name: what is between the braces, without a default.
            keys: the values of the files' keys.
        """
        prefix, colon, rest = name.partition(":")
        if colon:
            found = self._find_by_prefix(prefix.lower(), rest)
            if found is not None:
                return found
            name = rest
        if name in keys:
            return keys[name]
        if self.system.get("propertiesImplementation") == _PLAIN_ENVIRONMENT and re.fullmatch(r"\w+", name):
            return self.environment.get(name, "")
        return None

    def _find_by_prefix(self, prefix: str, name: str) -> str | None:
        if prefix == "env":
            return self.environment.get(name)
        if prefix == "sys":
            return self.system.get(name)
        if prefix == "date" and self.date is not None:
            try:
                return self.date(name)
            except OptionError:
                return None
        return None


class _EndlessError(Exception):
    """References that have no end, or none in sight. The argument says which."""


def substitute(entries: list[Entry], lookups: Lookups) -> tuple[list[Entry], list[Problem]]:
    """Return the entries with their references answered, and the values that refer to themselves, or grow too much.

    A reference that nothing answers stays as it stands.

    Args:
        entries: what the files say, each key once.
        lookups: what references are answered from, besides the entries' own keys.
    """
    answers = _Answers(lookups, {entry.key: entry.raw for entry in entries})
    found: list[Entry] = []
    problems: list[Problem] = []
    for entry in entries:
        value = entry.value
        if _OPEN in value:
            try:
                value = trim(answers.resolved(value, (entry.key,)))
            except _EndlessError as e:
                text = f"{e}, so the value stays as it stands: give it a value of its own"
                problems.append(Problem("substitution-loop", text, entry))
        found.append(entry._replace(value=value))
    return found, problems


class _Answers:
    """Answers references.

    Args:
        lookups: what they are answered from.
        keys: the values of the files' keys.
    """

    def __init__(self, lookups: Lookups, keys: Mapping[str, str]) -> None:
        self._lookups, self._keys = lookups, keys
        self._left = _MOST_CHARACTERS

    def resolved(self, text: str, inside: tuple[str, ...], depth: int = 0) -> str:
        """Return a text with its references answered.

        Args:
            text: the text.
            inside: the names whose values are being resolved.
            depth: in how many references it is.

        Raises:
            _EndlessError: there is no end of them.
        """
        if depth > _DEEPEST:
            raise _EndlessError(f"more than {_DEEPEST} references lead from one to the next")
        pairs = _pairs(text)
        parts: list[str] = []
        position = 0
        while (start := text.find(_OPEN, position)) >= 0:
            if start > position and text[start - 1] == "$":
                parts += text[position : start - 1], _OPEN
                position = start + len(_OPEN)
                continue
            end = pairs.get(start)
            if end is None:
                break
            parts += text[position:start], self._answer(text[start + len(_OPEN) : end], inside, depth)
            position = end + 1
        return "".join(parts) + text[position:]

    def _answer(self, reference: str, inside: tuple[str, ...], depth: int) -> str:
        name, has_default, default = self.resolved(reference, inside, depth + 1).partition(_DEFAULT)
        if name in inside:
            raise _EndlessError(f"${{{name}}} refers to itself")
        value = self._lookups.find(name, self._keys)
        if value is None and not has_default:
            return f"${{{reference}}}"
        value = default if value is None else value
        self._left -= len(value) + _AT_LEAST
        if self._left < 0:
            raise _EndlessError("there is no end of the answers to all references")
        return self.resolved(value, (*inside, name), depth + 1)


def _pairs(text: str) -> dict[int, int]:
    """Return where each reference that ends begins, with the place of the brace that ends it.

    Raises:
        _EndlessError: there are too many inside of each other.
    """
    found: dict[int, int] = {}
    begun: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == _OPEN:
            begun.append(brace.start())
        elif begun:
            if len(begun) > _DEEPEST:
                raise _EndlessError(f"more than {_DEEPEST} references are inside of each other")
            found[begun.pop()] = brace.start()
    return found


def referenced(entries: list[Entry]) -> set[str]:
    """Return the keys that values refer to, or may refer to, where a name has another reference in it."""
    names = {_flat(name) for entry in entries if _OPEN in entry.raw for name in _references(entry.raw)}
    with_others = sorted(name for name in names if "\0" in name)[:_MOST_PATTERNS]
    patterns = [re.compile(".*".join(map(re.escape, name.split("\0")))) for name in with_others]
    keys = [entry.key for entry in entries]
    return {key for key in keys if key in names or any(pattern.fullmatch(key) for pattern in patterns)}


def _references(text: str) -> list[str]:
    """Return what is between the braces of each reference in a text, also of those in others, without defaults."""
    try:
        return [text[start + len(_OPEN) : end] for start, end in sorted(_pairs(text).items())]
    except _EndlessError:
        return []


def _flat(name: str) -> str:
    """Return a name with a mark for each reference in it, and without its default."""
    while (flat := _INNERMOST.sub("\0", name)) != name:
        name = flat
    return name.partition(_DEFAULT)[0]


def unresolved(entries: list[Entry]) -> list[Problem]:
    """Return the references that are left in values, when all that can answer them has been asked."""
    found = []
    for entry in entries:
        if _OPEN not in entry.value:
            continue
        escaped = set(_ESCAPED.findall(entry.raw))
        for reference in dict.fromkeys(map("${{{}}}".format, _references(entry.value))):
            if reference not in escaped and reference.count(_OPEN) == 1:
                found.append(Problem("unresolved", f"nothing answers {reference}{_advice(reference)}", entry))
    return found


def _advice(reference: str) -> str:
    name = reference[2:-1]
    prefix, colon, rest = name.partition(":")
    if colon and prefix.lower() == "env":
        return f": set the environment variable {rest}, or give a default, ${{{name}:-…}}"
    if colon and prefix.lower() == "sys":
        return f": give it on the command line, -D {rest}=…, or give a default, ${{{name}:-…}}"
    if colon and prefix.lower() == "java":
        return ", since there is no Java here: write the value"
    if not colon and re.fullmatch(r"\w+", name):
        return (
            f": for the environment write ${{env:{name}}}, or give -D propertiesImplementation={_PLAIN_ENVIRONMENT}; "
            f"for a header of an event %{{{name}}}"
        )
    return ""
