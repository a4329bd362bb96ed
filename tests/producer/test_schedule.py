"""Whose turn it is: nobody waits for a target that is full, that fails or that is slow, but those who send to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Event, Producer
from spillable_stream.engine.put_request import NoRoomYetError
from spillable_stream.errors import ProducerTimeoutError, SendFailedError
from spillable_stream.producer.clock import Clock
from spillable_stream.producer.schedule import LONGEST_LOOK_SECONDS, SLOW_SECONDS
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, FullTarget
from tests.support.opcodes import opcodes

# ── full ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def full(produce: MakeProducer, clock: FakeClock) -> Iterator[FullTarget]:
    """A target that is full until the test ends, if not before."""
    full = FullTarget()
    yield full
    full.has_room = full.changed = True
    clock.advance(100)


def wait_for_tries(full: FullTarget, count: int) -> None:
    while full.tries < count:
        time.sleep(0)


def look(producer: Producer, clock: FakeClock, until: Callable[[], bool]) -> None:
    """Let the time pass, from look to look for room, until something is so."""
    looks = producer._pipeline._schedule._looks
    while not until():
        due = next((due for due, _, _ in looks[:1]), clock.now)
        if due > clock.now:
            clock.advance(due - clock.now + 1e-6)
        time.sleep(0)


def test_a_full_target_holds_no_thread_and_its_batches_wait_in_order(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, full: FullTarget
) -> None:
    producer = produce({"full": full, "healthy": target}, batch_count_threshold=1)  # one thread
    waiting = [producer.send(b"%d" % i, key="full") for i in range(5)]
    for i in range(3):
        assert producer.send(b"%d" % i, key="healthy").result(PATIENCE_SECONDS).attempt_count == 1
    assert full.tries == 1, "the others wait behind it"
    full.has_room = True
    clock.advance(LONGEST_LOOK_SECONDS)
    for future in waiting:
        look(producer, clock, future.done)
        assert future.result(0).attempt_count == 1, "it only waited"
    assert [bodies for _, bodies in full.attempts] == [[b"%d" % i] for i in range(5)]
    stats = producer.stats()
    assert (stats.retries, stats.failed_attempts) == (0, 0)


def test_a_batch_that_has_waited_as_long_as_its_channel_keeps_a_put_was_tried_once(
    produce: MakeProducer, clock: FakeClock, full: FullTarget
) -> None:
    producer = produce(full, batch_count_threshold=1, retries=0)
    began = clock.time()
    first, second = producer.send(b"first"), producer.send(b"second")
    look(producer, clock, lambda: len(full.attempts) == 1)
    result = first.exception(PATIENCE_SECONDS).result  # type: ignore[union-attr]
    (attempt,) = result.reserved_attempts
    assert (attempt.error_code, attempt.time) == ("ChannelFullError", began)
    assert 3.0 <= float(attempt.error_message.split()[-2]) <= 3.0 + 2 * LONGEST_LOOK_SECONDS
    assert full.tries < 100 and not second.done(), "its own wait begins when the other one's is over"
    full.has_room = True
    look(producer, clock, second.done)
    assert second.result(0).successful


def test_a_full_channel_in_which_nothing_changes_is_not_tried(
    produce: MakeProducer, clock: FakeClock, full: FullTarget
) -> None:
    full.changed = False
    producer = produce(full, batch_count_threshold=1)
    future = producer.send(b"x")
    wait_for_tries(full, 1)
    began = clock.now
    look(producer, clock, lambda: clock.now > began + 2)
    assert full.tries == 1 and not future.done()
    full.changed = full.has_room = True
    look(producer, clock, future.done)
    assert full.tries == 2 and not producer._pipeline._schedule._looks


def test_a_close_waits_for_room_once_for_all_batches(produce: MakeProducer, clock: FakeClock, full: FullTarget) -> None:
    producer = produce(full, batch_count_threshold=1)
    futures = [producer.send(b"%d" % i) for i in range(50)]
    wait_for_tries(full, 1)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(producer.close)
        while not producer._pipeline.buffer.closing:
            time.sleep(0)
        began = clock.now
        look(producer, clock, closing.done)
    assert len(full.attempts) == 50 and not any(future.exception() is None for future in futures)
    assert 3 <= clock.now - began < 4, "and not 3 s for each, one after the other"


def test_what_waits_for_room_fails_with_its_events_when_a_close_is_out_of_time(
    produce: MakeProducer, full: FullTarget
) -> None:
    producer = produce(full, batch_count_threshold=1)
    futures = [producer.send(b"%d" % i) for i in range(3)]
    while not producer._pipeline._schedule._looks:
        time.sleep(0)
    with pytest.raises(ProducerTimeoutError):
        producer.close(0)
    for i, future in enumerate(futures):
        error = future.exception(PATIENCE_SECONDS)
        assert isinstance(error, SendFailedError) and [event.body for event in error.events] == [b"%d" % i]


def test_a_full_dead_letter_channel_holds_no_thread(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, full: FullTarget
) -> None:
    producer = produce(target, dead_letter=full, batch_count_threshold=1)
    target.fail(ValueError("bad"))
    dead = producer.send(b"bad")
    wait_for_tries(full, 1)
    assert producer.send(b"good").result(PATIENCE_SECONDS).successful
    full.has_room = True
    look(producer, clock, dead.done)
    assert dead.exception(0).result.dead_letter == full.name  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{}, {"memory_capacity": 10}], ids=["disk", "both tiers"])
def test_a_full_channel_of_this_host_does_not_delay_another(path: Path, options: dict[str, int]) -> None:
    with (
        Channel(path / "ok") as healthy,
        Channel(
            path / "full",
            overflow_capacity=10,
            keep_alive=600,
            overflow_timeout=600,
            minimum_required_space=0,
            **options,
        ) as full,
    ):
        with full.put_transaction() as tx:
            tx.put_many([Event(b"x")] * 10)
        before = full.stats().counters.event_put_attempt_count
        with Producer({"full": full, "ok": healthy}, io_thread_count=1, batch_count_threshold=10) as producer:
            waiting = [producer.send_many([b"y"] * 10, key="full") for _ in range(3)]
            for _ in range(5):
                assert producer.send_many([b"z"] * 10, key="ok").result(PATIENCE_SECONDS).successful
            assert not waiting[0].done()
            while not all(future.done() for future in waiting):
                with full.take_transaction() as take:
                    take.take_many(10)
        counters = full.stats().counters
        assert counters.event_put_attempt_count - before == 30 and counters.event_put_error_count == 0


def test_a_transaction_that_waits_elsewhere_leaves_nothing_staged(path: Path) -> None:
    with Channel(path, overflow_capacity=1, max_inline_bytes=0, minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put(Event(b"x"))
        staged = channel.engine().layout.segments(channel.engine().fs)
        for _ in range(3):
            tx = channel.put_transaction()
            tx.waited_seconds = 0.0
            with pytest.raises(NoRoomYetError), tx:
                tx.put(Event(b"y"))
        assert channel.engine().layout.segments(channel.engine().fs) == staged


# ── failing and slow ────────────────────────────────────────────────────────────────────────────


def test_a_target_that_fails_has_one_thread_at_a_time(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    dead = FakeTarget(name="dead")
    dead.fail_while(lambda sequence: ConnectionError("gone"))
    producer = produce({"dead": dead, "healthy": target}, io_thread_count=4, batch_count_threshold=1)
    producer.send(b"x", key="dead")
    while not producer.stats().retrying_batches:
        time.sleep(0)
    dead.hold()
    for _ in range(5):
        producer.send(b"x", key="dead")
    dead.wait_for_attempts(2)
    for _ in range(10):
        producer.send(b"y", key="healthy").result(PATIENCE_SECONDS)
    assert len(dead.attempts) == 2
    dead.fail_while(lambda sequence: None)
    dead.let_go()
    dead.wait_for_attempts(5)


@pytest.mark.parametrize("how", ["dead", "slow"])
def test_those_that_fail_or_are_slow_never_have_the_last_thread(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, how: str
) -> None:
    bad = [FakeTarget(name=f"bad {i}") for i in range(3)]
    targets = {"healthy": target, **{one.name: one for one in bad}}
    producer = produce(targets, io_thread_count=2, batch_count_threshold=1)
    for one in bad:
        if how == "dead":
            one.fail(ConnectionError("gone"))
            producer.send(b"x", key=one.name)
            while len(one.attempts) < 1 or producer.stats().failed_attempts < len(bad[: bad.index(one) + 1]):
                time.sleep(0)
        else:
            one.hold()
            sent = producer.send(b"x", key=one.name)
            one.wait_for_attempts(1)
            clock.advance(2 * SLOW_SECONDS)
            one.let_go()
            sent.result(PATIENCE_SECONDS)
    for one in bad:
        one.hold()
        for _ in range(3):
            producer.send(b"x", key=one.name)
    for _ in range(10):
        producer.send(b"y", key="healthy").result(PATIENCE_SECONDS)
    for one in bad:
        one.let_go()
    producer.flush(0) if how == "slow" and not producer.stats().queued_batches else clock.advance(1)
    for one in bad:
        one.wait_for_attempts(4)


def test_a_target_that_holds_a_thread_for_long_gets_no_second_one_of_two(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    stuck = FakeTarget(name="stuck")
    producer = produce({"stuck": stuck, "healthy": target}, io_thread_count=2, batch_count_threshold=1)
    producer.send(b"x", key="stuck").result(PATIENCE_SECONDS)
    stuck.hold()
    producer.send(b"x", key="stuck")
    stuck.wait_for_attempts(2)
    clock.advance(2 * SLOW_SECONDS)
    producer.send(b"x", key="stuck")
    producer.send(b"y", key="healthy").result(PATIENCE_SECONDS)
    assert len(stuck.attempts) == 2
    stuck.let_go()


def test_targets_take_turns(produce: MakeProducer, target: FakeTarget) -> None:
    """One that has much to do does not keep another from its turn."""
    order: list[str] = []

    class Noting(FakeTarget):
        def commit(self, *arguments: Any) -> tuple[int, int]:
            order.append(self.name)
            return super().commit(*arguments)

    busy, other = Noting(name="busy"), Noting(name="other")
    busy.hold()
    producer = produce({"busy": busy, "other": other}, batch_count_threshold=1)
    for _ in range(20):
        producer.send(b"x", key="busy")
    busy.wait_for_attempts(1)
    for _ in range(3):
        producer.send(b"x", key="other")
    busy.let_go()
    producer.flush(PATIENCE_SECONDS)
    assert order[:8] == ["busy", "busy", "other", "busy", "other", "busy", "other", "busy"]


# ── cost ────────────────────────────────────────────────────────────────────────────────────────


def steps(work: Callable[[], object]) -> int:
    """Return how many instructions of the producer's are executed."""
    return opcodes(work, within="spillable_stream/producer/")


def _release(producer: Producer) -> None:
    buffer = producer._pipeline.buffer
    batch = next(iter(buffer.batches))
    size_bytes = batch.size_bytes
    buffer.release(batch)
    assert buffer.held_bytes == sum(other.size_bytes for other in buffer.batches)
    buffer.batches[batch] = None  # it is to be sent all the same
    buffer.held_bytes += size_bytes
    buffer._done_events -= batch.count


@pytest.mark.parametrize(
    "what",
    [
        _release,
        lambda producer: producer._pipeline.accumulator.ship_lingered(0.0),
        lambda producer: (producer._pipeline.accumulator._open.clear(), producer._pipeline.accumulator.ship_all()),
        lambda producer: producer._pipeline._move(0.0),
    ],
    ids=["an end", "what lingers", "a flush", "a wake"],
)
def test_it_costs_the_same_however_many_batches_and_targets_there_are(
    clock: FakeClock, what: Callable[[Producer], object]
) -> None:
    counts = []
    for outstanding in (10, 1000):
        targets = {str(i): FakeTarget(name=str(i)) for i in range(outstanding)}
        with Producer(targets, clock=clock, linger_ms=1000, io_thread_count=1) as producer:
            for key in targets:
                producer.send(b"x", key=key)
            opened = dict(producer._pipeline.accumulator._open)
            counts.append(steps(lambda: producer._pipeline._mutex.run(lambda: what(producer))))
            producer._pipeline.accumulator._open.update(opened)
    assert abs(counts[1] - counts[0]) < 20, counts


def test_a_batch_is_not_tried_again_before_its_turn_has_ended(
    produce: MakeProducer, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.fail_while(lambda sequence: ConnectionError("first") if len(target.attempts) == sequence else None)
    producer = produce(io_thread_count=4, linger_ms=0, clock=Clock(), base_retry_backoff_ms=1, retries=1_000)
    retried = producer._pipeline.metrics.retried

    def slowly() -> None:
        retried()
        time.sleep(0.02)  # the retry is due before the thread comes to the end of its turn

    monkeypatch.setattr(producer._pipeline.metrics, "retried", slowly)
    futures = [producer.send(b"%d" % i) for i in range(3)]
    assert all(future.result(PATIENCE_SECONDS).successful for future in futures)
    assert producer.stats().state == "running"


def test_one_that_failed_once_is_tried_again_while_another_one_hangs(produce: MakeProducer, clock: FakeClock) -> None:
    hanging, failing = FakeTarget(name="hanging"), FakeTarget(name="failing")
    targets = {"hanging": hanging, "failing": failing}
    producer = produce(targets, io_thread_count=2, linger_ms=0, base_retry_backoff_ms=1)
    producer.send(b"x", key="failing").result(PATIENCE_SECONDS)
    hanging.hold()
    producer.send(b"x", key="hanging")
    hanging.wait_for_attempts(1)
    clock.advance(2 * SLOW_SECONDS)
    failing.fail(ConnectionError("once"))
    again = producer.send(b"y", key="failing")
    failing.wait_for_attempts(2)
    while not again.done():
        clock.advance(0.1)
        time.sleep(0.001)
    assert again.result(0).successful and len(hanging.attempts) == 1
    hanging.let_go()
