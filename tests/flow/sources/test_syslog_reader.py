from __future__ import annotations

import socket

import pytest

from spillable_stream.flow.sources import syslog_reader
from spillable_stream.flow.sources.syslog_parser import STATUS
from spillable_stream.flow.sources.syslog_reader import SyslogReader


def test_a_line_that_is_too_long_is_cut_and_each_piece_marked() -> None:
    reader = SyslogReader(10, "none", None, None)
    found = reader.messages(b"0123456789abcdefghijklm", "utf-8")
    assert [m.body for m in found] == [b"0123456789", b"abcdefghij", b"klm"]
    assert [m.headers[STATUS] for m in found] == ["Incomplete"] * 3
    assert [m.headers[STATUS] for m in reader.messages(b"short", "utf-8")] == ["Invalid"]


def test_a_body_is_utf_8_whatever_its_character_set() -> None:
    assert SyslogReader(10, "none", None, None).message("ä".encode("latin-1"), "iso8859-1").body == "ä".encode()


def test_a_sender_is_named_once_and_by_its_address_where_it_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def named(address: str) -> tuple[str, list[str], list[str]]:
        asked.append(address)
        if address.endswith("9"):
            raise OSError("no name")
        return f"host-{address}", [], []

    monkeypatch.setattr(socket, "gethostbyaddr", named)
    monkeypatch.setattr(syslog_reader, "_MOST_NAMES", 2)
    reader = SyslogReader(10, "none", "ip", "name")
    assert reader.headers("1") == {"ip": "1", "name": "host-1"}
    assert reader.headers("9") == {"ip": "9", "name": "9"}
    reader.headers("1")
    assert asked == ["1", "9"]
    reader.headers("2")
    reader.headers("1")
    assert asked == ["1", "9", "2", "1"], "no more are remembered than may be"
