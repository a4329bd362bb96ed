"""Every Python value either does not fit, and that is said at once, or reads back as what it was."""

from __future__ import annotations

import copy
import math

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import SchemaError
from spillable_stream.channel.row_values import RowReader
from tests.python_values import TYPES, change, is_read_as, values_of


@settings(max_examples=1500)
@given(TYPES, st.data())
def test_a_value_is_refused_or_reads_back_as_what_it_was_though_it_is_changed_later(
    t: pa.DataType, data: st.DataObject
) -> None:
    reader = RowReader(pa.schema([("c", t)]))
    kept, sent = [], []
    for value in data.draw(st.lists(values_of(t), min_size=1, max_size=4)):
        before, given = copy.deepcopy(value), copy.deepcopy(value)
        try:
            row = reader.read({"c": given})
        except SchemaError as e:
            assert "'c" in str(e)
            continue
        change(given)
        kept.append(row)
        sent.append(before)
        assert reader.size_bytes(row) > 0
    batch = reader.batch(kept)
    batch.validate(full=True)
    found = [row["c"] for row in batch.to_pylist()]
    for one, other in zip(sent, found, strict=True):
        assert is_read_as(one, other, t), (one, other, t)


@settings(max_examples=500)
@given(TYPES, st.data())
def test_values_that_fit_are_read(t: pa.DataType, data: st.DataObject) -> None:
    value = data.draw(values_of(t, odd=False))
    reader = RowReader(pa.schema([("c", t)]))
    try:
        kept = reader.read({"c": value})
    except SchemaError as e:  # times finer or further than the column, and nulls
        assert any(word in str(e) for word in ("datetime", "timedelta", "a time without", "a date,", "not nullable"))
    else:
        assert reader.batch([kept]).num_rows == 1
        assert reader.read(kept) == kept or _has_nan(kept)


def _has_nan(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    return isinstance(value, float) and math.isnan(value)
