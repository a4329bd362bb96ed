"""``format("spillable")``: options and schema checked early, where Spark shows errors well."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spillable_stream.errors import OptionError
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema, merge_schemas
from spillable_stream.options import BATCH, CHANNEL, CREATION, SINK, SOURCE, defaults, parse_options
from spillable_stream.spark.batch_reader import SpillableBatchReader
from spillable_stream.spark.schema import stored_schema, struct_type, wanted_schema
from spillable_stream.spark.stream_reader import SpillableStreamReader
from spillable_stream.spark.visit import visit
from spillable_stream.spark.writer import SpillableBatchWriter, SpillableStreamWriter

__all__ = ["SpillableDataSource"]

# What Spark passes on its own, the properties of tables among it.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "owner", "location", "provider", "comment", "external"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class SpillableDataSource(DataSource):
    """The Spark data source; all that it keeps are its options.

    Args:
        options: Spark's options: `path` and those of `spillable_stream.options`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "spillable"

    def schema(self) -> StructType:
        """Return the channel's schema; called for reads that were given none.

        Raises:
            NotAChannelError: there is no channel, and ``createIfMissing`` is not set.
            OptionError: an unknown option, or a value out of range.
        """
        options = self._source_options()
        with visit(self._path(), create=options["create_if_missing"]) as channel:
            return struct_type(channel.schema)

    def reader(self, schema: StructType) -> SpillableBatchReader:
        """Return a reader for ``spark.read``."""
        given = parse_options(self._given(), (BATCH,), where="a Spark batch read")
        given.setdefault("fail_on_data_loss", defaults(BATCH)["fail_on_data_loss"])
        self._check_schema(schema, self._source_options())
        return SpillableBatchReader(self._path(), given, schema)

    def streamReader(self, schema: StructType) -> SpillableStreamReader:
        """Return a reader for ``spark.readStream``."""
        options = self._source_options()
        self._check_schema(schema, options)
        return SpillableStreamReader(self._path(), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SpillableBatchWriter:
        """Return a writer for ``df.write``."""
        return SpillableBatchWriter(*self._sink(schema, overwrite, "the save mode overwrite"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SpillableStreamWriter:
        """Return a writer for ``df.writeStream``."""
        return SpillableStreamWriter(*self._sink(schema, overwrite, "the output mode complete"))

    def _given(self) -> dict[str, str]:
        return {k: v for k, v in dict(self.options).items() if k.lower() not in _SPARKS_OWN}

    def _path(self) -> str:
        path: str = {k.lower(): v for k, v in dict(self.options).items()}.get("path", "")
        if path.startswith("file:"):
            path = "/" + unquote(path.removeprefix("file:").lstrip("/"))
        if not path or _SCHEME.match(path):
            raise OptionError(
                f'a channel needs the path of a local directory, as in load("/data/orders"), not {path!r}'
            )
        return path

    def _source_options(self) -> dict[str, Any]:
        return {**defaults(SOURCE), **parse_options(self._given(), (SOURCE,), where="a Spark source")}

    def _check_schema(self, schema: StructType, options: dict[str, Any]) -> None:
        create = options["create_if_missing"]
        with visit(self._path(), create=create, schema=_creation_schema(schema) if create else None) as channel:
            wanted = wanted_schema(schema, channel.schema)
            merge_schemas(pa.schema([channel.schema.field(name) for name in wanted.names]), wanted)

    def _sink(self, schema: StructType, overwrite: bool, mode: str) -> tuple[Any, ...]:
        """Create or widen the channel for rows of ``schema`` and return what the writers are made of."""
        if overwrite:
            raise OptionError(f"{mode} is refused: events in a channel are never replaced; use append")
        options = parse_options(self._given(), (SINK, CHANNEL, CREATION), where="a Spark sink")
        keep_alive = options.pop("keep_alive", defaults(SINK)["keep_alive"])
        path = self._path()
        with visit(path, schema=_creation_schema(schema), **options) as channel:
            schema_id = channel.evolve(stored_schema(schema))
            arrow = channel.engine().schemas()[schema_id]
            channel.engine().memory.make()
            merged = {**channel.options, "keep_alive": keep_alive, "memory_bytes": channel.engine().memory.put_bytes()}
            return path, channel.engine().layout, encode_schema(arrow), schema_id, merged, schema


def _creation_schema(schema: StructType) -> pa.Schema | None:
    """Return what `Channel` needs to make a channel of these rows: None for an event channel."""
    stored = stored_schema(schema)
    is_event = set(stored.names) == set(EVENT_SCHEMA.names) and all(
        f.type.equals(EVENT_SCHEMA.field(f.name).type) for f in stored
    )
    return None if is_event else stored
