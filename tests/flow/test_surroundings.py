"""The real world around a flow."""

from __future__ import annotations

import socket
import time

import pytest

from spillable_stream.flow.surroundings import REAL


def test_it_tells_the_time_and_the_host() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= REAL.now_ms() <= time.time_ns() // 1_000_000
    assert REAL.host_name() and len(REAL.random_bytes(16)) == 16 and REAL.random_bytes(16) != REAL.random_bytes(16)


def test_an_address_that_is_in_no_directory_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise socket.gaierror

    monkeypatch.setattr(socket, "gethostbyname", fail)
    assert REAL.host_address() is None
