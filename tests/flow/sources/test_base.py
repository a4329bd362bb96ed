from __future__ import annotations

import threading

import pytest

from spillable_stream.flow.sources.base import SourceBase, put_held
from spillable_stream.flow.sources.event_columns import events_of
from tests.support.flow_processors import KeptBatches, Routed

BATCH = events_of([b"x"], [{}])


def test_a_batch_is_held_until_it_is_stored() -> None:
    class FreeLater(KeptBatches):
        def deliver(self, routed: Routed) -> None:
            try:
                super().deliver(routed)
            finally:
                self.full = set()

    kept, source = FreeLater(), SourceBase()
    kept.full = {0}
    assert put_held(source, kept, BATCH, threading.Event())
    assert kept.bodies() == [b"x"]
    assert source.counters.channel_write_fail == 1


def test_a_source_that_is_being_stopped_tries_once_and_names_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    kept, stopping = KeptBatches(), threading.Event()
    kept.full = {0}
    stopping.set()
    assert not put_held(SourceBase(), kept, BATCH, stopping)
    assert "1 events that were read are not stored" in caplog.text
