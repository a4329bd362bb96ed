"""Delayed events are encoded in parts, each of one stretch of time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.engine.delayed_chunk import chunks_of
from spillable_stream.format.dues import stretch_of
from tests.support.delays import clock_of, deliver_all
from tests.support.events import peek


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_events_that_are_due_at_once_keep_their_order_where_stretches_get_wider(tmp_path: Path, kind: str) -> None:
    """Many events of one put, due where a stretch is twice as wide as the one of those right before."""
    address = tmp_path / "c" if kind == "disk" else f"object+file://{tmp_path}/c"
    with Channel(address, transaction_capacity=20_000) as channel:
        clock, bodies = clock_of(channel), list[bytes]()
        with channel.put_transaction() as tx:
            for seconds in range(519, 531):  # at 524.288 s
                group = [b"%0200d" % (1_000 * seconds + i) for i in range(700)]
                tx.put_many([Event(body) for body in group], deliver_after=seconds)
                bodies += group
        clock.pass_by(1_000)
        deliver_all(channel)
        assert peek(channel) == bodies


def test_each_event_is_in_the_stretch_of_its_own_due_time() -> None:
    now_ms = 1_795_650_000_000
    stretch = partial(stretch_of, now_ms=now_ms)
    dues = sorted(now_ms + seconds * 500 for seconds in range(0, 9_000, 7) for _ in range(3))
    batch = batch_from_columns([b"x"] * len(dues), {})
    at = 0
    for chunk in chunks_of(dues, batch, 0, 0, "none", stretch):
        count = chunk.frames[1].count
        assert {stretch(due) for due in dues[at : at + count]} == {chunk[:2]}
        at += count
    assert at == len(dues)
