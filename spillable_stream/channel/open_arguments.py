"""What a handle is opened with: options and a schema, and the channel that is created of them if there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spillable_stream.channel.arrow_schema import SparkSchema, as_arrow_schema
from spillable_stream.channel.environment import environment_options
from spillable_stream.channel.option_change import check_capacities
from spillable_stream.channel.read_cache import divide_cache_options
from spillable_stream.channel.stored_schema import widened
from spillable_stream.engine.fixed_options import without_fixed
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.open_engine import NewChannel, check_new, ensure_channel, known_beforehand, last_known
from spillable_stream.engine.options_by_storage import (
    SpoolOptions,
    divide_spool_options,
    fitting_options,
    refuse_unfit_options,
)
from spillable_stream.format.batch import EVENT_SCHEMA, check_new_schema, decode_schema, encode_schema
from spillable_stream.log.identity_file import planned_layout
from spillable_stream.log.nesting import PlannedDirectories
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.location import Location
from spillable_stream.objects.store import StoreError
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.options import CHANNEL, CREATION, HANDLE, defaults, parse_options
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from spillable_stream.engine.store.last_known import LastKnown

__all__ = ["FoundChannel", "OpenArguments", "PlannedChannel"]

_log = log_of(__name__)

_BESIDE = ("schema", "create", "readonly", "progress")  # what `Channel` takes beside options


class FoundChannel(NamedTuple):
    """A channel that is there.

    Args:
        channel: its UUID, if it is in a store that answers; None otherwise.
        known: what is known of it, if it is in a store that does not answer, or need not be asked.
    """

    channel: str | None = None
    known: LastKnown | None = None


class OpenArguments(NamedTuple):
    """What a handle is opened with.

    Args:
        path: where the channel is.
        options: the channel's options that were given, by keyword name.
        schema: the events' schema, if it was given.
        cache: the handle's read cache, if it wants one.
        front: the spool in front of the channel, if it wants one.
    """

    path: ChannelPath
    options: dict[str, Any]
    schema: pa.Schema | None
    cache: DiskCache | None
    front: SpoolOptions | None

    @classmethod
    def of(
        cls, path: ChannelPath, options: Mapping[str, Any], schema: pa.Schema | SparkSchema | None, *, readonly: bool
    ) -> OpenArguments:
        """Return arguments as users give them, checked and divided.

        Args:
            path: where the channel is.
            options: options of channel and handle, by keyword name.
            schema: a schema of Arrow or Spark.
            readonly: whether the handle only looks.

        Raises:
            OptionError: an option is unknown, out of range, or not for a channel at such a place.
            SchemaError: the schema has a type that Arrow lacks.
        """
        parsed = parse_options(options, (CHANNEL, CREATION, HANDLE), where="a channel", beside=_BESIDE)
        in_store = isinstance(path, Location)
        without_cache, cache = divide_cache_options(parsed, in_store=in_store)
        of_channel, front = divide_spool_options(without_cache, in_store=in_store, readonly=readonly)
        return cls(path, of_channel, as_arrow_schema(schema) if schema is not None else None, cache, front)

    def check_place(self) -> None:
        """Refuse options that no channel at such a place can have; raises OptionError."""
        refuse_unfit_options(self.options, in_store=isinstance(self.path, Location))

    def new_channel(self) -> NewChannel:
        """Return the channel that is created of them, and of the environment's options.

        Raises:
            OptionError: the channel could hold nothing, or an option of the environment is out of range.
            SchemaError: no channel can have the schema.
        """
        of_place = fitting_options(environment_options(), in_store=isinstance(self.path, Location))
        given = {**of_place, **self.options}
        options = ChannelOptions.of({k: value for k, value in given.items() if k not in defaults(CREATION)})
        check_capacities(self.path, options)
        first = check_new_schema(EVENT_SCHEMA if self.schema is None else self.schema)
        fixed = CreationOptions(**{name: given[name] for name in defaults(CREATION) if name in given})
        return NewChannel(options, fixed, [encode_schema(first)])

    def check_new(self, fs: FileSystem) -> PlannedChannel:
        """Refuse a channel that can be seen to be impossible, or return it; nothing is created.

        Raises what `ensure_channel` raises.
        """
        new = self.new_channel()
        home, directories = check_new(fs, self.path, new)
        if self.front is not None:
            directories = [*directories, Path(self.front.path)]
        return PlannedChannel(PlannedDirectories(home, directories), self, new)

    def find_channel(self, fs: FileSystem, *, create: bool, prepare: Callable[[], None]) -> FoundChannel:
        """Return the channel, which is created if there is none, or what is known of it if its store does not answer.

        Args:
            fs: the file system.
            create: whether to create it.
            prepare: creates the spool of a new channel, or raises.

        Raises what `ensure_channel` raises.
        """
        if (known := known_beforehand(self.path)) is not None:
            return FoundChannel(known=known)
        try:
            return FoundChannel(ensure_channel(fs, self.path, self.new_channel if create else None, prepare))
        except StoreError as e:
            front = self.front
            known = None if front is None or e.is_lasting else last_known(fs, Path(front.path), self.path)
            if known is None:
                raise
            _log.warning(
                "%s: the store does not answer, so puts go to the spool, and nothing else works: %s",
                self.path,
                e,
                extra=fields(self.path),
            )
            return FoundChannel(known=known)


class PlannedChannel(NamedTuple):
    """A channel that can be created.

    Args:
        places: the directories on this host that it and its spool will have.
        arguments: what the handle that creates it is opened with.
        new: what it is created with.
    """

    places: PlannedDirectories
    arguments: OpenArguments
    new: NewChannel

    def opened_again(self, again: OpenArguments) -> PlannedChannel:
        """Return the channel as it is once it is created, and opened by another handle.

        Args:
            again: what that handle is opened with.

        Raises:
            OptionError: an option that is fixed differs, in the channel or in its spool, or it could hold nothing.
            SchemaError: the schema does not fit.
        """
        path, changed = self.arguments.path, again.options
        if isinstance(path, Path):
            changed = without_fixed(planned_layout(path, self.new.fixed), changed, is_there=False)
        front = self.arguments.front
        if front is not None and again.front is not None and front.path == again.front.path:
            fixed = CreationOptions(**{k: v for k, v in front.of_channel.items() if k in defaults(CREATION)})
            without_fixed(planned_layout(Path(front.path), fixed), again.front.of_channel, is_there=False)
        options, schemas = self.new.options.changed(changed), self.new.schemas
        check_capacities(path, options)
        if again.schema is not None:
            known = [decode_schema(schema) for schema in schemas]
            newest = widened(path, known, again.schema, typed=not known[0].equals(EVENT_SCHEMA))
            schemas = schemas if newest.equals(known[-1]) else [*schemas, encode_schema(newest)]
        return self._replace(new=NewChannel(options, self.new.fixed, schemas))
