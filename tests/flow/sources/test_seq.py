from __future__ import annotations

import pytest

from spillable_stream.errors import DeliveryError
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.sources.seq import Seq
from tests.support.flow_processors import KeptBatches


def test_numbers_grow_until_the_total_and_a_failed_one_is_put_again() -> None:
    kept, source = KeptBatches(), Seq(batch_size=2, total_events=5)
    kept.full = {0}
    with pytest.raises(DeliveryError):
        source.poll(kept)
    kept.full = set()
    while source.poll(kept) is Status.READY:
        pass
    assert kept.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert source.finished
    counters = source.counters.flume_counters()
    assert (counters["EventReceivedCount"], counters["EventAcceptedCount"]) == (5, 5), "each is counted once"
