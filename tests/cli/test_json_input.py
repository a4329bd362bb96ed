"""Lines of JSON, as a load reads them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import SchemaError
from spillable_stream.cli import input_source
from spillable_stream.cli.load_input import Format, open_input
from tests.support.command_line import run
from tests.support.loads import loaded_rows


def test_json_lines_are_rows_and_the_first_say_the_types(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text('{"n": 1, "s": null}\n\n{"n": 2, "s": "x"}')
    assert loaded_rows(file, Format.JSONL, pa.schema([("n", pa.int64()), ("s", pa.string())])) == [
        {"n": 1, "s": None}, {"n": 2, "s": "x"},
    ]  # fmt: skip
    source = open_input(str(file), Format.JSONL, None, as_rows=True)
    assert source.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])
    source.close()


def test_json_rows_that_were_exported_are_read_without_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "exported.jsonl"
    file.write_text('{"n": 1, "write_order_id": 7}\n{"n": 2, "write_order_id": 8}\n')
    assert loaded_rows(file, Format.JSONL, pa.schema([("n", pa.int64())])) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"n": 1}\n\n{"n": 2, "cur": "EUR"}\n',
            "line 3: the channel has no column 'cur': leave it out, or give --typed",
        ),
        ('{"n": 1}\n{"n": 2\n', "line 2: not a whole JSON object: "),
        ('{"n": 1,\n "m": 2}\n', "line 1: not a whole JSON object: "),
        ('[{"n": 1}]\n', "line 1: not a JSON object, but a list: write an object on each line"),
        ("7\n", "line 1: not a JSON object, but a number: write an object on each line"),
        ('"n"\n', "line 1: not a JSON object, but a text: write an object on each line"),
        ("true\n", "line 1: not a JSON object, but true or false: write an object on each line"),
        ('{"n": 1}\n null\r\n', "line 2: not a JSON object, but null: write an object on each line"),
        ('{"n": 1}{"n": 2}\n', "line 1: not a whole JSON object: "),
        ("{\n", "line 1: not a whole JSON object: "),
        ('{"n": "x"}\n', "line 1, column 'n': 'x' is not of the column's type, int64"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(text)
    with pytest.raises(SchemaError, match=re.escape(f"f.jsonl, {said}")):
        loaded_rows(file, Format.JSONL, pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize("text", ["{\n", "[\n", '{"n": 1,\n "m": 2}\n'])
def test_rows_that_are_printed_for_people_are_refused_with_what_brings_them_into_lines(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(SchemaError, match="bring each object into one line, as jq -c does"):
        loaded_rows(tmp_path / "f.json", Format.JSONL)


def test_what_never_had_a_value_is_of_strings_also_inside_of_lists_and_objects(tmp_path: Path) -> None:
    rows = [{"a": None, "tags": [], "by": {"name": None, "ids": [None]}, "n": 1}]
    (tmp_path / "f.jsonl").write_text(f"{json.dumps(rows[0])}\n")
    assert loaded_rows(tmp_path / "f.jsonl", Format.JSONL) == rows
    done = run("put", tmp_path / "q", tmp_path / "f.jsonl", "--typed")
    assert done.exit_code == 0, done.stderr
    more = {"a": "x", "tags": ["y"], "by": {"name": "z", "ids": ["1"]}, "n": 2}
    (tmp_path / "f.jsonl").open("a").write(f"{json.dumps(more)}\n")
    assert run("put", tmp_path / "q", tmp_path / "f.jsonl").stdout.endswith("stored 1 event, 2 to 2; 1 stored before\n")


@pytest.mark.parametrize("known", [None, pa.schema([("x", pa.float64()), ("s", pa.string())])])
def test_json_may_begin_with_the_mark_of_utf_8_also_where_a_line_is_looked_at(
    tmp_path: Path, known: pa.Schema | None
) -> None:
    rows = '\ufeff{"x": 1.5, "s": "a"}\n{"x": 9007199254740992, "s": "b"}\n'
    (tmp_path / "f.jsonl").write_text(rows)
    assert [row["x"] for row in loaded_rows(tmp_path / "f.jsonl", Format.JSONL, known)] == [1.5, 2.0**53]
    (tmp_path / "f.jsonl").write_text('\ufeff{"x": 9007199254740992, "s": "b"}\n{"x": 1.5}\n')
    assert [row["x"] for row in loaded_rows(tmp_path / "f.jsonl", Format.JSONL, known)] == [2.0**53, 1.5]
    (tmp_path / "f.jsonl").write_text(f'{rows}{{"x": "y"}}\n')
    with pytest.raises(SchemaError, match=r"f\.jsonl, line 3.*(changed from number to string|'y' is not of)"):
        loaded_rows(tmp_path / "f.jsonl", Format.JSONL, known)


def test_json_that_begins_with_empty_lines_has_the_columns_of_its_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "CHUNK_BYTES", 1)  # as where a line is written at a time
    (tmp_path / "f.jsonl").write_text('\n \n{"n": 1}\n')
    assert loaded_rows(tmp_path / "f.jsonl", Format.JSONL) == [{"n": 1}]
    (tmp_path / "f.jsonl").write_text("\n \n")
    with pytest.raises(SchemaError, match=r"f\.jsonl has no rows that say which columns a typed channel has"):
        loaded_rows(tmp_path / "f.jsonl", Format.JSONL)
    (tmp_path / "f.jsonl").write_text('\n \n{"n": x}\n')
    with pytest.raises(SchemaError, match=r"f\.jsonl, line 3: "):
        loaded_rows(tmp_path / "f.jsonl", Format.JSONL)


def test_compressed_json_that_is_cut_short_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(300_000)))
    (tmp_path / "f.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SchemaError, match=r"f\.jsonl\.gz can't be read as JSON lines after [1-9][0-9,]+ rows: Trunc"):
        loaded_rows(tmp_path / "f.jsonl.gz", Format.JSONL)
