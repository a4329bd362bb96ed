"""One component: its type, and its properties as the keyword arguments of its class.

What Flume refuses drops the component (`Refusal`); what it passes over in silence is a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.findings import Findings
from spillable_stream.flow.configuration.model import ComponentConfig, Finding
from spillable_stream.flow.configuration.options import ComponentType, Kind, Leniency, Property, boolean, snake_case
from spillable_stream.flow.configuration.properties import Entry
from spillable_stream.flow.configuration.registry import find_type, names_of, nearest
from spillable_stream.flow.configuration.tree import RawComponent
from spillable_stream.option_parsers import WrongValueError
from spillable_stream.shown_value import shown

__all__ = ["Classes", "Refusal", "configure", "type_of"]


class Classes(Protocol):
    """Finds the classes of types that are not Flume's, and tries whether components can be built."""

    def find(self, kind: Kind, name: str) -> str:
        """Return ``module:Class`` for the name of a class, or raise OptionError, which says why it can't."""

    def check(self, component: ComponentConfig) -> None:
        """Raise OptionError, which says why, for a component that can't be built."""


# Properties that say how a component hangs together with others: validation reads them.
_STRUCTURE = {
    Kind.SOURCE: ("type", "channels", "interceptors", "selector", "deadLetter"),
    Kind.SINK: ("type", "channel", "deadLetter"),
}
_NESTED = {Kind.SOURCE: ("interceptors.", "selector.")}


class Refusal(Exception):
    """A component that does not run.

    Args:
        finding: what says why.
        reason: the same for a reader who does not see the other findings; by default the finding's text.
    """

    def __init__(self, finding: Finding, reason: str = "") -> None:
        super().__init__(finding.text)
        self.finding = finding
        self.reason: str = reason or finding.text

    def seen_from(self, file: str) -> str:
        """Return where it is told why, for a finding about a line of ``file``."""
        return f"line {self.finding.line}" if self.finding.file == file else f"{self.finding.file}:{self.finding.line}"


class Type(NamedTuple):
    """What a component is: a type of the table, or a class of the user's own."""

    name: str
    implementation: str
    known: ComponentType | None


def type_of(raw: RawComponent, default: str, classes: Classes, findings: Findings) -> Type:
    """Return the type of a component.

    Args:
        raw: the component.
        default: its type if it names none; empty if it must.
        classes: finds classes, and tries components.
        findings: gets what is wrong.

    Raises:
        Refusal: it has no type, or one that does not run here.
    """
    name = raw.get("type") or default
    if not name:
        text = f"it has no type, so it does not run: write {raw.path}.type = …"
        raise Refusal(findings.add("no-type", raw.first, raw.path, text))
    known = find_type(raw.kind, name)
    if known is not None and known.supported:
        return Type(known.alias, known.implementation, known)
    try:
        if raw.kind in _FLUMES_ONLY:
            raise OptionError(f"a class of your own can't be a {_word(raw.kind)}{_suggestion(raw.kind, name)}")
        return Type(name, classes.find(raw.kind, name), None)
    except OptionError as e:
        if known is not None:
            text = f"the type {name} does not run here: {known.instead}"
            raise Refusal(findings.add("unsupported-type", raw.first, raw.path, text)) from None
        if "." in name or ":" in name:
            raise Refusal(findings.add("unusable-class", raw.first, raw.path, str(e))) from None
        text = f"there is no {_word(raw.kind)} of type {name!r}{_suggestion(raw.kind, name)}"
        raise Refusal(findings.add("unknown-type", raw.first, raw.path, text)) from None


_FLUMES_ONLY = {Kind.CHANNEL, Kind.CONFIG_FILTER}


def _word(kind: Kind) -> str:
    return {Kind.PROCESSOR: "sink processor", Kind.CONFIG_FILTER: "config filter"}.get(kind, str(kind))


def _suggestion(kind: Kind, name: str) -> str:
    meant = nearest(name, names_of(kind))
    return f": did you mean {meant}?" if meant else f": the types are {', '.join(names_of(kind))}"


def configure(raw: RawComponent, findings: Findings, classes: Classes, *, default_type: str = "") -> ComponentConfig:
    """Return a component with its properties parsed.

    Args:
        raw: the component.
        findings: gets what is wrong.
        classes: finds classes, and tries components.
        default_type: its type if it names none; empty if it must.

    Raises:
        Refusal: it does not run. Its finding has been added.
    """
    found = type_of(raw, default_type, classes, findings)
    own = {name: entry for name, entry in raw.entries.items() if not _is_structure(raw.kind, name)}
    if found.known is None:
        keywords: dict[str, object] = {snake_case(name): entry.value for name, entry in own.items()}
    else:
        keywords = _Reader(raw, found.known, findings).read(own)
    at = raw.first
    return ComponentConfig(
        kind=raw.kind,
        name=raw.name,
        type=found.name,
        implementation=found.implementation,
        keywords=keywords,
        properties={name: entry.value for name, entry in own.items()},
        file=at.file,
        line=at.line,
    )


def _is_structure(kind: Kind, name: str) -> bool:
    return name in _STRUCTURE.get(kind, ("type",)) or name.startswith(_NESTED.get(kind, ("type.",)))


class _Reader:
    """Reads the properties of one component of a type of the table."""

    def __init__(self, raw: RawComponent, known: ComponentType, findings: Findings) -> None:
        self._raw = raw
        self._known = known
        self._findings = findings

    def read(self, own: dict[str, Entry]) -> dict[str, object]:
        """Return the keyword arguments that the properties give.

        Raises:
            Refusal: for the first of those that are wrong or missing; all have findings.
        """
        keywords: dict[str, object] = {}
        given: set[str] = set()
        refusals: list[Refusal] = []
        for name, entry, known in self._properties(own):
            given.add(known.name)
            try:
                value = self._parsed(known, name, entry)
            except Refusal as e:
                refusals.append(e)
                continue
            if value is not None:
                self._set(keywords, known, name, value)
        missing = [known for known in self._known.properties if known.required and known.name not in given]
        refusals += [Refusal(self._missing(known, own)) for known in missing]
        if refusals:
            raise refusals[0]
        return keywords

    def _properties(self, own: dict[str, Entry]) -> Iterator[tuple[str, Entry, Property]]:
        """Yield the properties that are read, old names as the new ones."""
        for name, entry in own.items():
            known = self._known.find(name)
            renamed = self._known.renamed.get(name)
            if known is not None:
                yield name, entry, known
            elif renamed is not None:
                use = self._known.find(renamed)
                ignored = ", which is given too, so this line is not read" if renamed in own else ""
                self._add("deprecated", entry, f"{name} is an old name for {renamed}{ignored}: write {renamed}")
                if use is not None and renamed not in own:
                    yield renamed, entry, use
            elif reason := _reason(name, self._known.refused):
                raise Refusal(self._add("unsupported-property", entry, f"{name} does not work here: {reason}"))
            elif reason := _reason(name, self._known.unused):
                self._add("unused-property", entry, f"{name} has no effect: {reason}")
            else:
                self._unknown(name, entry)

    def _parsed(self, known: Property, name: str, entry: Entry) -> object:
        """Return the value, or None where the default holds."""
        try:
            return known.parse(entry.value)
        except ValueError as e:
            why = f"; {e}" if isinstance(e, WrongValueError) else ""
        wrong = f"{name} must be {known.range}, not {shown(entry.value)}{why}"
        if known.parse is boolean:
            self._add("bad-boolean", entry, f"{wrong}, which counts as false")
            return False
        number = re.fullmatch(r"[+-]?[0-9]+", entry.value)
        if known.lenient is Leniency.ANY or (known.lenient is Leniency.RANGE and number):
            self._add("default-used", entry, f"{wrong}: the default holds, {known.default}")
            return None
        raise Refusal(self._add("bad-value", entry, f"{wrong}: it does not run"))

    def _set(self, keywords: dict[str, object], known: Property, name: str, value: object) -> None:
        place, key = keywords, self._known.keyword(known)
        if known.depth:
            for inner in name.removeprefix(known.stem + ".").split(".", known.depth - 1):
                below = place.setdefault(key, {})
                assert isinstance(below, dict)
                place, key = below, inner
        place[key] = value

    def _missing(self, known: Property, own: dict[str, Entry]) -> Finding:
        name = known.name.replace("*", "NAME")
        unknown = [n for n in own if self._known.find(n) is None]
        meant = nearest(name, unknown)
        hint = f", instead of {meant}" if meant else ""
        text = f"it needs {name}, so it does not run: write {self._raw.path}.{name} = …{hint}"
        return self._add("missing-property", self._raw.first, text)

    def _unknown(self, name: str, entry: Entry) -> None:
        names = [p.stem for p in self._known.properties] + list(self._known.renamed)
        names += _STRUCTURE.get(self._raw.kind, ())
        bare = name.rpartition(".")[2]
        same = [n for n in names if n.rpartition(".")[2].lower() == bare.lower() and n != name]
        alias = self._known.alias
        article = "an" if alias.startswith(("e", "h")) else "a"
        owner = f"{article} {alias} {_word(self._raw.kind)}"
        if same:
            code = "wrong-prefix" if name.rpartition(".")[0] != same[0].rpartition(".")[0] else "unknown-property"
            self._add(code, entry, f"nothing reads {name}: {owner} has {same[0]}")
            return
        meant = nearest(name, names)
        advice = f": did you mean {meant}?" if meant else ": take it out"
        self._add("unknown-property", entry, f"nothing reads {name}, which {owner} does not have{advice}")

    def _add(self, code: str, entry: Entry, text: str) -> Finding:
        return self._findings.add(code, entry, self._raw.path, text)


def _reason(name: str, table: dict[str, str]) -> str:
    """Return what a table says about a name, itself or by the family that it belongs to."""
    family = next((f for f in table if f.endswith(".*") and name.startswith(f[:-1])), "")
    return table.get(name) or table.get(family, "")
