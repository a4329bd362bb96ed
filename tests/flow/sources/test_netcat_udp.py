from __future__ import annotations

import socket

from spillable_stream.flow.sources.netcat_udp import NetcatUdp
from tests.support.flow_processors import KeptBatches
from tests.support.waiting import wait_until


def test_a_datagram_is_an_event_up_to_its_first_line_feed_and_waits_in_the_kernel_for_a_full_channel() -> None:
    kept, source = KeptBatches(), NetcatUdp(0, bind="127.0.0.1", remote_address="from")
    kept.full = {0}
    source.start(kept)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"one\nrest", ("127.0.0.1", source.port))
            wait_until(lambda: source.counters.channel_write_fail >= 1)
            s.sendto(b"two", ("127.0.0.1", source.port))
            s.sendto(b"", ("127.0.0.1", source.port))
        kept.full = set()
        wait_until(lambda: len(kept.bodies()) == 3)
    finally:
        source.stop()
    assert kept.bodies() == [b"one", b"two", b""]
    assert kept.headers() == [{"from": "127.0.0.1"}] * 3
