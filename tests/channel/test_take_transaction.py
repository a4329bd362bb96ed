"""Take transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    OptionError,
    TransactionCapacityError,
)
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.transaction import State
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.log.event_reader import ReadBatch
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]
BOTH = pytest.mark.parametrize("kind", ["put_transaction", "take_transaction"])
ALLOWED = {
    "begin": {State.NEW},
    "commit": {State.OPEN},
    "rollback": {State.OPEN},
    "close": {State.NEW, State.COMPLETED, State.CLOSED},
}
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
NESTED = pa.schema(
    [("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())])), ("l", pa.list_(pa.float64()))]
)


def test_open_takes_of_one_group_never_overlap(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    with channel.take_transaction() as one, channel.take_transaction() as two:
        assert [e.body for e in one.take_many(3)] == numbered(0, 3)
        assert [e.body for e in two.take_many(3)] == numbered(3, 3)
        assert [e.body for e in one.take_many(2)] == numbered(6, 2)
        one.rollback()
    assert take(channel) == numbered(0, 3) + numbered(6, 4)


def test_rolled_back_takes_return_to_the_head_in_order(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 6))
    with channel.take_transaction() as tx:
        tx.take_many(4)
        tx.rollback()
    assert take(channel, 3) == numbered(0, 3)
    assert take(channel) == numbered(3, 3)


def test_take_waits_for_an_event(open_channel: Open) -> None:
    channel = open_channel()
    thread = threading.Timer(0.1, lambda: put(channel, b"late"))
    thread.start()
    with channel.take_transaction() as tx:
        assert tx.take(timeout_seconds=30).body == b"late"  # type: ignore[union-attr]
        assert tx.take(timeout_seconds=0.01) is None
    thread.join()


def test_take_waits_overflow_timeout_by_default(open_channel: Open) -> None:
    channel = open_channel(overflow_timeout=0.05)
    with channel.take_transaction() as tx:
        assert tx.take() is None


def test_a_take_stops_at_the_transaction_capacity(open_channel: Open) -> None:
    channel = open_channel(transaction_capacity=5)
    put(channel, *numbered(0, 5))
    put(channel, *numbered(5, 5))
    with channel.take_transaction() as tx:
        assert len(tx.take_many(3)) == 3
        assert len(tx.take_many(10)) == 2
        with pytest.raises(TransactionCapacityError, match="has taken 5 events"):
            tx.take()


def test_a_limit_below_one_is_refused(open_channel: Open) -> None:
    with (
        open_channel().take_transaction() as tx,
        pytest.raises(ValueError, match="limit must be an integer, 1 or more"),
    ):
        tx.take_many(0)


def test_events_that_expire_between_claim_and_read_are_passed_over(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_bytes=64 << 20, retention_untaken="drop")
    channel.engine().upkeep.stop()
    put(channel, bytes(300 << 10))  # a block of its own
    put(channel, b"2")
    read, expired = Consumer.read, []

    def overtaken(consumer: Consumer, ranges: list[tuple[int, int]]) -> list[ReadBatch]:
        if not expired:
            expired.append(ranges)
            channel.engine().commit(Control(FrameType.RETENTION, {"through": 1}))
        return read(consumer, ranges)

    monkeypatch.setattr(Consumer, "read", overtaken)
    assert take(channel) == [b"2"]
    assert expired == [[(1, 2)]]


@pytest.mark.parametrize("call", ["take_many", "take_batch"])
def test_a_limit_and_a_timeout_that_are_no_numbers_are_refused_by_their_names(open_channel: Open, call: str) -> None:
    channel = open_channel()
    put(channel, b"x")
    with channel.take_transaction() as tx:
        for limit in (None, "10", 0, -1, 2.5, [1]):
            with pytest.raises(OptionError, match="limit must be an integer, 1 or more"):
                getattr(tx, call)(limit)
        for timeout in ("1", None, float("nan")):
            with pytest.raises(OptionError, match="timeout_seconds must be a number of seconds"):
                getattr(tx, call)(1, timeout)
        with pytest.raises(OptionError, match="timeout_seconds"):
            tx.take("1")  # type: ignore[arg-type]
        given: Any = getattr(tx, call)(1, float("inf"))
        assert len(given) == 1
