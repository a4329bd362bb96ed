"""What becomes of a batch, and a flush, which waits for that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spillable_stream import Producer
from spillable_stream.errors import ChannelFullError, ProducerTimeoutError, SendFailedError, StorageError
from tests.lab.children import wait_until
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, full
from tests.support.no_threads import no_threads
from tests.support.producers import wait_for_retry


def test_a_flush_waits_for_what_was_sent_before_it_and_not_for_more(produce: MakeProducer, target: FakeTarget) -> None:
    producer: Producer = produce(linger_ms=60_000)
    producer.send(b"x")
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"x"]
    producer.send(b"later")
    target.hold()
    with pytest.raises(ProducerTimeoutError, match="1 event is still under way"):
        producer.flush(0)
    target.let_go()
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"x", b"later"]


def test_a_flush_waits_for_retries(produce: MakeProducer, target: FakeTarget, clock: FakeClock) -> None:
    target.fail(*full(1))
    producer = produce()
    producer.send(b"x")
    flushing = ThreadPoolExecutor(1).submit(producer.flush, PATIENCE_SECONDS)
    wait_for_retry(producer)
    assert not flushing.done()
    clock.advance(1)
    flushing.result(PATIENCE_SECONDS)
    assert target.bodies == [b"x"]


def test_a_failure_says_whether_its_events_may_be_stored(produce: MakeProducer, target: FakeTarget) -> None:
    target.answer = False
    producer = produce(linger_ms=0, retries=0)
    lost = producer.send(b"lost").exception(PATIENCE_SECONDS)
    target.answer = True
    target.fail(ChannelFullError("full"))
    full = producer.send(b"full").exception(PATIENCE_SECONDS)
    assert isinstance(lost, SendFailedError) and isinstance(full, SendFailedError)
    assert (lost.result.in_doubt, full.result.in_doubt) == (True, False)
    assert "whether an attempt stored them is not known" in str(lost) and "is not known" not in str(full)


def test_a_producer_whose_threads_cannot_all_start_leaves_none_of_them(target: FakeTarget) -> None:
    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if "spillable-producer-me" in t.name]

    with no_threads(named="-failure"), pytest.raises(StorageError, match="can't start new thread"):
        Producer(target, producer_id="me", io_thread_count=3)
    assert wait_until(lambda: not threads()) and target.closed == 1
