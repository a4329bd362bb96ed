"""Writes spillable_stream/option_types.py: the options of `spillable_stream.options` as types.

    python scripts/make_option_types.py

A test compares the file with what this makes.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

PATH = Path(__file__).parents[1] / "spillable_stream" / "option_types.py"

# The package as a whole imports the file created here, which may be missing or old: the table is imported alone.
_package = ModuleType("spillable_stream")
_package.__path__ = [str(PATH.parent)]
sys.modules.setdefault("spillable_stream", _package)

from spillable_stream.options import CHANNEL, CREATION, HANDLE, OPTIONS, PRODUCER, Option, keyword_of  # noqa: E402

HEAD = '''"""The options as types, for editors, type checkers and the package itself.

Made by scripts/make_option_types.py from the table in `spillable_stream.options`; change that, and run it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

from spillable_stream.quantities import Duration, Milliseconds, Size

__all__ = ["ChannelKeywords", "ChannelOptions", "CreationOptions", "ProducerKeywords", "StoredOptions"]
'''

_NAMES = re.compile("|".join(rf"(?<=`){option.name}(?=`)" for option in OPTIONS))

DATACLASS = "@dataclass(frozen=True, slots=True, kw_only=True)"

METHODS = '''    others: Mapping[str, Any] = field(default_factory=dict)
    """Options of a later version, which are kept as they are."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ChannelOptions:
        """Return the options that an image has, by keyword name, and the defaults of those that it does not have."""
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> ChannelOptions:
        """Return the options with the values of a record, by keyword name."""
        known = {name: value for name, value in values.items() if name in _STORED}
        others = {name: value for name, value in values.items() if name not in _STORED}
        return replace(self, **known, others={**self.others, **others})

    def values(self) -> dict[str, Any]:
        """Return the options as an image has them: values by keyword name, in the table's order."""
        return {**{name: getattr(self, name) for name in _STORED}, **self.others}

    @property
    def keeps(self) -> bool:
        """Whether events stay readable after every group has taken them."""
        return bool(self.retention_ms or self.retention_bytes)

    def image(self) -> dict[str, Any]:
        """Return the values that a channel stores: options that came later only where they are not at their default."""
        return {name: value for name, value in self.values().items() if _LATER.get(name, _UNSET) != value}


_STORED = tuple(name for name in ChannelOptions.__slots__ if name != "others")
_UNSET = object()
'''


def main() -> None:
    """Write the file."""
    PATH.write_text(source())


def source() -> str:
    """Return the text of the file."""
    scopes = CHANNEL, CREATION, HANDLE, PRODUCER
    channel, creation, handle, producer = ([o for o in OPTIONS if s in o.scopes] for s in scopes)
    return "\n\n".join(
        [
            HEAD,
            _keywords(
                "ChannelKeywords", "The options of `Channel`, as keyword arguments.", channel + creation + handle
            ),
            _keywords("ProducerKeywords", "The options of `Producer`, as keyword arguments.", producer),
            _stored("StoredOptions", "The stored options of a channel, as `Channel.options` returns them.", channel),
            _frozen("CreationOptions", "The options of a channel that are fixed when it is created.", creation),
            _frozen("ChannelOptions", "The stored options of a channel.", channel) + METHODS + _later(channel),
        ]
    )


def _keywords(name: str, doc: str, options: list[Option]) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """{doc} None counts as not given."""']
    for o in options:
        lines += ["", f"    {o.keyword}: {o.given_type} | None", *_doc(o)]
    return "\n".join(lines) + "\n"


def _stored(name: str, doc: str, options: list[Option]) -> str:
    fields = [f"    {o.keyword}: {_parsed_type(o)}" for o in options]
    return "\n".join([f"class {name}(TypedDict):", f'    """{doc}"""', "", *fields]) + "\n"


def _frozen(name: str, doc: str, options: list[Option]) -> str:
    fields = [f"    {o.keyword}: {_parsed_type(o)} = {_literal(o.default)}" for o in options]
    return "\n".join([DATACLASS, f"class {name}:", f'    """{doc}"""', "", *fields]) + "\n"


def _later(options: list[Option]) -> str:
    """Return the defaults with which an option is not stored."""
    values = [f'    "{o.keyword}": {_literal(o.default)},' for o in options if not o.stored_at_default]
    return "\n".join(["_LATER: dict[str, Any] = {", *values, "}"]) + "\n"


def _parsed_type(option: Option) -> str:
    return option.parsed_type + (" | None" if option.default is None else "")


def _doc(option: Option) -> list[str]:
    """Return a field's description, as editors show it."""
    words = option.doc if option.default is None else f"{option.doc} Default: {_literal(option.default)}."
    words = _NAMES.sub(lambda found: keyword_of(found[0]), words)
    lines = textwrap.wrap(f'"""{words}"""', 116, break_long_words=False, break_on_hyphens=False)
    return [f"    {line}" for line in lines]


def _literal(value: object) -> str:
    """Return a default as source text."""
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:_}" if type(value) is int else repr(value)


if __name__ == "__main__":
    main()
