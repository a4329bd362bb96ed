"""The verbs that create a channel and change its options: ``create`` and ``alter``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillable_stream.cli.app import ending
from spillable_stream.cli.arguments import ChannelPath
from spillable_stream.errors import ChannelError, NotAChannelError, OptionError
from spillable_stream.option_names import name_of
from spillable_stream.options import CHANNEL, CREATION, HANDLE, parse_options
from spillable_stream.shown_value import shown

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["alter", "create"]

_Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option; may be repeated.")
]
_Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Options: conf/channel.ini, or an agent's properties.")
]
_Name = Annotated[str | None, typer.Option("--channel", help="Which channel of an agent's properties.")]
_Schema = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="A file of data that has the columns of a typed channel.")
]


def create(
    path: ChannelPath,
    option: _Options = None,
    config: _Config = None,
    channel_name: _Name = None,
    schema: _Schema = None,
) -> None:
    """Create a channel. Where there is one, it is left as it is, and refused.

    An option is taken from -o, then from the file, then from the environment (SPILLABLE_MEMORY_CAPACITY), and has its
    default otherwise.

    Example: `spillable create /data/orders -o memoryCapacity=100000 --schema orders.parquet`

    Exit status: 0 it was created; 1 there is one, or it failed; 2 no such option or file.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path):
        given = _parsed(_of_file(config, channel_name)) | _parsed(_given(option))
        columns = None if schema is None else _columns(schema)
        _require_none(path)
        with Channel(path, schema=columns, **given) as channel:
            typer.echo(f"{path}: created as {channel.uuid}")


def alter(
    path: ChannelPath,
    option: _Options = None,
    config: _Config = None,
    channel_name: _Name = None,
    schema: _Schema = None,
) -> None:
    """Change options that a channel stores, for all processes, or add the new columns of a file. Events stay.

    Example: `spillable alter /data/orders -o retentionMs=86400000`

    Exit status: 0 it is so now; 1 it failed; 2 no such channel, option or file.
    """
    from spillable_stream.channel.channel import Channel

    with ending(path):
        if not option and config is None and schema is None:
            raise OptionError("there is nothing to change: give -o NAME=VALUE, --config or --schema")
        given = _parsed(_of_file(config, channel_name)) | _parsed(_given(option))
        columns = None if schema is None else _columns(schema)
        with Channel(path, create=False, readonly=True) as channel:
            before, columns_before = dict(channel.options), channel.schema
        with Channel(path, create=False, schema=columns, **given) as channel:
            after, columns_after = dict(channel.options), channel.schema
        for name, value in after.items():
            if before[name] != value:
                typer.echo(f"{name_of(name)}: {before[name]} → {value}")
        for field in columns_after:
            if columns_before.get_field_index(field.name) < 0:
                typer.echo(f"{field.name}: {field.type} was added")


def _given(options: list[str] | None) -> dict[str, str]:
    """Return what ``-o NAME=VALUE`` said.

    Raises:
        OptionError: one has no ``=``, or an option was given twice.
    """
    found: dict[str, str] = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"-o {shown(text)} has no value: write -o NAME=VALUE")
        if name in found:
            raise OptionError(f"{name} is given twice")
        found[name] = value
    return found


def _parsed(given: Mapping[str, object]) -> dict[str, Any]:
    """Return options by keyword name: whatever else `Channel` takes is for programs, and no option."""
    return parse_options(given, (CHANNEL, CREATION, HANDLE), where="a channel")


def _of_file(config: str | None, name: str | None) -> dict[str, Any]:
    """Return the options of a configuration file, without the path that it says."""
    from spillable_stream.channel.config_file import read_config

    if config is None:
        if name is not None:
            raise OptionError("--channel names one of an agent's properties: give --config with them")
        return {}
    return {key: value for key, value in read_config(config, name).items() if key != "path"}


def _columns(file: str) -> pa.Schema:
    """Return the columns of a file of data."""
    from spillable_stream.cli.load_input import Format, format_of, open_input

    kind = format_of(file)
    if kind is Format.LINES:
        raise OptionError(f"{file} has no columns: give a file that ends with .jsonl, .csv, .parquet or .arrow")
    source = open_input(file, kind, None, as_rows=True)
    source.close()
    return source.schema


def _require_none(path: str) -> None:
    """Refuse a path at which there is a channel.

    Raises:
        ChannelError: there is one.
    """
    from spillable_stream.engine.open_engine import uuid_at
    from spillable_stream.objects.location import channel_path

    try:
        uuid = uuid_at(channel_path(path))
    except NotAChannelError:
        return
    raise ChannelError(f"{path} is the channel {uuid} already; change its options with 'spillable alter'")
