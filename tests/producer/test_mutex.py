"""A lock that interrupts and finalizers can't leave taken, and that a thread is not handed while it sleeps."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Self

import pytest

from spillable_stream import Event, Producer
from spillable_stream.channel.event_columns import batch_from_columns
from spillable_stream.errors import ProducerError
from spillable_stream.producer.mutex import Mutex, runs_undivided
from tests.producer.conftest import MakeProducer, assert_nothing_left
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.interrupts import Interrupts


def test_one_thread_at_a_time_has_it() -> None:
    mutex, inside, most = Mutex(), [0], [0]

    def section() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1

    threads = [threading.Thread(target=lambda: [mutex.run(section) for _ in range(2000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and mutex.slot == {}


def test_a_thread_that_has_it_is_refused_and_still_has_it() -> None:
    mutex = Mutex()

    def section() -> None:
        for _ in range(2):
            with pytest.raises(ProducerError, match="by a signal handler or a finalizer"):
                mutex.run(section)
        assert mutex.slot == {0: threading.get_ident()}

    mutex.run(section)
    assert mutex.slot == {}


def test_a_lock_tells_whether_somebody_has_it() -> None:
    mutex = Mutex()
    assert not mutex.locked() and mutex.run(mutex.locked) and not mutex.locked()


def test_who_goes_first_is_let_in_before_others() -> None:
    mutex, order, others = Mutex(), list[str](), threading.Barrier(4)

    def take(name: str) -> None:
        if name == "first":
            mutex.first.add(threading.get_ident())
        else:
            others.wait()
        with mutex:
            order.append(name)

    with mutex:
        threads = [threading.Thread(target=take, args=(name,)) for name in ("a", "b", "c", "first")]
        for thread in threads:
            thread.start()
        while not mutex.waiting:
            pass
        others.wait()
    for thread in threads:
        thread.join()
    assert order[0] == "first"


def test_a_send_inside_of_a_send_is_refused_and_harms_nobody(produce: MakeProducer, target: FakeTarget) -> None:
    """As from the finalizer of something that is collected while a batch is created."""
    raised: list[Exception] = []

    class Body(list[object]):
        def __init__(self, producer: Producer) -> None:
            self.producer = producer

        def __iadd__(self, bodies: Iterable[object]) -> Self:
            super().extend(bodies)
            for inside in (lambda: self.producer.send(b"inside"), self.producer.flush, self.producer.stats):
                try:
                    inside()
                except ProducerError as e:
                    raised.append(e)
            return self

    producer = produce(linger_ms=60_000)
    producer.send(b"first")
    (batch,) = producer._pipeline.buffer.batches
    batch.bodies = Body(producer)  # type: ignore[assignment]
    producer.send(b"outside", {"so that": "it takes the lock"})
    batch.bodies = list(batch.bodies)
    producer.send(b"after")
    producer.flush(PATIENCE_SECONDS)
    assert len(raised) == 3 and target.bodies == [b"outside", b"after"]


def test_a_send_waits_for_the_lock_though_it_need_not_take_it(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(linger_ms=60_000)
    producer.send(b"first")
    accumulator = producer._pipeline.accumulator
    (batch,) = producer._pipeline.buffer.batches
    thread = threading.Thread(target=producer.send, args=(b"second",))

    def section() -> int:
        thread.start()
        thread.join(0.1)
        return batch.count

    assert accumulator.mutex.run(section) == 1
    thread.join()
    assert batch.count == 2
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"first", b"second"]


def test_a_send_takes_the_lock_where_a_debugger_follows_each_line(produce: MakeProducer) -> None:
    producer, before = produce(linger_ms=60_000), sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert not runs_undivided()
        producer.send(b"first")
    finally:
        sys.settrace(before)
    (batch,) = producer._pipeline.buffer.batches
    assert batch.destination.open is None
    assert producer.send(b"second").batch is batch


def test_a_send_takes_the_lock_where_a_tool_hears_of_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debuggers and coverage from Python 3.12 on: what they call comes in between any two lines, as a trace does."""

    tools = {1: "coverage.py"}
    monitoring = SimpleNamespace(get_tool=tools.get)
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    assert not runs_undivided()
    tools.clear()
    assert runs_undivided()


CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda p: [p.send(b"sent", {"k": "v"}, callback=lambda r: None) for _ in range(3)],
    "send_many": lambda p: [p.send_many([b"sent", Event(b"sent")]) for _ in range(3)],
    "sequence": lambda p: [p.send_many([b"sent"], sequence=i) for i in (1, 2, 3)],
    "send_batch": lambda p: [p.send_batch(batch_from_columns([b"sent"], {})) for _ in range(3)],
    "flush": lambda p: (p.send(b"sent"), p.flush()),
    "close": lambda p: (p.send(b"sent"), p.close()),
    "stats": lambda p: (p.send(b"sent"), p.stats()),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "then", "stride"),
    [
        pytest.param(name, then, stride, marks=[pytest.mark.slow] if stride == 1 else [])
        for (name, other) in zip(CALLS, itertools.cycle(["flush", "send"]))
        for then in ("send", "flush")
        for stride in ([1] if then == other else [7, 1])
    ],
)
def test_an_interrupt_anywhere_leaves_nothing_taken_and_nothing_behind(name: str, then: str, stride: int) -> None:
    number, hit = 0, True
    while hit:
        number += stride
        target = FakeTarget()
        producer = Producer(
            target, producer_id="p", batch_count_threshold=2, linger_ms=0, rng=random.Random(1), context_headers=False
        )
        interrupts = Interrupts(number, "spillable_stream/producer/")
        interrupts.run(lambda: CALLS[name](producer))  # noqa: B023
        hit = interrupts.hit
        for _ in range(100 if name == "send" else 0):  # the other threads may go on with what they have, or not
            time.sleep(0)
        if then == "flush" and name != "close":
            producer.flush(PATIENCE_SECONDS)
            assert not producer._pipeline.buffer.batches
        elif name != "close":
            future = producer.send(b"later") if name != "sequence" else producer.send_many([b"later"], sequence=9)
            assert future.result(PATIENCE_SECONDS).successful  # without a flush, which would ship everything again
            producer.flush(PATIENCE_SECONDS)
            assert target.bodies[-1] == b"later"
        with suppress(ProducerError):
            producer.close(PATIENCE_SECONDS)
        assert_nothing_left(producer)
        assert target.closed == 1 and set(target.bodies) <= {b"sent", b"later"}
        assert len({number for number, _ in target.attempts}) == len(target.attempts)
    assert number > 20
