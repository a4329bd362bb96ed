from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spillable_stream import Channel, Event
from spillable_stream.flow.tap import tap


def put(channel: Channel, *bodies: bytes) -> None:
    with channel.put_transaction() as tx:
        tx.put_many([Event(b, {"n": b.decode()}) for b in bodies])


def test_events_are_shown_as_they_come_and_those_that_have_left_are_counted(
    open_channel: Callable[..., Channel],
) -> None:
    channel = open_channel()
    put(channel, b"before")
    steps = [lambda: put(channel, b"1", b"2"), lambda: None, lambda: leave(channel), lambda: put(channel, b"5")]

    def leave(channel: Channel) -> None:
        put(channel, b"3", b"4")
        with channel.take_transaction() as tx:
            assert len(tx.take_many(10)) == 5

    rows = tap(channel, sleep=lambda _: steps.pop(0)())
    assert [next(rows).get("body", b"-") for _ in range(2)] == [b"1", b"2"]
    assert next(rows) == {"skipped": 2}
    assert next(rows)["body"] == b"5"


def test_a_typed_channel_shows_its_columns(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel(schema=pa.schema([("n", pa.int64())]))
    with channel.put_transaction() as tx:
        tx.put({"n": 7})
    assert list(tap(channel, from_start=True, follow=False)) == [{"n": 7, "write_order_id": 1}]
    assert list(tap(channel, from_start=True, follow=False, where={"n": "7"})) == []


def test_events_that_leave_at_once_are_counted_though_none_follows(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()

    def pass_by() -> None:
        put(channel, b"1", b"2", b"3")
        with channel.take_transaction() as tx:
            assert len(tx.take_many(10)) == 3

    steps = [pass_by]
    assert next(tap(channel, sleep=lambda _: steps.pop()())) == {"skipped": 3}
