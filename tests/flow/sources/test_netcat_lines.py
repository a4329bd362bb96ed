from __future__ import annotations

import pytest

from spillable_stream.flow.sources.netcat_lines import NetcatLines


def read(lines: NetcatLines, *pieces: bytes) -> list[bytes | None]:
    """Return the lines of what comes, with None for each that is too long."""
    found: list[bytes | None] = []
    for piece in pieces:
        for run in lines.add(piece):
            found += run.bodies.to_pylist()
            found += [None] if run.is_before_long else []
    return found


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1000])
def test_lines_that_are_too_long_are_found_among_the_others_however_they_come(size: int) -> None:
    text = b"longer\n1\n1234\n12345\nlonger and longer\nx\n\nlonger\nlonger\n2\nend"
    lines = NetcatLines(5, "utf-8")
    found = read(lines, *(text[i : i + size] for i in range(0, len(text), size)))
    assert found == [None, b"1", b"1234", None, None, b"x", b"", None, None, b"2"]
    assert lines.held_bytes == 3


def test_characters_count_and_not_bytes() -> None:
    assert read(NetcatLines(5, "utf-8"), "üüüü\nüüüüü\n".encode()) == ["üüüü".encode(), None]
    assert read(NetcatLines(5, "iso8859-1"), "üüüü\nüüüüü\n".encode("latin-1")) == ["üüüü".encode(), None]


def test_no_more_of_a_line_is_kept_than_makes_it_too_long() -> None:
    lines = NetcatLines(5, "utf-8")
    assert read(lines, b"12345") == [None]
    assert read(lines, b"6" * 1000) == [] and lines.held_bytes == 0
    assert read(lines, b"7\n8\n") == [b"8"]
