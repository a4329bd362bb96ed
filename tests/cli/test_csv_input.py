"""CSV, as a load reads it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import SchemaError
from spillable_stream.cli.load_input import Format, open_input
from tests.support.loads import loaded_rows


def test_csv_has_names_and_values_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text('n,s\n1,"x\ny"\n2,\n')
    assert loaded_rows(file, Format.CSV) == [{"n": 1, "s": "x\ny"}, {"n": 2, "s": None}]
    assert loaded_rows(file, Format.CSV, pa.schema([("n", pa.string())]))[0]["n"] == "1"
    file.write_text("n,s\n1,2\n3\n")
    with pytest.raises(SchemaError, match=r"f\.csv can't be read as (CSV|csv)"):
        loaded_rows(file, Format.CSV)


def test_csv_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\n1\n")
    with pytest.raises(SchemaError, match=r"a\.csv can't be read as csv: its columns' names are not UTF-8"):
        open_input(str(tmp_path / "a.csv"), Format.CSV, None, as_rows=True)


def test_columns_of_csv_are_inferred_without_a_thread_that_reads_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.csv").write_text("a,b\n1,2\n3\n")
    opened = list[object]()
    monkeypatch.setattr(pa.csv, "open_csv", lambda file, *_: opened.append(file) or pa.csv.CSVStreamingReader())
    with pytest.raises(SchemaError):
        open_input(str(tmp_path / "f.csv"), Format.CSV, None, as_rows=False)
    assert isinstance(opened[0], pa.NativeFile)
