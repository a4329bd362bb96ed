"""What an export was asked for."""

from __future__ import annotations

import pytest

from spillable_stream import OptionError
from spillable_stream.cli.export_plan import ExportFormat, ExportPlan, export_format


@pytest.mark.parametrize(
    ("file", "kind"), [("a.parquet", "parquet"), ("a.NDJSON", "jsonl"), ("a.b.tsv", "csv"), ("a.arrow", "arrow")]
)
def test_the_name_of_a_file_says_its_format(file: str, kind: str) -> None:
    assert export_format(file) is ExportFormat(kind)


def test_a_name_that_says_none_is_refused_with_those_that_do() -> None:
    with pytest.raises(OptionError, match=r"^a\.txt ends with none of \.parquet, .*: give --format"):
        export_format("a.txt")


def test_what_was_asked_for_is_said_in_the_words_of_the_call() -> None:
    columns = ["body"]
    assert ExportPlan("u", 1, 9, "csv", columns, ";", end="9").asked() == (
        "the channel u to csv with the delimiter ';', --from 'earliest' --to '9'"
    )
    assert ExportPlan("u", 1, 9, "jsonl", columns, start="5").asked() == "the channel u to jsonl, --from '5'"
