from __future__ import annotations

from spillable_stream.flow.sinks.open_file import Content


def test_a_file_begins_and_ends_with_nothing_unless_its_kind_says_so() -> None:
    assert Content().begin() == Content().end() == b""
