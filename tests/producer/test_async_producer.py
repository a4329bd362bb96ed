"""The same words for asyncio; the loop is never blocked."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import AsyncProducer, Channel, Event, Result
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.errors import (
    OptionError,
    ProducerClosedError,
    ProducerTimeoutError,
    SchemaError,
    SendFailedError,
    StorageError,
)
from tests.producer.conftest import MakeProducer
from tests.support.events import peek
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.no_threads import no_threads
from tests.support.producers import waiting_for_room


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


def test_a_callback_that_would_have_to_be_awaited_is_refused(produce: MakeProducer, target: FakeTarget) -> None:
    async def tell(result: Result) -> None:
        raise AssertionError("nobody awaits this")

    async def main() -> None:
        producer = AsyncProducer(produce())
        with pytest.raises(OptionError, match=r"callback .* is a coroutine function, which nobody would await"):
            await producer.send(b"x", callback=tell)
        await producer.flush(PATIENCE_SECONDS)

    asyncio.run(main())
    assert not target.bodies


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


def test_a_stream_that_can_be_read_only_once_may_wait_for_room(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    batch = batch_from_events([Event(b"y" * 900)])

    async def main() -> None:
        producer = AsyncProducer(produce(total_size_in_bytes=2000))
        await producer.send(b"x" * 1500)
        waiting = asyncio.ensure_future(producer.send_batch(pa.RecordBatchReader.from_batches(batch.schema, [batch])))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        target.let_go()
        assert (await (await waiting)).successful

    asyncio.run(main())
    assert target.bodies == [b"x" * 1500, b"y" * 900]


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
            assert both.producer_id == producer.producer_id and repr(both) == f"Async{producer!r}"

    asyncio.run(main())
    assert target.bodies == [b"x"] and target.closed == 0


@pytest.mark.parametrize(
    "given", [{"linger_ms": 5}, {"producer_id": "web-1"}, {"dead_letter": "dead"}], ids=lambda given: next(iter(given))
)
def test_what_a_producer_that_was_given_has_already_is_refused_by_its_name(
    produce: MakeProducer, given: dict[str, Any]
) -> None:
    """It had no effect, silently."""
    with pytest.raises(OptionError, match=rf"^{next(iter(given))} is for a new producer, .* give it to Producer\(…\)$"):
        AsyncProducer(produce(), **given)


def test_nothing_of_a_batch_that_is_done_is_kept(produce: MakeProducer) -> None:
    async def main() -> None:
        producer = AsyncProducer(produce(batch_count_threshold=2))
        for _ in range(50):
            await asyncio.gather(await producer.send(b"x"), await producer.send(b"y"))
        assert producer._waiting == {}

    asyncio.run(main())


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


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


def test_a_flush_and_a_close_for_which_there_is_no_thread_can_be_called_again(
    produce: MakeProducer, target: FakeTarget
) -> None:
    async def main() -> None:
        producer = AsyncProducer(produce())
        await producer.send(b"x")
        for call in (producer.flush, producer.close):
            with no_threads(), pytest.raises(StorageError, match="raise this user's limit of processes"):
                await call()
            await call()
            assert target.bodies == [b"x"]

    asyncio.run(main())
