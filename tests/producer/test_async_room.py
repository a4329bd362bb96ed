"""Waiting for room without a thread: in order, no longer than told, and not after a close."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spillable_stream import AsyncProducer
from spillable_stream.errors import ProducerTimeoutError
from spillable_stream.producer.future import SendFuture
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.producers import waiting_for_room


def test_a_send_that_is_cancelled_while_it_waits_is_not_sent_and_the_next_one_is(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000, linger_ms=0))
        await producer.send(b"a" * 900)
        first, second, third = await waiting_for_room(producer, b"b" * 900, b"c" * 900, b"d" * 900)
        second.cancel()
        first.cancel()
        target.let_go()
        assert (await (await third)).successful
        assert first.cancelled() and second.cancelled()
        await producer.flush(PATIENCE_SECONDS)

    asyncio.run(main())
    assert [body[:1] for body in target.bodies] == [b"a", b"d"]


def test_a_send_that_is_cancelled_when_there_is_room_but_it_is_not_accepted_yet_is_not_sent(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000, linger_ms=0))
        await producer.send(b"a" * 900)
        first, second = await waiting_for_room(producer, b"b" * 900, b"c" * 900)
        target.let_go()
        producer._producer.flush(PATIENCE_SECONDS)  # blocks the loop: the wake-up is on its way
        producer._room._awake()
        first.cancel()
        assert (await (await second)).successful and first.cancelled()

    asyncio.run(main())
    assert [body[:1] for body in target.bodies] == [b"a", b"c"]


def test_sends_wait_in_the_order_in_which_they_came_without_a_thread(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    bodies = [b"%03d" % i + b"x" * 400 for i in range(200)]

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000, linger_ms=60_000))
        await producer.send(b"first" + b"x" * 800)
        threads = set(threading.enumerate())
        tasks = await waiting_for_room(producer, *bodies)
        assert threads.issuperset(threading.enumerate())
        target.let_go()
        futures = [await task for task in tasks]
        await producer.flush(PATIENCE_SECONDS)
        assert all(result.successful for result in await asyncio.gather(*futures))
        room = producer._producer._pipeline.buffer.room
        assert not producer._room._queue and not room.waiters and not room.given

    asyncio.run(main())
    assert target.bodies[1:] == bodies


def test_no_send_overtakes_one_that_waits(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000))
        await producer.send(b"a" * 600)
        large, small = await waiting_for_room(producer, b"large" + b"x" * 800, b"small")
        target.let_go()
        await large
        await small
        await producer.flush(PATIENCE_SECONDS)

    asyncio.run(main())
    assert [body[:5] for body in target.bodies] == [b"aaaaa", b"large", b"small"]


def test_a_send_waits_no_longer_than_it_was_told(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000, max_block_ms=-1))
        await producer.send(b"x" * 900)
        with pytest.raises(ProducerTimeoutError, match=r"^no room within 20 ms: no room for 964 bytes"):
            await producer.send(b"y" * 900, max_block_ms=20)
        (first,) = await waiting_for_room(producer, b"y" * 900)
        with pytest.raises(ProducerTimeoutError, match=r"^no room within 10 ms: 1 other send is waiting for it"):
            await producer.send(b"y" * 900, max_block_ms=10)
        with pytest.raises(ProducerTimeoutError, match=r"^no room for 964 bytes"):
            await producer.send(b"y" * 900, max_block_ms=0)
        first.cancel()

    asyncio.run(main())


def test_a_thread_that_had_a_loop_may_wait_for_room_afterwards(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1, linger_ms=0)

    async def main() -> None:
        await AsyncProducer(producer).send(b"x" * 900)

    def loop_and_then_send() -> SendFuture:
        asyncio.run(main())
        return producer.send(b"y" * 900)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(loop_and_then_send)
        while not producer._pipeline.buffer.room.waiters and not sending.done():
            pass
        target.let_go()
        assert sending.result(PATIENCE_SECONDS).result(PATIENCE_SECONDS).successful
