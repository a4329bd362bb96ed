"""Configuration files of channels: INI (``conf/channel.ini`` is an example), and the properties of Flume's agents."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillable_stream.arguments import path_text, text
from spillable_stream.errors import OptionError
from spillable_stream.options import CHANNEL, CREATION, HANDLE, parse_options
from spillable_stream.shown_value import shown

__all__ = ["read_config"]

_SECTION = "channel"
_MEMORY_CAPACITIES = {"file": 0, "spillablememory": 10_000}  # of Flume's types of channels
_PROPERTIES = ".properties"
_CHANNELS = "channels"
_OF_AGENT = re.compile(rf"[^\s=:#!]+\.{_CHANNELS}\b")  # how a key of an agent's channels begins
_COMMENT = re.compile(r"\s[#;]")  # behind a value it would be a part of that
_OF_FLOWS = {"ttl", "ttlHeader", "deliverAfter", "deliverAfterHeader", "deliverAtHeader"}  # for what sources put there
# Flume's names whose meaning has another name here, by type.
_RENAMED = {
    "file": {"capacity": "overflowCapacity", "keep-alive": "keepAlive"},
    "spillablememory": {"keep-alive": "keepAlive"},
}


def read_config(path: str | os.PathLike[str], name: str | None = None) -> dict[str, Any]:
    """Return what a configuration file says: ``path`` if it has one, and the options, as they are written there.

    Args:
        path: the file, as `Channel.from_config` takes it.
        name: which channel, of an agent's properties that have several.

    Raises:
        ImportError: it is an agent's properties, and javaproperties is not installed.
        OptionError: it has no such channel, or names a type or an option that there is not, or a value that is not
            allowed; or an argument is not of its type.
    """
    path = path_text("the configuration file", path)
    if name is not None:
        text("name", name)
    content = "" if (is_of_agent := Path(path).suffix == _PROPERTIES) else _text(path)
    if is_of_agent or _has_channels(content):
        values: dict[str, Any] = dict(_of_agent(path, name))
    else:
        values = dict(_of_ini(path, content))
    kind = values.pop("type", "")
    if kind:
        if kind.lower() not in _MEMORY_CAPACITIES:
            raise OptionError(
                f"{os.fspath(path)}: the type of a channel must be FILE or SPILLABLEMEMORY (for Flume's MEMORY: "
                f"with an overflowCapacity of 0), not {shown(kind)}"
            )
        renamed = _RENAMED[kind.lower()]
        values = {renamed.get(key, key): value for key, value in values.items()}
        values = {"memoryCapacity": _MEMORY_CAPACITIES[kind.lower()], **values}
    _check(path, {key: value for key, value in values.items() if key != "path"})
    return values


def _check(path: str | os.PathLike[str], options: Mapping[str, str]) -> None:
    """Refuse an option that a channel does not have, or a value out of range, with the name of the file."""
    try:
        parse_options(options, (CHANNEL, CREATION, HANDLE), where="a channel")
    except OptionError as e:
        raise OptionError(f"{os.fspath(path)}: {e}", e.option) from None


def _has_channels(content: str) -> bool:
    """Tell whether a file is an agent's, since it has no section and an agent's channels."""
    lines = [line.strip() for line in content.splitlines()]
    return any(map(_OF_AGENT.match, lines)) and not any(line.startswith("[") for line in lines)


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text("utf-8-sig", errors="surrogateescape")
    except OSError as e:
        raise OptionError(
            f"{os.fspath(path)} can't be read: {e.strerror}; give the path of a configuration file"
        ) from e


def _of_ini(path: str | os.PathLike[str], content: str) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(content, os.fspath(path))
    except configparser.MissingSectionHeaderError as e:
        raise OptionError(f"{os.fspath(path)} can't be read: line {e.lineno} is before any [{_SECTION}]") from e
    except configparser.Error as e:
        raise OptionError(f"{os.fspath(path)} can't be read: {' '.join(str(e).split())}") from e
    if _SECTION not in parser:
        raise OptionError(f"{os.fspath(path)} must have a section [{_SECTION}]")
    for key, value in parser[_SECTION].items():
        if _COMMENT.search(value):
            raise OptionError(f"{os.fspath(path)}: {key} is {shown(value)}; write a comment on a line of its own")
    return parser[_SECTION]


def _of_agent(path: str | os.PathLike[str], name: str | None) -> Mapping[str, str]:
    """Return the properties of one channel: those after ``AGENT.channels.NAME.``."""
    try:
        import javaproperties
    except ImportError as e:
        raise ImportError(
            f"reading {os.fspath(path)} needs javaproperties: pip install 'spillable-stream[flow]'"
        ) from e
    try:
        with open(path, "rb") as file:
            properties = javaproperties.load(file)
    except (OSError, ValueError) as e:
        raise OptionError(f"{os.fspath(path)} can't be read: {e}") from e
    found: dict[str, dict[str, str]] = {}
    for key, value in properties.items():
        agent, _, rest = key.partition(f".{_CHANNELS}.")
        channel, _, option = rest.partition(".")
        if agent and channel and option and option not in _OF_FLOWS:
            found.setdefault(channel, {})[option] = value.strip()
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        which = f"has no channel {name!r}" if name is not None else "has more than one channel, or none: name one"
        raise OptionError(f"{os.fspath(path)} {which}; it has {', '.join(sorted(found)) or 'none'}")
    return found[name]
