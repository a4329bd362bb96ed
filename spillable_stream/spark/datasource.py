"""``format("spillable")``: options and schema checked early, where Spark shows errors well.

Spark starts a Python process for each of its calls, and the first batch of a query waits for their imports. So a
method imports what only its kind of query needs. Tasks are sent the data source too, and call none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spillable_stream.channel.channel_set import ChannelSet, is_pattern, may_be_set, none_fits
from spillable_stream.channel.known_uuid import known_uuid
from spillable_stream.errors import NotAChannelError, OptionError, SchemaError, SpillableError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.objects.location import Location, is_location
from spillable_stream.options import BATCH, SOURCE, parse_options
from spillable_stream.shown_value import shown
from spillable_stream.spark.local_path import is_file_uri, local_path
from spillable_stream.spark.metadata import metadata_types, with_metadata
from spillable_stream.spark.schema import naming, struct_type
from spillable_stream.spark.source.load_identity import load_name
from spillable_stream.spark.source.read_options import BatchOptions, StreamOptions
from spillable_stream.spark.spark_errors import short_traces

if TYPE_CHECKING:
    from spillable_stream.spark.sink.sharded_plan import ShardedPlan
    from spillable_stream.spark.sink.sharded_writer import ShardedBatchWriter, ShardedStreamWriter
    from spillable_stream.spark.sink.sink_plan import SinkPlan
    from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint
    from spillable_stream.spark.sink.writer import SpillableBatchWriter, SpillableStreamWriter
    from spillable_stream.spark.source.offset import OffsetJson

__all__ = ["SpillableDataSource"]

# What Spark passes on its own, the properties of tables among it.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "owner", "location", "provider", "comment", "external"}
_PATHS = "paths"
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")


@short_traces
class SpillableDataSource(DataSource):
    """The Spark data source; all that it keeps are its options, and a name: each ``load()`` makes one.

    Args:
        options: Spark's options: `path` and those of `spillable_stream.options`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._load = load_name()

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "spillable"

    def schema(self) -> StructType:
        """Return the channel's schema; called for reads that were given none.

        Nothing is created here, since Spark does not say whether a batch or a stream asks.

        Raises:
            NotAChannelError: there is no channel, and ``createIfMissing`` is not set.
            OptionError: an unknown option, or a value out of range; or Spark asks in order to create a table.
        """
        from spillable_stream.spark.channel_pool import visit_to_read

        self._refuse_table()
        given, place = self._read_options(SOURCE, BATCH), self._place()
        creates = bool(given.get("create_if_missing"))
        of_metadata = metadata_types(is_wanted=bool(given.get("metadata")), of_set=isinstance(place, ChannelSet))
        try:
            path = _first_of(place, others_may_be_missing=creates)
            with visit_to_read(path) as channel, naming(path):
                return with_metadata(struct_type(channel.schema), of_metadata)
        except NotAChannelError as e:
            if not (e.is_missing and creates):
                from spillable_stream.spark.source.source_channel import start_first

                raise start_first(e) from None
            return with_metadata(struct_type(EVENT_SCHEMA), of_metadata)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for ``spark.read``."""
        place = self._place()
        options = BatchOptions.of(self._read_options(BATCH), in_store=_is_in_store(place))
        _require_columns(schema)
        if isinstance(place, ChannelSet):
            from spillable_stream.spark.source.set_batch_reader import SpillableSetBatchReader

            return SpillableSetBatchReader(place, options, schema)
        from spillable_stream.spark.source.batch_reader import SpillableBatchReader

        return SpillableBatchReader(place, options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for ``spark.readStream``; of options that are wrong there, one that says so when called."""
        try:
            place = self._place()
            options = StreamOptions.of(self._read_options(SOURCE), in_store=_is_in_store(place))
            _require_columns(schema)
            if isinstance(place, ChannelSet):
                from spillable_stream.spark.source.set_reader import SpillableSetReader

                return SpillableSetReader(place, options, schema, self._load)
            from spillable_stream.spark.source.stream_reader import SpillableStreamReader

            return SpillableStreamReader(place, options, schema, self._load)
        except (OptionError, SchemaError) as e:
            return _RefusedReader(e)

    def writer(self, schema: StructType, overwrite: bool) -> SpillableBatchWriter | ShardedBatchWriter:
        """Return a writer for ``df.write``."""
        from spillable_stream.spark.sink.sink_plan import SinkPlan

        plan = self._sink_plan(schema, overwrite)
        if isinstance(plan, SinkPlan):
            from spillable_stream.spark.sink.writer import SpillableBatchWriter

            return SpillableBatchWriter(plan)
        from spillable_stream.spark.sink.sharded_writer import ShardedBatchWriter

        return ShardedBatchWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SpillableStreamWriter | ShardedStreamWriter:
        """Return a writer for ``df.writeStream``; when a micro-batch ends and there can be none, one that says why."""
        try:
            return self._stream_writer(schema, overwrite)
        except SpillableError as e:
            from spillable_stream.spark.sink.failed_plan import FailedPlanWriter, ends_a_batch

            if ends_a_batch():
                return FailedPlanWriter(self._spark_option("path") or "", e)
            raise

    def _stream_writer(self, schema: StructType, overwrite: bool) -> SpillableStreamWriter | ShardedStreamWriter:
        if self._spark_option("flow") is not None:
            return self._flow_writer(schema, overwrite)
        from spillable_stream.spark.sink.sink_plan import SinkPlan

        plan = self._sink_plan(schema, overwrite, stream=True)
        if isinstance(plan, SinkPlan):
            from spillable_stream.spark.sink.writer import SpillableStreamWriter

            return SpillableStreamWriter(plan, self._checkpoint())
        from spillable_stream.spark.sink.sharded_writer import ShardedStreamWriter

        return ShardedStreamWriter(plan, self._checkpoint())

    def _checkpoint(self) -> SparkCheckpoint:
        """Return the checkpoint of a stream that is written, as far as its options say where that is."""
        from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint

        return SparkCheckpoint(*(self._spark_option(name) or "" for name in ("checkpointlocation", "queryname")))

    def _given(self) -> dict[str, str]:
        return {k: v for k, v in dict(self.options).items() if k.lower() not in _SPARKS_OWN}

    def _spark_option(self, name: str) -> str | None:
        return {k.lower(): v for k, v in dict(self.options).items()}.get(name)

    def _place(self) -> str | ChannelSet:
        """Return where to read: a channel's path, or a set of channels.

        A path that is a channel as it is written is that channel.
        """
        given, parts = self._spark_option("path"), self._listed_paths()
        if parts is None:
            if given is None or not may_be_set(given) or _is_channel(given):
                return self._path()
            if _BRACES.search(given):
                raise OptionError(
                    f"{given}: braces don't make a pattern here; write all of the paths, with commas between them"
                )
            parts = [part.strip() for part in given.split(",") if part.strip()] or [""]
        paths = [
            part if is_pattern(part) and is_location(part) and not is_file_uri(part) else self._path(part)
            for part in parts
        ]
        relative = [path for path in paths if not is_location(path) and not os.path.isabs(path)]
        if relative and len(relative) < len(paths):
            raise OptionError(
                f"{', '.join(parts)} are several channels, and {relative[0]} is a relative path among absolute ones; "
                "write all of them in the same way, or give a channel a path without commas"
            )
        return ChannelSet(paths)

    def _listed_paths(self) -> list[str] | None:
        """Return the paths of ``load([…])``, which Spark sends as a text; None if one path was given, or none."""
        text = self._spark_option(_PATHS)
        if text is None:
            return None
        try:
            paths = json.loads(text)
        except ValueError:
            paths = None
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise OptionError(f"paths must be a list of paths, as Spark makes it of load([...]), not {shown(text)}")
        return paths

    def _path(self, given: str | None = None) -> str:
        given = self._spark_option("path") if given is None else given
        if given is None:
            raise OptionError(
                'a channel needs the path of a local directory, as in load("/data/orders"); of a table\'s path Spark '
                "tells nothing, so each use of the table has to: SELECT * FROM name WITH (`path` = '/data/orders')"
            )
        path = _channel_path(given)
        if not path:
            raise OptionError(
                f'a channel needs the path of a local directory, as in load("/data/orders"), or a place in an object '
                f'store, as in load("s3://bucket/orders"), not {shown(given)}'
            )
        return path

    def _path_to_write(self) -> str:
        """Return where to write.

        Raises:
            OptionError: a new channel there would be in the way of reads that mean a set by its path.
        """
        given = self._spark_option("path")
        if given is not None and may_be_set(given) and not _is_channel(given):
            raise OptionError(
                f"{shown(given)} has a comma or a wildcard, with which a path names several channels to read; a write "
                "has one, or with the options shards and shardBy several beside each other. Give it a path without "
                "these, or create a channel of this name with Channel first"
            )
        return self._path()

    def _refuse_table(self) -> None:
        """Refuse ``CREATE TABLE`` where Spark asks for the columns; where they are given it asks nothing."""
        if self._spark_option("provider") is not None:
            path = local_path(self._spark_option("path") or "") or "/data/orders"
            raise OptionError(
                "a table can't be a channel, since Spark does not tell a table's source the table's path. Make a view: "
                f"CREATE TEMPORARY VIEW name USING spillable OPTIONS (path '{path}')"
            )

    def _read_options(self, *scopes: str) -> dict[str, Any]:
        """Return the options of a read that were given, by keyword name."""
        kinds = {SOURCE: "a Spark stream's source", BATCH: "a Spark batch read"}
        given = {name: value for name, value in self._given().items() if name.lower() != _PATHS}
        return parse_options(given, scopes, where=kinds[scopes[0]] if len(scopes) == 1 else "a Spark source")

    def _flow_writer(self, schema: StructType, overwrite: bool) -> ShardedStreamWriter:
        """Return a writer through a source of a configuration file."""
        from spillable_stream.spark.sink.flow_channels import plan_flow
        from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
        from spillable_stream.spark.sink.sink_options import SinkOptions

        _refuse_overwrite(overwrite, stream=True)
        if self._spark_option("path") is not None:
            raise OptionError("the file of a flow names its channels: leave out the path of the stream")
        plan = plan_flow(SinkOptions.parse(self._given(), stream=True), schema)
        return FlowStreamWriter(plan, self._checkpoint())

    def _sink_plan(self, schema: StructType, overwrite: bool, *, stream: bool = False) -> SinkPlan | ShardedPlan:
        """Create or widen the channel, or the shards, for rows of ``schema``, and return how to write them."""
        from spillable_stream.spark.sink.sink_channel import plan_sink
        from spillable_stream.spark.sink.sink_options import SinkOptions

        _refuse_overwrite(overwrite, stream=stream)
        if not schema.fields:
            raise SchemaError("a frame without columns has nothing that a channel could store; select some")
        options = SinkOptions.parse(self._given(), stream=stream)  # before the path: a wrong option is reported first
        path = self._path_to_write()
        if options.shards is None:
            return plan_sink(path, options, schema)
        from spillable_stream.spark.sink.sharded_channels import plan_sharded_sink

        return plan_sharded_sink(path, options, schema)


def _refuse_overwrite(overwrite: bool, *, stream: bool) -> None:
    if overwrite:
        mode = "the output mode complete" if stream else "the save mode overwrite"
        instead = "append, or write each result in a foreachBatch" if stream else "append"
        raise OptionError(f"{mode} is refused: events in a channel are never replaced; use {instead}")


def _require_columns(schema: StructType) -> None:
    """Refuse to read without columns: Spark would find no rows.

    Raises:
        SchemaError: the schema has none.
    """
    if not schema.fields:
        raise SchemaError("a schema without columns reads no events: name some, or leave it out")


def _first_of(place: str | ChannelSet, *, others_may_be_missing: bool) -> str:
    """Return the path of a channel, or of the first one of a set.

    Args:
        place: a channel's path, or a set.
        others_may_be_missing: whether one that is there is enough of a set.

    Raises:
        NotAChannelError: there is none in the set, or one of it is missing.
    """
    if isinstance(place, str):
        return place
    members = place.find(is_new=not others_may_be_missing) or place.find()
    if not members:
        raise none_fits(place)
    return members[0].path


def _is_in_store(place: str | ChannelSet) -> bool:
    """Tell whether a channel, or one of a set, is in an object store."""
    return place.is_remote if isinstance(place, ChannelSet) else is_location(place)


def _is_channel(given: str) -> bool:
    """Tell whether there is a channel at a path as it is written, whatever is in it."""
    try:
        path = _channel_path(given)
    except OptionError:
        return False
    return bool(path) and known_uuid(path) is not None


def _channel_path(given: str) -> str:
    """Return what names a channel: a directory's path, or a place in an object store; "" if it names neither.

    Raises:
        OptionError: a channel can't be at such an address; the message names one at which it can.
    """
    local = local_path(given) if given.strip() else ""
    return local if local or is_file_uri(given) or not is_location(given) else str(Location.parse(given))


@short_traces
class _RefusedReader(DataSourceStreamReader):
    """A stream's reader that can't be: every call raises why.

    What `SpillableDataSource.streamReader` raises itself, Spark buries under an UnboundLocalError of its own.
    """

    def __init__(self, error: SpillableError) -> None:
        self._error = error

    def initialOffset(self) -> OffsetJson:
        raise self._error

    def latestOffset(self, start: OffsetJson | None = None, limit: object = None) -> OffsetJson:
        raise self._error

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
