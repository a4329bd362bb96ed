"""Which sends share a batch, and when it is shipped."""

from __future__ import annotations

import pyarrow as pa

from spillable_stream import Event
from tests.producer.conftest import MakeProducer
from tests.support.events import numbered
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget


def test_events_are_shipped_together_when_they_have_lingered(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    producer = produce(linger_ms=50)
    futures = [producer.send(b"%d" % i) for i in range(3)]
    clock.advance(0.049)
    assert target.attempts == [] and not any(f.done() for f in futures)
    clock.advance(0.001)
    assert [f.result(PATIENCE_SECONDS).write_order_id for f in futures] == [1, 2, 3]
    assert target.attempts == [(1, numbered(0, 3))]


def test_the_time_counts_from_a_batchs_first_event(produce: MakeProducer, target: FakeTarget, clock: FakeClock) -> None:
    producer = produce(linger_ms=50)
    producer.send(b"first")
    clock.advance(0.03)
    producer.send(b"second")
    clock.advance(0.02)
    target.wait_for_attempts(1)
    assert target.attempts == [(1, [b"first", b"second"])]


def test_a_batch_is_shipped_at_once_when_it_has_enough_events(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(batch_count_threshold=3)
    futures = [producer.send(b"%d" % i) for i in range(7)]
    assert [f.result(PATIENCE_SECONDS).write_order_id for f in futures[:6]] == [1, 2, 3, 4, 5, 6]
    assert not futures[6].done()
    assert target.attempts == [(1, numbered(0, 3)), (2, numbered(3, 3))]


def test_a_batch_is_shipped_at_once_when_it_is_large_enough(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(batch_size_threshold_in_bytes=1000)
    producer.send(b"x" * 300)
    producer.send(b"y" * 700).result(PATIENCE_SECONDS)
    assert len(target.attempts) == 1


def test_a_list_has_one_future_and_is_never_split(produce: MakeProducer) -> None:
    target = FakeTarget(max_events=10)
    producer = produce(target, batch_count_threshold=10)
    single = producer.send(b"single")
    first = producer.send_many([b"%d" % i for i in range(9)])
    second = producer.send_many([Event(b"%d" % i, {"k": "v"}) for i in range(8)])
    third = producer.send_many([b"x"] * 7)
    producer.flush(PATIENCE_SECONDS)
    assert (single.result().first_id, first.result().first_id, first.result().last_id) == (1, 2, 10)
    assert (second.result().first_id, second.result().last_id, third.result().first_id) == (11, 18, 19)
    assert [len(bodies) for _, bodies in target.attempts] == [10, 8, 7]


def test_an_arrow_batch_is_a_batch_of_its_own_and_keeps_its_place(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce()
    producer.send(b"before")
    headers = pa.array([[("k", "v")], []], target.schema.field("headers").type)
    table = pa.Table.from_arrays([headers, pa.array([b"a", b"b"])], schema=target.schema)
    assert producer.send_batch(table).result(PATIENCE_SECONDS).last_id == 3
    producer.send(b"after")
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"before", b"a", b"b", b"after"]
    assert [sequence for sequence, _ in target.attempts] == [1, 2, 3]


def test_events_up_to_the_threshold_share_a_batch(produce: MakeProducer, target: FakeTarget) -> None:
    """The threshold is of the events: what a batch itself holds does not count towards it."""
    producer = produce(batch_size_threshold_in_bytes=100)
    for _ in range(3):
        producer.send(b"xx")
    producer.flush(PATIENCE_SECONDS)
    assert [len(bodies) for _, bodies in target.attempts] == [2, 1]
