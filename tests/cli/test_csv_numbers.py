"""Numbers in CSV that are not what is written."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.cli.csv_numbers import guessed, misread_numbers, with_guess
from spillable_stream.cli.csv_rows import CsvRows

CODE = re.compile(r"\s*([+-]?0[0-9xX].*|\+[0-9]+\s*)")


@given(
    st.lists(st.text(alphabet="0019xX+-. \t", min_size=1, max_size=5), min_size=1, max_size=3),
    st.sampled_from(",;\t|"),
    st.booleans(),
)
def test_every_code_in_a_column_of_numbers_is_found_wherever_it_is(
    cells: list[str], delimiter: str, is_quoted: bool
) -> None:
    cells = [cell.replace(delimiter, "") or "5" for cell in cells]
    written = [f'"{cell}"' if is_quoted else cell for cell in cells]
    rows = CsvRows("".join(f"{cell}{delimiter}n\n" for cell in written).encode(), delimiter, ["a", "b"])
    table = pa.table({"a": [1] * len(cells), "b": ["n"] * len(cells)})  # as if Arrow took each for a number
    found = [row for row, _, _ in misread_numbers(rows, table, {"a"})]
    assert found == [row for row, cell in enumerate(cells, 1) if CODE.fullmatch(cell)]


def test_only_columns_of_numbers_are_guessed_ones() -> None:
    fields = [pa.field("i", pa.int64()), pa.field("x", pa.float64()), pa.field("s", pa.string())]
    assert guessed(pa.schema(map(with_guess, fields))) == {"i", "x"} and not guessed(pa.schema(fields))
