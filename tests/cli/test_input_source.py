"""The bytes of a load, and the lines in them."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

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
    source = open_input(str(tmp_path / "app.log.gz"), Format.LINES, None, as_rows=False)
    with pytest.raises(SchemaError, match=r"app\.log\.gz can't be read as lines after 0 rows: zlib"):
        list(source.batches())
    source.close()


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
