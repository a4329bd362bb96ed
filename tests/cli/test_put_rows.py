"""`spillable put` of rows: columns and their types, delimiters, codes, and channels of events."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import csv, feather, parquet

from spillable_stream import Channel, Event
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.command_line import bodies, run
from tests.support.far_times import FAR


def test_typed_makes_columns_and_adds_new_ones(path: Path, tmp_path: Path) -> None:
    file, more = tmp_path / "f.jsonl", tmp_path / "g.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n')
    assert run("put", path, file, "--typed").exit_code == 0
    more.write_text('{"n": 3, "s": "new"}\n')
    refused = run("put", path, more)
    assert refused.exit_code == 1 and "line 1: the channel has no column 's'" in refused.stderr
    assert run("put", path, more, "--typed").exit_code == 0
    assert run("put", path, file).stdout.endswith("2 stored before\n"), "the same rows, with a column more"
    with Channel(path, create=False) as channel, channel.take_transaction() as tx:
        assert tx.take_many(9) == [{"n": 1, "s": None}, {"n": 2, "s": None}, {"n": 3, "s": "new"}]


def test_every_format_goes_to_a_typed_channel_and_once(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "s": ["a", None]})
    (tmp_path / "f.csv").write_text("n,s\n1,a\n2,\n")
    (tmp_path / "f.jsonl").write_text('{"n": 1, "s": "a"}\n{"n": 2, "s": null}\n')
    pa.parquet.write_table(table, tmp_path / "f.parquet")
    with pa.ipc.new_stream(str(tmp_path / "f.arrows"), table.schema) as stream:
        stream.write_table(table)
    for name in ("f.csv", "f.jsonl", "f.parquet", "f.arrows"):
        path = tmp_path / f"channel {name}"
        for stored in (2, 0):
            done = run("put", path, tmp_path / name, "--typed", "--json")
            assert json.loads(done.stdout)["stored"] == stored, (name, done.stderr)
        with Channel(path, create=False) as channel, channel.take_transaction() as tx:
            assert tx.take_many(9) == table.to_pylist(), name


def test_a_time_that_python_does_not_have_is_refused_as_json_and_stored_as_a_column(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "f.arrows"
    with pa.ipc.new_stream(str(file), FAR.schema) as stream:
        stream.write_batch(FAR)
    refused = run("put", path, file)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1].startswith("SchemaError: a row can't be written as JSON (")
    assert "--typed" in refused.stderr
    assert run("put", tmp_path / "typed", file, "--typed").exit_code == 0


def test_a_delimiter_is_taken_by_a_word_and_a_file_of_tabs_needs_none(path: Path, tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("n\ts\n1\ta,b\n")
    shutil.copy(tmp_path / "f.tsv", tmp_path / "f.txt")
    assert run("put", path, tmp_path / "f.tsv").exit_code == 0
    for i, word in enumerate(["tab", r"\t", "\t"]):
        done = run("put", path, tmp_path / "f.txt", "--format", "csv", "--delimiter", word, "--name", i)
        assert done.exit_code == 0, done.stderr
    assert bodies(path) == [b'{"n": 1, "s": "a,b"}'] * 4


@pytest.mark.parametrize("wrong", ["", ";;", "x", "7", '"', "\n", ".", "é"])
def test_a_delimiter_that_cannot_be_one_is_a_wrong_option(path: Path, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "f.csv").write_text("n;s\n1;x\n")
    for verb in ("put", "export"):
        done = run(verb, path, tmp_path / "f.csv", "--delimiter", wrong)
        assert done.exit_code == 2 and "give one character, such as ';'" in done.stderr
        done = run(verb, path, tmp_path / "f.jsonl", "--delimiter", ";")
        assert (done.exit_code, done.stderr) == (2, "OptionError: --delimiter ';' is for CSV: give --format csv, too\n")
    assert not path.exists()


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "jsonl"])
def test_a_column_that_the_channel_has_not_is_refused_with_the_command_lines_own_way(
    path: Path, tmp_path: Path, ending: str
) -> None:
    file, rows = tmp_path / f"f.{ending}", pa.table({"n": [1], "s": ["x"]})
    if ending == "csv":
        csv.write_csv(rows, file)
    elif ending == "parquet":
        parquet.write_table(rows, file)
    elif ending == "arrow":
        feather.write_feather(rows, file)
    else:
        file.write_text('{"n": 1, "s": "x"}\n')
    Channel(path, schema=pa.schema([("n", pa.int64())])).close()
    done = run("put", path, file)
    assert done.exit_code == 1 and "evolve" not in done.stderr
    assert "the channel has no column 's': leave it out, or give --typed to add it" in done.stderr
    assert run("put", path, file, "--typed").exit_code == 0


@pytest.mark.parametrize("typed", [True, False])
def test_a_load_with_another_delimiter_is_another_input_and_stores_nothing(
    path: Path, tmp_path: Path, typed: bool
) -> None:
    file, more = tmp_path / "f.csv", ["--typed"] if typed else []
    file.write_text("n;s\n1;x\n")
    assert run("put", path, file, "--delimiter", ";", *more).exit_code == 0
    with file.open("a") as out:
        out.write("2;y\n")
    for other in ([], ["--delimiter", ","]):
        done = run("put", path, file, *other, *more)
        assert done.exit_code == 1 and re.search("has no comma|has changed|has no column 'n;s'", done.stderr)
    assert run("put", path, file, "--delimiter", ";").stdout.endswith("stored 1 event, 2 to 2; 1 stored before\n")


def with_a_code_behind_the_first_block(file: Path) -> Path:
    """Write CSV whose first MiB has postal codes that look like numbers, and whose last row has one that does not."""
    file.write_text("\n".join(["s,zip", *["x,10115"] * 300_000, "x,01067", ""]))
    return file


def test_a_code_that_is_refused_is_refused_again_and_by_every_file_that_comes_later(path: Path, tmp_path: Path) -> None:
    file = with_a_code_behind_the_first_block(tmp_path / "f.csv")
    for stored, more in ((False, ["--typed"]), (True, ["--typed"]), (True, [])):
        done = run("put", path, file, *more)
        assert done.exit_code == 1, done.output
        assert "Row #300002, column 'zip': 01067 is not written as a number" in done.stderr
        assert "load all into a new channel" in done.stderr
        assert ("once the rest is corrected" in done.stderr) is (not stored)
    (tmp_path / "next.csv").write_text("s,zip\ny,04109\n")
    done = run("put", path, tmp_path / "next.csv")
    assert done.exit_code == 1 and "Row #2, column 'zip': 04109 is not written as a number" in done.stderr
    with Channel(path, create=False, readonly=True) as channel:
        assert {row for batch in channel.read() for row in batch.column("zip").to_pylist()} == {10115}


def test_a_column_that_csv_has_added_or_made_is_of_no_codes_and_one_that_a_user_made_is(
    path: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain.csv").write_text("s,zip\nx,10115\n")
    (tmp_path / "code.csv").write_text("s,zip\nx,01067\n")
    with Channel(path, schema=pa.schema([("s", pa.string())]), minimum_required_space=0):
        assert run("put", path, tmp_path / "plain.csv", "--typed").exit_code == 0
    assert run("create", tmp_path / "made", "--schema", tmp_path / "plain.csv").exit_code == 0
    schema = pa.schema([("s", pa.string()), ("zip", pa.int64())])
    Channel(tmp_path / "meant", schema=schema, minimum_required_space=0).close()
    for channel, status in ((path, 1), (tmp_path / "made", 1), (tmp_path / "meant", 0)):
        for more in ([], ["--typed"]):
            done = run("put", channel, tmp_path / "code.csv", *more)
            assert (done.exit_code, "not written as a number" in done.stderr) == (status, bool(status))


def test_a_load_that_met_a_code_is_done_in_a_new_channel_as_its_message_says(path: Path, tmp_path: Path) -> None:
    file = with_a_code_behind_the_first_block(tmp_path / "f.csv")
    assert run("put", tmp_path / "first", file, "--typed").exit_code == 1
    (tmp_path / "columns.csv").write_text("s,zip\nx,x\n")
    assert run("create", path, "--schema", tmp_path / "columns.csv").exit_code == 0
    assert run("put", path, file).exit_code == 0
    assert json.loads(run("tail", path, "-n", 1).stdout) == {"s": "x", "zip": "01067"}


def test_what_comes_before_a_row_that_is_refused_is_stored(path: Path, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("n,s\n" + "1,2 and more\n" * 100_000 + "x,3\n")
    done = run("put", path, tmp_path / "f.csv", "--typed")
    assert done.exit_code == 1
    said = re.search(r"can't be read as CSV after ([0-9,]+) rows", done.stderr)
    with Channel(path, create=False, readonly=True) as channel:
        assert said is not None and f"{channel.stats().last_id:,}" == said[1]


def test_rows_that_go_to_a_channel_of_events_are_json_bodies(path: Path, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("n,s\n1,a\n")
    run("put", path, tmp_path / "f.csv")
    assert bodies(path) == [b'{"n": 1, "s": "a"}']


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "tsv"])
def test_what_was_exported_is_put_as_it_was(path: Path, tmp_path: Path, ending: str) -> None:
    events = [
        Event(b"\x00\xff", {"k": "v"}), Event(b"007", {"a,b": 'q"\n', "c": ""}), Event(b"", {}), Event(b"a\tb\r\n"),
        Event(b'{"base64": "YQ=="}'),
    ]  # fmt: skip
    with Channel(path, minimum_required_space=0) as channel, channel.put_transaction() as tx:
        tx.put_many(events)
    run("export", path, tmp_path / f"f.{ending}")
    assert run("put", tmp_path / "other", tmp_path / f"f.{ending}").stdout.endswith("stored 5 events, 1 to 5\n")
    with Channel(tmp_path / "other", create=False) as channel, channel.take_transaction() as tx:
        assert tx.take_many(9) == events


def test_a_column_of_bodies_is_what_is_written_there_and_a_typed_channel_infers_its_type(
    path: Path, tmp_path: Path
) -> None:
    (tmp_path / "f.csv").write_text("body\n1\n2.50\n0x1\n")
    assert run("put", path, tmp_path / "f.csv").exit_code == 0
    assert bodies(path) == [b"1", b"2.50", b"0x1"]
    (tmp_path / "f.csv").write_text("body\n1\n")
    assert run("put", tmp_path / "typed", tmp_path / "f.csv", "--typed").exit_code == 0
    assert run("tail", tmp_path / "typed").stdout == '{"body": 1}\n'


def test_two_columns_of_one_name_are_refused_by_a_channel_that_is_there_too(path: Path, tmp_path: Path) -> None:
    Channel(path, schema=pa.schema([("n", pa.int64())]), minimum_required_space=0).close()
    (tmp_path / "f.csv").write_text("n,n\n1,2\n")
    done = run("put", path, tmp_path / "f.csv")
    assert done.exit_code == 1 and "has more than one column 'n': rename all but one" in done.stderr


def test_what_cannot_be_put_leaves_no_channel_behind(path: Path, tmp_path: Path) -> None:
    assert run("put", path, tmp_path / "nothing").exit_code == 2
    (tmp_path / "f.parquet").write_bytes(b"no")
    assert run("put", path, tmp_path / "f.parquet", "--typed").exit_code == 1
    assert not path.exists()


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("more", [["--typed"], ["--typed", "--format", "lines"], []])
def test_lines_of_text_for_columns_are_a_wrong_call_and_not_a_broken_file(
    path: Path, tmp_path: Path, more: list[str], is_file: bool
) -> None:
    """Nothing of the input was tried: the call says how to read it."""
    (tmp_path / "f").write_bytes(b"text\n")
    if not (is_new := more == ["--typed"]):
        with Channel(path, schema=pa.schema([("n", pa.int64())]), minimum_required_space=0):
            pass
    done = run("put", path, tmp_path / "f" if is_file else "-", *more, input=b"text\n")
    assert done.exit_code == 2 and path.exists() is not is_new
    name = tmp_path / "f" if is_file else "standard input"
    assert f"{name} is read as lines of text, which have none: give --format jsonl, csv, parquet or" in done.stderr


@pytest.mark.parametrize("name", ["f.jsonl", "f.csv"])
def test_typed_is_refused_where_the_channel_is_of_events(filled: Path, tmp_path: Path, name: str) -> None:
    """It would make no columns: each line of JSON would be a body."""
    (tmp_path / name).write_text('{"n": 1}\n')
    before = bodies(filled)
    done = run("put", filled, tmp_path / name, "--typed")
    assert done.exit_code == 2 and "is an event channel, to which --typed can't add columns" in done.stderr
    assert bodies(filled) == before


def test_a_file_of_events_is_not_called_lines_of_text_by_a_typed_channel(path: Path, tmp_path: Path) -> None:
    with Channel(path, schema=pa.schema([("n", pa.int64())]), minimum_required_space=0):
        pass
    feather.write_feather(pa.Table.from_pylist([{"headers": [], "body": b"x"}], EVENT_SCHEMA), tmp_path / "f.arrow")
    done = run("put", path, tmp_path / "f.arrow")
    assert done.exit_code == 1 and "the channel has no column 'headers'" in done.stderr
