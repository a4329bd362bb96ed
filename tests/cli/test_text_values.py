"""What an export writes is put back as it was, or refused in a sentence that names a format."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream import Channel, SchemaError
from spillable_stream.channel.event import ID_COLUMN
from spillable_stream.cli.load_input import Format
from spillable_stream.cli.text_values import is_readable, values_of_json
from tests.support.arrow_values import ACCEPTED, FLOATS, INTEGERS, KINDS, LEAVES, TEXTS, TIMES, extremes, of_kind
from tests.support.command_line import run
from tests.support.loads import loaded_rows

FORMATS = ("arrow", "parquet", "jsonl", "csv")
DECIMALS = [pa.decimal128(38, 0), pa.decimal128(9, 4), pa.decimal256(76, 10)]


def rows(path: Path) -> list[dict[str, Any]]:
    with Channel(path, create=False) as channel:
        return [row for batch in channel.read() for row in batch.drop_columns([ID_COLUMN]).to_pylist()]


def put_back(directory: Path, column: pa.Array, format: str) -> str:
    """Put a column, export it, put that into a channel like the first one, and return "" or why that was refused."""
    batch = pa.record_batch([column, pa.array(range(len(column)))], ["c", "n"])
    first, second, out = directory / "first", directory / f"second.{format}", directory / f"out.{format}"
    Channel(second, minimum_required_space=0, schema=batch.schema).close()
    if not first.exists():
        with Channel(first, minimum_required_space=0, schema=batch.schema) as channel, channel.put_transaction() as tx:
            tx.put_batch(batch)
    for done in (run("export", first, out), run("put", second, out)):
        if done.exit_code:
            assert "SchemaError" in done.output and not rows(second)
            return done.output
    assert repr(rows(second)) == repr(rows(first))  # so that nan is nan
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_was_exported_is_put_back_or_refused_with_a_format_that_is(tmp_path: Path, name: str) -> None:
    refused = {format: put_back(tmp_path, LEAVES[name], format) for format in FORMATS}
    assert refused.pop("arrow") == ""
    assert all("rrow" in why for why in refused.values() if why)
    assert not (is_readable(LEAVES[name].type) and (refused["jsonl"] or refused["csv"]))


MAPS = {
    "a text twice": pa.array([[("a", 1), ("a", 2)], [("b", 3)], [], None], pa.map_(pa.string(), pa.int64())),
    "a number twice": pa.array([[(1, 1), (1, None)], [(2, 3)]], pa.map_(pa.int64(), pa.int64())),
    "days": pa.array([[(1, 1), (1, 2)]], pa.map_(pa.date32(), pa.int64())),
    "floats": pa.array([[(1.5, 1), (math.inf, 2)]], pa.map_(pa.float64(), pa.int64())),
    "bytes": pa.array([[(b"\xff", "x"), (b"a", None)]], pa.map_(pa.binary(), pa.string())),
    "true and false": pa.array([[(True, 1), (False, 2)]], pa.map_(pa.bool_(), pa.int64())),
    "structs": pa.array([[({"a": 1}, [[("k", 1), ("k", 2)]])]],
                        pa.map_(pa.struct([("a", pa.int8())]), pa.list_(pa.map_(pa.string(), pa.int8())))),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_put_back_whatever_its_keys_are_and_with_each_of_them(tmp_path: Path, name: str) -> None:
    assert not any(put_back(tmp_path, MAPS[name], format) for format in FORMATS)


@given(st.sampled_from([*INTEGERS, *FLOATS, *TIMES, *TEXTS, *DECIMALS, pa.bool_()]), st.data())
def test_a_map_with_any_keys_some_of_them_twice_is_put_back(of: pa.DataType, data: st.DataObject) -> None:
    ends = [True, False] if pa.types.is_boolean(of) else extremes(of)
    keys = pa.array(data.draw(st.lists(st.sampled_from(ends), min_size=1, max_size=3)), of)
    column = pa.MapArray.from_arrays([0, len(keys)], keys, pa.array(range(len(keys))))
    with tempfile.TemporaryDirectory() as directory:
        for format in ("jsonl", "csv"):
            assert put_back(Path(directory), column, format) == ""


def test_a_map_of_whole_numbers_is_put_back(tmp_path: Path) -> None:
    column = pa.array([[(1, "a"), (-2, None)], None], pa.map_(pa.int32(), pa.string()))
    assert not any(put_back(tmp_path, column, format) for format in FORMATS)


def test_times_with_more_digits_than_their_column_are_refused_and_zeros_taken() -> None:
    assert values_of_json(["00:00:00.001000", None], pa.time32("ms")).to_pylist() == [dt.time(0, 0, 0, 1000), None]
    with pytest.raises(ValueError, match=r"001001"):
        values_of_json(["00:00:00.001001"], pa.time32("ms"))


@pytest.mark.parametrize(
    "row",
    ['{"c": "x"}', '{"c": 1e400}', '{"c": 99999999999999999999}', '{"c": NaN}', '{"c": {}}', '{"c": [1]}', "[1]",
     '{"c": true}', "5", "{"],
)  # fmt: skip
@pytest.mark.parametrize("of", [pa.duration("us"), pa.date32(), pa.time64("us"), pa.decimal128(5, 2), pa.binary(2)])
def test_what_is_not_a_value_is_refused_with_its_line(tmp_path: Path, of: pa.DataType, row: str) -> None:
    (tmp_path / "f.jsonl").write_text(f'{{"c": null}}\n{row}\n')
    with pytest.raises(SchemaError, match="line 2"):
        loaded_rows(tmp_path / "f.jsonl", Format.JSONL, pa.schema([("c", of)]))


@pytest.mark.parametrize("cell", ["x", "1e400", '"[1"', "[" * 100_000, '"{""base64"": ""x""}"'], ids=lambda c: c[:9])
@pytest.mark.parametrize("of", [pa.duration("us"), pa.list_(pa.int64()), pa.date64(), pa.binary(7)], ids=str)
def test_what_is_not_a_value_is_refused_with_its_row_and_column(tmp_path: Path, of: pa.DataType, cell: str) -> None:
    (tmp_path / "f.csv").write_text(f"c,n\n,1\n{cell},2\n")
    with pytest.raises(SchemaError, match="Row #3"):
        loaded_rows(tmp_path / "f.csv", Format.CSV, pa.schema([("c", of), ("n", pa.int64())]))


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    of = draw(st.sampled_from([*INTEGERS, *FLOATS, *TIMES, *TEXTS, *DECIMALS, pa.bool_()]))
    ends = [True, False] if pa.types.is_boolean(of) else extremes(of)
    more = [math.nan, math.inf, -math.inf, -0.0] if of in FLOATS else []
    texts = ['"', "\r\n", " ", "007", "null", '{"base64": "x"}', "[1]", "true", "\x00"] if of in TEXTS[:2] else []
    if of in TEXTS[2:4]:
        more = [b'{"base64": "YQ=="}', b"", b'"', b"\xff", b"12"]
    values = draw(st.lists(st.sampled_from([None, *ends, *more, *texts]), min_size=1, max_size=4))
    return of_kind(pa.array(values, of), draw(st.sampled_from(KINDS)))


@given(columns(), st.sampled_from(FORMATS))
def test_any_values_of_any_depth_that_were_exported_are_put_back(column: pa.Array, format: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert put_back(Path(directory), column, format) == ""
