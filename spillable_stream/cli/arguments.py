"""The arguments that several verbs have, and what each of them may be: an error names it before a verb begins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from spillable_stream.errors import OptionError
from spillable_stream.names import check_group
from spillable_stream.option_names import keyword_of
from spillable_stream.quantities import DURATION_RANGE, duration_seconds
from spillable_stream.shown_value import shown

__all__ = [
    "A_CHANNEL",
    "ChannelPath",
    "ChannelPaths",
    "Yes",
    "decoded",
    "group_name",
    "refuse_empty",
    "time_span",
]

_Path = TypeVar("_Path", str, str | None, list[str])
_Text = TypeVar("_Text", str, str | None, list[str] | None)


def refuse_empty(wanted: str) -> Callable[[_Path], _Path]:
    """Return a check of a path: an empty one, such as an unset variable gives, would name this directory.

    Args:
        wanted: what to give instead.
    """

    def check(value: _Path) -> _Path:
        if value == "" or (isinstance(value, list) and "" in value):
            raise typer.BadParameter(f"it is empty; give {wanted}")
        return value

    return check


A_CHANNEL = "a channel's directory, or its address in a store"
"""What to give instead of an empty path of a channel."""

_refuse_empty: Any = refuse_empty(A_CHANNEL)


def _channel_path(value: Any) -> Any:
    """Return the path of a channel, or several, unless one is empty, or an option that lacks its ``-o``.

    Raises:
        typer.BadParameter: a channel would be created in a directory called like an option.
    """
    for path in _refuse_empty(value) if isinstance(value, list) else [_refuse_empty(value)]:
        name, equals, _ = path.partition("=")
        if equals and _is_option(name):
            raise typer.BadParameter(
                f"{shown(path)} is an option: give a path, and -o {path} where the verb has -o; or ./{path} for a "
                "directory of this name"
            )
    return value


def _is_option(name: str) -> bool:
    from spillable_stream.options import CHANNEL, OPTIONS  # no other path needs the table

    return keyword_of(name) in {option.keyword for option in OPTIONS if CHANNEL in option.scopes}


ChannelPath = Annotated[
    str,
    typer.Argument(metavar="PATH", callback=_channel_path, help="The channel's directory, or its address in a store."),
]
ChannelPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        callback=_channel_path,
        help="The channels: directories, addresses in a store, or patterns, in quotes: '/data/orders-*'.",
    ),
]


def decoded(value: _Text) -> _Text:
    """Return a name, or several, whose bytes are UTF-8 in whatever locale: one without those letters leaves them apart.

    Raises:
        typer.BadParameter: it is not UTF-8.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return [decoded(each) for each in value]
    try:
        return value.encode("utf-8", "surrogateescape").decode()
    except UnicodeError:
        raise typer.BadParameter(f"{shown(value)} is not text in UTF-8") from None


def group_name(value: str) -> str:
    """Return the name of a group that may be in another channel than the verb's, so that none there has to have it.

    Raises:
        typer.BadParameter: no group can have the name.
    """
    try:
        return check_group(decoded(value))
    except OptionError as e:
        raise typer.BadParameter(str(e)) from None


def time_span(least: float = 0.0, most: float = math.inf) -> Callable[[Any], float]:
    """Return a parser of time spans in seconds, such as ``90`` or ``2h``.

    Args:
        least: the least that it may be, in seconds.
        most: the most.
    """

    def parse(text: object) -> float:
        bounds = f"{least:g} s or more" if most == math.inf else f"{least:g} to {most:g} s"
        try:
            found = duration_seconds(text)
        except ValueError:
            raise typer.BadParameter(f"{shown(text)} is not a time: give {DURATION_RANGE}; {bounds}") from None
        if not least <= found <= most:
            raise typer.BadParameter(f"{shown(text)} is too {'short' if found < least else 'long'}: give {bounds}")
        return found

    return parse


Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Without a terminal it is required.")]
