"""What a load reads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from spillable_stream import OptionError, SchemaError
from spillable_stream.cli.load_input import Format, format_of, open_input
from tests.support.command_line import run


def test_the_name_says_the_format() -> None:
    names = ["a.jsonl", "a.ndjson.gz", "A.CSV", "a.tsv.gz", "a.parquet", "a.arrows", "a.log", "a", "a.gz", "-"]
    assert [str(format_of(n)) for n in names] == [
        "jsonl", "jsonl", "csv", "csv", "parquet", "arrow", "lines", "lines", "lines", "lines",
    ]  # fmt: skip


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


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", [Format.LINES, Format.JSONL])
def test_lines_in_utf_16_are_refused_since_no_byte_ends_one(tmp_path: Path, coding: str, kind: Format) -> None:
    (tmp_path / "f").write_text('\ufeff{"n": 1}\n{"n": 2}\n', coding)
    with pytest.raises(SchemaError, match=rf"f can't be read as {kind}: .* mark of UTF-16: convert it to UTF-8"):
        open_input(str(tmp_path / "f"), kind, None, as_rows=False)


def test_json_lines_that_become_events_leave_out_the_mark_of_utf_8_and_lines_of_bytes_keep_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('\ufeff{"n": 1}\n\ufeff{"n": 2}\n')
    for kind, mark in ((Format.JSONL, ""), (Format.LINES, "\ufeff")):
        source = open_input(str(tmp_path / "f"), kind, None, as_rows=False)
        found = [body.decode() for batch in source.batches() for body in batch.column("body").to_pylist()]
        assert found == [f'{mark}{{"n": 1}}', '\ufeff{"n": 2}']
        source.close()


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


def test_what_cannot_be_read_from_standard_input_is_a_wrong_option(path: Path) -> None:
    done = run("put", path, "--format", "parquet", input="")
    assert (done.exit_code, done.stderr) == (
        2,
        "OptionError: standard input is not a file: Parquet is read from its end; save it, and give the file\n",
    )


def test_a_stream_of_arrow_is_whole_though_a_pipe_has_less_at_once(tmp_path: Path) -> None:
    table, data, file = pa.table({"n": range(100_000)}), pa.BufferOutputStream(), tmp_path / "pipe"
    with pa.ipc.new_stream(data, table.schema) as stream:
        stream.write_table(table)
    os.mkfifo(file)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(file.write_bytes, data.getvalue().to_pybytes())
        source = open_input(str(file), Format.ARROW, None, as_rows=True)
        try:
            assert pa.Table.from_batches(source.batches()) == table
        finally:
            source.close()
        written.result()
