"""Callbacks: in which thread, in which order, and what they may do."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from spillable_stream import Producer, Result
from spillable_stream.errors import OptionError, ProducerError, ProducerTimeoutError, SendFailedError
from spillable_stream.producer.future import SendFuture
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget


def test_callbacks_run_off_the_sending_thread_and_get_the_result(produce: MakeProducer) -> None:
    found: list[tuple[Result, str]] = []
    producer = produce()
    producer.send(b"a", callback=lambda r: found.append((r, threading.current_thread().name)))
    producer.send_many([b"b", b"c"], callback=lambda r: found.append((r, threading.current_thread().name)))
    producer.close(PATIENCE_SECONDS)
    assert [(r.successful, r.first_id, r.last_id) for r, _ in found] == [(True, 1, 1), (True, 2, 3)]
    assert {name for _, name in found} == {f"spillable-producer-{producer.producer_id}-success"}


def test_failures_are_told_in_a_thread_of_their_own_with_the_events(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    found: list[tuple[Result, str]] = []
    producer = produce()
    producer.send(b"a", {"k": "v"}, callback=lambda r: found.append((r, threading.current_thread().name)))
    producer.close(PATIENCE_SECONDS)
    ((result, name),) = found
    assert (result.successful, result.error_code, result.events[0].body) == (False, "ValueError", b"a")
    assert name.endswith("-failure")


def test_batches_are_told_in_the_order_in_which_they_were_stored(produce: MakeProducer) -> None:
    found: list[int] = []
    producer = produce(batch_count_threshold=2, linger_ms=0)
    for _ in range(100):
        producer.send(b"x", callback=lambda r: found.append(r.write_order_id))
    producer.close(PATIENCE_SECONDS)
    assert found == list(range(1, 101))


def test_a_callback_that_would_have_to_be_awaited_is_refused(produce: MakeProducer, target: FakeTarget) -> None:
    async def tell(result: Result) -> None:
        raise AssertionError("nobody awaits this")

    producer = produce()
    for send, what in ((producer.send, b"x"), (producer.send_many, [b"x"])):
        with pytest.raises(OptionError, match=r"callback .* is a coroutine function, which nobody would await"):
            send(what, callback=tell)  # type: ignore[operator]
    producer.flush(PATIENCE_SECONDS)
    assert not target.bodies


def test_all_callbacks_of_a_batch_come_before_its_futures(produce: MakeProducer) -> None:
    seen: list[bool] = []
    producer = produce()
    for _ in range(5):
        producer.send(b"x", callback=lambda r: seen.append(any(f.done() for f in futures)))
    futures = [producer.send(b"y") for _ in range(5)]
    producer.close(PATIENCE_SECONDS)
    assert seen == [False] * 5 and all(f.done() for f in futures)


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3)], ids=lambda e: type(e).__name__)
def test_a_raising_callback_is_logged_and_harms_nobody(
    produce: MakeProducer, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(result: Result) -> None:
        raise error

    found: list[int] = []
    producer = produce()
    future = producer.send(b"x", callback=bad)
    producer.send(b"y", callback=lambda r: found.append(r.write_order_id))
    producer.close(PATIENCE_SECONDS)
    assert found == [2] and future.result(0).successful
    assert [r.exc_info[1] for r in caplog.records if r.exc_info] == [error]


def test_a_slow_success_callback_does_not_delay_failures(produce: MakeProducer, target: FakeTarget) -> None:
    failed = threading.Event()
    target.fail(None, ValueError("bad"))
    producer = produce(linger_ms=0)
    producer.send(b"x", callback=lambda r: failed.wait(PATIENCE_SECONDS)).done()
    target.wait_for_attempts(1)
    producer.send(b"y", callback=lambda r: failed.set())
    assert failed.wait(PATIENCE_SECONDS)


def test_a_slow_callback_does_not_delay_batches_that_have_none(produce: MakeProducer) -> None:
    done = threading.Event()
    producer = produce(batch_count_threshold=1)
    producer.send(b"x", callback=lambda r: done.wait(PATIENCE_SECONDS))
    for _ in range(3):
        assert producer.send(b"y").result(PATIENCE_SECONDS).successful
    done.set()


def test_a_send_from_a_callback_proceeds(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce()
    again: list[object] = []
    target.fail(ValueError("bad"))
    producer.send(b"x", callback=lambda r: again.append(producer.send_many(r.events)))
    producer.flush(PATIENCE_SECONDS)
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"x"] and len(again) == 1


def test_a_send_from_a_callback_never_waits_for_room_that_only_callbacks_make(
    produce: MakeProducer, target: FakeTarget
) -> None:
    raised: list[Exception] = []

    def send_more(result: Result) -> None:
        try:
            producer.send(b"y" * 900)
        except ProducerTimeoutError as e:
            raised.append(e)

    producer = produce(total_size_in_bytes=1100, max_block_ms=-1)
    producer.send(b"x" * 900, callback=send_more)
    producer.flush(PATIENCE_SECONDS)
    assert len(raised) == 1 and "Waited 0.00 s" in str(raised[0])


WAITS: dict[str, Callable[[SendFuture], object]] = {
    "result": lambda f: f.result(),
    "result in time": lambda f: f.result(PATIENCE_SECONDS),
    "exception": lambda f: f.exception(),
    "wait": lambda f: concurrent.futures.wait([f]),
    "as_completed": lambda f: list(concurrent.futures.as_completed([f])),
}


@pytest.mark.parametrize("failing", [False, True], ids=["success", "failure"])
@pytest.mark.parametrize("how", WAITS)
def test_a_callback_that_waits_for_a_send_of_its_producer_is_refused(
    produce: MakeProducer, target: FakeTarget, how: str, failing: bool
) -> None:
    raised: list[str] = []
    waited = threading.Event()

    def wait(result: Result) -> None:
        another = producer.send(b"y", callback=lambda r: None)
        another.add_done_callback(lambda f: None)  # that is allowed
        try:
            WAITS[how](another)
        except ProducerError as e:
            raised.append(str(e))
        waited.set()

    target.fail(*([ValueError("bad")] if failing else []))
    producer = produce(linger_ms=0)
    producer.send(b"x", callback=wait)
    assert waited.wait(PATIENCE_SECONDS)
    assert len(raised) == 1 and "must not wait for a send of its own producer" in raised[0]
    assert "Use add_done_callback, or wait in another thread" in raised[0]
    producer.close(PATIENCE_SECONDS)
    assert target.bodies[-1] == b"y"


@pytest.mark.parametrize("how", WAITS)
def test_a_callback_may_read_a_send_that_is_done_and_ask_one_that_is_not(produce: MakeProducer, how: str) -> None:
    found: list[object] = []
    asked = threading.Event()
    producer = produce(linger_ms=0)
    done = producer.send(b"done")
    producer.flush(PATIENCE_SECONDS)

    def ask(result: Result) -> None:
        found.append(WAITS[how](done))
        try:
            producer.send(b"y", callback=lambda r: None).result(0)
        except TimeoutError:
            found.append("not yet")
        asked.set()

    producer.send(b"x", callback=ask)
    assert asked.wait(PATIENCE_SECONDS) and len(found) == 2


def test_a_callback_of_add_done_callback_is_refused_the_same(produce: MakeProducer, target: FakeTarget) -> None:
    raised: list[BaseException | None] = []
    asked = threading.Event()

    def wait(future: object) -> None:
        try:
            producer.send(b"y").result()
        except ProducerError as e:
            raised.append(e)
        asked.set()

    target.hold()
    producer = produce(linger_ms=0)
    producer.send(b"x").add_done_callback(wait)
    target.let_go()
    assert asked.wait(PATIENCE_SECONDS) and len(raised) == 1


def test_a_callback_may_wait_for_another_producer(produce: MakeProducer) -> None:
    found: list[bool] = []
    other = FakeTarget()
    producer, another = produce(linger_ms=0), produce(other, linger_ms=0)
    producer.send(b"x", callback=lambda r: found.append(another.send(b"y").result(PATIENCE_SECONDS).successful))
    producer.close(PATIENCE_SECONDS)
    assert found == [True] and other.bodies == [b"y"]


def test_a_target_that_waits_for_a_send_of_its_own_producer_is_refused(produce: MakeProducer) -> None:
    class Selfish(FakeTarget):
        def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
            if not self.attempts:
                self.attempts.append((0, []))
                futures.append(producer.send(b"y"))
                futures[0].result()
            return super().commit(batch, producer_id, numbers)

    futures: list[SendFuture] = []
    producer = produce(Selfish(), linger_ms=0)
    error = producer.send(b"x").exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError) and error.result.error_code == "ProducerError"
    assert "must not wait for a send of its own producer" in error.result.error_message
    assert futures[0].result(PATIENCE_SECONDS).successful


@pytest.mark.parametrize("failing", [False, True], ids=["success", "failure"])
def test_a_callback_may_flush_and_close(produce: MakeProducer, target: FakeTarget, failing: bool) -> None:
    def end(result: Result) -> None:
        producer.flush()
        producer.close()
        closed.set()

    closed = threading.Event()
    target.fail(*([ValueError("bad")] if failing else []))
    producer: Producer = produce(linger_ms=0)
    producer.send(b"x", callback=end)
    assert closed.wait(PATIENCE_SECONDS)
    producer.close(PATIENCE_SECONDS)
    assert target.closed == 1


def test_what_is_nowhere_is_logged(produce: MakeProducer, target: FakeTarget, caplog: pytest.LogCaptureFixture) -> None:
    target.fail(ValueError("bad"))
    producer = produce()
    producer.send_many([b"x", b"y"])
    producer.close(PATIENCE_SECONDS)
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.ERROR, "2 events for fake failed: ValueError: bad")
