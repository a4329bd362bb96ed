"""The end of a producer: graceful, once, within its time, and nothing accepted is lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spillable_stream import Result
from spillable_stream.errors import (
    OptionError,
    ProducerClosedError,
    ProducerError,
    ProducerTimeoutError,
    SendFailedError,
    StorageError,
)
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.pipeline import Pipeline
from tests.producer.conftest import MakeProducer, assert_nothing_left
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, full
from tests.support.producers import wait_for_retry


def test_a_close_sends_what_lingers(produce: MakeProducer, target: FakeTarget) -> None:
    with produce(linger_ms=60_000) as producer:
        future = producer.send(b"x")
    assert future.done() and target.bodies == [b"x"] and target.closed == 1


def test_a_close_tries_once_more_what_waits_for_a_retry(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(*full(1))
    producer = produce(linger_ms=0)
    future = producer.send(b"x")
    wait_for_retry(producer)
    producer.close(PATIENCE_SECONDS)
    assert future.result(0).attempt_count == 2


def test_what_fails_during_a_close_is_not_tried_again(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail_while(lambda sequence: next(iter(full())))
    producer = produce(linger_ms=60_000)
    future = producer.send(b"x")
    producer.close(PATIENCE_SECONDS)
    assert len(target.attempts) == 1
    error = future.exception(0)
    assert isinstance(error, SendFailedError) and error.events[0].body == b"x"


def test_a_timeout_of_0_does_not_wait_and_what_was_not_sent_has_its_events(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(batch_count_threshold=1)
    futures = [producer.send(b"%d" % i) for i in range(3)]
    target.wait_for_attempts(1)
    with pytest.raises(ProducerTimeoutError, match=r"within 0 s: 2 events were not sent.*1 batch is being committed"):
        producer.close(0)
    for i in (1, 2):
        error = futures[i].exception(PATIENCE_SECONDS)
        assert isinstance(error, SendFailedError) and error.events[0].body == b"%d" % i
        assert error.result.error_code == "ProducerClosedError"
    assert not futures[0].done()
    target.let_go()
    assert futures[0].result(PATIENCE_SECONDS).successful  # it was being committed
    producer.close(PATIENCE_SECONDS)
    assert target.bodies == [b"0"]
    assert_nothing_left(producer)


def test_a_timeout_of_0_tries_nothing_again(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(*full(1))
    producer = produce(linger_ms=0)
    future = producer.send(b"x")
    wait_for_retry(producer)
    with pytest.raises(ProducerTimeoutError, match="1 event was not sent"):
        producer.close(0)
    error = future.exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError) and len(target.attempts) == 1
    assert [a.error_code for a in error.result.reserved_attempts] == ["ChannelFullError", "ProducerClosedError"]


def test_one_deadline_is_for_all_of_it(produce: MakeProducer, target: FakeTarget, clock: FakeClock) -> None:
    target.hold()
    producer = produce(batch_count_threshold=1)
    for i in range(3):
        producer.send(b"%d" % i)
    target.wait_for_attempts(1)
    closing = ThreadPoolExecutor(1).submit(producer.close, 5.0)
    while not producer._pipeline.buffer.closing:
        time.sleep(0)
    producer._pipeline._mutex.run(lambda: None)  # it is free once the close waits
    clock.advance(4.9)
    assert not closing.done()
    clock.advance(0.2)
    assert isinstance(closing.exception(PATIENCE_SECONDS), ProducerTimeoutError)


def test_a_close_may_come_again_and_from_many_threads(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce()
    producer.send(b"x")
    with ThreadPoolExecutor(20) as pool:
        for done in [pool.submit(producer.close, PATIENCE_SECONDS) for _ in range(100)]:
            done.result()
    producer.close()
    producer.close(0)
    assert target.closed == 1


@pytest.mark.parametrize("timeout_seconds", [-1, -0.001])
def test_a_negative_timeout_is_refused(produce: MakeProducer, timeout_seconds: float) -> None:
    producer = produce()
    for end in (producer.close, producer.flush):
        with pytest.raises(OptionError, match="timeout_seconds must be 0 or more"):
            end(timeout_seconds)


def test_who_waits_for_room_is_told_about_the_close(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1)
    producer.send(b"x" * 900)
    waiting = ThreadPoolExecutor(1).submit(producer.send, b"y" * 900)
    target.wait_for_attempts(1)
    with pytest.raises(ProducerTimeoutError):
        producer.close(0)
    assert isinstance(waiting.exception(PATIENCE_SECONDS), ProducerClosedError)


def test_every_send_that_a_close_did_not_refuse_is_stored(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(batch_count_threshold=5, io_thread_count=3)
    accepted: list[bytes] = []

    def send(number: int) -> None:
        for i in range(100_000):
            body = b"%d %d" % (number, i)
            try:
                producer.send(body)
            except ProducerClosedError:
                return
            accepted.append(body)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    target.wait_for_attempts(10)
    producer.close(PATIENCE_SECONDS)
    for thread in threads:
        thread.join()
    assert sorted(accepted) == sorted(target.bodies)


def test_a_close_says_whose_callbacks_it_waits_for_and_calls_nothing_unsent(produce: MakeProducer) -> None:
    called, return_now = threading.Event(), threading.Event()

    def tell(result: Result) -> None:
        called.set()
        assert return_now.wait(PATIENCE_SECONDS)

    producer = produce(linger_ms=0)
    producer.send(b"x", callback=tell)
    assert called.wait(PATIENCE_SECONDS)
    with pytest.raises(ProducerTimeoutError, match=r"within 0 s: 1 batch is done but for callbacks that have yet to"):
        producer.close(0)
    return_now.set()


def test_a_close_says_that_it_waits_for_a_target(produce: MakeProducer) -> None:
    closing, close_now = threading.Event(), threading.Event()

    class Slow(FakeTarget):
        def close(self) -> None:
            closing.set()
            assert close_now.wait(PATIENCE_SECONDS)

    producer = produce(Slow())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(producer.close, PATIENCE_SECONDS)
        assert closing.wait(PATIENCE_SECONDS)
        with pytest.raises(
            ProducerTimeoutError, match="within 0 s: all of it is done, but its channels are not closed"
        ):
            producer.close(0)
        close_now.set()
        done.result()


def test_a_target_that_cannot_be_closed_is_told(produce: MakeProducer) -> None:
    class Stuck(FakeTarget):
        def close(self) -> None:
            raise StorageError("the disk is gone")

    producer = produce(Stuck())
    with pytest.raises(ProducerError, match="could not be closed: the disk is gone"):
        producer.close(PATIENCE_SECONDS)


def test_an_exception_in_a_with_block_does_not_keep_events_from_being_sent(
    produce: MakeProducer, target: FakeTarget
) -> None:
    with pytest.raises(ZeroDivisionError), produce() as producer:
        producer.send(b"x")
        raise ZeroDivisionError
    assert target.bodies == [b"x"]


def test_an_interrupt_amid_a_close_leaves_the_rest_to_the_next_one(
    produce: MakeProducer, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.hold()
    producer = produce(linger_ms=0, batch_count_threshold=1)
    futures = [producer.send(b"%d" % i) for i in range(10)]
    target.wait_for_attempts(1)
    put, told = producer._pipeline._failure.put, []

    def interrupted(batch: Any, result: Any) -> None:
        put(batch, result)
        told.append(batch)
        if len(told) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(producer._pipeline._failure, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.close(0)
    monkeypatch.undo()
    with pytest.raises(ProducerTimeoutError, match=r"7 events were not sent|6 events were not sent"):
        producer.close(0)
    target.let_go()
    producer.close(PATIENCE_SECONDS)
    assert [bool(future.exception(0)) for future in futures] == [False] + [True] * 9


@pytest.mark.parametrize(
    ("then", "error"), [("retry", StorageError("a moment, please")), ("dead_letter", ValueError("bad"))]
)
def test_a_close_in_time_fails_also_what_a_thread_has_just_put_back(
    produce: MakeProducer, target: FakeTarget, monkeypatch: pytest.MonkeyPatch, then: str, error: Exception
) -> None:
    """The thread has still to say that its turn has ended: neither it nor the close would let go of the batch."""
    target.fail(error)
    put_back, is_back, is_closed = getattr(Pipeline, then), threading.Event(), threading.Event()

    def slowly(pipeline: Pipeline, batch: ProducerBatch) -> bool:
        found: bool = put_back(pipeline, batch)
        is_back.set()
        assert is_closed.wait(PATIENCE_SECONDS)
        return found

    monkeypatch.setattr(Pipeline, then, slowly)
    producer = produce(linger_ms=0, dead_letter=FakeTarget(name="dead"))
    future = producer.send(b"x")
    assert is_back.wait(PATIENCE_SECONDS)
    with pytest.raises(ProducerTimeoutError, match="1 event was not sent"):
        producer.close(0)
    is_closed.set()
    failed = future.exception(PATIENCE_SECONDS)
    assert isinstance(failed, SendFailedError) and failed.events[0].body == b"x"
    producer.close(PATIENCE_SECONDS)
