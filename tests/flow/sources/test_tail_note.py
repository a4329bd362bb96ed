from __future__ import annotations

import msgpack

from spillable_stream.flow.sources.position_file import FilePosition
from spillable_stream.flow.sources.tail_note import Span, read_note, write_note
from spillable_stream.flow.sources.tailed_file import Mark


def test_a_note_has_the_batch_and_the_positions_after_it() -> None:
    span = Span(7, 0, 12, "/logs/a", "g")
    places = {7: FilePosition("/logs/a", Mark(7, 12, 12, 99, 12, 98)), 8: FilePosition("/logs/b", Mark(8, 3))}
    assert read_note(write_note(span, 4, places)) == (span, places)


def test_a_note_of_another_source_is_none() -> None:
    assert read_note(b"") == read_note(msgpack.packb({"source": "spooldir"})) == (None, {})
