"""A column is converted whatever is inside of it, and nothing of it changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.errors import SchemaError
from spillable_stream.format.batch import accept_batch
from spillable_stream.format.conversion import cast_column
from spillable_stream.format.types import NOT_ARROW
from spillable_stream.format.widening import misfit
from tests.support.arrow_values import FLOATS, INTEGERS, KINDS, TEXTS, TIMES, extremes, of_kind

SOURCE = pa.struct([("b", pa.int32()), ("a", pa.dictionary(pa.int8(), pa.string())), ("n", pa.null())])


TARGET = pa.struct([("a", pa.large_string()), ("b", pa.int64()), ("n", pa.date32()), ("more", pa.list_(pa.int8()))])


ROWS = [{"b": 1, "a": "x", "n": None}, None, {"b": None, "a": None, "n": None}, {"b": 3, "a": "y", "n": None}]


WANTED = [None if row is None else {"a": row["a"], "b": row["b"], "n": None, "more": None} for row in ROWS]


def inner(value: Any) -> Any:
    """Return a value with every row of `ROWS` in it replaced by what is wanted."""
    if value in ROWS and value is not None:
        return WANTED[ROWS.index(value)]
    if isinstance(value, dict):
        return {k: inner(v) for k, v in value.items()}
    return type(value)(inner(v) for v in value) if isinstance(value, list | tuple) else value


def structs() -> pa.Array:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, None, None, 1], pa.int8()), pa.array(["x", "y"]))
    fields = [pa.array([1, None, None, 3], pa.int32()), codes, pa.nulls(4)]
    return pa.StructArray.from_arrays(fields, fields=list(SOURCE), mask=pa.array([False, True, False, False]))


@pytest.mark.parametrize("kind", [*KINDS, "categories"])
def test_fields_are_reordered_widened_and_left_out_at_every_depth(kind: str) -> None:
    try:
        column = of_kind(structs(), kind)
        target = of_kind(pa.nulls(4, TARGET), "itself" if kind == "categories" else kind).type
    except NOT_ARROW:
        pytest.skip("this Arrow makes no such column")
    schema = pa.schema([("c", target)])
    for rows in (slice(0, 4), slice(1, 4), slice(2, 3), slice(4, 4)):
        part = column[rows]
        found = accept_batch(pa.record_batch({"c": part}), schema)
        found.validate(full=True)
        assert found.schema.equals(schema)
        assert found.column(0).to_pylist() == inner(part.to_pylist())


LEAVES = st.sampled_from([*INTEGERS, *FLOATS, *TIMES, *TEXTS, pa.bool_()])


TYPES = st.recursive(
    LEAVES,
    lambda inside: st.one_of(
        inside.map(pa.list_),
        inside.map(pa.large_list),
        inside.map(lambda t: pa.list_(t, 2)),
        inside.map(lambda t: pa.map_(pa.string(), t)),
        st.dictionaries(st.sampled_from("abc"), inside, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=5,
)


def values_of(t: pa.DataType, depth: int = 0) -> list[Any]:
    """Return a few values of a type, nulls and empty ones among them."""
    if pa.types.is_struct(t):
        columns = [values_of(f.type) for f in t]
        return [{f.name: c[i % len(c)] for f, c in zip(t, columns, strict=True)} for i in range(3)] + [None]
    if pa.types.is_map(t):
        return [[(str(i), v) for i, v in enumerate(values_of(t.item_type))], [], None]
    if pa.types.is_fixed_size_list(t):
        return [values_of(t.value_type)[:1] * 2, None]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [values_of(t.value_type), [], None]
    return [True, None] if pa.types.is_boolean(t) else [*extremes(t), None]


def check(source: pa.DataType, target: pa.DataType) -> None:
    """Check that a batch comes out with values that Python sees as equal, or that it is refused."""
    column = pa.array(values_of(source), source)
    batch, schema = pa.record_batch({"c": column}), pa.schema([("c", target)])
    if misfit(source, target, "c"):
        with pytest.raises(SchemaError):
            accept_batch(batch, schema)
        return
    found = accept_batch(batch, schema)
    found.validate(full=True)
    assert found.schema.equals(schema)
    assert completed(column.to_pylist(), target) == found.column(0).to_pylist()


@given(source=TYPES, target=TYPES)
def test_what_fits_comes_out_equal_and_what_does_not_is_refused(source: pa.DataType, target: pa.DataType) -> None:
    check(source, target)


@given(fields=st.dictionaries(st.sampled_from("abcd"), TYPES, max_size=4))
def test_structs_fit_with_their_fields_in_another_order_and_new_ones(fields: dict[str, pa.DataType]) -> None:
    source = pa.struct(list(fields.items()))
    turned = pa.struct([*reversed(list(source)), ("new", pa.int8())])
    assert misfit(source, source, "c") == misfit(source, turned, "c") == ""
    check(source, turned)


def completed(values: list[Any], t: pa.DataType) -> list[Any]:
    """Return values with null for every field that they lack of a type."""
    if pa.types.is_struct(t):
        return [v if v is None else {f.name: completed([v.get(f.name)], f.type)[0] for f in t} for v in values]
    if pa.types.is_map(t):
        return [v if v is None else [(k, completed([x], t.item_type)[0]) for k, x in v] for v in values]
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return [v if v is None else completed(v, t.value_type) for v in values]
    return values


def test_a_column_of_the_type_is_returned_as_it_is() -> None:
    column = pa.array([[1], None], pa.list_(pa.int64()))
    assert cast_column(column, column.type) is column


def test_nothing_but_nulls_becomes_any_type() -> None:
    for t in (pa.int8(), pa.struct([("x", pa.int8())]), pa.map_(pa.string(), pa.int8()), pa.list_(pa.int8(), 2)):
        assert cast_column(pa.nulls(2), t).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("column", "target"),
    [
        (pa.array([{"x": 1}, {"x": None}]), pa.struct([pa.field("x", pa.int64(), nullable=False)])),
        (pa.array([[1, None]]), pa.list_(pa.field("item", pa.int64(), nullable=False))),
        (
            pa.array([[("a", None)]], pa.map_(pa.string(), pa.int8())),
            pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        ),
        (pa.array([[{"x": None}]]), pa.list_(pa.struct([pa.field("x", pa.int64(), nullable=False)]))),
    ],
    ids=["struct", "list", "map", "struct in a list"],
)
def test_a_null_where_the_type_has_none_is_refused(column: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="there is a null where the type"):
        cast_column(column, target)


def test_what_is_inside_of_a_null_is_not_null() -> None:
    """As of Spark's VARIANT: its fields are not nullable, and it may be null itself."""
    target = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    column = pa.array([None, {"x": 1}], pa.struct([("x", pa.int32())]))
    assert cast_column(column, target).to_pylist() == [None, {"x": 1}]
    assert cast_column(pa.array([None, [{"x": 1}]]), pa.list_(target)).to_pylist() == [None, [{"x": 1}]]


def test_what_is_outside_of_a_slice_does_not_count() -> None:
    target = pa.list_(pa.field("item", pa.int64(), nullable=False))
    column = pa.array([[None], [1, 2], [3], [None]], pa.list_(pa.int32()))
    assert cast_column(column[1:3], target).to_pylist() == [[1, 2], [3]]
    target = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    column = pa.array([[("a", None)], [("b", 1)], [("c", None)]], pa.map_(pa.string(), pa.int32()))
    assert cast_column(column[1:2], target).to_pylist() == [[("b", 1)]]


def test_categories_are_their_values_also_of_views_and_of_categories() -> None:
    codes = pa.array([1, None, 0], pa.int8())
    for values in (pa.array(["a", "b"]), pa.array(["a", "b"], pa.string_view())):
        column = pa.DictionaryArray.from_arrays(codes, values)
        assert cast_column(column, pa.large_string()).to_pylist() == ["b", None, "a"]
    twice = pa.DictionaryArray.from_arrays(
        codes, pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([5, 6]))
    )
    assert cast_column(twice, pa.int64()).to_pylist() == [6, None, 5]


def test_a_list_of_a_fixed_length_becomes_one_of_any() -> None:
    column = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2))
    for target in (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)):
        found = cast_column(column, target)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (target, [[1, 2], None, [3, 4]])


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast_column(pa.array([300]), pa.int8())
