from __future__ import annotations

import threading

from spillable_stream.flow.sources.netcat import Netcat
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
