from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelStats, DataLossError, Event, SchemaError
from spillable_stream.flow.tap import tap
from tests.support.far_times import FAR, put_far_times


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


def test_a_time_that_python_does_not_have_is_an_error_that_names_the_events(
    open_channel: Callable[..., Channel],
) -> None:
    channel = open_channel(schema=FAR.schema)
    put_far_times(channel)
    with pytest.raises(SchemaError, match=r"no object for a value among the events 1 to 2 .*export"):
        list(tap(channel, from_start=True, follow=False))


def test_events_that_leave_at_once_are_counted_though_none_follows(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()

    def pass_by() -> None:
        put(channel, b"1", b"2", b"3")
        with channel.take_transaction() as tx:
            assert len(tx.take_many(10)) == 3

    steps = [pass_by]
    assert next(tap(channel, sleep=lambda _: steps.pop()())) == {"skipped": 3}


LARGE = b"x" * 300_000  # one is read after the other


def leave(channel: Channel, count: int) -> None:
    with channel.take_transaction() as tx:
        assert len(tx.take_many(100)) == count


def test_a_tap_that_does_not_follow_counts_what_leaves_while_it_reads(open_channel: Callable[..., Channel]) -> None:
    channel = open_channel()
    for _ in range(4):
        put(channel, LARGE)
    rows = tap(channel, from_start=True, follow=False)
    assert next(rows)["write_order_id"] == 1
    leave(channel, 4)
    assert list(rows) == [{"skipped": 3}]


def test_a_tap_that_does_not_follow_counts_what_leaves_before_it_reads_and_shows_the_rest(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put(channel, b"1", b"2", b"3")
    stats = channel.stats

    def look() -> ChannelStats:
        found = stats()
        if found.last_id == 3:
            leave(channel, 3)
            put(channel, b"4")
        return found

    monkeypatch.setattr(channel, "stats", look)
    assert list(tap(channel, from_start=True, follow=False)) == [{"skipped": 3}], "it ends at what was the last event"
    monkeypatch.undo()
    assert [row["body"] for row in tap(channel, from_start=True, follow=False)] == [b"4"]


@pytest.mark.parametrize("follow", [True, False])
def test_events_that_are_missing_and_have_not_left_are_an_error(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    channel = open_channel()
    put(channel, b"1")

    def read(*_: object, **__: object) -> Iterator[pa.RecordBatch]:
        raise DataLossError("the file log-000001 was removed")

    monkeypatch.setattr(channel, "read", read)
    with pytest.raises(DataLossError, match="log-000001 was removed"):
        list(tap(channel, from_start=True, follow=follow, sleep=lambda _: None))
