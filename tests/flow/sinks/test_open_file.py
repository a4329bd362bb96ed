from __future__ import annotations

from spillable_stream.flow.sinks.open_file import Content, OpenFile


def test_a_file_begins_and_ends_with_nothing_unless_its_kind_says_so() -> None:
    assert Content().begin() == Content().end() == b""


def test_what_is_written_is_counted() -> None:
    file = OpenFile("place", "final", "in use", Content())
    file.wrote(2, 20, 1.0)
    file.wrote(1, 5, 3.0)
    assert (file.events, file.body_bytes, file.written_at) == (3, 25, 3.0)
