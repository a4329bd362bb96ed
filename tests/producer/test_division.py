"""A batch that its channel refuses as too large is divided by its sends: each is stored once, whole, in order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import AsyncProducer, Channel, Event, Producer, Result
from spillable_stream.errors import (
    EventTooLargeError,
    ProducerTimeoutError,
    PutTooLargeError,
    SendFailedError,
    TransactionCapacityError,
)
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.producer.future import SendFuture
from tests.lab.children import wait_until
from tests.producer.conftest import MakeProducer, assert_nothing_left
from tests.support.events import peek
from tests.support.examples import examples
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, rows
from tests.support.forks import in_child
from tests.support.producers import error_of, wait_for_retry

KB = 1000


class Small(FakeTarget):
    """Refuses a batch whose bodies have more bytes than a test says."""

    def __init__(self, most_bytes: int, name: str = "small", error: type[Exception] = PutTooLargeError) -> None:
        super().__init__(name=name)
        self.most_bytes = most_bytes
        self.error = error

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
        if sum(map(len, rows(batch))) > self.most_bytes:
            with self._tried:
                self.attempts.append((numbers.last, rows(batch)))
                self._tried.notify_all()
            assert self._gate.wait(PATIENCE_SECONDS)
            raise self.error(f"more than {self.most_bytes} bytes")
        return super().commit(batch, producer_id, numbers)

    @property
    def batches(self) -> list[list[Any]]:
        """What was stored, in the order of the numbers."""
        return [rows(self.stored[number]) for number in sorted(self.stored)]


def ship(producer: Producer) -> None:
    """Let what was sent be committed, without waiting for it."""
    with suppress(ProducerTimeoutError):
        producer.flush(0)


def take_events(channel: Channel, count: int) -> list[Event]:
    """Take so many events, which producers are still storing."""
    found: list[Event] = []
    while len(found) < count:
        with channel.take_transaction() as tx:
            found += tx.take_many(count - len(found))
    return found


def take(channel: Channel, count: int) -> list[bytes]:
    return [event.body for event in take_events(channel, count)]


def after(gate: threading.Event, but: int = 0) -> Callable[[int], None]:
    """Return what lets commits wait for an event, but that of one number."""

    def wait(number: int) -> None:
        assert number == but or gate.wait(PATIENCE_SECONDS)

    return wait


def headers_of(target: FakeTarget) -> list[dict[str, str]]:
    """Return the headers of all that is stored, in order of the numbers."""
    return [dict(h) for number in sorted(target.stored) for h in target.stored[number].column("headers").to_pylist()]


# ── channels ────────────────────────────────────────────────────────────────────────────────────


def test_two_sends_that_a_channel_takes_alone_are_stored_though_they_are_one_batch(path: Path) -> None:
    first, second = ([bytes([n]) * KB for _ in range(450)] for n in (1, 2))
    with (
        Channel(path, memory_capacity=2000, overflow_capacity=0, byte_capacity="1MiB") as channel,
        Producer(channel, linger_ms=60_000, batch_size_threshold_in_bytes="4MiB") as producer,
    ):
        assert not peek(channel)  # the group exists
        futures = [producer.send_many(first), producer.send_many(second)]
        ship(producer)
        assert futures[0].result(PATIENCE_SECONDS).successful
        assert take(channel, 450) == first
        assert futures[1].result(PATIENCE_SECONDS).successful
        assert peek(channel) == second


def test_small_sends_are_stored_though_the_threshold_is_larger_than_the_channel(path: Path) -> None:
    bodies = [b"%04d" % i + bytes(KB) for i in range(1200)]
    with (
        Channel(path, memory_capacity=2000, overflow_capacity=0, byte_capacity="1300KiB") as channel,
        Producer(channel, linger_ms=60_000, batch_size_threshold_in_bytes="4MiB") as producer,
    ):
        assert not peek(channel)
        futures = [producer.send(body) for body in bodies]
        ship(producer)
        assert take(channel, len(bodies)) == bodies
        ids = [future.result(PATIENCE_SECONDS).write_order_id for future in futures]
    assert ids == sorted(set(ids))


def test_delayed_events_that_disk_has_no_room_for_do_not_fail_those_beside_them(path: Path) -> None:
    """All of a batch with a delayed event goes to disk, which may hold less than memory."""
    with (
        Channel(path, memory_capacity=1000, overflow_capacity=10) as channel,
        Producer(channel, linger_ms=60_000) as producer,
    ):
        futures = [producer.send(b"%d" % i, deliver_after=3600 if i == 15 else None) for i in range(30)]
        producer.flush(PATIENCE_SECONDS)
        assert [future.result().write_order_id > 0 for future in futures] == [i != 15 for i in range(30)]
        assert peek(channel) == [b"%d" % i for i in range(30) if i != 15]


def test_a_batch_is_divided_where_the_channel_was_given_a_smaller_transaction_capacity(path: Path) -> None:
    with Channel(path) as channel, Producer(channel, linger_ms=60_000) as producer:
        with Channel(path, transaction_capacity=10):
            pass
        futures = [producer.send(b"%d" % i) for i in range(35)]
        producer.flush(PATIENCE_SECONDS)
        assert all(future.result().successful for future in futures)
        assert take(channel, 35) == [b"%d" % i for i in range(35)]


# ── what becomes of the sends ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [PutTooLargeError, EventTooLargeError, TransactionCapacityError])
def test_a_send_that_is_too_large_alone_fails_alone(produce: MakeProducer, error: type[Exception]) -> None:
    target = Small(10, error=error)
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"12345") for _ in range(5)]
    large = producer.send(b"x" * 11)
    futures += [producer.send(b"12345") for _ in range(5)]
    producer.flush(PATIENCE_SECONDS)
    assert [future.result().successful for future in futures] == [True] * 10
    failed = error_of(large).result
    assert (failed.error_code, failed.error_message) == (error.__name__, "more than 10 bytes")
    assert [event.body for event in failed.events] == [b"x" * 11] and not failed.in_doubt
    stats = producer.stats()
    assert (stats.sent_events, stats.stored_events, stats.failed_events) == (11, 10, 1)


def test_events_that_were_sent_together_are_never_divided(produce: MakeProducer) -> None:
    target = Small(10)
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"1")]
    futures += [producer.send_many([b"%d" % i] * i) for i in (2, 3, 4, 5)]
    large = producer.send_many([b"x" * 4] * 3)
    futures += [producer.send_many([b"6"] * 6), producer.send(b"7")]
    producer.flush(PATIENCE_SECONDS)
    assert [future.result().successful for future in futures] == [True] * 7
    assert error_of(large).result.error_code == "PutTooLargeError"
    assert target.bodies == [b"%d" % i for i in (1, 2, 3, 4, 5, 6) for _ in range(i)] + [b"7"]
    for i in (2, 3, 4, 5, 6):
        assert [batch.count(b"%d" % i) for batch in target.batches if b"%d" % i in batch] == [i]


def test_a_batch_of_the_application_is_not_divided(produce: MakeProducer) -> None:
    """Its number stands for all of it."""
    target = Small(10)
    producer = produce(target, linger_ms=60_000, producer_id="me")
    large = producer.send_many([b"12345"] * 3, sequence=1)
    assert error_of(large).result.error_code == "PutTooLargeError"
    assert [number for number, _ in target.attempts] == [1] and not target.bodies


def test_an_attempt_that_was_refused_is_told_and_the_number_is_used_by_a_part(produce: MakeProducer) -> None:
    target = Small(10)
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"123456") for _ in range(2)]
    producer.flush(PATIENCE_SECONDS)
    for future in futures:
        result = future.result()
        assert (result.attempt_count, [a.error_code for a in result.reserved_attempts]) == (2, ["PutTooLargeError", ""])
    assert [(number, len(bodies)) for number, bodies in target.attempts] == [(1, 2), (2, 1), (3, 1)]
    assert target.taken == [(1, 2), (3, 3)], "the first part uses up the number that was refused"
    stats = producer.stats()
    assert (stats.stored_batches, stats.failed_attempts, stats.retries) == (2, 1, 0)
    assert stats.last_error == "PutTooLargeError: more than 10 bytes"


def test_a_batch_that_may_be_stored_is_not_divided(produce: MakeProducer, clock: FakeClock) -> None:
    """Its number would tell, and its parts have others: they would be stored again."""
    target = Small(100)
    target.answer = False
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"123456") for _ in range(2)]
    ship(producer)
    wait_for_retry(producer)
    target.answer, target.most_bytes = True, 10
    clock.advance(1)
    assert all(error_of(future).result.in_doubt for future in futures)
    assert target.bodies == [b"123456"] * 2


def test_a_part_is_tried_again_and_the_next_one_waits_for_it(produce: MakeProducer, clock: FakeClock) -> None:
    """They have one sequence, and the order of their IDs must be that of the sends."""
    target = Small(10)
    producer = produce(target, linger_ms=60_000, io_thread_count=3)
    futures = [producer.send(b"12345%d" % i) for i in range(4)]
    target.fail_while(lambda number: ConnectionError("gone") if clock.now < 1100 else None)
    ship(producer)
    wait_for_retry(producer)
    assert {tuple(bodies) for _, bodies in target.attempts if len(bodies) == 1} == {(b"123450",)}
    clock.advance(100)
    assert [future.result(PATIENCE_SECONDS).write_order_id for future in futures] == [1, 2, 3, 4]


def test_parts_are_in_the_order_of_their_sends_though_several_threads_commit(path: Path) -> None:
    with (
        Channel(path, memory_capacity=100_000, overflow_capacity=0, byte_capacity="1MiB") as channel,
        Producer(channel, linger_ms=1, batch_size_threshold_in_bytes="4MiB", io_thread_count=4) as producer,
    ):
        assert not peek(channel)
        sending = threading.Thread(target=lambda: [producer.send(b"%05d" % i + bytes(KB)) for i in range(9000)])
        sending.start()
        events = take_events(channel, 9000)
        sending.join()
    events.sort(key=lambda e: (int(e.headers["producer_sequence"]), e.write_order_id))
    assert [int(e.body[:5]) for e in events] == list(range(9000))


def test_one_io_thread_stores_all_in_the_order_of_the_sends(produce: MakeProducer) -> None:
    target = Small(30)
    producer = produce(target, linger_ms=60_000, batch_count_threshold=16)
    target.hold()
    bodies = [b"%05d" % i for i in range(50)]
    for body in bodies:
        producer.send(body)
    ship(producer)
    target.let_go()
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == bodies


def test_headers_and_times_stay_with_their_events(path: Path) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    delayed = {0: due, 4: due, 5: due, 6: due}
    with Channel(path) as channel, Producer(channel, linger_ms=60_000, context_headers=False) as producer:
        with Channel(path, transaction_capacity=2):
            pass
        futures = [
            producer.send(b"%d" % i, {"n": str(i)} if i % 2 else None, ttl=60, deliver_at=delayed.get(i))
            for i in range(9)
        ]
        producer.flush(PATIENCE_SECONDS)
        now = [i for i in range(9) if i not in delayed]
        ids = [future.result().write_order_id for future in futures]
        assert ids == [now.index(i) + 1 if i in now else 0 for i in range(9)]
        assert channel.stats().delayed.events == 4
        found = [(e.write_order_id, e.body, e.headers) for e in take_events(channel, 5)]
    assert found == [(ids[i], b"%d" % i, {"n": str(i)} if i % 2 else {}) for i in now]


# ── who waits, and who is told ──────────────────────────────────────────────────────────────────


def test_a_part_is_told_when_it_is_stored_and_not_with_the_rest(produce: MakeProducer) -> None:
    """By each way to wait, begun before the batch was divided."""
    target, told = Small(10), list[Result]()
    producer = produce(target, linger_ms=60_000)
    target.hold()
    futures = [producer.send(b"12345%d" % i, callback=told.append) for i in range(2)]
    ship(producer)
    target.wait_for_attempts(1)
    done = [threading.Event(), threading.Event()]
    for future, event in zip(futures, done, strict=True):
        future.add_done_callback(lambda _, event=event: event.set())
    waits = [concurrent.futures.ThreadPoolExecutor(1).submit(f.result, PATIENCE_SECONDS) for f in futures]
    gate = threading.Event()
    target.fail_while(after(gate, but=2))
    target.let_go()
    assert waits[0].result(PATIENCE_SECONDS).write_order_id == 1 and done[0].wait(PATIENCE_SECONDS)
    assert concurrent.futures.wait(futures, PATIENCE_SECONDS, "FIRST_COMPLETED").done == {futures[0]}
    assert [future.done() for future in futures] == [True, False] and len(told) == 1 and not done[1].is_set()
    with pytest.raises(ProducerTimeoutError, match="1 event is still under way"):
        producer.flush(0)
    gate.set()
    assert waits[1].result(PATIENCE_SECONDS).write_order_id == 2 and done[1].wait(PATIENCE_SECONDS)
    producer.flush(PATIENCE_SECONDS)
    assert [result.write_order_id for result in told] == [1, 2]


def with_a_stop(work: Callable[[], bool], at: int, stop: Callable[[], object]) -> tuple[bool, bool]:
    """Return what some work returns, and whether it came to the instruction of a number, before which it stops."""
    left = at

    def enter(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if "spillable_stream/producer/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                stop()
        return enter

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        return work(), left <= 0
    finally:
        sys.settrace(before)


def test_a_future_is_not_done_when_another_part_ends_while_it_looks(produce: MakeProducer) -> None:
    """A debugger, the collector, or an interpreter without a global lock lets other threads run anywhere."""
    stopped, at = True, 0
    while stopped:
        at += 1
        target, gate = Small(10), threading.Event()
        producer = produce(target, linger_ms=60_000)
        target.hold()
        futures = [producer.send(b"12345%d" % i) for i in range(2)]
        ship(producer)
        target.wait_for_attempts(1)
        target.fail_while(after(gate, but=2))

        def end_first(target: Small = target, future: SendFuture = futures[0]) -> None:
            target.let_go()
            assert future.result(PATIENCE_SECONDS).write_order_id == 1

        done, stopped = with_a_stop(futures[1].done, at, end_first)
        assert not done
        target.let_go()
        gate.set()
        assert futures[1].result(PATIENCE_SECONDS).write_order_id == 2
    assert at > 10


def test_a_flush_that_began_before_waits_for_all_parts(produce: MakeProducer) -> None:
    target = Small(10)
    producer = produce(target, linger_ms=60_000)
    target.hold()
    futures = [producer.send(b"123456") for _ in range(9)]
    ship(producer)
    target.wait_for_attempts(1)
    flushing = concurrent.futures.ThreadPoolExecutor(1).submit(producer.flush, PATIENCE_SECONDS)
    assert wait_until(lambda: bool(producer._buffer.changed._waiters))  # type: ignore[attr-defined]
    target.let_go()
    flushing.result(PATIENCE_SECONDS)
    assert all(future.done() for future in futures)


def test_awaited_sends_are_told_each_with_its_part() -> None:
    target = Small(10)

    async def main() -> list[Any]:
        async with AsyncProducer(target, linger_ms=60_000, context_headers=False, retries=0) as producer:
            futures = [await producer.send(b"12345%d" % i) for i in range(4)]
            futures.append(await producer.send(b"x" * 11))
            await producer.flush(PATIENCE_SECONDS)
            return await asyncio.gather(*futures, return_exceptions=True)

    *results, error = asyncio.run(main())
    assert [result.write_order_id for result in results] == [1, 2, 3, 4]
    assert error.result.error_code == "PutTooLargeError"


def test_an_awaited_part_does_not_wait_for_the_next() -> None:
    target, gate = Small(10), threading.Event()
    target.fail_while(after(gate, but=2))

    async def main() -> None:
        async with AsyncProducer(target, linger_ms=1, context_headers=False) as producer:
            futures = [await producer.send(b"12345%d" % i) for i in range(2)]
            assert (await futures[0]).write_order_id == 1
            assert not futures[1].done()
            gate.set()
            assert (await futures[1]).write_order_id == 2

    asyncio.run(main())


def test_a_close_that_is_late_fails_the_parts_that_nobody_has_begun_with(produce: MakeProducer) -> None:
    target = Small(10)
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"12345%d" % i) for i in range(4)]
    gate, told = threading.Event(), threading.Event()
    futures[3].add_done_callback(lambda _: told.set())
    target.fail_while(after(gate))
    ship(producer)
    target.wait_for_attempts(3)
    with pytest.raises(ProducerTimeoutError, match=r"3 events were not sent.*1 batch is being committed and will tell"):
        producer.close(0)
    assert [error_of(future).result.error_code for future in futures[1:]] == ["ProducerClosedError"] * 3
    assert told.wait(PATIENCE_SECONDS), "the first part is still being committed"
    gate.set()
    assert futures[0].result(PATIENCE_SECONDS).write_order_id == 1


def test_a_part_is_not_begun_while_a_late_close_fails_it(
    produce: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part before it ends just then. This one was stored, though the close said that it was not sent."""
    target, gate = Small(10), threading.Event()
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"12345%d" % i) for i in range(2)]
    target.fail_while(after(gate))
    ship(producer)
    target.wait_for_attempts(2)
    pipeline, fail = producer._pipeline, producer._pipeline.shutdown._fail

    def is_idle() -> bool:
        with pipeline._mutex:
            schedule = pipeline._schedule
            return not schedule.running() and not any(lane.queued for lane in schedule._lanes.values())

    def fail_late(*args: Any, **options: Any) -> int:
        gate.set()
        assert futures[0].result(PATIENCE_SECONDS).write_order_id == 1
        assert wait_until(is_idle)
        return fail(*args, **options)

    monkeypatch.setattr(pipeline.shutdown, "_fail", fail_late)
    with pytest.raises(ProducerTimeoutError, match="1 event was not sent"):
        producer.close(0)
    failed = error_of(futures[1]).result
    assert (failed.error_code, failed.in_doubt, target.bodies) == ("ProducerClosedError", False, [b"123450"])


def test_an_end_that_gives_up_fails_all_parts(produce: MakeProducer) -> None:
    """The end of the process waits no longer: nothing is divided after that."""
    target = Small(10)
    producer = produce(target, linger_ms=60_000)
    target.hold()
    futures = [producer.send(b"12345%d" % i) for i in range(4)]
    ship(producer)
    target.wait_for_attempts(1)
    producer._pipeline.shutdown.begin_close()
    producer._pipeline.shutdown.give_up()
    target.let_go()
    assert [error_of(future).result.error_code for future in futures] == ["ProducerClosedError"] * 4


def test_in_a_forked_child_all_parts_have_failed(produce: MakeProducer) -> None:
    target, gate = Small(10), threading.Event()
    producer = produce(target, linger_ms=60_000)
    futures = [producer.send(b"12345%d" % i) for i in range(4)]
    futures[3].add_done_callback(lambda _: None)
    target.fail_while(after(gate))
    ship(producer)
    target.wait_for_attempts(3)

    def child() -> None:
        for future in futures:
            assert future.exception(0) is not None and future.done()
        assert not concurrent.futures.wait(futures, 0).not_done

    in_child(child)
    gate.set()
    assert [future.result(PATIENCE_SECONDS).write_order_id for future in futures] == [1, 2, 3, 4]


# ── dead letters ────────────────────────────────────────────────────────────────────────────────


def test_dead_letters_that_are_too_large_together_are_divided_too(produce: MakeProducer) -> None:
    target, dead = FakeTarget(), Small(10, name="dead")
    producer = produce(target, dead_letter=dead, linger_ms=60_000)
    target.fail_while(lambda number: ValueError("never"))
    futures = [producer.send(b"12345%d" % i) for i in range(4)]
    futures.append(producer.send(b"x" * 11))
    producer.flush(PATIENCE_SECONDS)
    for future in futures[:4]:
        result = error_of(future).result
        assert (result.dead_letter, result.error_code, result.error_message) == ("dead", "ValueError", "never")
    assert [error_of(future).result.first_id for future in futures[:4]] == [1, 2, 3, 4]
    assert error_of(futures[4]).result.error_code == "PutTooLargeError"
    assert dead.bodies == [b"12345%d" % i for i in range(4)]
    assert {h["dead_letter_error_code"] for h in headers_of(dead)} == {"ValueError"}
    stats = producer.stats()
    assert (stats.dead_letter_events, stats.failed_events) == (4, 1)


def test_only_the_part_that_is_too_large_goes_to_the_dead_letter_channel(produce: MakeProducer) -> None:
    target, dead = Small(10), FakeTarget(name="dead")
    producer = produce(target, dead_letter=dead, linger_ms=60_000)
    futures = [producer.send(b"123456"), producer.send(b"x" * 11), producer.send(b"1234567")]
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"123456", b"1234567"] and dead.bodies == [b"x" * 11]
    assert error_of(futures[1]).result.reason.error_code == "PutTooLargeError"  # type: ignore[union-attr]


# ── a model ─────────────────────────────────────────────────────────────────────────────────────


SENDS = st.lists(st.lists(st.integers(4, 12), min_size=1, max_size=4), min_size=1, max_size=12)
FAULTS = st.lists(st.sampled_from([None, None, ConnectionError("gone"), ValueError("bad"), "lost"]), max_size=12)


class Faulty(Small):
    """Fails commits, before or after they are stored, as a list says."""

    def __init__(self, most_bytes: int, faults: Sequence[Any]) -> None:
        super().__init__(most_bytes)
        self.faults = list(faults)

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        ids = super().commit(batch, producer_id, numbers)
        if fault == "lost":
            raise ConnectionError("the answer was lost")
        return ids


def parts_of(place: Small, bodies: list[bytes]) -> list[list[bytes]]:
    """Return what each batch that is stored has of some bodies, in its order; nothing for those that have none."""
    found = [[body for body in batch if body in bodies] for batch in place.batches]
    return [part for part in found if part]


def by_sequence(place: Small) -> list[bytes]:
    """Return what is stored, by sequence and ID."""
    found = []
    for number, batch in place.stored.items():
        for i, (headers, body) in enumerate(zip(*(c.to_pylist() for c in batch.columns), strict=True)):
            own = dict(headers)
            sequence = own.get("dead_letter_producer_sequence") or own["producer_sequence"]
            found.append((int(sequence), place._ids[number][0] + i, body))
    return [body for *_, body in sorted(found)]


@pytest.mark.timeout(300)
@settings(max_examples=examples(300))
@given(SENDS, FAULTS, st.integers(10, 40), st.integers(1, 3), st.booleans())
def test_every_send_is_stored_once_and_whole_or_fails_and_is_told_once(
    sizes: list[list[int]], faults: list[Any], most_bytes: int, threads: int, dead: bool
) -> None:
    target, letters = Faulty(most_bytes, faults), Small(most_bytes, name="dead")
    producer = Producer(
        target,
        dead_letter=letters if dead else None,
        rng=random.Random(1),
        linger_ms=60_000,
        batch_count_threshold=20,
        base_retry_backoff_ms=1,
        max_retry_backoff_ms=1,
        io_thread_count=threads,
    )
    told, futures = Counter[int](), []
    sends = [[b"%02d.%d" % (i, j) + b"x" * (size - 4) for j, size in enumerate(send)] for i, send in enumerate(sizes)]
    for i, bodies in enumerate(sends):
        futures.append(producer.send_many(bodies, callback=lambda _, i=i: told.update([i])))
    producer.flush(PATIENCE_SECONDS)
    producer.close()
    for i, (bodies, future) in enumerate(zip(sends, futures, strict=True)):
        error, fits = future.exception(0), sum(map(len, bodies)) <= most_bytes
        assert told[i] == 1
        held = {place.name: parts_of(place, bodies) for place in (target, letters)}
        assert all(found in ([], [bodies]) for found in held.values()), "once, whole"
        if error is None:
            assert held["small"] and not held["dead"] and fits
            continue
        assert isinstance(error, SendFailedError)
        result = error.result
        assert bool(held["small"]) <= result.in_doubt and bool(held["dead"]) == (result.dead_letter == "dead")
        assert result.dead_letter or [event.body for event in result.events] == bodies
        assert not fits or result.in_doubt or result.error_code == "ValueError"
    for place in (target, letters):
        assert by_sequence(place) == sorted(by_sequence(place))
    assert_nothing_left(producer)
