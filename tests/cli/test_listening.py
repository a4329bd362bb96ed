"""Where a verb that serves listens."""

from __future__ import annotations

import pytest
import typer

from spillable_stream.cli.listening import given_host, link


def test_a_link_has_an_address_of_ipv6_in_brackets() -> None:
    assert link("::1", 80, "metrics") == "http://[::1]:80/metrics"
    assert link("127.0.0.1", 0, "") == "http://127.0.0.1:0/"


def test_a_host_is_taken_as_a_link_has_it_too_and_not_empty() -> None:
    assert [given_host(host) for host in ("[::1]", "::1", "localhost")] == ["::1", "::1", "localhost"]
    for empty in ("", "[]"):
        with pytest.raises(typer.BadParameter, match="it is empty"):
            given_host(empty)
