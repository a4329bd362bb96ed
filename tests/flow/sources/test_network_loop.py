from __future__ import annotations

import socket
import sys
import threading

from spillable_stream.flow.sources.netcat import Netcat
from tests.support.flow_processors import KeptBatches, Routed


def test_all_sources_share_one_loop_which_ends_with_the_last() -> None:
    def loops() -> int:
        return sum(t.name == "flow-network" for t in threading.enumerate())

    sources = [Netcat("127.0.0.1", 0) for _ in range(3)]
    for source in sources:
        source.start(KeptBatches())
    assert loops() == 1
    assert len({s.port for s in sources}) == 3
    for source in sources:
        source.stop()
        source.stop()
    assert loops() == 0


def test_an_interceptor_that_exits_ends_its_connection_and_no_other_source() -> None:
    """The loop ended, and each source of the process hung, also in its stop."""

    class Exits(KeptBatches):
        def deliver(self, routed: Routed) -> None:
            sys.exit("a mistake")

    exits, kept = Netcat("127.0.0.1", 0), KeptBatches()
    other = Netcat("127.0.0.1", 0)
    exits.start(Exits())
    other.start(kept)
    with socket.create_connection(("127.0.0.1", exits.port), timeout=30) as client:
        client.sendall(b"1\n")
        assert client.recv(10) == b""
    with socket.create_connection(("127.0.0.1", other.port), timeout=30) as client:
        client.sendall(b"1\n")
        assert client.recv(10) == b"OK\n"
    for source in (exits, other):
        source.stop()
