"""Every type of component by the names that a file may give it."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType

from spillable_stream.flow.configuration.channel_types import CHANNELS
from spillable_stream.flow.configuration.options import ComponentType, Kind
from spillable_stream.flow.configuration.other_types import (
    CONFIG_FILTERS,
    INTERCEPTORS,
    PROCESSORS,
    SELECTORS,
    SERIALIZERS,
)
from spillable_stream.flow.configuration.sink_types import SINKS
from spillable_stream.flow.configuration.source_types import SOURCES
from spillable_stream.option_names import nearest_name

__all__ = ["TYPES", "find_type", "names_of", "nearest"]

TYPES: tuple[ComponentType, ...] = (
    *SOURCES,
    *INTERCEPTORS,
    *SERIALIZERS,
    *SELECTORS,
    *CHANNELS,
    *PROCESSORS,
    *SINKS,
    *CONFIG_FILTERS,
)


def _named() -> dict[tuple[Kind, str], ComponentType]:
    return {(t.kind, name.lower()): t for t in TYPES for name in (t.alias, *t.java_names)}


_MOST_KNOWN = 200  # a comparison with each takes time, and each line of a file may need one

_BY_NAME = MappingProxyType(_named())


def find_type(kind: Kind, name: str) -> ComponentType | None:
    """Return the type that a name means, compared without case; None for a name that is not Flume's."""
    return _BY_NAME.get((kind, name.lower()))


def names_of(kind: Kind) -> list[str]:
    """Return the aliases of the types of a kind that are supported."""
    return [t.alias for t in TYPES if t.kind is kind and t.supported]


def nearest(name: str, known: Collection[str], cutoff: float = 0.7) -> str:
    """Return the known name that is most like another, compared without case; an empty text if none is, or too many."""
    if len(known) > _MOST_KNOWN:
        return ""
    by_lower = {k.lower(): k for k in known}
    found = nearest_name(name.lower(), by_lower, cutoff)
    return by_lower[found] if found else ""
