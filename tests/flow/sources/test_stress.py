from __future__ import annotations

import pytest

from spillable_stream.errors import DeliveryError
from spillable_stream.flow.sources.base import Status
from spillable_stream.flow.sources.stress import Stress
from tests.support.flow_processors import KeptBatches


def drained(source: Stress, kept: KeptBatches) -> int:
    for _ in range(100):
        try:
            if source.poll(kept) is Status.BACKOFF:
                break
        except DeliveryError:
            kept.full = set()
    return len(kept.bodies())


@pytest.mark.parametrize(("options", "stored"), [({"max_total_events": 5}, 3), ({"max_successful_events": 5}, 5)])
def test_tried_events_and_stored_events_have_limits(options: dict[str, int], stored: int) -> None:
    kept, source = KeptBatches(), Stress(size=3, batch_size=2, **options)
    kept.full = {0}
    assert drained(source, kept) == stored
    assert set(kept.bodies()) == {b"\x7f" * 3}
    assert source.finished


def test_there_are_so_many_events_a_second() -> None:
    seconds, slept = 100.0, []

    def sleep(for_seconds: float) -> None:
        nonlocal seconds
        slept.append(for_seconds)
        seconds += for_seconds

    source = Stress(max_events_per_second=10, batch_size=5, max_total_events=15, now=lambda: seconds, sleep=sleep)
    assert drained(source, KeptBatches()) == 15
    assert slept == [0.5, 0.5]
