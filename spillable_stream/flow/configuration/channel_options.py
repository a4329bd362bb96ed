"""The options of our channels as properties of an agent's channels: one name, one value and one meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable

from spillable_stream.flow.configuration.options import Leniency, Property
from spillable_stream.option_parsers import REFUSED, WrongValueError
from spillable_stream.options import OPTIONS, Option

__all__ = ["DIRECTORIES", "OURS", "OWN_OPTIONS", "flume_option", "own_options"]

OURS = "A property of this package, not of Flume's."

_BY_NAME = {option.name: option for option in OPTIONS}

DIRECTORIES = ("memoryDir", "spool", "cacheDir")
"""The options that are directories of this host."""


def flume_option(name: str, default: object, doc: str, lenient: Leniency = Leniency.NONE) -> Property:
    """Return a property that Flume has, with the values that our option takes: a plain number is in Flume's unit.

    Args:
        name: the property's name.
        default: Flume's default.
        doc: what it does.
        lenient: which refused values count as not given.
    """
    option = _BY_NAME["keepAlive" if name == "keep-alive" else name]
    return Property(name, _parser(option), default, doc, option.range, lenient=lenient)


def own_options(*names: str) -> tuple[Property, ...]:
    """Return options of ours as properties."""
    return tuple(_own(_BY_NAME[name]) for name in names)


def _own(option: Option) -> Property:
    parse = _directory if option.name in DIRECTORIES else _parser(option)
    return Property(option.name, parse, option.default, f"{option.doc} {OURS}", option.range)


def _parser(option: Option) -> Callable[[str], object]:
    def parse(value: str) -> object:
        try:
            return option.parse(value)
        except WrongValueError:
            raise
        except REFUSED:
            raise ValueError from None

    return parse


def _directory(value: str) -> str:
    """Return a directory of this host as it is given: only its user knows what ``~`` means."""
    if "://" in value:
        raise ValueError
    return value


OWN_OPTIONS = own_options(
    "retentionMs",
    "retentionBytes",
    "retentionUntaken",
    "autoGroupTtl",
    "compression",
    "maxInlineBytes",
    "spareBytes",
    "memoryDir",
    "flushOnClose",
    "stagingTtl",
    "lockTimeout",
    "mode",
    "commitInterval",
    "commitTimeout",
    "pollInterval",
    "gcDelay",
    "durability",
    "spool",
    "cacheDir",
    "cacheBytes",
)
"""Those that every type of channel has, and Flume does not."""
