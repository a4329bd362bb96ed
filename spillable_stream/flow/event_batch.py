"""The unit of a flow: a record batch of the event schema, and the operations on all of its events at once.

Headers are a map column: offsets per event into one column of names and one of values. Headers that are added are
written with one pass over each of the two, however many headers there are. Nothing here makes a Python object of an
event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.channel.event import ID_COLUMN, Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.channel.taken_events import header_maps
from spillable_stream.flow.text_columns import repeated, spans_of, text_data, text_ends, texts_of
from spillable_stream.format.batch import EVENT_SCHEMA, accept_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "EventInput",
    "Header",
    "add_headers",
    "as_event_batch",
    "concat",
    "events_of",
    "header",
    "header_names",
    "remove_headers",
    "select_each",
    "select_rows",
    "with_bodies",
]

EventInput: TypeAlias = "pa.RecordBatch | pa.Table | Iterable[Event]"
"""Events as they may be given: an Arrow batch or table, or `Event` objects."""


class Header(NamedTuple):
    """A header to set on the events of a batch.

    Args:
        name: its name.
        value: its value, the same for all events; or an Arrow array of strings with a value for each, null for an
            event that does not get the header.
        preserve: whether an event that has the header keeps its own.
    """

    name: str
    value: str | pa.Array
    preserve: bool = False


def as_event_batch(events: EventInput) -> pa.RecordBatch:
    """Return events as a batch of exactly the event schema, without nulls among the headers.

    Args:
        events: a batch or table of the columns of an event channel, `write_order_id` beside them or not; or events.

    Raises:
        SchemaError: the columns or the events do not fit an event channel.
    """
    if isinstance(events, pa.Table):
        joined = events.combine_chunks().to_batches()
        events = joined[0] if joined else pa.RecordBatch.from_pylist([], events.schema)
    if not isinstance(events, pa.RecordBatch):
        return batch_from_events(list(events))
    batch = events
    if not batch.schema.equals(EVENT_SCHEMA):
        batch = accept_batch(batch, EVENT_SCHEMA, ID_COLUMN)
    if batch.column(0).null_count or batch.column(1).null_count:
        return batch_from_events(events_of(batch))
    return batch


def events_of(batch: pa.RecordBatch) -> list[Event]:
    """Return a batch as events: for what is done to each on its own, and is slow."""
    bodies = batch.column(1).to_pylist()
    headers = batch.column(0)
    has_nulls = headers.null_count > 0
    maps = [dict(pairs or ()) for pairs in headers.to_pylist()] if has_nulls else header_maps(headers)
    return [Event(b"" if body is None else body, found) for body, found in zip(bodies, maps, strict=True)]


def header(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return the value that each event has for a header, as an array of strings; null where it has none."""
    columns = _Columns.of(batch)
    if columns.shared is None:
        return pc.map_lookup(batch.column(0), pa.scalar(name), "last")
    if name not in columns.shared:
        return pa.nulls(batch.num_rows, pa.string())
    width, last = len(columns.shared), len(columns.shared) - 1 - columns.shared[::-1].index(name)
    return columns.values.take(pa.array(np.arange(last, len(columns.values), width)))


def with_bodies(batch: pa.RecordBatch, bodies: pa.Array) -> pa.RecordBatch:
    """Return a batch with other bodies.

    Args:
        batch: the events.
        bodies: an array of as many binary values.
    """
    return pa.RecordBatch.from_arrays([batch.column(0), bodies], schema=EVENT_SCHEMA)


def select_rows(batch: pa.RecordBatch, rows: pa.Array | None) -> pa.RecordBatch:
    """Return some of the events, in the order of their numbers.

    Args:
        batch: the events.
        rows: their numbers; None for all of them.
    """
    return batch if rows is None else select_each(batch, {"": rows})[""]


def select_each(batch: pa.RecordBatch, routes: Mapping[str, pa.Array | None]) -> dict[str, pa.RecordBatch]:
    """Return the events of each route, in the order of their numbers.

    Args:
        batch: the events.
        routes: their numbers; None for all of them.
    """
    chosen = {name: rows for name, rows in routes.items() if rows is not None}
    columns = _Columns.of(batch) if chosen else None
    if columns is None or not columns.shared:
        return {name: batch if rows is None else batch.take(rows) for name, rows in routes.items()}
    found = dict.fromkeys(routes, batch)
    width, ends = len(columns.shared), text_ends(columns.values)
    lengths = np.diff(ends).reshape(-1, width)
    of_event = spans_of(columns.values, ends[columns.ends])  # the values of each as one: fewer to gather
    for name, rows in chosen.items():
        values = texts_of(lengths.take(np.asarray(rows), axis=0), of_event.take(rows).buffers()[2])
        of_headers = np.arange(0, len(values) + 1, width, dtype=np.int32)
        found[name] = _batch(of_headers, columns.names.slice(0, len(values)), values, batch.column(1).take(rows))
    return found


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the events of several batches as one, in order."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], EVENT_SCHEMA)
    arrays = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(2)]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)


# ── headers ─────────────────────────────────────────────────────────────────────────────────


def add_headers(batch: pa.RecordBatch, added: Sequence[Header]) -> pa.RecordBatch:
    """Return a batch with more headers: all that are given, in one pass. Of one name twice the later one counts.

    Raises:
        SchemaError: the headers of the batch are larger than 2 GiB.
    """
    if not added or not batch.num_rows:
        return batch
    if len({h.name for h in added}) < len(added):
        for h in added:
            batch = add_headers(batch, [h])
        return batch
    columns = _Columns.of(batch)
    there = [h for h in added if columns.has(h.name)]
    values: dict[str, pa.Array | str] = {h.name: h.value for h in added}
    replaced: list[str] = []
    for h in there:
        own = header(batch, h.name)
        if h.preserve:
            missing = pc.is_null(own)
            values[h.name] = pc.if_else(missing, h.value, pa.scalar(None, pa.string()))
        elif isinstance(h.value, str) or not h.value.null_count:
            replaced.append(h.name)
        else:  # an event that gets no new value keeps its own
            values[h.name] = pc.coalesce(h.value, own)
            replaced.append(h.name)
    if replaced:
        columns = _Columns.of(remove_headers(batch, replaced))
    return columns.with_added(batch, list(values.items()))


def remove_headers(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Return a batch without the headers of some names."""
    columns = _Columns.of(batch)
    gone = pc.is_in(columns.names, value_set=pa.array(list(names), pa.string()))
    if not pc.any(gone).as_py():
        return batch
    kept = pc.invert(gone)
    counted = np.concatenate(([0], np.cumsum(np.asarray(kept))))
    offsets = counted[columns.ends].astype(np.int32)
    return _batch(offsets, columns.names.filter(kept), columns.values.filter(kept), batch.column(1))


def header_names(batch: pa.RecordBatch) -> list[str]:
    """Return the different names of the headers of a batch."""
    names: list[str] = pc.unique(_Columns.of(batch).names).to_pylist()
    return names


class _Columns(NamedTuple):
    """The headers of a batch.

    Args:
        ends: where each event's headers begin, and where the last one's end, among the names and values; from 0.
        names: the names.
        values: the values.
        shared: the names of every event, if all have the same in the same order; else None.
    """

    ends: NDArray[np.int32]
    names: pa.Array
    values: pa.Array
    shared: list[str] | None

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Columns:
        headers = batch.column(0)
        ends = np.asarray(headers.offsets)
        first, count = int(ends[0]), int(ends[-1] - ends[0])
        names, values = headers.keys.slice(first, count), headers.items.slice(first, count)
        if values.null_count:
            values = values.fill_null("")
        return cls(ends - first, names, values, _shared(names, ends - first))

    def has(self, name: str) -> bool:
        if self.shared is not None:
            return name in self.shared
        return bool(pc.index(self.names, name).as_py() >= 0)

    def with_added(self, batch: pa.RecordBatch, added: Sequence[tuple[str, pa.Array | str]]) -> pa.RecordBatch:
        """Return a batch with headers behind those that its events have; none of these has one of the names."""
        width = len(added)
        columns = [value for _, value in added]
        present = None
        if any(not isinstance(value, str) and value.null_count for value in columns):
            shown = [pa.array([True] * batch.num_rows) if isinstance(v, str) else v.is_valid() for v in columns]
            present = np.stack([np.asarray(s) for s in shown], axis=1)
        layout = _Layout.of(self.ends, width, present)
        new_names = [name for name, _ in added]
        if self.shared is not None and present is None:
            names = repeated([*self.shared, *new_names], batch.num_rows)
        else:
            names = _joined(self.names, layout, new_names)
        values = _joined(self.values, layout, columns)
        return _batch(layout.new_ends, names, values, batch.column(1))


class _Layout(NamedTuple):
    """Where the headers of a batch are once more were added behind those of each event.

    Args:
        ends: where each event's begin and end before.
        new_ends: where they do then.
        old: which of all are those of before, as an index of an array of them; of a table of them if it `is_table`.
        new: which are added.
        present: whether an event gets each of the added ones; None if all get all.
        is_table: whether all events have equally many.
    """

    ends: NDArray[np.int32]
    new_ends: NDArray[Any]
    old: Any
    new: Any
    present: NDArray[Any] | None
    is_table: bool

    @classmethod
    def of(cls, ends: NDArray[np.int32], width: int, present: NDArray[Any] | None) -> _Layout:
        rows = len(ends) - 1
        had = int(ends[-1]) // rows
        if present is None:
            new_ends: NDArray[Any] = ends + np.arange(0, (rows + 1) * width, width, dtype=np.int32)
            if had * rows == ends[-1] and bool((np.diff(ends) == had).all()):
                return cls(ends, new_ends, np.s_[:, :had], np.s_[:, had:], None, True)
            present = np.ones((rows, width), bool)
        new_ends = ends + np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int32)
        is_new = np.zeros(int(new_ends[-1]), bool)
        behind = np.cumsum(present[:, ::-1], axis=1)[:, ::-1]  # of each one: how many are left, itself included
        is_new[(new_ends[1:, None] - behind)[present]] = True
        return cls(ends, new_ends, ~is_new, is_new, present, False)

    def empty(self) -> NDArray[np.int32]:
        rows = len(self.ends) - 1
        count = int(self.new_ends[-1])
        return np.empty((rows, count // rows) if self.is_table else count, np.int32)


def _joined(old: pa.Array, layout: _Layout, added: Sequence[str | pa.Array]) -> pa.Array:
    """Return a column of texts with others behind those of each event.

    Args:
        old: the texts.
        layout: where they go.
        added: what comes behind them; a text for all events, or one for each.
    """
    present, ends = layout.present, text_ends(old)
    parts = [spans_of(old, ends[layout.ends])]
    lengths = layout.empty()
    old_lengths = np.diff(ends)
    lengths[layout.old] = old_lengths.reshape(lengths.shape[0], -1) if layout.is_table else old_lengths
    rows = len(layout.ends) - 1
    new_lengths = lengths[layout.new] if layout.is_table else np.empty((rows, len(added)), np.int32)
    run = b""
    for i, text in enumerate(added):
        if isinstance(text, str):
            raw = text.encode()
            new_lengths[:, i] = len(raw)
            if present is None:
                run += raw  # neighbours that all events get are joined as one
                continue
            parts.append(_where(present[:, i], raw))
        else:
            if run:
                parts.append(pa.scalar(run, pa.binary()))
                run = b""
            raw_texts = (text.fill_null("") if text.null_count else text).cast(pa.binary())
            new_lengths[:, i] = pc.binary_length(raw_texts)
            parts.append(raw_texts)
    if run:
        parts.append(pa.scalar(run, pa.binary()))
    if present is not None:
        lengths[layout.new] = new_lengths[present]
    return texts_of(lengths, pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary())).buffers()[2])


def _shared(names: pa.Array, ends: NDArray[np.int32]) -> list[str] | None:
    """Return the names of every event, if all have the same in the same order; else None.

    Args:
        names: the names of all.
        ends: where those of each event begin, and where the last one's end.
    """
    rows = len(ends) - 1
    width = len(names) // max(rows, 1)
    if not np.array_equal(ends, np.arange(rows + 1, dtype=np.int32) * width):
        return None
    of_names = text_ends(names)
    size_bytes = int(of_names[width if rows else 0] - of_names[0])
    if not bool((of_names[width:] - of_names[: len(of_names) - width] == size_bytes).all()):
        return None
    data = text_data(names)[of_names[0] : of_names[-1]]
    is_same = np.array_equal(data[size_bytes:], data[: len(data) - size_bytes])
    return names.slice(0, width).to_pylist() if is_same else None


def _where(shown: NDArray[Any], raw: bytes) -> pa.Array:
    return pc.if_else(pa.array(shown), pa.scalar(raw, pa.binary()), pa.scalar(b"", pa.binary()))


def _batch(ends: NDArray[np.int32], names: pa.Array, values: pa.Array, bodies: pa.Array) -> pa.RecordBatch:
    """Return events; ``ends`` is where the headers of each begin, and where those of the last one end."""
    offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(np.ascontiguousarray(ends))])
    headers = pa.MapArray.from_arrays(offsets, names, values)
    return pa.RecordBatch.from_arrays([headers, bodies], schema=EVENT_SCHEMA)
