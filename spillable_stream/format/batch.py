"""Events as Arrow: the schema of event channels, and record batches to and from PUT payloads.

A PUT payload is the encapsulated Arrow IPC message of one record batch
(`<https://arrow.apache.org/docs/format/Columnar.html>`_). It leaves out the schema, which the channel's state holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spillable_stream.errors import CorruptionError, EventTooLargeError, SchemaError
from spillable_stream.format.conversion import cast_column, has_demands, is_allowed
from spillable_stream.format.dues import pack_dues
from spillable_stream.format.frame import MAX_PAYLOAD_BYTES, PUT, TTL_SIZE_BYTES, Frame
from spillable_stream.format.types import NOT_ARROW, check_field, has_dictionary, stored_schema
from spillable_stream.format.views import has_views, without_others
from spillable_stream.format.widening import misfit

__all__ = [
    "EVENT_SCHEMA",
    "FAR_FRAME_BYTES",
    "FRAME_BYTES",
    "SURELY_FRAMED_BYTES",
    "accept_batch",
    "check_columns",
    "check_new_schema",
    "check_written_schema",
    "decode_batch",
    "decode_schema",
    "encode_batch",
    "encode_schema",
    "fit_batch",
    "merge_schemas",
    "mismatch",
    "shown_schema",
]

EVENT_SCHEMA = pa.schema([pa.field("headers", pa.map_(pa.string(), pa.string())), pa.field("body", pa.binary())])

FRAME_BYTES = 2 << 20
"""How large the frames of a large batch are. A read takes whole ones, and each costs something; but the bytes of one
that fits no cache come from memory three times: to be read, to be verified, and to be used."""

FAR_FRAME_BYTES = 1 << 20
"""How large they are in an object store, where a task downloads a whole frame for one event of it."""

_MOST_QUARTERS = 5  # of that: rows are not of one size, and what is a little too large has no frame more for its rest

_LARGE_BYTES = 256 << 10  # below, validating the whole buffers is cheaper than copying the slice
_last_demands: tuple[pa.Schema | None, list[int], list[int]] = None, [], []  # of one schema
_INDEX = "__index_level_"  # as Arrow names the columns of an index of pandas that has no name

_last_plain = EVENT_SCHEMA  # the last schema without views
_COMPRESSIONS = {"none": None, "lz4": "lz4", "zstd": "zstd"}


def encode_schema(schema: pa.Schema) -> bytes:
    """Return the Arrow IPC message of a schema, with its metadata."""
    return bytes(schema.serialize())


def decode_schema(message: bytes) -> pa.Schema:
    """Return the schema of an Arrow IPC schema message.

    Raises:
        CorruptionError: the bytes are not such a message.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(message))
    except NOT_ARROW as e:
        raise CorruptionError(f"a schema is not Arrow's: {e}") from e


SURELY_FRAMED_BYTES = MAX_PAYLOAD_BYTES // 2
"""Each event of a batch of fewer bytes fits a frame: frames are larger than their columns, but not that much."""


def encode_batch(
    batch: pa.RecordBatch,
    schema_id: int = 0,
    compression: str = "none",
    ttl_us: int = 0,
    dues_ms: Sequence[int] = (),
    frame_bytes: int = FRAME_BYTES,
) -> list[Frame]:
    """Return the PUT frames of a record batch, which is split if it is large.

    Args:
        batch: the events, in the channel's schema.
        schema_id: the schema's number in the channel.
        compression: "none", "lz4" or "zstd".
        ttl_us: the ttl of all of them, in microseconds; 0 for none.
        dues_ms: when each of them is due, in milliseconds since 1970, where their frames say it; empty elsewhere.
        frame_bytes: about how large a frame gets; one of `FRAME_BYTES` and `FAR_FRAME_BYTES`.

    Raises:
        EventTooLargeError: one event does not fit a frame (1 GiB), or has more than 2^31 - 1 values in one column.
    """
    rows = batch.num_rows
    if rows == 0:
        return []
    if not _last_plain.equals(batch.schema):
        batch = _without_others(batch)
    # The size of the whole buffers is cheap to compute, and an upper bound of a slice's size.
    if rows > 1 and 4 * batch.get_total_buffer_size() > _MOST_QUARTERS * frame_bytes < 4 * batch.nbytes:
        pieces = -(-batch.nbytes // frame_bytes)
        return _encode_pieces(batch, -(-rows // pieces), schema_id, compression, ttl_us, dues_ms, frame_bytes)
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSIONS[compression]) if compression != "none" else None
    try:
        payload = batch.serialize() if options is None else _serialize(batch, options)
    except pa.ArrowCapacityError as e:
        if rows > 1:
            return _encode_pieces(batch, rows // 2, schema_id, compression, ttl_us, dues_ms, frame_bytes)
        raise EventTooLargeError(f"an event has too many values in one column ({e}); split it") from e
    times_bytes = (TTL_SIZE_BYTES if ttl_us else 0) + 8 * len(dues_ms)
    if payload.size > MAX_PAYLOAD_BYTES - times_bytes:
        if rows > 1:
            return _encode_pieces(batch, rows // 2, schema_id, compression, ttl_us, dues_ms, frame_bytes)
        raise EventTooLargeError(
            f"an event of {payload.size:,} bytes does not fit a frame of {MAX_PAYLOAD_BYTES:,} bytes; split it"
        )
    return [Frame.of(PUT, payload, rows, schema_id, ttl_us, pack_dues(dues_ms) if dues_ms else b"")]


def _without_others(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without the values of other rows, which Arrow would write for each slice where it has views."""
    global _last_plain
    if any(has_views(t) for t in batch.schema.types):
        return without_others(batch)
    _last_plain = batch.schema
    return batch


def _encode_pieces(
    batch: pa.RecordBatch,
    step: int,
    schema_id: int,
    compression: str,
    ttl_us: int,
    dues_ms: Sequence[int],
    frame_bytes: int,
) -> list[Frame]:
    """Return the frames of a batch, split every ``step`` rows."""
    found: list[Frame] = []
    for start in range(0, batch.num_rows, step):
        piece, its_dues_ms = batch.slice(start, step), dues_ms[start : start + step]
        found += encode_batch(piece, schema_id, compression, ttl_us, its_dues_ms, frame_bytes)
    return found


def _serialize(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    """Return the message of one batch, cut out of a stream, because `RecordBatch.serialize` takes no options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
        end = sink.tell()
    start = batch.schema.serialize().size  # a stream begins with its schema's message
    return sink.getvalue().slice(start, end - start)


def decode_batch(payload: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch of a PUT payload; its columns point into ``payload``.

    Raises:
        CorruptionError: the payload is not a batch of this schema.
    """
    try:
        return pa.ipc.read_record_batch(payload, schema)
    except NOT_ARROW as e:
        raise CorruptionError(f"a batch is not Arrow's: {e}") from e


def check_new_schema(schema: pa.Schema) -> pa.Schema:
    """Return the stored schema of a new channel for events of this schema.

    Raises:
        SchemaError: two names differ in case only, which Spark can't tell apart; or a column's type is not supported.
    """
    schema = stored_schema(schema)
    seen: dict[str, str] = {}
    for field in schema:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaError(f"the columns {other!r} and {field.name!r} differ in case only; rename one")
        check_field(field)
    return schema


def check_written_schema(schema: pa.Schema) -> None:
    """Check that events can be written in a channel's schema.

    Raises:
        SchemaError: it has a dictionary type. An earlier version accepted such schemas, but stored unreadable events.
    """
    for field in schema:
        if has_dictionary(field.type):
            raise SchemaError(
                f"the channel's column {field.name!r} has the type {field.type}, whose values an earlier version did "
                "not store, so nothing more can be put there; create a new channel"
            )


def merge_schemas(current: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """Return ``current`` with the new columns of ``incoming``, which must be nullable.

    The other columns may be in any order, may have narrower types (`spillable_stream.format.widening`), and may be
    missing if they are nullable.

    Raises:
        SchemaError: a column does not fit; a new column is not nullable or its type is not supported; or a column
            that is not nullable is missing.
    """
    merged, incoming = current, stored_schema(incoming)
    names = set(current.names)  # Arrow makes the list anew each time
    by_lowered = {name.lower(): name for name in names}
    for field in incoming:
        if field.name not in names:
            if not field.nullable:
                raise mismatch(f"the new column {field.name!r} is not nullable", current, incoming)
            if (known := by_lowered.get(field.name.lower())) is not None:
                why = f"the new column {field.name!r} differs from {known!r} in case only: call it {known!r}"
                raise mismatch(why, current, incoming)
            check_field(field)
            merged = merged.append(field)
    check_columns(incoming, merged, shown=current)
    return merged


def check_columns(incoming: pa.Schema, current: pa.Schema, but: str = "", shown: pa.Schema | None = None) -> None:
    """Check that a batch can be put: its columns may be in any order, be left out if nullable, and widen.

    Args:
        incoming: the schema of the batch.
        current: the channel's schema.
        but: the name of a column to ignore if it is unknown.
        shown: what an error says that the channel has, where it is to have more.

    Raises:
        SchemaError: a column, or a field at any depth, is unknown, occurs twice, is missing and not nullable, or does
            not fit (`spillable_stream.format.widening`).
    """
    names, has = incoming.names, current if shown is None else shown
    if len(set(names)) != len(names):
        raise mismatch("a column name occurs twice", has, incoming)
    for field in incoming:
        index = current.get_field_index(field.name)
        if index >= 0:
            why = misfit(field.type, current.field(index).type, field.name)
        elif field.name != but:
            why = _unknown(field.name, current)
        else:
            continue
        if why:
            raise mismatch(why, has, incoming)
    for field in current:
        if not field.nullable and field.name not in names:
            raise mismatch(f"the column {field.name!r} is missing and not nullable", has, incoming)


def _unknown(name: str, current: pa.Schema) -> str:
    """Return why a channel refuses a column that it does not have, and what to do."""
    if name.startswith(_INDEX):
        return f"the channel has no column {name!r}, the index of a data frame: reset_index(drop=True) removes it"
    if current.equals(EVENT_SCHEMA):
        return f"an event channel has no column {name!r}: put rows into a typed channel, made with schema="
    return f"the channel has no column {name!r}: leave it out, or add it with Channel.evolve"


def accept_batch(batch: pa.RecordBatch, schema: pa.Schema, but: str = "") -> pa.RecordBatch:
    """Validate a batch from the application and convert it to a channel's schema, so that readers can decode it.

    Every value is checked: strings, indices, offsets and ranges.

    Args:
        batch: the events.
        schema: the channel's schema.
        but: the name of a column to ignore if it is unknown.

    Raises:
        SchemaError: a column does not fit (`check_columns`); the batch is not valid Arrow, such as a string that is
            not UTF-8; or a value does not fit.
    """
    if not (equal := batch.schema.equals(schema)):
        check_columns(batch.schema, schema, but)
    whole, size_bytes = batch, batch.get_total_buffer_size()
    try:
        if size_bytes > _LARGE_BYTES and size_bytes > 2 * batch.nbytes:
            whole = _copy_of_slice(batch)
        whole.validate(full=True)
    except NOT_ARROW as e:
        raise SchemaError(_unsound(whole, e)) from e
    fitted = batch if equal else fit_batch(whole, schema)
    required, strict_inside = _demands(schema)
    for i in required:
        if fitted.column(i).null_count:
            raise mismatch(f"the column {schema.names[i]!r} has nulls and is not nullable", schema, batch.schema)
    for i in strict_inside:
        if not is_allowed(fitted.column(i)):
            why = f"the column {schema.names[i]!r} has a null where its type has none"
            raise mismatch(why, schema, batch.schema)
    return fitted


def _demands(schema: pa.Schema) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that are not nullable, and of those whose types forbid nulls inside.

    They are those of the last schema again, for Arrow makes its fields.
    """
    global _last_demands
    known, required, strict_inside = _last_demands
    if known is not schema:
        required = [i for i, field in enumerate(schema) if not field.nullable]
        strict_inside = [i for i, t in enumerate(schema.types) if has_demands(t)]
        _last_demands = schema, required, strict_inside
    return required, strict_inside


def _copy_of_slice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a slice without the rows around it: Arrow would validate those too in nested columns."""
    if any(has_dictionary(f.type) for f in batch.schema):
        return batch
    batch.validate()
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _unsound(batch: pa.RecordBatch, error: Exception) -> str:
    """Describe what is wrong with a batch, and in which column."""
    hint = "; a text must be UTF-8, other bytes belong into a binary column" if "UTF8" in str(error) else ""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except NOT_ARROW as e:
            return f"the column {name!r} is not sound: {e}{hint}"
    return f"the batch is not sound: {error}{hint}"


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with exactly the columns and types of ``schema``; missing columns are null.

    Raises:
        SchemaError: the values do not fit.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        try:
            if index < 0:
                column = pa.nulls(batch.num_rows, field.type)
            else:
                column = batch.column(index)
                if not column.type.equals(field.type):
                    column = cast_column(column, field.type)
        except NOT_ARROW as e:
            raise mismatch(f"the column {field.name!r} does not fit: {e}", schema, batch.schema) from e
        if not field.nullable and column.null_count:
            raise mismatch(f"the column {field.name!r} has nulls and is not nullable", schema, batch.schema)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def mismatch(why: str, current: pa.Schema, incoming: pa.Schema) -> SchemaError:
    """Return the error of a schema that does not fit a channel's, with both shown.

    Args:
        why: what is wrong.
        current: the channel's.
        incoming: the other one.
    """
    return SchemaError(
        f"{why}. The channel has ({shown_schema(current)}); what is given has ({shown_schema(incoming)})"
    )


def shown_schema(schema: pa.Schema) -> str:
    """Format a schema's columns and types on one line, for errors."""
    return ", ".join(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in schema)
