"""What of a line of JSON is stored as it is, and what is refused with its line and column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.cli.json_lines import Columns, LineFault, Lines, inferred_columns, parse_lines
from tests.support.command_line import run

KNOWN = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
DIGITS = 2**53 + 1  # no double is this number
HUGE = 18_446_744_073_709_551_617


def parsed(*texts: str | bytes, known: pa.Schema | None = KNOWN) -> list[dict[str, object]]:
    lines = Lines(5, [text.encode() if isinstance(text, str) else text for text in texts])
    columns = Columns(pa.schema([]), more=True) if known is None else Columns(known, more=False)
    rows: list[dict[str, object]] = parse_lines(lines, columns).to_pylist()
    return rows


def fault(*texts: str | bytes, known: pa.Schema | None = KNOWN) -> str:
    with pytest.raises(LineFault) as caught:
        parsed(*texts, known=known)
    return str(caught.value)


@pytest.mark.parametrize(
    "number", [HUGE, -HUGE, 10**25 + 1, int("9" * 4000)], ids=["long", "negative", "longer", "huge"]
)
@pytest.mark.parametrize("before", ['{"n": 1}', '{"n": 1.5}'])
def test_an_integer_that_a_double_does_not_have_is_never_rounded_where_types_are_inferred(
    number: int, before: str
) -> None:
    said = fault(before, f'{{"n": {number}}}', before, known=None)
    assert said.startswith("line 6, column 'n': ") and "a whole number that the type double would round" in said
    assert "decimal128(38, 0)" in said and len(said) < 500


def test_an_integer_of_64_bits_beside_a_fraction_is_not_rounded_either() -> None:
    assert fault('{"n": 1.5}', f'{{"n": {DIGITS}}}', known=None).startswith(f"line 6, column 'n': {DIGITS} is a whole")
    assert fault(f'{{"x": {DIGITS}}}').startswith("line 5, column 'x': ")
    assert parsed('{"n": 1.5}', f'{{"n": {DIGITS - 1}}}', known=None) == [{"n": 1.5}, {"n": float(DIGITS - 1)}]


def test_an_integer_inside_of_lists_and_objects_is_named_by_its_column() -> None:
    inner = pa.struct([("v", pa.list_(pa.float64()))])
    known = pa.schema([("a", inner), ("m", pa.map_(pa.string(), pa.float32()))])
    assert fault(f'{{"a": {{"v": [1, {DIGITS}]}}}}', known=known).startswith("line 5, column 'a': ")
    said = fault(f'{{"m": [{{"key": "k", "value": {2**24 + 1}}}]}}', known=known)
    assert said.startswith("line 5, column 'm': 16777217 is a whole number that the type float would round")


def test_an_integer_that_its_column_holds_is_stored_with_every_digit() -> None:
    known = pa.schema([("d", pa.decimal128(38, 0)), ("u", pa.uint64()), ("x", pa.float64())])
    line = f'{{"d": {HUGE}, "u": {2**64 - 1}, "x": {2**70}}}'
    assert parsed(line, known=known) == [{"d": Decimal(HUGE), "u": 2**64 - 1, "x": float(2**70)}]
    assert parsed(f'{{"s": "{HUGE}"}}')[0]["s"] == str(HUGE), "a text of digits is none"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f'{{"n": {HUGE}}}', f"column 'n': {HUGE} is not of the column's type, int64"),
        ('{"n": 1.5}', "column 'n': 1.5 is not of the column's type, int64"),
        ('{"n": NaN}', "column 'n': NaN is not of the column's type, int64"),
        ('{"s": 1}', "column 's': 1 is not of the column's type, string"),
        ('{"x": 1e400}', "column 'x': it is larger than any number of the type double"),
    ],
)
def test_a_value_that_is_not_of_its_columns_type_is_named_with_its_line_and_column(line: str, said: str) -> None:
    assert fault('{"n": 1}', line, '{"n": 2}') == f"line 6, {said}"


@pytest.mark.parametrize("number", ["1e39", "-1e39", "3.5E+38", "9" * 39 + ".5"])
def test_a_number_that_its_column_would_make_infinite_is_refused(number: str) -> None:
    known = pa.schema([("f", pa.float32())])
    said = "line 6, column 'f': it is larger than any number of the type float"
    assert fault('{"f": 1}', f'{{"f": {number}}}', known=known) == said
    assert parsed('{"f": 1e38}', '{"f": Infinity}', known=known)[1]["f"] == float("inf")


ZONED, PLAIN = '{"t": "2024-01-01T00:00:00+02:00"}', '{"t": "2024-01-01T00:00:00"}'
AWARE, NAIVE = pa.schema([("t", pa.timestamp("ms", "UTC"))]), pa.schema([("t", pa.timestamp("ms"))])


def inferred(*texts: str, known: pa.Schema | None = None) -> pa.Schema:
    return inferred_columns(Lines(1, [text.encode() for text in texts]), known or pa.schema([]))


def test_a_time_with_a_zone_is_never_stored_without_it() -> None:
    assert fault(PLAIN, ZONED, known=NAIVE).startswith(
        "line 6, column 't': 2024-01-01T00:00:00+02:00 has a zone, which"
    )
    at = datetime(2023, 12, 31, 22, tzinfo=UTC)
    assert [row["t"] for row in parsed(ZONED, '{"t": "2023-12-31T22:00Z"}', known=AWARE)] == [at, at]
    assert [row["t"] for row in parsed(PLAIN, '{"t": "2024-01-01"}', known=NAIVE)] == [datetime(2024, 1, 1)] * 2


def test_a_time_without_a_zone_is_in_no_zone_that_was_not_said() -> None:
    said = "line 6, column 't': 2024-01-01T00:00:00 has no zone, and the type timestamp[ms, tz=UTC] needs one: add it"
    assert fault(ZONED, PLAIN, known=AWARE) == said
    assert "2024-01-01 has no zone" in fault('{"t": "2024-01-01"}', known=AWARE)


def test_times_with_zones_are_inferred_as_such_and_as_texts_beside_others() -> None:
    assert inferred(PLAIN).field("t").type == pa.timestamp("s")
    assert inferred(ZONED, '{"t": null}', '{"u": 1}').field("t").type == pa.timestamp("s", "UTC")
    assert inferred(ZONED, PLAIN).field("t").type == pa.string()
    with pytest.raises(LineFault, match=r"line 2, column 't': 2024-01-01T00:00:00.02:00 has a zone, which the type"):
        inferred(PLAIN, ZONED, known=NAIVE)
    nested = '{"a": [{"t": "2024-01-01T00:00:00Z", "s": "x"}], "t": "2024-01-01T00:00:00"}'
    of = pa.list_(pa.struct([("t", pa.timestamp("s", "UTC")), ("s", pa.string())]))
    assert inferred(nested) == pa.schema([("a", of), ("t", pa.timestamp("s"))])
    assert parsed(nested, known=inferred(nested))[0]["t"] == datetime(2024, 1, 1)
    assert fault(nested.replace("00Z", "00"), known=inferred(nested)).startswith(
        "line 5, column 'a': 2024-01-01T00:00:00 has"
    )


DATES = pa.schema([
    ("d", pa.date32()), ("t", pa.time64("us")), ("l", pa.list_(pa.date64())), ("o", pa.struct([("d", pa.date32())])),
    ("s", pa.time32("s")),
])  # fmt: skip


@pytest.mark.parametrize("more", [False, True])
def test_dates_and_times_are_texts_as_an_export_writes_them_or_numbers(more: bool) -> None:
    said = '{"d": "2024-01-02", "t": "10:11:12.5", "l": ["2024-01-03", null], "o": {"d": "2024-01-04"}, "s": "10:11"}'
    lines = Lines(1, [said.encode(), b'{"t": null}'])
    found = parse_lines(lines, Columns(DATES, more=more))
    assert found.schema == DATES
    assert found.to_pylist() == [
        {"d": date(2024, 1, 2), "t": time(10, 11, 12, 500_000), "l": [date(2024, 1, 3), None],
         "o": {"d": date(2024, 1, 4)}, "s": time(10, 11)},
        {"d": None, "t": None, "l": None, "o": None, "s": None},
    ]  # fmt: skip
    assert parsed('{"d": 1, "s": 1}', known=DATES)[0]["d"] == date(1970, 1, 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"d": "2024-01-02T10:00:00"}', "column 'd': '2024-01-02T10:00:00' is not of the column's type, date32[day]"),
        ('{"t": "10:11:12.1234567"}', "column 't': '10:11:12.1234567' is not of the column's type, time64[us]"),
        ('{"l": ["soon"]}', "column 'l': ['soon'] is not of the column's type, list<item: date64[ms]>"),
        ('{"d": true}', "column 'd': True is not of the column's type, date32[day]"),
    ],
)
def test_what_is_not_a_date_or_would_lose_a_part_as_one_is_refused_with_its_line_and_column(
    line: str, said: str
) -> None:
    assert fault('{"d": "2024-01-02"}', line, known=DATES) == f"line 6, {said}"


def test_nan_and_infinity_are_read_as_they_are_written() -> None:
    x = [row["x"] for row in parsed('{"x": NaN}', '{"x": Infinity}', '{"x": -Infinity}')]
    assert str(x) == "[nan, inf, -inf]"


@pytest.mark.parametrize("known", [KNOWN, None])
@pytest.mark.parametrize("text", ['{"n": %s}', '{"new": %s}', "%s"])
@pytest.mark.parametrize("depth", [65, 3000, 200_000])
def test_json_that_is_nested_too_deep_is_refused_with_its_line(known: pa.Schema | None, text: str, depth: int) -> None:
    for value in ("[" * depth + "]" * depth, "[" * depth, '{"a":' * depth + "1" + "}" * depth):
        said = fault('{"n": 1}', text % value, known=known)
        assert said.startswith("line 6: nested more than 64 levels deep") and "flatten it" in said


def test_brackets_in_a_text_are_not_levels() -> None:
    assert parsed(json.dumps({"s": '"[{' * 1000}))[0]["s"] == '"[{' * 1000
    assert parsed(json.dumps({"a": [[1]] * 100}), known=None)[0]["a"] == [[1]] * 100, "nor are many side by side"


@pytest.mark.parametrize("known", [KNOWN, None])
def test_a_name_that_is_twice_in_an_object_is_refused_with_its_line(known: pa.Schema | None) -> None:
    said = "line 6: not a whole JSON object: the name 'n' is in it twice; leave one out"
    assert fault('{"n": 1}', '{"n": 1, "s": "x", "n": 2}', known=known) == said


def test_a_field_that_a_column_of_objects_does_not_have_is_named_with_its_line_and_column() -> None:
    place = pa.struct([("x", pa.int64())])
    known = pa.schema([("a", place), ("l", pa.list_(place))])
    said = "the type struct<x: int64> has no field 'y': leave it out"
    assert fault('{"a": {"x": 1}}', '{"a": {"x": 1, "y": 2}}', known=known) == f"line 6, column 'a': {said}"
    assert fault('{"l": [{"x": 1}, {"y": null}]}', known=known) == f"line 5, column 'l': {said}"


@pytest.mark.parametrize("known", [KNOWN, None])
@pytest.mark.parametrize("text", [b'{"s": "\xff"}', b'{"s": "\xed\xa0\x80"}', '{"s": "x"}'.encode("utf-16")])
def test_what_is_not_utf_8_is_refused_with_its_line(known: pa.Schema | None, text: bytes) -> None:
    assert fault('{"n": 1}', text, known=known).startswith("line 6: not UTF-8 from byte ")


@pytest.mark.parametrize("known", [KNOWN, None])
@pytest.mark.parametrize("half", [r"\ud800", r"\udc00", r"\uDBFFx", r"\udc00\ud800"])
def test_half_of_a_surrogate_pair_is_refused_with_its_line_and_column(known: pa.Schema | None, half: str) -> None:
    said = fault('{"s": "x"}', f'{{"s": "a{half}b"}}', known=known)
    assert said.startswith("line 6, column 's': a text has half of a surrogate pair")
    assert parsed(r'{"s": "\ud83d\ude00"}', known=known)[0]["s"] == "😀"


def test_rows_whose_types_contradict_each_other_are_refused_at_the_line_that_does() -> None:
    said = fault('{"a": 1}', '{"a": 2}', '{"a": "x"}', '{"a": 3}', known=None)
    assert said.startswith("line 7: ") and "changed from number to string" in said and "row" not in said


def stored(path: Path) -> list[Mapping[str, object]]:
    with Channel(path, create=False, readonly=True) as channel:
        return [row for batch in channel.read() for row in batch.drop_columns("write_order_id").to_pylist()]


def test_a_load_that_would_round_an_integer_creates_no_channel_and_says_what_to_do(path: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.jsonl").write_text(f'{{"id": 1}}\n{{"id": {HUGE}}}\n')
    done = run("put", path, tmp_path / "ids.jsonl", "--typed")
    assert done.exit_code == 1 and f"ids.jsonl, line 2, column 'id': {HUGE} is a whole number" in done.stderr
    assert not path.exists()
    with Channel(path, schema=pa.schema([("id", pa.decimal128(38, 0))]), minimum_required_space=0):
        pass
    for typed in ([], ["--typed"]):
        assert run("put", path, tmp_path / "ids.jsonl", "--name", f"n{len(typed)}", *typed).exit_code == 0
    assert stored(path) == [{"id": Decimal(1)}, {"id": Decimal(HUGE)}] * 2


def test_a_load_that_adds_columns_reads_the_others_with_the_channels_types(path: Path, tmp_path: Path) -> None:
    with Channel(path, schema=pa.schema([("id", pa.decimal128(38, 2)), ("t", pa.int8())]), minimum_required_space=0):
        pass
    (tmp_path / "f.jsonl").write_text(f'{{"id": {HUGE}, "new": 1}}\n')
    (tmp_path / "f.csv").write_text(f"id,new\n{HUGE}.25,2\n")
    for name in ("f.jsonl", "f.csv"):
        done = run("put", path, tmp_path / name, "--typed")
        assert done.exit_code == 0, done.stderr
    assert stored(path) == [
        {"id": Decimal(HUGE), "t": None, "new": 1},
        {"id": Decimal(f"{HUGE}.25"), "t": None, "new": 2},
    ]
