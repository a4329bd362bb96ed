"""What a load reads."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from spillable_stream import OptionError, SchemaError
from spillable_stream.cli import load_input
from spillable_stream.cli.load_input import Format, format_of, open_input


def rows(file: Path, kind: Format, schema: pa.Schema | None = None) -> list[dict[str, object]]:
    source = open_input(str(file), kind, schema, as_rows=kind is not Format.LINES)
    try:
        return [row for batch in source.batches() for row in batch.to_pylist()]
    finally:
        source.close()


def bodies(file: Path) -> list[object]:
    return [row["body"] for row in rows(file, Format.LINES)]


def test_the_name_says_the_format() -> None:
    names = ["a.jsonl", "a.ndjson.gz", "A.CSV", "a.parquet", "a.arrows", "a.log", "a", "a.gz", "-"]
    assert [str(format_of(n)) for n in names] == [
        "jsonl", "jsonl", "csv", "parquet", "arrow", "lines", "lines", "lines", "lines",
    ]  # fmt: skip


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 1 << 20])
def test_lines_are_whole_however_the_file_is_read(
    tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_input, "_CHUNK_BYTES", chunk_bytes)
    file = tmp_path / "f"
    for text, lines in {
        b"": [],
        b"a": [b"a"],
        b"a\n": [b"a"],
        b"\n\n": [b"", b""],
        b"ab\r\n\ncd": [b"ab\r", b"", b"cd"],
    }.items():
        file.write_bytes(text)
        assert bodies(file) == lines, text


def test_compressed_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "f.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert bodies(tmp_path / "f.gz") == [b"a", b"b"]


def test_json_lines_are_rows_and_the_first_say_the_types(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text('{"n": 1, "s": null}\n\n{"n": 2, "s": "x"}')
    assert rows(file, Format.JSONL, pa.schema([("n", pa.int64()), ("s", pa.string())])) == [
        {"n": 1, "s": None}, {"n": 2, "s": "x"},
    ]  # fmt: skip
    source = open_input(str(file), Format.JSONL, None, as_rows=True)
    assert source.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])
    source.close()


def test_json_rows_that_were_exported_are_read_without_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "exported.jsonl"
    file.write_text('{"n": 1, "write_order_id": 7}\n{"n": 2, "write_order_id": 8}\n')
    assert rows(file, Format.JSONL, pa.schema([("n", pa.int64())])) == [{"n": 1}, {"n": 2}]


def test_csv_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\n1\n")
    with pytest.raises(SchemaError, match=r"a\.csv can't be read as csv: its columns' names are not UTF-8"):
        open_input(str(tmp_path / "a.csv"), Format.CSV, None, as_rows=True)


def test_csv_has_names_and_values_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text('n,s\n1,"x\ny"\n2,\n')
    assert rows(file, Format.CSV) == [{"n": 1, "s": "x\ny"}, {"n": 2, "s": None}]
    assert rows(file, Format.CSV, pa.schema([("n", pa.string())]))[0]["n"] == "1"
    file.write_text("n,s\n1,2\n3\n")
    with pytest.raises(SchemaError, match=r"f\.csv can't be read as (CSV|csv)"):
        rows(file, Format.CSV)


def test_parquet_and_arrow_are_read_as_they_are(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int16())})
    pa.parquet.write_table(table, tmp_path / "f.parquet")
    with pa.ipc.new_stream(str(tmp_path / "f.arrows"), table.schema) as stream:
        stream.write_table(table)
    with pa.ipc.new_file(str(tmp_path / "f.arrow"), table.schema) as stream:
        stream.write_table(table)
    for name in ("f.parquet", "f.arrows", "f.arrow"):
        file = tmp_path / name
        source = open_input(str(file), format_of(name), None, as_rows=True)
        assert source.schema == table.schema, name
        assert pa.Table.from_batches(source.batches()) == table, name
        source.close()


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
        ('{"n": 1}{"n": 2}\n', "line 1: not a whole JSON object: "),
        ("{\n", "line 1: not a whole JSON object: "),
        ('{"n": "x"}\n', "lines 1 to 1: not JSON of the channel's columns: "),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(text)
    with pytest.raises(SchemaError, match=re.escape(f"f.jsonl, {said}")):
        rows(file, Format.JSONL, pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize("as_rows", [True, False])
def test_an_input_with_two_columns_of_one_name_is_refused(tmp_path: Path, as_rows: bool) -> None:
    (tmp_path / "f.csv").write_text("a,b,a\n1,2,3\n")
    pa.parquet.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "f.parquet")
    for name in ("f.csv", "f.parquet"):
        with pytest.raises(SchemaError, match=rf"{name} has more than one column 'a': rename all but one"):
            open_input(str(tmp_path / name), format_of(name), None, as_rows=as_rows)


def test_an_input_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nothing can't be read: No such file"):
        open_input(str(tmp_path / "nothing"), Format.LINES, None, as_rows=False)
    (tmp_path / "f.parquet").write_bytes(b"no Parquet")
    with pytest.raises(SchemaError, match=r"f\.parquet can't be read as parquet"):
        open_input(str(tmp_path / "f.parquet"), Format.PARQUET, None, as_rows=True)


def test_a_compressed_file_of_lines_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.log.gz").write_bytes(b"not gzip")
    source = open_input(str(tmp_path / "app.log.gz"), Format.LINES, None, as_rows=False)
    with pytest.raises(SchemaError, match=r"app\.log\.gz can't be read as lines after 0 rows: zlib"):
        list(source.batches())
    source.close()


def test_columns_of_csv_are_inferred_without_a_thread_that_reads_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.csv").write_text("a,b\n1,2\n3\n")
    opened = list[object]()
    monkeypatch.setattr(pa.csv, "open_csv", lambda file, *_: opened.append(file) or pa.csv.CSVStreamingReader())
    with pytest.raises(SchemaError):
        open_input(str(tmp_path / "f.csv"), Format.CSV, None, as_rows=False)
    assert isinstance(opened[0], pa.NativeFile)
