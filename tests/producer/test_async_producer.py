"""The same words for asyncio; the loop is never blocked."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spillable_stream import AsyncProducer, Channel, Event, Result
from spillable_stream.errors import ProducerClosedError, ProducerTimeoutError, SchemaError, SendFailedError
from spillable_stream.producer.future import SendFuture
from tests.producer.conftest import MakeProducer
from tests.support.events import peek
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget


def test_sends_are_awaited_until_they_are_stored(path: Path) -> None:
    async def main() -> None:
        async with AsyncProducer(path, context_headers=False) as producer:
            futures = [await producer.send(b"%d" % i, {"k": "v"}) for i in range(1000)]
            many = await producer.send_many([Event(b"a"), b"b"])
            with Channel(path) as channel:
                batch = await producer.send_batch(channel_batch(channel))
            results = await asyncio.gather(*futures)
            assert len({r.write_order_id for r in results}) == 1000
            both = await many
            assert both.last_id - both.first_id == 1 and (await batch).successful
            assert producer.stats().sent_events == 1003 and producer.last_sequence() > 0

    asyncio.run(main())
    with Channel(path) as channel:
        assert len(peek(channel)) == 1003


def channel_batch(channel: Channel) -> object:
    import pyarrow as pa

    headers = pa.array([[]], channel.schema.field("headers").type)
    return pa.record_batch([headers, pa.array([b"c"])], schema=channel.schema)


def test_a_failure_is_raised_where_it_is_awaited(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))

    async def main() -> None:
        producer = AsyncProducer(produce(linger_ms=0))
        future = await producer.send(b"x")
        with pytest.raises(SendFailedError, match="bad") as e:
            await future
        assert e.value.events == (Event(b"x"),)
        with pytest.raises(SchemaError):
            await producer.send("text")  # type: ignore[arg-type]

    asyncio.run(main())


def test_callbacks_are_called_in_the_loop(produce: MakeProducer) -> None:
    async def main() -> None:
        producer = AsyncProducer(produce())
        found: list[tuple[Result, int]] = []
        await producer.send(b"x", callback=lambda r: found.append((r, threading.get_ident())))
        await producer.flush(PATIENCE_SECONDS)
        await asyncio.sleep(0)
        assert [(r.write_order_id, thread) for r, thread in found] == [(1, threading.get_ident())]

    asyncio.run(main())


def test_the_loop_runs_on_while_a_send_waits_for_room(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000))
        first = await producer.send(b"x" * 900)
        waiting = asyncio.ensure_future(producer.send(b"y" * 900))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done() and not first.done()
        target.let_go()
        second = await waiting
        await producer.flush(PATIENCE_SECONDS)
        assert (await first).successful and (await second).successful

    asyncio.run(main())
    assert target.bodies == [b"x" * 900, b"y" * 900]


def test_a_send_that_finds_no_room_says_so(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000, max_block_ms=0))
        await producer.send(b"x" * 900)
        with pytest.raises(ProducerTimeoutError):
            await producer.send(b"y" * 900)

    asyncio.run(main())


def test_what_was_accepted_is_sent_also_if_its_future_is_cancelled(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(linger_ms=0))
        futures = [await producer.send(b"%d" % i) for i in range(3)]
        futures[1].cancel()
        target.let_go()
        assert (await futures[0]).successful and (await futures[2]).successful
        assert futures[1].cancelled()

    asyncio.run(main())
    assert target.bodies == [b"0", b"1", b"2"]


def test_a_loop_that_is_closed_before_the_end_harms_nobody(
    produce: MakeProducer, target: FakeTarget, caplog: pytest.LogCaptureFixture
) -> None:
    target.hold()
    producer = produce(linger_ms=0)

    async def main() -> None:
        await AsyncProducer(producer).send(b"x", callback=print)

    asyncio.run(main())
    target.let_go()
    producer.close(PATIENCE_SECONDS)
    assert target.bodies == [b"x"] and not caplog.records


def test_a_producer_that_was_given_stays_open(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce()

    async def main() -> None:
        async with AsyncProducer(producer) as both:
            await both.send(b"x")
            assert both.producer_id == producer.producer_id

    asyncio.run(main())
    assert target.bodies == [b"x"] and target.closed == 0


def test_nothing_of_a_batch_that_is_done_is_kept(produce: MakeProducer) -> None:
    async def main() -> None:
        producer = AsyncProducer(produce(batch_count_threshold=2))
        for _ in range(50):
            await asyncio.gather(await producer.send(b"x"), await producer.send(b"y"))
        assert producer._waiting == {}

    asyncio.run(main())


# ── waiting for room ────────────────────────────────────────────────────────────────────────────


async def waiting_for_room(producer: AsyncProducer, *bodies: bytes) -> list[asyncio.Task[asyncio.Future[Result]]]:
    """Return sends that wait for room, in this order."""
    tasks = [asyncio.ensure_future(producer.send(body)) for body in bodies]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


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
        threads = threading.active_count()
        tasks = await waiting_for_room(producer, *bodies)
        assert threading.active_count() == threads
        target.let_go()
        futures = [await task for task in tasks]
        await producer.flush(PATIENCE_SECONDS)
        assert all(result.successful for result in await asyncio.gather(*futures))
        room = producer._producer._pipeline.accumulator.room
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
        found = await asyncio.gather(
            *(producer.send(b"y" * 900, max_block_ms=ms) for ms in (20, 10, 0)), return_exceptions=True
        )
        assert [type(e) for e in found] == [ProducerTimeoutError] * 3
        first, second, at_once = map(str, found)
        assert first.startswith("20 ms made no room: no room for 964 bytes")
        assert second.startswith("no room within 10 ms: 1 other sends wait for it")
        assert at_once.startswith("no room for 964 bytes")

    asyncio.run(main())


@pytest.mark.parametrize("owned", [True, False])
def test_a_close_refuses_the_sends_that_wait_and_waits_no_longer_than_it_was_told(
    produce: MakeProducer, target: FakeTarget, owned: bool
) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=1000, max_block_ms=-1))
        producer._owned = owned
        await producer.send(b"x" * 900)
        tasks = await waiting_for_room(producer, *([b"y" * 900] * 50))
        with pytest.raises(ProducerTimeoutError):
            await producer.close(0)
        refused = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_SECONDS)
        assert {type(e) for e in refused} == {ProducerClosedError}
        with pytest.raises(ProducerClosedError):
            await producer.send(b"later")

    asyncio.run(main())


def test_a_producer_that_is_closed_elsewhere_refuses_the_sends_that_wait(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1)

    async def main() -> None:
        both = AsyncProducer(producer)
        await both.send(b"x" * 900)
        tasks = await waiting_for_room(both, b"y" * 900, b"z" * 900)
        closing = threading.Thread(target=producer.close)
        closing.start()
        refused = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_SECONDS)
        assert {type(e) for e in refused} == {ProducerClosedError}
        target.let_go()
        closing.join(PATIENCE_SECONDS)

    asyncio.run(main())
    assert target.bodies == [b"x" * 900]


def test_a_flush_and_a_close_need_no_thread_of_the_loops_executor(produce: MakeProducer, target: FakeTarget) -> None:
    release = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        blocked = loop.run_in_executor(None, release.wait, PATIENCE_SECONDS)
        producer = AsyncProducer(produce())
        await producer.send(b"x")
        try:
            await asyncio.wait_for(producer.flush(), PATIENCE_SECONDS / 2)
            await asyncio.wait_for(producer.close(), PATIENCE_SECONDS / 2)
        finally:
            release.set()
        await blocked

    asyncio.run(main())
    assert target.bodies == [b"x"]


def test_a_flush_that_is_cancelled_harms_nobody(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()

    async def main() -> None:
        producer = AsyncProducer(produce(linger_ms=0))
        future = await producer.send(b"x")
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        target.let_go()
        assert (await future).successful

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
        while not producer._pipeline.accumulator.room.waiters and not sending.done():
            pass
        target.let_go()
        assert sending.result(PATIENCE_SECONDS).result(PATIENCE_SECONDS).successful
