"""What a table says about one property of a component, and the parsers of its values.

A property has Flume's name, unit and default. Its keyword is the same name in snake_case without the prefix that the
type has (``hdfs.rollInterval`` is ``roll_interval``). A name that ends in ``.*`` is a family: the rest of a key is the
key in a mapping (``filegroups.app``), and ``.*.*`` is a mapping of mappings (``headers.app.host``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

import pyarrow as pa

from spillable_stream import quantities
from spillable_stream.flow.durations import durations_us
from spillable_stream.option_parsers import TooMuchError
from spillable_stream.quantities import DURATION_RANGE, MILLISECONDS_RANGE, SIZE_RANGE

__all__ = [
    "ComponentType",
    "Kind",
    "Leniency",
    "Property",
    "RangedParser",
    "boolean",
    "comma_list",
    "duration",
    "integer",
    "milliseconds",
    "one_of",
    "seconds",
    "size",
    "snake_case",
    "text",
    "word_list",
]

# Java's \s, where Python's knows more: a no-break space is a part of a word.
JAVA_BLANKS = " \t\n\x0b\f\r"

MOST_INTEGER = 2**31 - 1
MOST_LONG = 2**63 - 1


class Kind(StrEnum):
    """What a component is to its agent."""

    SOURCE = "source"
    CHANNEL = "channel"
    SINK = "sink"
    SINK_GROUP = "sinkgroup"
    INTERCEPTOR = "interceptor"
    SERIALIZER = "serializer"
    SELECTOR = "selector"
    PROCESSOR = "processor"
    CONFIG_FILTER = "configfilter"


class Leniency(StrEnum):
    """Which values of a property count as not given; others that are refused drop the component."""

    NONE = "none"
    RANGE = "range"  # numbers that are out of range
    ANY = "any"


# A parser takes the text of a value, trimmed and not empty, and raises ValueError for a value that it refuses.
Parser = Callable[[str], object]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RangedParser(Generic[_T]):
    """A parser that says what it takes.

    Args:
        parse: the parser.
        range: what it takes, for people.
    """

    parse: Callable[[str], _T]
    range: str

    def __call__(self, value: str) -> _T:
        """Return what the parser returns; raises what it raises."""
        return self.parse(value)


def text(value: str) -> str:
    """Return a text as it is."""
    return value


def _boolean(value: str) -> bool:
    words = {"true": True, "false": False}
    if value.lower() not in words:
        raise ValueError
    return words[value.lower()]


boolean: RangedParser[bool] = RangedParser(_boolean, "true or false")
"""The parser of truth values."""


def integer(low: int, high: int = MOST_INTEGER) -> RangedParser[int]:
    """Return a parser of whole numbers from ``low`` to ``high``."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", value) or int(value) < low:
            raise ValueError
        if int(value) > high:
            raise TooMuchError(f"{high:,}")
        return int(value)

    return RangedParser(parse, f"an integer of at least {low}")


def size(low: int, high: int = MOST_INTEGER) -> RangedParser[int]:
    """Return a parser of sizes in bytes, from ``low`` to ``high``: a number, or one with a unit."""
    return RangedParser(_with_unit(quantities.size_bytes, low, high), f"{SIZE_RANGE}; {low} or more")


def milliseconds(low: int, high: int = MOST_INTEGER) -> RangedParser[int]:
    """Return a parser of time spans in milliseconds, from ``low`` to ``high``: a number, or one with a unit."""
    return RangedParser(_with_unit(quantities.milliseconds, low, high), f"{MILLISECONDS_RANGE}; {low} or more")


def seconds(low: int, high: int = MOST_INTEGER) -> RangedParser[int]:
    """Return a parser of time spans in whole seconds, from ``low`` to ``high``: a number, or one with a unit."""
    return RangedParser(_with_unit(quantities.whole_seconds, low, high), f"whole {DURATION_RANGE}; {low} or more")


def _with_unit(convert: Callable[[str], object], low: int, high: int) -> Callable[[str], int]:
    parse_integer = integer(low, high)

    def parse(value: str) -> int:
        has_unit = value[-1:].isalpha()  # a plain number is one to Java
        return parse_integer(str(convert(value)) if has_unit else value)

    return parse


def duration(least_us: int, most_us: int) -> Callable[[str], float]:
    """Return a parser of time spans in seconds (`spillable_stream.flow.durations`), within bounds in microseconds."""

    def parse(value: str) -> float:
        found_us = durations_us(pa.array([value]))[0].as_py()
        if found_us is None or found_us < least_us:
            raise ValueError
        if found_us > most_us:
            raise TooMuchError(f"{most_us // 1_000_000:,} seconds")
        return float(found_us / 1_000_000)

    return parse


def one_of(*words: str) -> RangedParser[str]:
    """Return a parser of some words, compared without case; it returns them as they are listed."""
    by_lower = {word.lower(): word for word in words}

    def parse(value: str) -> str:
        if value.lower() not in by_lower:
            raise ValueError
        return by_lower[value.lower()]

    *others, last = words
    return RangedParser(parse, f"{', '.join(others)} or {last}" if others else last)


def word_list(value: str) -> tuple[str, ...]:
    """Return words that are separated by white space."""
    return tuple(re.findall(rf"[^{JAVA_BLANKS}]+", value))


def comma_list(value: str) -> tuple[str, ...]:
    """Return texts that are separated by commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def snake_case(name: str) -> str:
    """Return a property's name as a keyword argument: ``max-line-length`` and ``maxLineLength`` are one."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^A-Za-z0-9]+", "_", words).lower()


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a component's type.

    Args:
        name: its name in a file, below the component's.
        parse: turns its text into the value of the keyword argument, or raises ValueError.
        default: what the keyword argument is when the property is not given, in Flume's unit.
        doc: what it does, with its unit.
        range: what is allowed, for people; by default as a `RangedParser` says it, else a text.
        required: whether a component without it is dropped.
        keyword: the keyword argument, where it is not the name in snake_case.
        lenient: which refused values count as not given.
    """

    name: str
    parse: Parser
    default: object
    doc: str
    range: str = ""
    required: bool = False
    keyword: str = ""
    lenient: Leniency = Leniency.NONE

    def __post_init__(self) -> None:
        if not self.range:
            object.__setattr__(self, "range", self.parse.range if isinstance(self.parse, RangedParser) else "a text")

    @property
    def depth(self) -> int:
        """How many keys of mappings follow the name: 0 for a plain property."""
        return self.name.count(".*")

    @property
    def stem(self) -> str:
        """The name without the places of the keys."""
        return self.name.replace(".*", "")


@dataclass(frozen=True, slots=True)
class ComponentType:
    """One type of component, supported or not.

    Args:
        kind: what its components are to their agent.
        alias: its name in a file.
        java_names: Flume's class, and other names that mean this type.
        implementation: ``module:Class``; empty where no class of its own is built.
        properties: what can be said about a component.
        prefix: what the keywords leave out of the properties' names.
        renamed: old names that are still read, each with the new one.
        unused: names that Flume knows and nothing reads here, or that nothing ever read, each with the reason.
        refused: names whose component is dropped rather than run without what they ask for, each with the reason.
        instead: for a type that is not supported, the sentence that names the way out.
        batch_property: the property that must not be larger than a channel's ``transactionCapacity``.
        durable: whether a sink writes to a place that outlives the host, so that a channel in memory is its weak link.
        numbered: whether the batches of a source have numbers, which its channels remember by its name.
    """

    kind: Kind
    alias: str
    java_names: tuple[str, ...] = ()
    implementation: str = ""
    properties: tuple[Property, ...] = ()
    prefix: str = ""
    renamed: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    instead: str = ""
    batch_property: str = ""
    durable: bool = False
    numbered: bool = False
    _plain: dict[str, Property] = field(init=False, repr=False)
    _families: tuple[Property, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        families = sorted((p for p in self.properties if p.depth), key=lambda p: len(p.stem), reverse=True)
        object.__setattr__(self, "_plain", {p.name: p for p in self.properties if not p.depth})
        object.__setattr__(self, "_families", tuple(families))

    @property
    def supported(self) -> bool:
        """Whether a component of this type can run."""
        return not self.instead

    def keyword(self, known: Property) -> str:
        """Return the keyword argument of one of the properties."""
        return known.keyword or snake_case(known.stem.removeprefix(self.prefix))

    def find(self, name: str) -> Property | None:
        """Return the property that a key below the component's name belongs to, if there is one."""
        return self._plain.get(name) or next((p for p in self._families if _is_of(name, p)), None)

    def plain(self, name: str) -> Property:
        """Return the property of a name that is none of a family."""
        return next(p for p in self.properties if p.name == name)


def _is_of(name: str, family: Property) -> bool:
    if not name.startswith(family.stem + "."):
        return False
    keys = name.removeprefix(family.stem + ".").split(".", family.depth - 1)
    return len(keys) == family.depth and all(keys)
