"""Where a verb that serves listens."""

from __future__ import annotations

import errno

import pytest
import typer

from spillable_stream.cli.listening import given_host, link, not_served, say_problems


def test_a_link_has_an_address_of_ipv6_in_brackets() -> None:
    assert link("::1", 80, "metrics") == "http://[::1]:80/metrics"
    assert link("127.0.0.1", 0, "") == "http://127.0.0.1:0/"


def test_a_host_is_taken_as_a_link_has_it_too_and_not_empty() -> None:
    assert [given_host(host) for host in ("[::1]", "::1", "localhost")] == ["::1", "::1", "localhost"]
    for empty in ("", "[]"):
        with pytest.raises(typer.BadParameter, match="it is empty"):
            given_host(empty)


def test_channels_that_can_not_be_looked_at_are_named_with_what_is_served_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_problems({"/data/c": "NotAChannelError: /data/c is gone", "/data/o-*": "no channel fits it"}, "it is down")
    assert capsys.readouterr() == (
        "",
        "NotAChannelError: /data/c is gone; it is down until it can be looked at\n"
        "/data/o-*: no channel fits it; it is down until it can be looked at\n",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "Cannot assign requested address (errno 99); give --host an address of this host",
        ),
        (
            OSError(errno.EADDRINUSE, "Address already in use"),
            "Address already in use (errno 98); give another --port, or 0 for a free one",
        ),
        (OSError(errno.ENOBUFS, "No buffer space available"), "No buffer space available (errno 105)"),
    ],
)
def test_an_address_that_the_system_refuses_is_named_with_what_to_do(
    error: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        not_served("c", error, "2001:db8::1", 9107)
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == f"OSError: http://[2001:db8::1]:9107/: {said}\n"
