"""The options of a channel, and where the value of each one comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.config_file import read_config
from spillable_stream.channel.environment import environment_options, variable_of
from spillable_stream.errors import NotAChannelError
from spillable_stream.options import CHANNEL, CREATION, OPTIONS, Option, parse_options

__all__ = ["SourcedOption", "sourced_options"]

Source = Literal["default", "file", "environment", "stored"]


@dataclass(frozen=True, slots=True)
class SourcedOption:
    """An option's value, and where it is from.

    Args:
        name: the option's name.
        value: the value that counts.
        source: "stored" in the channel; or, of a channel yet to be created, from the "file" or the "environment".
            "default" if it is what nobody gave another value.
        note: what another source says, and why it does not count; "" if none does.
    """

    name: str
    value: Any
    source: Source
    note: str = ""


def sourced_options(path: str | os.PathLike[str], config: str | os.PathLike[str] | None = None) -> list[SourcedOption]:
    """Return every option that a channel has, or would get if it were created now.

    Args:
        path: the channel, which need not be there.
        config: a configuration file, as `Channel.from_config` takes it.

    Raises:
        OptionError: the file, or a variable of the environment, has an option that is not one or is out of range.

    It raises what `Channel` raises for one that is there and can't be opened.
    """
    environment = environment_options()
    file: dict[str, Any] = {}
    if config is not None:
        given = {name: value for name, value in read_config(config).items() if name != "path"}
        file = parse_options(given, (CHANNEL, CREATION), where="a channel")
    stored = _stored(path)
    return [_sourced(o, stored, file, environment) for o in OPTIONS if {CHANNEL, CREATION} & set(o.scopes)]


def _stored(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return what the channel stores, by keyword name; None if there is no channel."""
    try:
        with Channel(path, create=False, readonly=True) as channel:
            return dict(channel.options) | channel.fixed_options
    except NotAChannelError as e:
        if not e.is_missing:
            raise
        return None


def _sourced(
    option: Option, stored: dict[str, Any] | None, file: dict[str, Any], environment: dict[str, Any]
) -> SourcedOption:
    keyword, default = option.keyword, option.default
    if stored is None:
        if keyword in file:
            return SourcedOption(option.name, file[keyword], "file", _others(keyword, file[keyword], {}, environment))
        if keyword in environment:
            return SourcedOption(option.name, environment[keyword], "environment")
        return SourcedOption(option.name, default, "default")
    value = stored.get(keyword, default)
    source: Source = "default" if value == default else "stored"
    return SourcedOption(option.name, value, source, _others(keyword, value, file, environment))


def _others(keyword: str, value: Any, file: dict[str, Any], environment: dict[str, Any]) -> str:
    """Return what sources say that do not count."""
    if keyword in file and file[keyword] != value:
        return f"the file says {file[keyword]}, which an open with it stores"
    if keyword in environment and environment[keyword] != value:
        return f"{variable_of(keyword)} says {environment[keyword]}, which counts for new channels only"
    return ""
