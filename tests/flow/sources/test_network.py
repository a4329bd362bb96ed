from __future__ import annotations

import threading

import pytest

from spillable_stream.errors import OptionError
from spillable_stream.flow.sources.netcat import Netcat
from spillable_stream.flow.sources.network import bound_socket, server_tls
from tests.support.flow_processors import KeptBatches


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


def test_a_source_can_be_started_again_and_one_that_failed_leaves_nothing() -> None:
    source = Netcat("no such host", 0)
    with pytest.raises(OptionError):
        source.start(KeptBatches())
    assert not source.alive
    source = Netcat("127.0.0.1", 0)
    for _ in range(2):
        source.start(KeptBatches())
        assert source.alive
        source.stop()


def test_a_server_without_tls_needs_no_keystore() -> None:
    assert server_tls(False, None, None, None) is None
    with pytest.raises(OptionError, match="PEM"):
        server_tls(True, "x", None, "JKS")
    with bound_socket("::1", 0) as six:
        assert six.getsockname()[1] > 0
