"""Configuration files of channels (``conf/channel.ini`` is an example)."""

from __future__ import annotations

import configparser
import os
from typing import Any

from spillable_stream.errors import OptionError

__all__ = ["read_config"]

_SECTION = "channel"
_MEMORY_CAPACITIES = {"file": 0, "spillablememory": 10_000}  # of Flume's types of channels


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a configuration file says: ``path`` and the options, as they are written there.

    Args:
        path: the file, as `Channel.from_config` takes it.

    Raises:
        OptionError: it has no such section or no path, or names no type that there is.
    """
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        found = parser.read(path)
    except configparser.Error as e:
        raise OptionError(f"{os.fspath(path)} can't be read: {e}") from e
    if not found or _SECTION not in parser or "path" not in parser[_SECTION]:
        raise OptionError(f"{os.fspath(path)} must exist and have a section [{_SECTION}] with a path")
    values: dict[str, Any] = dict(parser[_SECTION])
    kind = values.pop("type", "")
    if kind:
        if kind.lower() not in _MEMORY_CAPACITIES:
            raise OptionError(
                f"{os.fspath(path)}: the type of a channel must be FILE or SPILLABLEMEMORY (for Flume's MEMORY: "
                f"with an overflowCapacity of 0), not {kind!r}"
            )
        values = {"memoryCapacity": _MEMORY_CAPACITIES[kind.lower()], **values}
    return values
