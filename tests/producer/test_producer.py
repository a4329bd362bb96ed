"""Sending: what is batched, what is stored, and what a result says."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, Producer
from spillable_stream.errors import (
    EventTooLargeError,
    OptionError,
    ProducerClosedError,
    ProducerTimeoutError,
    SchemaError,
    TransactionCapacityError,
)
from spillable_stream.producer.context import PRODUCER_ID, PRODUCER_SEQUENCE
from spillable_stream.producer.event_size import ATTEMPT_BYTES, BATCH_BYTES, JOINED_BYTES, TINY_BODY_BYTES, text_bytes
from tests.producer.conftest import MakeProducer
from tests.support.events import numbered
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, full
from tests.support.producers import error_of

TYPED = pa.schema([("sku", pa.string()), ("price", pa.float64())])


# ── batches ─────────────────────────────────────────────────────────────────────────────────────


def test_a_list_that_no_transaction_could_hold_is_refused(produce: MakeProducer) -> None:
    target = FakeTarget(max_events=10)
    producer = produce(target)
    with pytest.raises(TransactionCapacityError, match=r"11 events can't be one batch for fake.*at most 10"):
        producer.send_many([b"x"] * 11)
    with pytest.raises(OptionError, match="at least one"):
        producer.send_many([])
    with pytest.raises(OptionError, match="at least one"):
        producer.send_batch(pa.table({"headers": [], "body": []}, schema=target.schema))


@pytest.mark.parametrize("option", [{"linger_ms": -1}, {"nonsense": 1}, {"buckets": 0}])
def test_an_option_that_is_wrong_creates_no_channel(path: Path, option: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        Producer(path, **option)  # type: ignore[arg-type]
    assert not path.exists()


def test_fewer_buckets_than_channels_create_no_channel(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        Producer([tmp_path / "a", tmp_path / "b"], buckets=1)
    assert not list(tmp_path.iterdir())


def test_dead_letters_to_the_same_place_in_other_words_create_no_channel(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can't be the dead-letter channel"):
        Producer(f"object+file://{tmp_path}/a", dead_letter=f"object+file://{tmp_path}/a/")
    assert not list(tmp_path.iterdir())


def test_events_are_copied_when_they_are_sent(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce()
    headers, bodies = {"k": "v"}, [b"a", b"b"]
    producer.send(b"x", headers)
    producer.send_many(bodies)
    headers["k"] = "changed"
    bodies.append(b"c")
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"x", b"a", b"b"]
    assert target.stored[1].column("headers").to_pylist()[0] == [("k", "v")]


# ── what does not fit ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("event", "headers"),
    [
        ("text", None),
        (None, None),
        (Event("text"), None),  # type: ignore[arg-type]
        (b"x", {"k": 1}),
        (b"x", {1: "v"}),
        (b"x", [("k", "v")]),
        (b"x", {"k": "\ud800"}),
        (Event(b"x"), {"k": "v"}),
        ({"sku": "a"}, None),
    ],
)
def test_what_is_not_an_event_is_refused_and_its_neighbours_are_sent(
    produce: MakeProducer, target: FakeTarget, event: object, headers: object
) -> None:
    producer = produce()
    producer.send(b"before")
    with pytest.raises(SchemaError):
        producer.send(event, headers)  # type: ignore[arg-type]
    if headers is None:
        with pytest.raises(SchemaError):
            producer.send_many([b"good", event])  # type: ignore[list-item]
    producer.send(b"after")
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"before", b"after"]


@pytest.mark.parametrize("max_block_ms", ["soon", -2, True, 1.5])
def test_a_wait_that_cannot_be_is_refused_though_there_is_room(
    produce: MakeProducer, target: FakeTarget, max_block_ms: object
) -> None:
    producer = produce()
    for body in (b"before", b"behind it, in an open batch"):
        with pytest.raises(OptionError, match="max_block_ms must be milliseconds"):
            producer.send(body, max_block_ms=max_block_ms)  # type: ignore[arg-type]
        producer.send(body, max_block_ms=-1)
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"before", b"behind it, in an open batch"]


def test_rows_of_a_typed_channel_are_checked_when_they_are_sent(produce: MakeProducer) -> None:
    target = FakeTarget(TYPED)
    producer = produce(target)
    producer.send({"sku": "a", "price": 1.5})
    for bad in ({"sku": 7}, {"colour": "red"}, b"body", Event(b"body")):
        with pytest.raises(SchemaError):
            producer.send(bad)
    with pytest.raises(SchemaError):
        producer.send({"sku": "a"}, {"k": "v"})
    with pytest.raises(SchemaError):
        producer.send_batch(pa.table({"colour": ["red"]}))
    for bad_batch in ({"price": ["1.5"]}, {"price": [1]}, {"sku": [b"a"]}):
        with pytest.raises(SchemaError, match="does not fit into"):
            producer.send_batch(pa.table(bad_batch))
    row = {"sku": "b"}
    producer.send_many([row, {"price": 2.0}])
    row["sku"] = "changed"
    producer.send_batch(pa.table({"price": pa.array([3], pa.int32()), "sku": ["c"]}))
    producer.flush(PATIENCE_SECONDS)
    assert [tuple(r.values()) for r in target.bodies] == [("a", 1.5), ("b", None), (None, 2.0), ("c", 3.0)]


def test_an_event_larger_than_the_buffer_is_refused(produce: MakeProducer) -> None:
    producer = produce(total_size_in_bytes=1000)
    with pytest.raises(EventTooLargeError, match="never fit total_size_in_bytes, 1,000"):
        producer.send(b"x" * 1000)
    producer.send(b"x" * 900)


# ── a full buffer ───────────────────────────────────────────────────────────────────────────────


def test_a_full_buffer_that_need_not_be_waited_for_says_how_full_it_is(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000 + BATCH_BYTES, max_block_ms=0)
    producer.send(b"x" * 400)
    held, total = BATCH_BYTES + 464, BATCH_BYTES + 1000
    with pytest.raises(
        ProducerTimeoutError, match=rf"600 bytes: 1 batch has {held:,} of total_size_in_bytes {total:,}\. Wait"
    ):
        producer.send(b"y" * 536)
    assert isinstance(ProducerTimeoutError("x"), TimeoutError)
    producer.send(b"y" * 472)


def test_a_full_buffer_is_waited_for_as_long_as_max_block_ms(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=5000)
    producer.send(b"x" * 900)
    raised: list[Exception] = []

    def send() -> None:
        try:
            producer.send(b"y" * 900)
        except ProducerTimeoutError as e:
            raised.append(e)

    waiting = threading.Thread(target=send)
    waiting.start()
    target.wait_for_attempts(1)  # who waits for room lets nobody linger
    clock.advance(4.9)
    waiting.join(0.05)
    assert waiting.is_alive()
    clock.advance(0.2)  # once: a thread that is slow to see it would else have waited for longer
    waiting.join(PATIENCE_SECONDS)
    assert "Waited 5." in str(raised[0]) and "0 events/s were done meanwhile" in str(raised[0])


def test_a_send_continues_when_there_is_room(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1)
    producer.send(b"x" * 900)
    threads = [threading.Thread(target=producer.send, args=(b"y" * 900,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    target.let_go()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    producer.flush(PATIENCE_SECONDS)
    assert len(target.bodies) == 4


# ── the rest ────────────────────────────────────────────────────────────────────────────────────


def test_a_producer_that_is_closed_refuses(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce()
    producer.send(b"x")
    producer.close()
    for send in (producer.send, lambda e: producer.send_many([e])):
        with pytest.raises(ProducerClosedError, match="create a new one"):
            send(b"y")  # type: ignore[operator]
    assert target.bodies == [b"x"] and target.closed == 1


def test_stats_say_what_is_queued_and_what_became_of_the_rest(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    producer = produce(retries=1, batch_count_threshold=2)
    target.fail(*full(), None, ValueError("bad"))
    first = producer.send_many([b"a", b"b"])
    target.wait_for_attempts(1)
    while producer.stats().retrying_batches == 0:
        pass
    clock.advance(1)
    first.result(PATIENCE_SECONDS)
    assert isinstance(producer.send_many([b"c", b"d"]).exception(PATIENCE_SECONDS), Exception)
    producer.flush()
    producer.send(b"eee")
    stats = producer.stats()
    assert (stats.sent_events, stats.stored_events, stats.failed_events, stats.stored_batches) == (5, 2, 2, 1)
    assert (stats.retries, stats.failed_attempts, stats.last_error) == (1, 2, "ValueError: bad")
    retried_bytes = BATCH_BYTES + JOINED_BYTES + 2 * TINY_BODY_BYTES + ATTEMPT_BYTES + text_bytes("it is full")
    assert (stats.queued_batches, stats.queued_bytes) == (1, BATCH_BYTES + 67)
    assert (stats.batch_events.p50, stats.batch_bytes.most, stats.latency_seconds.p99) == (2, retried_bytes, 1.0)


def test_a_channel_is_a_target_and_is_created_if_it_is_missing(path: Path) -> None:
    with Producer(path) as producer:
        futures = [producer.send(b"%d" % i, {"k": "v"} if i % 2 else None) for i in range(10)]
    assert [f.result().write_order_id for f in futures] == list(range(1, 11))
    with Channel(path, create=False) as channel, channel.take_transaction() as tx:
        events = tx.take_many(100)
    assert [e.body for e in events] == numbered(0, 10)
    assert events[1].headers == {"k": "v", PRODUCER_ID: producer.producer_id, PRODUCER_SEQUENCE: "1"}


def test_a_handle_that_was_given_stays_open(path: Path) -> None:
    with Channel(path) as channel:
        with Producer(channel) as producer:
            producer.send(b"x")
        assert channel.stats().channel_size == 1


def test_a_typed_channel_takes_rows(path: Path) -> None:
    with Channel(path, schema=TYPED) as channel:
        with Producer(channel) as producer:
            producer.send({"sku": "a", "price": 1.0})
            producer.send_batch(pa.table({"sku": ["b"], "price": [2.0]}))
        with channel.take_transaction() as tx:
            found = tx.take_many(10)
    assert sorted(row["sku"] for row in found) == ["a", "b"]


@pytest.mark.parametrize("sends", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_threads_send_much_and_every_event_is_stored_once(path: Path, sends: int) -> None:
    """100 threads, so many sends each."""
    threads = 100
    with Channel(path, overflow_capacity=10_000_000, transaction_capacity=40_960) as channel:
        with Producer(channel, batch_count_threshold=40_960, context_headers=False) as producer:

            def work(number: int) -> None:
                futures = [producer.send(b"%d %d" % (number, i)) for i in range(sends)]
                found.append(len({f.result().write_order_id for f in futures}))

            found: list[int] = []
            workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert found == [sends] * threads
        seen: set[bytes] = set()
        while True:
            with channel.take_transaction() as tx:
                table = tx.take_batch(40_960)
            if table is None:
                break
            seen.update(table.column("body").to_pylist())
    assert len(seen) == threads * sends == channel_size(producer)


def channel_size(producer: Producer) -> int:
    return producer.stats().stored_events


def test_a_batch_that_cannot_be_given_out_again_is_refused_by_the_send(path: Path) -> None:
    bad = pa.MapArray.from_arrays([0, 1], pa.array(["k"]), pa.array([b"\xff"]).view(pa.string()))
    with Channel(path, minimum_required_space=0) as channel, Producer(channel) as producer:
        with pytest.raises(SchemaError, match="the column 'headers' is not sound"):
            producer.send_batch(pa.record_batch({"headers": bad, "body": pa.array([b"1"])}))
        assert producer.stats().sent_events == 0


def test_categories_are_sent_as_their_values(path: Path) -> None:
    table = pa.table({"c": pa.array(["b", None, "a"]).dictionary_encode()})
    with Channel(path, schema=table.schema, minimum_required_space=0) as channel:
        with Producer(channel) as producer:
            producer.send_batch(table).result(PATIENCE_SECONDS)
        with channel.take_transaction() as tx:
            assert tx.take_many(9) == table.to_pylist()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array(["a", "b"]), pa.array(["c", "a"])),
        (pa.array([[1], [2]]), pa.array([[3], [1]])),  # Arrow can't join categories of these
        (pa.array([1.5, 2.5]).cast(pa.float16()), pa.array([3.5, 1.5]).cast(pa.float16())),  # nor does it well of these
    ],
)
def test_categories_of_several_batches_are_sent_as_their_values(path: Path, first: pa.Array, second: pa.Array) -> None:
    columns = [pa.DictionaryArray.from_arrays([0, 1], values) for values in (first, second)]
    table = pa.table({"c": pa.chunked_array(columns)})
    with Channel(path, schema=table.schema, minimum_required_space=0) as channel:
        with Producer(channel) as producer:
            producer.send_batch(table).result(PATIENCE_SECONDS)
        with channel.take_transaction() as tx:
            assert [row["c"] for row in tx.take_many(9)] == first.to_pylist() + second.to_pylist()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_producer_cannot_be_copied_and_says_what_to_do_instead(
    produce: MakeProducer, copied: Callable[[object], object], recwarn: pytest.WarningsRecorder
) -> None:
    """A task of Spark, and a process, get copies of what their functions refer to."""
    producer = produce(producer_id="me")
    with pytest.raises(TypeError, match=r"a Producer can't be copied or pickled.*create one there"):
        copied(producer)
    gc.collect()
    assert not recwarn.list, "a copy that is gone would say that the producer was forgotten"


def test_an_event_that_its_channel_could_never_hold_fails_alone(path: Path) -> None:
    """Those that were sent with it fail with it, and no others."""
    with (
        Channel(path, memory_capacity=1000, overflow_capacity=0, byte_capacity="1MiB") as channel,
        Producer(channel, linger_ms=60_000) as producer,
    ):
        small = [producer.send(b"before")]
        large = [producer.send(bytes(2 << 20)), producer.send_many([bytes(1 << 20), b"with it"])]
        small.append(producer.send(b"after"))
        producer.flush(PATIENCE_SECONDS)
    assert [error_of(future).result.error_code for future in large] == ["PutTooLargeError"] * 2
    assert [future.result().successful for future in small] == [True, True]
