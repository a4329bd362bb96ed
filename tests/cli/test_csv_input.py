"""CSV, as a load reads it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

from spillable_stream import SchemaError
from spillable_stream.cli import csv_input
from spillable_stream.cli.load_input import Format, open_input
from tests.support.loads import loaded_rows


@pytest.mark.parametrize("value", ['"', b"\xff", "7", "é"], ids=str)
def test_a_value_that_is_too_long_for_a_number_is_a_text_or_bytes(tmp_path: Path, value: str | bytes) -> None:
    data = value if isinstance(value, bytes) else value.encode()
    long = data * 5_000_000
    (tmp_path / "f.csv").write_bytes(b'n,v\n1,"' + long.replace(b'"', b'""') + b'"\n2,y\n')
    (row, second) = loaded_rows(tmp_path / "f.csv", Format.CSV)
    assert [row["n"], second["n"]] == [1, 2]
    assert row["v"] == (long if isinstance(value, bytes) else long.decode())
    assert second["v"] == ("y" if isinstance(value, str) else b"y")


def test_csv_has_names_and_values_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text('n,s\n1,"x\ny"\n2,\n')
    assert loaded_rows(file, Format.CSV) == [{"n": 1, "s": "x\ny"}, {"n": 2, "s": None}]
    assert loaded_rows(file, Format.CSV, pa.schema([("n", pa.string())]))[0]["n"] == "1"
    file.write_text("n,s\n1,2\n3\n")
    with pytest.raises(SchemaError, match=r"f\.csv can't be read as (CSV|csv)"):
        loaded_rows(file, Format.CSV)


def test_csv_whose_names_are_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\n1\n")
    with pytest.raises(SchemaError, match=r"a\.csv can't be read as csv: its columns' names are not UTF-8"):
        open_input(str(tmp_path / "a.csv"), Format.CSV, None, as_rows=True)


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("kind", ["", "quoted", "carriage"])
def test_rows_of_csv_are_whole_however_the_file_is_read(
    tmp_path: Path, chunk_bytes: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_input, "CHUNK_BYTES", chunk_bytes)
    long = "z" * 100
    text, rows = {
        "": (f'n,s\n1,5" pipe\n\n2,{long}\n3,', ['5" pipe', long, None]),
        "quoted": (f'"n","s"\n1,"x\n""y"\n2,"{long}"\n3,""', ['x\n"y', long, ""]),
        "carriage": (f"n,s\r1,a\r2,{long}\r\n3,c\r", ["a", long, "c"]),
    }[kind]
    for begin in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "f.csv").write_bytes(begin + text.encode())
        found = loaded_rows(tmp_path / "f.csv", Format.CSV, pa.schema([("n", pa.int64()), ("s", pa.string())]))
        assert found == [{"n": n, "s": s} for n, s in enumerate(rows, 1)]


def test_a_row_of_csv_may_be_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(f"n,s\n1,{'x' * 3_000_000}\n2,y\n")
    rows = loaded_rows(tmp_path / "f.csv", Format.CSV)
    assert [len(str(row["s"])) for row in rows] == [3_000_000, 1]
    assert [row["n"] for row in rows] == [1, 2], "such a row says the types, too"
    (tmp_path / "f.csv").write_text(f"n,{'x' * 3_000_000}\n1,y\n")
    assert [row["n"] for row in loaded_rows(tmp_path / "f.csv", Format.CSV)] == [1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("3", r"f\.csv can't be read as CSV after [1-9].*Row #200002: Expected 2 columns, got 1: 3"),
        ("x,3", r"f\.csv can't be read as CSV after [1-9].*Row #200002: .*invalid value 'x'"),
    ],
)
def test_a_row_of_csv_that_does_not_fit_is_named_by_its_number_in_the_file(tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "f.csv").write_text("n,s\n" + "1,2 and more\n" * 200_000 + row + "\n")
    source = open_input(str(tmp_path / "f.csv"), Format.CSV, None, as_rows=True)
    with pytest.raises(SchemaError, match=said):
        list(source.batches())
    source.close()


def test_a_quote_in_csv_that_is_not_closed_is_refused_where_its_row_begins(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text('n,s\n1,a\n2,"b\n3,c\n')
    source = open_input(str(tmp_path / "f.csv"), Format.CSV, None, as_rows=True)
    with pytest.raises(SchemaError, match=r"after 1 row: the row that begins with '2,\"b.n3,c.n' has a quote that is "):
        list(source.batches())
    source.close()


def test_a_row_of_csv_that_is_too_long_for_an_event_is_refused_before_the_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_input, "CHUNK_BYTES", 100)
    monkeypatch.setattr(csv_input, "_MOST_ROW_BYTES", 1000)
    (tmp_path / "f.csv").write_text('n,s\n1,a\n2,"b' + "c" * 10_000)
    source = open_input(str(tmp_path / "f.csv"), Format.CSV, pa.schema([("n", pa.int64())]), as_rows=True)
    with pytest.raises(SchemaError, match=r"after 1 row: the row that begins with '2,\"bc+' is longer than any event"):
        list(source.batches())
    assert source.done < 3000
    source.close()


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_the_mark_of_utf_8_comes_before_quotes_and_only_at_the_beginning(
    tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_input, "CHUNK_BYTES", chunk_bytes)
    (tmp_path / "f.csv").write_text('\ufeff"a\nb",c\nx,1\n\ufeffx,2\n\ufeff"x",3\n')
    for known in (None, pa.schema([("a\nb", pa.string()), ("c", pa.int64())])):
        assert [row["a\nb"] for row in loaded_rows(tmp_path / "f.csv", Format.CSV, known)] == [
            "x", "\ufeffx", '\ufeff"x"',
        ]  # fmt: skip


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("known", [None, pa.schema([("n", pa.int64()), ("s", pa.string())])])
def test_csv_in_utf_16_is_refused_with_what_to_do(tmp_path: Path, coding: str, known: pa.Schema | None) -> None:
    (tmp_path / "f.csv").write_text("n,s\r\n1,a\r\n", coding)
    with pytest.raises(SchemaError, match=r"f\.csv can't be read as .* UTF-8.*convert it"):
        loaded_rows(tmp_path / "f.csv", Format.CSV, known)


@pytest.mark.parametrize("known", [None, pa.schema([("n", pa.int64()), ("s", pa.string())])])
def test_csv_may_have_nothing_but_names_also_without_the_end_of_their_line(
    tmp_path: Path, known: pa.Schema | None
) -> None:
    for text in ("n,s", "n,s\r", "\n\nn,s\n\n"):
        (tmp_path / "f.csv").write_text(text)
        assert loaded_rows(tmp_path / "f.csv", Format.CSV, known) == []


def test_csv_without_a_line_of_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes(b"\n\n")
    for schema in (None, pa.schema([("n", pa.int64())])):
        with pytest.raises(SchemaError, match=r"f\.csv can't be read as .*(Empty CSV|it has no line of names)"):
            loaded_rows(tmp_path / "f.csv", Format.CSV, schema)


def test_arrow_never_reads_csv_from_python_whose_threads_would_outlive_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.csv").write_text("a,b\n1,2\n3\n")
    read, given = pa.csv.read_csv, list[object]()
    monkeypatch.setattr(pa.csv, "read_csv", lambda file, *more: given.append(file) or read(file, *more))
    for schema in (None, pa.schema([("a", pa.int64()), ("b", pa.int64())])):
        given.clear()
        with pytest.raises(SchemaError):
            loaded_rows(tmp_path / "f.csv", Format.CSV, schema)
        assert given and all(type(file) is pa.BufferReader for file in given)


HUGE = 18_446_744_073_709_551_617


@pytest.mark.parametrize("before", [[], ["1.5"], ["1"] * 400_000])
def test_a_whole_number_in_csv_that_its_column_would_round_is_refused_with_its_row_and_column(
    tmp_path: Path, before: list[str]
) -> None:
    (tmp_path / "f.csv").write_text("\n".join(["s,id", *(f"x,{n}" for n in before), f"x,{HUGE}", ""]))
    known = pa.schema([("s", pa.string()), ("id", pa.float64())])
    with pytest.raises(SchemaError) as caught:
        loaded_rows(tmp_path / "f.csv", Format.CSV, known)
    assert f"Row #{len(before) + 2}, column 'id': {HUGE} is a whole number that the type double" in str(caught.value)


@pytest.mark.parametrize("before", [[], ["1.5"], ["1"]])
def test_a_column_of_csv_with_a_number_that_no_type_holds_is_of_texts_where_types_are_inferred(
    tmp_path: Path, before: list[str]
) -> None:
    (tmp_path / "f.csv").write_text("\n".join(["id,x", *(f"{n},1.5" for n in before), f"{HUGE},2", ""]))
    found = loaded_rows(tmp_path / "f.csv", Format.CSV)
    assert [row["id"] for row in found] == [*before, str(HUGE)] and found[-1]["x"] == 2.0
    (tmp_path / "f.csv").write_text("\n".join(["id", *["1.5"] * 300_000, f"{HUGE}", ""]))
    with pytest.raises(SchemaError, match=f"Row #300002, column 'id': {HUGE} is a whole number that the type double"):
        loaded_rows(tmp_path / "f.csv", Format.CSV)


def test_a_whole_number_in_csv_that_its_column_holds_is_stored_with_every_digit(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(f"d,s,x\n{HUGE},{HUGE},{2**70}\n")
    known = pa.schema([("d", pa.decimal128(38, 0)), ("s", pa.string()), ("x", pa.float64())])
    assert loaded_rows(tmp_path / "f.csv", Format.CSV, known) == [
        {"d": Decimal(HUGE), "s": str(HUGE), "x": float(2**70)}
    ]


@pytest.mark.parametrize("text", ["007", "-007", "00", "0x10", "007.5", "+4912345", '"010"', " 01"])
@pytest.mark.parametrize("others", [["12"], ["1.5"], ["12", ""]])
def test_a_column_of_csv_with_a_number_that_is_written_as_no_number_is_of_texts_where_types_are_inferred(
    tmp_path: Path, text: str, others: list[str]
) -> None:
    (tmp_path / "f.csv").write_text("\n".join(["n,code", *(f"0,{n}" for n in others), f"1.5,{text}", ""]))
    found = loaded_rows(tmp_path / "f.csv", Format.CSV)
    assert [row["code"] for row in found] == [*(n or None for n in others), text.strip('"')]
    assert [row["n"] for row in found] == [*[0.0] * len(others), 1.5]
    known = pa.schema([("n", pa.float64()), ("code", pa.string())])
    assert loaded_rows(tmp_path / "f.csv", Format.CSV, known) == found


def test_a_number_in_csv_that_is_written_as_no_number_is_refused_where_its_column_was_inferred_without_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "f.csv").write_text("\n".join(["s,zip", *["x,10115"] * 300_000, "x,01067", ""]))
    with pytest.raises(SchemaError, match="Row #300002, column 'zip': 01067 is not written as a number"):
        loaded_rows(tmp_path / "f.csv", Format.CSV)
    known = pa.schema([("s", pa.string()), ("zip", pa.int64())])
    assert loaded_rows(tmp_path / "f.csv", Format.CSV, known)[-1]["zip"] == 1067


@pytest.mark.parametrize("text", ["0", "-0", "0.5", "-0.5", "10", "1e5", "+0.5", "100"])
def test_a_number_in_csv_that_is_written_as_one_stays_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.csv").write_text(f"s,x\n007,1.5\n0x1,{text}\n")
    assert loaded_rows(tmp_path / "f.csv", Format.CSV) == [{"s": "007", "x": 1.5}, {"s": "0x1", "x": float(text)}]


def test_a_code_in_csv_is_a_number_where_its_column_is_known_to_be_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("n,x\n007,+1\n")
    known = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    for more in (False, True):
        source = open_input(str(tmp_path / "f.csv"), Format.CSV, known, as_rows=True, may_add_columns=more)
        assert source.schema == known
        assert [batch.to_pylist() for batch in source.batches()] == [[{"n": 7, "x": 1.0}]]
        source.close()


def test_a_number_in_csv_that_its_column_would_make_infinite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("x,f\n1,inf\n1e400,1e39\n")
    assert loaded_rows(tmp_path / "f.csv", Format.CSV) == [{"x": "1", "f": float("inf")}, {"x": "1e400", "f": 1e39}]
    for name, of in (("x", pa.float64()), ("f", pa.float32())):
        known = pa.schema([("x", pa.string()), ("f", pa.float64())])
        known = known.set(known.get_field_index(name), pa.field(name, of))
        with pytest.raises(
            SchemaError, match=f"Row #3, column '{name}': it is larger than any number of the type {of}"
        ):
            loaded_rows(tmp_path / "f.csv", Format.CSV, known)


def test_only_an_empty_value_in_csv_is_null(tmp_path: Path) -> None:
    words = ["NA", "null", "NULL", "nan", "N/A", "#N/A"]
    (tmp_path / "f.csv").write_text("".join(f"{w}\n" for w in ["s", *words]))
    for known in (None, pa.schema([("s", pa.string())])):
        assert [row["s"] for row in loaded_rows(tmp_path / "f.csv", Format.CSV, known)] == words
    (tmp_path / "f.csv").write_text("x,n\n1.5,1\nnan,\n-inf,2\n,3\n")
    assert str(loaded_rows(tmp_path / "f.csv", Format.CSV)) == str(
        [{"x": 1.5, "n": 1}, {"x": float("nan"), "n": None}, {"x": float("-inf"), "n": 2}, {"x": None, "n": 3}]
    )
    (tmp_path / "f.csv").write_text("n\nNA\n")
    with pytest.raises(SchemaError, match=r"Row #2.*invalid value 'NA'"):
        loaded_rows(tmp_path / "f.csv", Format.CSV, pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize("known", [None, pa.schema([("s", pa.string())])])
def test_bytes_in_csv_that_are_not_text_are_bytes_or_refused(tmp_path: Path, known: pa.Schema | None) -> None:
    (tmp_path / "f.csv").write_bytes(b"s\n\xff\n")
    if known is None:
        assert loaded_rows(tmp_path / "f.csv", Format.CSV) == [{"s": b"\xff"}]
    else:
        with pytest.raises(SchemaError, match=r"Row #2.*UTF8"):
            loaded_rows(tmp_path / "f.csv", Format.CSV, known)


@pytest.mark.parametrize("other", [";", "|", "\t"])
@pytest.mark.parametrize("known", [None, pa.schema([("n", pa.int64()), ("s", pa.string())])])
def test_csv_that_something_else_divides_is_refused_with_the_option_and_never_one_column(
    tmp_path: Path, other: str, known: pa.Schema | None
) -> None:
    file, text = tmp_path / "f.csv", "n,s\n1,x\n2,y\n".replace(",", other)
    for whole in (text, text.replace("x", "1,5"), text[:3], '"n"' + text[1:]):
        file.write_text(whole)
        with pytest.raises(
            SchemaError, match=r"f\.csv can't be read as .*has no comma: give .* --delimiter '?(;|\||tab)"
        ):
            loaded_rows(file, Format.CSV, known)
    file.write_text(text)
    assert loaded_rows(file, Format.CSV, known, other) == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]


def test_a_name_with_a_semicolon_is_one_where_that_is_said_or_there_is_a_comma_too(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("a;b\n1;2\n")
    assert loaded_rows(tmp_path / "f.csv", Format.CSV, None, ",") == [{"a;b": "1;2"}]
    assert loaded_rows(tmp_path / "f.csv", Format.CSV, pa.schema([("a;b", pa.string())])) == [{"a;b": "1;2"}]
    (tmp_path / "f.csv").write_text("a;b,c\n1;2,3\n")
    assert loaded_rows(tmp_path / "f.csv", Format.CSV) == [{"a;b": "1;2", "c": 3}]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
def test_rows_with_any_delimiter_are_whole_and_their_codes_stay(
    tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_input, "CHUNK_BYTES", chunk_bytes)
    for other in (";", "\t", "|", " ", "^", "]", "\\", "\x01"):
        text = '"a b",zip,x\n"1COMMA""\n2",007,1.5\n"",0x1,2\n'.replace(",", other).replace("COMMA", ",")
        (tmp_path / "f.csv").write_text(text)
        assert loaded_rows(tmp_path / "f.csv", Format.CSV, None, other) == [
            {"a b": '1,"\n2', "zip": "007", "x": 1.5}, {"a b": "", "zip": "0x1", "x": 2.0},
        ], other  # fmt: skip
