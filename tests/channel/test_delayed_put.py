from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillable_stream import Channel, Event
from spillable_stream.channel.delayed_events import DelayedEvents
from spillable_stream.channel.delayed_put import DelayedPut
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.delays import clock_of

Open = Callable[..., Channel]
AN_HOUR_MS = 3_600_000


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    return open_channel(max_inline_bytes=1000)


def delayed_in(channel: Channel, *bodies: bytes) -> DelayedPut:
    delayed = DelayedPut(channel.engine(), DelayedEvents(EVENT_SCHEMA, 0, typed=False))
    delayed.add([Event(body) for body in bodies], channel.engine().deliveries.clock_ms() + AN_HOUR_MS, 0)
    delayed.stage_if_many()
    return delayed


def files(path: Path) -> set[Path]:
    return set((path / "data").iterdir())


def test_few_events_are_held_back_and_encoded_once(channel: Channel, path: Path) -> None:
    before, delayed = files(path), delayed_in(channel, b"late")
    assert not delayed.is_staged
    assert delayed.finish() is delayed.finish() is not None
    assert files(path) == before


def test_what_is_added_after_a_commit_that_failed_is_encoded_too(channel: Channel) -> None:
    delayed = delayed_in(channel, b"late")
    first = delayed.finish()
    delayed.add([Event(b"later")], channel.engine().deliveries.clock_ms() + AN_HOUR_MS, 0)
    assert delayed.finish() is not first


def test_many_events_are_staged_and_removed_again(channel: Channel, path: Path) -> None:
    before, delayed = files(path), delayed_in(channel, *[bytes(100)] * 9000)
    assert delayed.is_staged
    assert delayed.finish() is delayed.finish() is not None
    assert files(path) > before
    delayed.discard()
    assert files(path) == before


def test_what_may_have_been_adopted_stays(channel: Channel, path: Path) -> None:
    before, delayed = files(path), delayed_in(channel, *[bytes(100)] * 9000)
    delayed.finish()
    delayed.close()
    assert files(path) > before


def test_no_events_are_none(channel: Channel) -> None:
    assert DelayedPut(channel.engine(), DelayedEvents(EVENT_SCHEMA, 0, typed=False)).finish() is None


def test_rows_that_wait_for_the_commit_are_a_copy_that_nobody_else_can_change(open_channel: Open) -> None:
    """Arrow may share its memory with numpy, and a slice holds all that it is cut from."""
    channel = open_channel(schema=pa.schema([("n", pa.int64())]))
    numbers, clock = np.arange(100_000), clock_of(channel)
    with channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"n": pa.array(numbers)}).slice(0, 3), deliver_after=10)
        numbers[:] = -1
    clock.pass_by(11)
    with channel.take_transaction() as tx:
        assert tx.take_many(5) == [{"n": 0}, {"n": 1}, {"n": 2}]
