"""Events that a producer sends with a ttl or a delay."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    AsyncProducer,
    Channel,
    ChannelFullError,
    Event,
    OptionError,
    Producer,
    ProducerTimeoutError,
)
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.producer.send_times import SendTimes, TimedRun, as_due_time, row_times
from spillable_stream.producer.target import ChannelTarget
from tests.producer.conftest import MakeProducer
from tests.support.delays import Clock, clock_of
from tests.support.events import put, take
from tests.support.expiry import WallClock

QUICK: dict[str, Any] = {"linger_ms": 60_000, "context_headers": False}


@pytest.fixture
def channel(path: Path) -> Any:
    with Channel(path, minimum_required_space=0) as channel:
        yield channel


@pytest.fixture
def clock(channel: Channel) -> Clock:
    return clock_of(channel)


def test_events_with_times_share_the_batch_of_the_others(channel: Channel, clock: Clock) -> None:
    with Producer(channel, **QUICK) as producer:
        sent = [
            producer.send(b"1"),
            producer.send(b"2", deliver_after=2),
            producer.send(b"3", {"a": "b"}),
            producer.send(Event(b"4"), deliver_at=datetime.fromtimestamp(clock.now_ms / 1000 + 1, UTC)),
            producer.send_many([b"5", b"6"], deliver_after=timedelta(seconds=3)),
            producer.send(b"7"),
        ]
        assert len({future.batch for future in sent}) == 1
        producer.flush()
        assert [(f.result().first_id, f.result().last_id) for f in sent] == [
            (1, 1), (0, -1), (2, 2), (0, -1), (0, -1), (3, 3)
        ]  # fmt: skip
    assert channel.stats().delayed.events == 4
    assert take(channel) == [b"1", b"3", b"7"]
    clock.pass_by(2)
    assert take(channel) == [b"4", b"2"]
    clock.pass_by(1)
    assert take(channel) == [b"5", b"6"]


def test_a_ttl_is_each_events_own_or_the_producers(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock(monkeypatch)
    with Producer(channel, ttl="10s", **QUICK) as producer:
        sent = [producer.send(b"1"), producer.send(b"2", ttl=timedelta(seconds=5)), producer.send_many([b"3"], ttl=20)]
        assert len({future.batch for future in sent}) == 1
    for seconds, left in ((6, [b"1", b"3"]), (5, [b"3"]), (10, [])):
        clock.pass_by(seconds)
        assert [body for batch in channel.read() for body in batch.column("body").to_pylist()] == left


def test_the_producers_ttl_is_for_events_that_wait_too(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock(monkeypatch)
    with Producer(channel, ttl=10, **QUICK) as producer:
        producer.send(b"1", deliver_after=20)
    clock.pass_by(21)
    put(channel, b"2")  # delivers it, too
    clock.pass_by(11)
    assert take(channel) == [b"2"]


def test_a_batch_is_sent_with_times_of_its_own(channel: Channel, clock: Clock) -> None:
    rows = pa.RecordBatch.from_pylist([{"headers": [], "body": b"1"}] * 2, channel.schema)
    with Producer(channel, producer_id="p", **QUICK) as producer:
        waits = producer.send_batch(rows, sequence=1, deliver_after=1, ttl=60)
        assert producer.send_many([b"2"], sequence=2).result(20).first_id == 1
        assert waits.result().first_id == 0
    clock.pass_by(1)
    assert take(channel) == [b"2", b"1", b"1"]


def test_rows_of_a_typed_channel_may_wait(path: Path) -> None:
    with Channel(path, schema=pa.schema([("n", pa.int64())])) as channel:
        clock = clock_of(channel)
        with Producer(channel, **QUICK) as producer:
            producer.send({"n": 1}, deliver_after=1)
        clock.pass_by(1)
        with channel.take_transaction() as tx:
            assert tx.take() == {"n": 1}


def test_a_retry_does_not_extend_the_delay(channel: Channel, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    commit = ChannelTarget.commit

    def late(*arguments: Any) -> Any:
        tried.append(1)
        if len(tried) == 1:
            raise ChannelFullError("it is full")
        clock.pass_by(4)
        return commit(*arguments)

    monkeypatch.setattr(ChannelTarget, "commit", late)
    with Producer(channel, linger_ms=0, base_retry_backoff_ms=1) as producer:
        begun_ms = clock.now_ms
        assert producer.send(b"1", deliver_after=5).result(20).attempt_count == 2
    assert channel.stats().delayed.next_due == (begun_ms + 5000) / 1000


def test_a_batch_that_is_repeated_waits_once(channel: Channel, clock: Clock) -> None:
    for after in (5, 7):
        with Producer(channel, producer_id="p", **QUICK) as producer:
            assert producer.send_many([b"1"], sequence=1, deliver_after=after).result(20).successful
    assert channel.stats().delayed.events == 1


def test_an_event_that_is_due_already_is_put_like_others(channel: Channel, clock: Clock) -> None:
    with Producer(channel, **QUICK) as producer:
        sent = [producer.send(b"1", deliver_at=datetime(2000, 1, 1, tzinfo=UTC)), producer.send(b"2", deliver_after=0)]
    assert [future.result().first_id for future in sent] == [1, 2]


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"ttl": 0}, "ttl must be more than 0"),
        ({"ttl": "1 hour"}, "ttl must be seconds, or a number with ms, s, m, h or d, or a timedelta"),
        ({"deliver_after": -1}, "deliver_after must be seconds, or a number with ms, s, m, h or d, 0 or more"),
        ({"deliver_after": 1, "deliver_at": datetime.now(UTC)}, "are both given"),
        ({"deliver_at": datetime(2000, 1, 1)}, "has no time zone"),
        ({"deliver_after": timedelta(days=367)}, "waits at most a year"),
    ],
)
def test_bad_times_are_refused_at_the_send(channel: Channel, times: dict[str, Any], text: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"headers": [], "body": b"1"}], channel.schema)
    with Producer(channel, **QUICK) as producer:
        for send in (
            lambda: producer.send(b"1", **times),
            lambda: producer.send_many([b"1"], **times),
            lambda: producer.send_batch(rows, **times),
        ):
            with pytest.raises(OptionError, match=text):
                send()
        assert producer.stats().sent_events == 0


def test_a_channel_that_cannot_delay_says_so_at_the_send(path: Path) -> None:
    with Channel(path, overflow_capacity=0, memory_capacity=10) as small, Producer(small, **QUICK) as producer:
        with pytest.raises(OptionError, match="has no disk tier"):
            producer.send(b"1", deliver_after=1)
        assert producer.stats().sent_events == 0


def test_sends_to_a_spool_wait_in_the_store(tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/other"
    with Channel(url, durability="local", spool=tmp_path / "spool") as spooled:
        with Producer(spooled, **QUICK) as producer:
            producer.send(b"late", deliver_after=60)
            producer.send(b"now", ttl=100)
            producer.send(b"later", deliver_after=90)
        spooled.flush()
        assert spooled.stats().delayed.events == 2
        clock = clock_of(spooled)
        assert take(spooled) == [b"now"]
        clock.pass_by(120)
        assert take(spooled) == [b"late", b"later"]


def test_a_send_that_delays_asks_nothing_of_the_log(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer(channel, **QUICK) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(channel.engine(), "follow", lambda: pytest.fail("it looked"))
            patch.setattr(channel.engine(), "prepare_put", lambda: pytest.fail("it looked"))
            future = producer.send(b"1", deliver_after=5)
        producer.flush()
        assert future.result().successful


def test_events_for_a_store_may_wait(tmp_path: Path) -> None:
    with Channel(f"object+file://{tmp_path}/store") as store:
        clock = clock_of(store)
        with Producer(store, **QUICK) as producer:
            sent = [producer.send(b"1", deliver_after=60), producer.send(b"2")]
        assert [future.result().first_id for future in sent] == [0, 1]
        clock.pass_by(60)
        with store.take_transaction() as tx:
            assert [tx.take(timeout_seconds=20).body for _ in range(2)] == [b"2", b"1"]  # type: ignore[union-attr]


def test_a_target_of_ones_own_has_no_times(produce: MakeProducer) -> None:
    with pytest.raises(OptionError, match="fake is a target of your own"):
        produce(ttl=1, clock=None)
    producer = produce(clock=None)
    for times in ({"ttl": 1}, {"deliver_after": 1}):
        with pytest.raises(OptionError, match="only events for a channel may have a ttl or a delay"):
            producer.send(b"1", **times)
    producer.send(b"1", ttl=None, deliver_after=None)


@pytest.mark.parametrize("ttl", [0, "0s", True, "soon", timedelta(0), "40000d"])
def test_a_ttl_of_a_producer_that_cannot_be_is_refused(channel: Channel, ttl: Any) -> None:
    with pytest.raises(OptionError, match=r"^ttl must be seconds, or a number .*; more than 0, not "):
        Producer(channel, ttl=ttl)


def test_a_dead_letter_has_no_times(
    channel: Channel, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ChannelTarget.commit

    def only_the_dead(target: ChannelTarget, *arguments: Any, **named: Any) -> Any:
        if target.name == str(channel.path):
            raise ValueError("never")
        return commit(target, *arguments, **named)

    monkeypatch.setattr(ChannelTarget, "commit", only_the_dead)
    with Channel(tmp_path / "dead") as dead:
        with Producer(channel, dead_letter=dead, ttl=1e-6, **QUICK) as producer:
            failed = producer.send(b"1", deliver_after=60)
        assert failed.exception()
        assert take(dead) == [b"1"]


def test_asyncio_has_the_same_words(channel: Channel, clock: Clock) -> None:
    async def main() -> None:
        async with AsyncProducer(channel, **QUICK) as producer:
            await producer.send(b"1", deliver_after=5)
            await producer.send_many([b"2"], deliver_after=6, ttl=60)
            await producer.send_batch(
                pa.RecordBatch.from_pylist([{"headers": [], "body": b"3"}], channel.schema), deliver_after=7
            )
            with pytest.raises(OptionError, match="0 or more"):
                await producer.send(b"1", deliver_after=-1)

    asyncio.run(main())
    clock.pass_by(600)  # the delays count from the machine's time, which has passed meanwhile
    assert take(channel) == [b"1", b"2", b"3"]


def test_a_delay_counts_from_the_call_though_the_send_waits_for_room(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, said = Producer.send, []

    def refused_once(producer: Producer, *arguments: Any, **named: Any) -> Any:
        said.append((named["deliver_after"], named["deliver_at"]))
        if len(said) == 1:
            raise ProducerTimeoutError("it is full")
        return send(producer, *arguments, **named)

    monkeypatch.setattr(Producer, "send", refused_once)

    async def main() -> None:
        async with AsyncProducer(channel, **QUICK) as producer:
            await producer.send(b"1", deliver_after=5)

    asyncio.run(main())
    assert said[0] == said[1] and said[0][0] is None and said[0][1] is not None


def test_a_delay_becomes_a_moment_unless_it_is_wrong() -> None:
    before = datetime.now(UTC)
    for after in (5, "5s", timedelta(seconds=5)):
        none, moment = as_due_time(after, None)
        assert none is None
        assert moment is not None
        assert timedelta(seconds=5) <= moment - before < timedelta(seconds=60)
    for wrong in (True, -1, "1 week", float("nan"), 1e300, timedelta(-1)):
        assert as_due_time(wrong, None) == (wrong, None)  # type: ignore[arg-type]
    at = datetime(2030, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
    assert as_due_time(None, at) == (None, at)
    assert as_due_time(1, at) == (1, at)


def test_runs_become_the_times_of_a_batch() -> None:
    assert row_times([], 3, 7) == RowTimes(7, 0)
    assert row_times([TimedRun(0, 3, SendTimes(1, 2))], 3, 7) == RowTimes(1, 2)
    ttls, dues = row_times([TimedRun(1, 2, SendTimes(1, 2))], 4, 7)
    assert (ttls.to_pylist(), dues.to_pylist()) == ([7, 1, 1, 7], [0, 2, 2, 0])  # type: ignore[union-attr]


def test_many_sends_with_delays_of_their_own_are_told_about_as_quickly_as_few(channel: Channel, clock: Clock) -> None:
    """Each is told its IDs, which those before it that wait have none of."""
    count, told = 10_000, list[int]()
    with Producer(channel, **QUICK, batch_count_threshold=count, batch_size_threshold_in_bytes="8MiB") as producer:
        for i in range(count // 2):
            producer.send(b"later", deliver_after=60 + i / 1000, callback=lambda result: told.append(result.first_id))
            producer.send(b"now", callback=lambda result: told.append(result.first_id))
        began = time.process_time()  # others' load is no matter
        producer.flush()
        assert time.process_time() - began < 5
    assert told == [found for i in range(count // 2) for found in (0, i + 1)]
