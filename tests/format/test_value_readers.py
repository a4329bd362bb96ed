"""Every Python value either does not fit, and that is said at once, or reads back as what it was."""

from __future__ import annotations

import copy
import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import SchemaError
from spillable_stream.format.row_values import RowReader
from tests.support.examples import examples
from tests.support.python_values import TYPES, change, is_read_as, read_back, values_of


@settings(max_examples=examples(1500))
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


@settings(max_examples=examples(500))
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


def test_a_series_of_pandas_is_a_list() -> None:
    pandas = pytest.importorskip("pandas")
    assert read_back(pandas.Series([1, 2]), pa.list_(pa.int64())) == [1, 2]
    assert read_back(pandas.Series([1.5, 2.5])[1:], pa.list_(pa.float32())) == [2.5]
    assert read_back(pandas.Series(["a", None]), pa.list_(pa.string())) == ["a", None]
    assert read_back(pandas.Index([1, 2]), pa.list_(pa.int64())) == [1, 2]
    days = pandas.Series(pandas.to_datetime(["2020-01-01"]))
    assert read_back(days, pa.list_(pa.timestamp("us"))) == [dt.datetime(2020, 1, 1)]


def test_the_values_of_a_mapping_and_chunks_of_arrow_are_a_list() -> None:
    assert read_back({"a": 1, "b": 2}.values(), pa.list_(pa.int64())) == [1, 2]
    assert read_back(pa.chunked_array([[1], [None]]), pa.list_(pa.int64())) == [1, None]


@pytest.mark.parametrize("null", [pa.scalar(None, pa.int64()), pa.NULL], ids=["of a type", "of none"])
def test_a_null_scalar_of_arrow_is_nothing_where_there_may_be_nothing(null: pa.Scalar) -> None:
    numbers, row = pa.list_(pa.int64()), pa.struct([("f", pa.int64())])
    assert read_back(null, pa.int64()) is None
    assert read_back(null, pa.binary()) is None
    assert read_back(null, numbers) is None
    assert read_back([1, null], numbers) == [1, None]
    assert read_back((null,), row) == {"f": None}
    assert read_back({"a": null, "b": 1}, pa.map_(pa.string(), pa.int64())) == [("a", None), ("b", 1)]
    required = pa.list_(pa.field("item", pa.int64(), nullable=False))
    key = (pa.map_(pa.string(), pa.int64()), [(null, 1)])
    for t, value, nullable in ((pa.int64(), null, False), (required, [null], True), (*key, True)):
        with pytest.raises(SchemaError, match="'c"):
            read_back(value, t, nullable)


def test_a_map_can_be_a_list_of_dictionaries_of_a_key_and_a_value() -> None:
    t = pa.map_(pa.string(), pa.int64())
    assert read_back([{"key": "a", "value": 1}, {"value": None, "key": "b"}], t) == [("a", 1), ("b", None)]
    for wrong in ([{"key": "a"}], [{"key": "a", "value": 1, "more": 2}], [{"k": "a", "v": 1}]):
        with pytest.raises(SchemaError, match=r"'c', .* takes a mapping, or a list of pairs"):
            read_back(wrong, t)
