"""The bytes of a load, and the lines in them."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, SchemaError
from spillable_stream.cli import input_source
from spillable_stream.cli.load_input import Format, open_input
from tests.support.command_line import start
from tests.support.loads import loaded_rows


def bodies(file: Path) -> list[object]:
    return [row["body"] for row in loaded_rows(file, Format.LINES)]


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 1 << 20])
def test_lines_are_whole_however_the_file_is_read(
    tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "CHUNK_BYTES", chunk_bytes)
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


def test_a_compressed_file_of_lines_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.log.gz").write_bytes(b"not gzip")
    with pytest.raises(SchemaError, match=r"app\.log\.gz can't be read as lines: zlib"):
        open_input(str(tmp_path / "app.log.gz"), Format.LINES, None, as_rows=False)


def test_a_closed_standard_input_is_a_wrong_option_and_nobody_to_ask(path: Path) -> None:
    with Channel(path, minimum_required_space=0) as channel:
        channel.consumer("june").close()
        with channel.put_transaction() as tx:
            tx.put(Event(b"untaken"))
    for verb, said in (
        (["put", path], "OptionError: standard input is closed: give a file, "),
        (["send", path], "OptionError: standard input is closed: give a file, "),
        (["groups", "drop", path, "june"], "Nothing was changed: give --yes where nobody can be asked"),
    ):
        process = start(*verb, stdin=None, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(0))
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 2 and said in stderr.decode(), stderr.decode()


@pytest.mark.parametrize(
    ("kind", "first", "then"), [(Format.CSV, b"n\n1\n", b"1.5\n"), (Format.JSONL, b'\n{"n": 1}\n', b'{"n": 1.5}\n')]
)
def test_what_a_pipe_has_soon_after_the_first_row_says_the_types_too(
    monkeypatch: pytest.MonkeyPatch, kind: Format, first: bytes, then: bytes
) -> None:
    out, into = os.pipe()
    rest = [then]

    def has_input(_: object, seconds: float = 0.0) -> bool:
        if not rest:
            return False
        os.write(into, rest.pop())
        return True

    monkeypatch.setattr(input_source, "has_input", has_input)
    os.write(into, first)
    source = open_input(f"/dev/fd/{out}", kind, None, as_rows=True)
    assert source.schema == pa.schema([("n", pa.float64())])
    os.close(into)
    assert [row["n"] for batch in source.batches() for row in batch.to_pylist()] == [1.0, 1.5]
    source.close()
    os.close(out)


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("kind", "text", "known"),
    [
        (Format.CSV, f"n\n{LONG}\n", pa.schema([("n", pa.int64())])),
        (Format.CSV, f"n\n{LONG}\n", pa.schema([("n", pa.timestamp("us"))])),
        (Format.CSV, f"{LONG}\n9007199254740993\n", pa.schema([(LONG, pa.float64())])),
        (Format.JSONL, f'{{"n": "{LONG}"}}\n', pa.schema([("n", pa.int64())])),
        (Format.JSONL, f'{{"n": "{LONG} T10:00Z"}}\n', pa.schema([("n", pa.timestamp("us"))])),
        (Format.JSONL, f'{{"n": {{"{LONG}": 1}}}}\n', pa.schema([("n", pa.struct([("i", pa.int64())]))])),
        (Format.JSONL, f'{{"{LONG}": 1}}\n', pa.schema([("n", pa.int64())])),
        (Format.JSONL, f'{{"{LONG}": 1, "{LONG}": 2}}\n', None),
        (Format.JSONL, f'{{"{LONG}": 9007199254740993}}\n{{"{LONG}": 1.5}}\n', None),
        (Format.JSONL, f'{{"{LONG}": 1}}\n{{"{LONG}": []}}\n', None),
    ],
    ids=range(10),
)
def test_a_refusal_shows_the_beginning_of_a_long_value_or_name(
    tmp_path: Path, kind: Format, text: str, known: pa.Schema | None
) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(SchemaError, match=r"x'?… \(1,000,\d{3} characters\)") as caught:
        loaded_rows(tmp_path / "f", kind, known)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("kind", "text"), [(Format.CSV, "n\n1\n2.5"), (Format.CSV, 'n\r"1"\r"2.5"'), (Format.JSONL, '{"n":1}\n{"n":2.5}')]
)
def test_a_last_row_without_the_end_of_its_line_says_the_types_too(tmp_path: Path, kind: Format, text: str) -> None:
    (tmp_path / "f").write_text(text)
    assert loaded_rows(tmp_path / "f", kind) == [{"n": 1.0}, {"n": 2.5}]


def test_of_a_source_that_is_not_slow_a_whole_chunk_says_the_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "CHUNK_BYTES", 100)
    (tmp_path / "f").write_bytes(b"x\n" * 80)
    source = input_source.InputSource(str(tmp_path / "f"), compressed=False)
    assert input_source.read_beginning(source, lambda _: True) == b"x\n" * 50
    assert list(input_source.lines_of(source, b"a\nb")) == [[b"a"], [b"bx", *[b"x"] * 29]]
    source.close()


def test_nothing_is_said_of_a_source_that_could_not_be_opened_but_why(tmp_path: Path) -> None:
    program = (
        "import sys; from spillable_stream.cli.input_source import InputSource as I; I(sys.argv[1], compressed=False)"
    )
    command = [sys.executable, "-X", "dev", "-c", program, str(tmp_path / "nothing")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "can't be read: No such file" in done.stderr.splitlines()[-1]
    assert "ignored" not in done.stderr
