"""Columns of Arrow views, cut down to the values that their rows have.

A view points into buffers that the rows of a slice share with all others. Arrow writes and counts these whole, however
few rows a slice has.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spillable_stream.format.types import WITHOUT_VIEWS, has_extension, is_list, is_list_view

__all__ = ["copy_of", "has_views", "without_others"]

_SMALL_BYTES = 1 << 10  # so much may come with each frame; looking for it would cost as much
_MOST_BYTES = 1 << 30  # more is divided first: a view's offset has 31 bits


def without_others(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose columns of views hold little else than its own values; itself where they do already.

    Only what a value is not used by is left out: values that several rows share stay shared. The batch must be valid.
    """
    if batch.get_total_buffer_size() <= _SMALL_BYTES:
        return batch
    columns = batch.columns
    cut = [_cut(column) for column in columns]
    if _are_same(cut, columns):
        return batch
    return pa.RecordBatch.from_arrays(cut, schema=batch.schema)


def copy_of(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return a copy of a batch, and how many bytes it holds: what is in the batch, and nothing else.

    A slice holds the whole arrays that it is a part of, an array that numpy made holds all of numpy's, and the
    application may change that. The batch has no dictionaries.

    Raises:
        pyarrow.ArrowCapacityError: it is larger than Arrow can write at once.
    """
    message = without_others(batch).serialize()
    return pa.ipc.read_record_batch(message, batch.schema), message.size


def has_views(t: pa.DataType) -> bool:
    """Tell whether a type has views of texts, bytes or lists at any depth."""
    if t in WITHOUT_VIEWS or is_list_view(t):
        return True
    if isinstance(t, pa.BaseExtensionType):
        return has_views(t.storage_type)
    if pa.types.is_run_end_encoded(t):
        return has_views(t.value_type)
    return any(has_views(t.field(i).type) for i in range(t.num_fields))


def _cut(column: pa.Array) -> pa.Array:
    """Return a column without the values of other rows; itself where there are few."""
    t = column.type
    if not has_views(t):
        return column
    if isinstance(t, pa.BaseExtensionType):
        storage = column.storage
        cut = _cut(storage)
        return column if cut is storage else pa.ExtensionArray.from_storage(t, cut)
    if t in WITHOUT_VIEWS:
        return _cut_views(column)
    if is_list_view(t):
        return _cut_list_views(column)
    if pa.types.is_run_end_encoded(t):
        return _cut_runs(column)
    if pa.types.is_struct(t):
        fields = [column.field(i) for i in range(t.num_fields)]
        cut_fields = [_cut(field) for field in fields]
        return column if _are_same(cut_fields, fields) else _made(column, [], cut_fields)
    if pa.types.is_fixed_size_list(t):
        values = column.values.slice(column.offset * t.list_size, len(column) * t.list_size)
        cut = _cut(values)
        return column if cut is values else _made(column, [], [cut])
    return _cut_lists(column)


def _cut_views(column: pa.Array) -> pa.Array:
    held_bytes = sum(buffer.size for buffer in column.buffers()[2:])
    if not len(column):
        return pa.array([], column.type) if held_bytes else column
    size_bytes = _total(_view_lengths(column)) if held_bytes else 0
    if not _is_worth(size_bytes, held_bytes) or size_bytes > _MOST_BYTES:
        return column
    return column.cast(WITHOUT_VIEWS[column.type]).cast(column.type)  # the first copies them, the second does not


def _view_lengths(column: pa.Array) -> pa.Array:
    """Return how many bytes each value has: the first of the four 32-bit numbers of its view."""
    import pyarrow.compute as pc

    validity, views = column.buffers()[:2]
    end = column.offset + len(column)
    numbers = pa.Array.from_buffers(pa.int32(), 4 * end, [None, views])
    fours = pa.Array.from_buffers(
        pa.list_(pa.int32(), 4), len(column), [validity], column.null_count, column.offset, [numbers]
    )
    return pc.list_element(fours, 0)


def _cut_list_views(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    sizes, values = pc.fill_null(pc.list_value_length(column), 0), column.values
    if _is_worth(_total(sizes), len(values)):
        ends = pc.cumulative_sum(sizes)
        return _made(column, [pc.subtract(ends, sizes), sizes], [_cut(_flattened(column, values, sizes))])
    cut = _cut(values)
    return column if cut is values else _made(column, [column.offsets, column.sizes], [cut])


def _flattened(column: pa.Array, values: pa.Array, sizes: pa.Array) -> pa.Array:
    """Return the values of all lists, one list after the other.

    Arrow's own ``flatten``, which is far faster, makes invalid views of those inside of extension types.
    """
    if not has_extension(values.type):
        return column.flatten()
    parts = (values.slice(*part) for part in zip(column.offsets.to_pylist(), sizes.to_pylist(), strict=True) if part[1])
    return pa.concat_arrays([values.slice(0, 0), *parts])


def _cut_lists(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    offsets, t = column.offsets, column.type
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    parts = [column.values] if is_list(t) else [column.keys, column.items]
    values = [part.slice(start, end - start) for part in parts]
    cut = [_cut(part) for part in values]
    if _are_same(cut, values):
        return column
    if not is_list(t):  # a map: its keys and items are the fields of one struct
        cut = [pa.Array.from_buffers(t.field(0).type, end - start, [None], 0, 0, cut)]
    return _made(column, [pc.subtract(offsets, offsets[0])], cut)


def _cut_runs(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    first, count = column.find_physical_offset(), column.find_physical_length()
    values = column.values.slice(first, count)
    cut = _cut(values)
    if cut is values:
        return column
    ends = column.run_ends.slice(first, count)
    ends = pc.subtract(ends, pa.scalar(column.offset, ends.type))
    ends = pc.min_element_wise(ends, pa.scalar(len(column), ends.type))
    return pa.RunEndEncodedArray.from_arrays(ends, cut, column.type)


def _made(column: pa.Array, numbers: list[pa.Array], children: list[pa.Array]) -> pa.Array:
    """Return a nested column with other offsets, sizes or both, and other values; nulls stay."""
    validity = column.is_valid().buffers()[1] if column.null_count else None
    own = [validity, *(_buffer(each) for each in numbers)]
    return pa.Array.from_buffers(column.type, len(column), own, column.null_count, 0, children)


def _buffer(numbers: pa.Array) -> pa.Buffer:
    width = numbers.type.bit_width // 8
    return numbers.buffers()[1].slice(numbers.offset * width, len(numbers) * width)


def _are_same(these: list[pa.Array], those: list[pa.Array]) -> bool:
    return all(a is b for a, b in zip(these, those, strict=True))


def _is_worth(used: int, held: int) -> bool:
    """Tell whether so much is held that is not used that a copy is worth it."""
    return used < held - held // 8


def _total(numbers: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(numbers).as_py() or 0)
