from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from spillable_stream.readiness import has_input


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    with one, two:
        yield one, two


def test_there_is_input_when_something_can_be_read_or_the_other_end_is_gone(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    one, two = pair
    assert not has_input(one) and not has_input(one, 0.001) and not has_input(one, -1.0)
    two.send(b"x")
    assert has_input(one) and has_input(one, 60.0) and has_input(one, float("inf"))
    one.recv(1)
    two.close()
    assert has_input(one)


def test_a_process_may_have_more_than_a_thousand_open_files(pair: tuple[socket.socket, socket.socket]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        pytest.skip("this host allows a process fewer open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < 1024:
            opened.append(os.dup(pair[0].fileno()))
        with socket.socket(fileno=opened.pop()) as far:
            assert not has_input(far)
            pair[1].send(b"x")
            assert has_input(far)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_closed_or_no_file_is_refused() -> None:
    one, two = socket.socketpair()
    two.close()
    one.close()
    with pytest.raises(ValueError):
        has_input(one)
