"""The formats of an export's parts."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from spillable_stream.cli.export_parts import ArrowPart, CsvPart, JsonPart, PartWriter

BATCH = pa.record_batch({"text": ["a", "", None, 'b;"c"'], "many": [[1], [], None, [2, 3]]})


@pytest.mark.parametrize(
    ("format", "said"),
    [
        ("json", '{"text": "a", "many": [1]}\n{"text": "", "many": []}\n{"text": null, "many": null}\n'),
        ("csv", 'a;[1]\n"";[]\n;\n"b;""c""";[2, 3]\n'),
    ],
)
def test_lines_tell_an_empty_text_from_none(format: str, said: str) -> None:
    file = io.BytesIO()
    writer: PartWriter = JsonPart(file) if format == "json" else CsvPart(file, ";")
    writer.write(BATCH)
    writer.close()
    assert file.getvalue().decode().startswith(said)


def test_an_arrow_stream_has_every_type_and_leaves_the_file_open() -> None:
    file = io.BytesIO()
    writer = ArrowPart(file, BATCH.schema)
    writer.write(BATCH)
    writer.close()
    assert not file.closed and pa.ipc.open_stream(file.getvalue()).read_all().to_batches() == [BATCH]
