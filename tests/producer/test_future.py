"""A send's future is a future of the standard library in every way but one: it can't be cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent import futures
from concurrent.futures import Future
from datetime import timedelta
from typing import get_type_hints

import pytest

from spillable_stream import Event
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.errors import OptionError, SendFailedError
from spillable_stream.producer.batch import ProducerBatch, Watcher
from spillable_stream.producer.future import SendFuture
from tests.lab.children import wait_until
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget


def sent(produce: MakeProducer, count: int = 3) -> list[SendFuture]:
    """Send events whose commit waits for the target's `let_go`."""
    producer = produce(linger_ms=0, retries=0)
    return [producer.send(b"%d" % i) for i in range(count)]


def test_an_await_names_what_can_be_awaited(produce: MakeProducer) -> None:
    async def send() -> None:
        await sent(produce, 1)[0]

    with pytest.raises(TypeError, match="can't be awaited: send with an AsyncProducer, or await "):
        asyncio.run(send())


def test_it_is_a_future_of_the_standard_library(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    (future,) = sent(produce, 1)
    assert isinstance(future, Future)
    assert (future.done(), future.running(), future.cancelled()) == (False, True, False)
    with pytest.raises(TimeoutError):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0)
    assert "state=running" in repr(future)
    target.let_go()
    assert future.result(PATIENCE_SECONDS).successful and future.exception() is None
    assert (future.done(), future.running()) == (True, False)
    assert "state=finished" in repr(future)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        future.nothing  # noqa: B018


def test_it_is_waited_for_as_long_as_a_time_with_a_unit_says(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    (future,) = sent(produce, 1)
    for call in (future.result, future.exception):
        for short in ("1ms", "0", 0.001, timedelta(milliseconds=1), -5, timedelta(-1)):
            with pytest.raises(TimeoutError):
                call(short)
        for wrong in ("soon", "-5m", float("nan"), True, b"5", []):
            with pytest.raises(OptionError, match=r"^timeout must be seconds, or a number with ms, s, m, h or d, or a"):
                call(wrong)  # type: ignore[arg-type]
    target.let_go()
    assert future.result("5m").successful and future.exception("300") is None


def test_it_costs_no_fields_until_somebody_asks_for_them(produce: MakeProducer) -> None:
    (future,) = sent(produce, 1)
    future.result(PATIENCE_SECONDS)
    assert vars(future) == {}


def test_it_does_not_keep_what_was_stored(produce: MakeProducer) -> None:
    producer = produce()
    futures = [producer.send(b"x", {"k": "v"}), producer.send_batch(batch_from_columns([b"y"], {}))]
    producer.flush(PATIENCE_SECONDS)
    assert all(f.batch.bodies == [] and f.batch.headers is None and f.batch.record_batch is None for f in futures)


def test_in_a_forked_child_it_waits_for_no_thread_of_the_parents(produce: MakeProducer) -> None:
    (future,) = sent(produce, 1)
    future.result(PATIENCE_SECONDS)
    with future._condition:
        thread = threading.Thread(target=finish_again, args=(future,))
        thread.start()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def finish_again(future: SendFuture) -> None:
    future._state = "RUNNING"
    future.finish(forked=True)


def test_what_was_accepted_cannot_be_cancelled_and_is_sent(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    (future,) = sent(produce, 1)
    assert future.cancel() is False
    target.let_go()
    assert future.result(PATIENCE_SECONDS).successful and future.cancel() is False
    assert target.bodies == [b"0"]


@pytest.mark.parametrize("early", [True, False], ids=["before it is done", "after"])
def test_a_done_callback_is_called_once(produce: MakeProducer, target: FakeTarget, early: bool) -> None:
    target.hold()
    (future,) = sent(produce, 1)
    called: list[object] = []
    done = threading.Event()
    if not early:
        target.let_go()
        future.result(PATIENCE_SECONDS)
    for _ in range(2):
        future.add_done_callback(lambda f: (called.append(f), done.set() if len(called) == 2 else None))
    target.let_go()
    assert done.wait(PATIENCE_SECONDS)
    assert called == [future, future]


def test_a_raising_done_callback_harms_nobody(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    first, second = sent(produce, 2)
    first.add_done_callback(lambda f: 1 / 0)
    called = threading.Event()
    second.add_done_callback(lambda f: called.set())
    target.let_go()
    assert called.wait(PATIENCE_SECONDS)


def test_wait_and_as_completed_know_it(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    found = sent(produce, 50)
    assert futures.wait(found, 0).not_done == set(found)
    threading.Timer(0, target.let_go).start()
    assert futures.wait(found, PATIENCE_SECONDS).done == set(found)
    assert set(futures.as_completed(found, PATIENCE_SECONDS)) == set(found)
    assert futures.wait(found, 0, futures.FIRST_EXCEPTION).done == set(found)


def test_threads_that_wait_for_the_same_futures_in_any_order_do_not_deadlock(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(batch_count_threshold=3)
    found = [producer.send(b"%d" % i) for i in range(60)]
    orders = [found, found[::-1], found[::2] + found[1::2], found[::3] + found[1::3] + found[2::3]]
    done: list[int] = []
    waiting = [
        threading.Thread(target=lambda order=order: done.append(len(futures.wait(order, PATIENCE_SECONDS).done)))
        for order in orders
    ]
    for thread in waiting:
        thread.start()
    target.let_go()
    for thread in waiting:
        thread.join()
    assert done == [60] * 4


def test_many_threads_that_ask_at_once_get_the_same_fields(
    produce: MakeProducer, target: FakeTarget, caplog: pytest.LogCaptureFixture
) -> None:
    target.hold()
    found = sent(produce, 200)
    called: list[int] = []
    begin = threading.Barrier(8)

    def ask() -> None:
        begin.wait()
        for future in found:
            future.add_done_callback(lambda f: called.append(1))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    target.let_go()
    for thread in threads:
        thread.join()
    futures.wait(found, PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(called) < 8 * 200 and time.monotonic() < deadline:
        pass
    assert len(called) == 8 * 200 and not caplog.records


def test_asyncio_awaits_it(produce: MakeProducer, target: FakeTarget) -> None:
    async def main() -> list[int]:
        target.hold()
        found = [asyncio.wrap_future(f) for f in sent(produce, 3)]
        target.let_go()
        return [(await f).write_order_id for f in found]

    assert asyncio.run(main()) == [1, 2, 3]


def test_it_raises_why_the_events_are_not_stored_and_has_them(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail_while(lambda sequence: ValueError("never"))
    producer = produce(linger_ms=0)
    future = producer.send(b"x", {"k": "v"})
    with pytest.raises(SendFailedError, match="1 event for fake not stored after 1 attempt: ValueError: never") as e:
        future.result(PATIENCE_SECONDS)
    assert e.value.events == (Event(b"x", {"k": "v"}),)
    assert e.value.result.error_code == "ValueError" and not e.value.result.successful
    error = next(futures.as_completed([future])).exception()
    assert isinstance(error, SendFailedError) and error.events == (Event(b"x", {"k": "v"}),)
    many = producer.send_many([b"a", b"b"])
    assert [e.body for e in many.exception(PATIENCE_SECONDS).events] == [b"a", b"b"]  # type: ignore[union-attr]


def test_a_future_may_be_watched_by_what_goes_just_when_another_one_is(
    produce: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a finalizer, which runs wherever garbage is collected."""
    first, second = sent(produce, 2)
    watch, told, garbage = ProducerBatch.watch, list[object](), [second]

    def and_collect(batch: ProducerBatch, index: int, watcher: Watcher) -> bool:
        while garbage:
            garbage.pop().add_done_callback(told.append)
        return watch(batch, index, watcher)

    monkeypatch.setattr(ProducerBatch, "watch", and_collect)
    first.add_done_callback(told.append)
    assert wait_until(lambda: len(told) == 2)
    assert sorted(map(id, told)) == sorted([id(first), id(second)])


def test_a_type_checker_knows_which_error_a_send_has() -> None:
    assert get_type_hints(SendFuture.exception)["return"] == SendFailedError | None
