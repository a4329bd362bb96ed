"""What a producer says that it holds is what it holds, within a factor of 1.5."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, Producer, SchemaError
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.producer.event_size import copy_of_batch
from spillable_stream.producer.result import Result
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget

Make = Callable[[int], Any]
MakeProducer = Callable[..., Producer]
Gathering = Callable[..., Producer]

FACTOR = 1.5
COUNT = 100
POINT = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("label", pa.string())])
ROWS: dict[str, tuple[pa.DataType, Make]] = {
    "small integers": (pa.int64(), lambda i: i % 200),
    "integers": (pa.int64(), lambda i: 10**9 + i),
    "floats": (pa.float64(), lambda i: i / 7),
    "booleans": (pa.bool_(), lambda i: i % 2 == 0),
    "nothing": (pa.string(), lambda i: None),
    "short texts": (pa.string(), lambda i: f"text {i}"),
    "long texts": (pa.string(), lambda i: f"{i} " * 1000),
    "texts of another script": (pa.string(), lambda i: "текст" * 50 + str(i)),
    "bytes": (pa.binary(), lambda i: b"%d" % i * 100),
    "bytearrays": (pa.binary(), lambda i: bytearray(1000)),
    "decimals": (pa.decimal128(20, 2), lambda i: Decimal(i)),
    "times": (pa.timestamp("us"), lambda i: dt.datetime(2026, 1, 1) + dt.timedelta(i)),
    "dates": (pa.date32(), lambda i: dt.date(2026, 1, 1) + dt.timedelta(i)),
    "intervals": (pa.month_day_nano_interval(), lambda i: (1000 + i, 1000 + i, 1000 + i)),
    "list of booleans": (pa.list_(pa.bool_()), lambda i: [True, False] * 500),
    "list of small integers": (pa.list_(pa.int64()), lambda i: list(range(100))),
    "list of integers": (pa.list_(pa.int64()), lambda i: list(range(10**6, 10**6 + 100))),
    "list of texts": (pa.list_(pa.string()), lambda i: [f"{i} and {k}" for k in range(50)]),
    "list of letters of another script": (
        pa.list_(pa.string()),
        lambda i: [chr(0x4E00 + k + i % 99) for k in range(50)],
    ),
    "list of letters": (pa.list_(pa.string()), lambda i: ["a", "é", ""] * 20),
    "list of single bytes": (pa.list_(pa.binary()), lambda i: [bytes([k]) for k in range(50)]),
    "list of nothing": (pa.list_(pa.int64()), lambda i: [None] * 100),
    "tuple of floats": (pa.list_(pa.float64()), lambda i: tuple(k / 7 + i for k in range(100))),
    "struct": (POINT, lambda i: {"x": i / 7, "y": i / 3, "label": f"point {i}"}),
    "list of structs": (pa.list_(POINT), lambda i: [{"x": i / 7, "y": k / 3, "label": f"{i}.{k}"} for k in range(20)]),
    "map": (pa.map_(pa.string(), pa.int64()), lambda i: {f"key {k} of {i}": 1000 + k for k in range(20)}),
    "pairs": (pa.map_(pa.string(), pa.int64()), lambda i: [(f"key {k} of {i}", 1000 + k) for k in range(20)]),
    "map of lists": (
        pa.map_(pa.string(), pa.list_(pa.bool_())),
        lambda i: {f"{i} {k}": [True] * 20 for k in range(10)},
    ),
}


def body_of(size: int) -> Make:
    return lambda i: bytes(size - size // 2) + b"x" * (size // 2)


def with_headers(count: int) -> Make:
    return lambda i: Event(b"%d" % i * 10, {f"header {k} of {i}": f"value {i}" for k in range(count)})


EVENTS: dict[str, Make] = {
    **{f"body of {size} bytes": body_of(size) for size in (0, 1, 10, 100, 10_000)},
    **{f"{count} headers": with_headers(count) for count in (1, 5, 20)},
    "headers of letters": lambda i: Event(b"", {chr(0x4E00 + k): chr(0x5E00 + k) for k in range(30)}),
    "a long header": lambda i: Event(b"", {f"header {i}": "x" * (2000 + i)}),
}


class Quiet(FakeTarget):
    """Takes batches when it is let go, and looks at none."""

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
        assert self._gate.wait(PATIENCE_SECONDS)
        return 1, batch.num_rows


TINY = {"body of 0 bytes", "body of 1 bytes", "body of 10 bytes"}  # of which few hold less than what is done once


def held_by(send: Callable[[int], object], count: int = COUNT) -> int:
    """Return how much more memory is held after so many sends, by Python and by Arrow."""
    send(-1)  # what is created once
    gc.collect()
    spent = [[{"c": i, "other": i}] for i in range(200)]  # freed lists and dicts that Python keeps are not traced
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    for i in range(count):
        send(i)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del spent
    return held + pa.total_allocated_bytes() - arrow


def assert_counted(producer: Producer, send: Callable[[int], object], count: int = COUNT) -> None:
    send(-1)
    before = producer.stats().queued_bytes
    held = held_by(send, count)
    counted = (producer.stats().queued_bytes - before) * count // (count + 1)
    assert held / FACTOR <= counted <= held * FACTOR, f"{counted:,} counted, {held:,} held: {counted / held:.2f}"


@pytest.fixture
def gathering(produce: MakeProducer) -> Iterator[Callable[[pa.Schema], Producer]]:
    """Make producers, for a schema, of which nothing is committed until the test ends."""
    targets: list[Quiet] = []

    def gathering(schema: pa.Schema = EVENT_SCHEMA, **options: Any) -> Producer:
        targets.append(Quiet(schema))
        targets[-1].hold()
        large = {"batch_size_threshold_in_bytes": 1 << 23, "batch_count_threshold": 10_000}
        return produce(targets[-1], total_size_in_bytes=1 << 30, **{**large, **options})

    yield gathering
    for target in targets:
        target.let_go()


@pytest.mark.parametrize("shape", ROWS)
def test_rows_count_what_they_hold(gathering: Gathering, shape: str) -> None:
    t, make = ROWS[shape]
    producer = gathering(pa.schema([("c", t), ("other", pa.int64())]))
    assert_counted(producer, lambda i: producer.send({"c": make(i), "other": 7}))
    assert_counted(producer, lambda i: producer.send_many([{"c": make(i)}, {"c": make(i + 1)}]))


def test_rows_of_many_columns_count_what_they_hold(gathering: Gathering) -> None:
    names = [f"column_{k}" for k in range(20)]
    producer = gathering(pa.schema([(name, pa.string()) for name in names]))
    assert_counted(producer, lambda i: producer.send({name: f"value {i}" for name in names}))


@pytest.mark.parametrize("shape", EVENTS)
def test_events_count_what_they_hold(gathering: Gathering, shape: str) -> None:
    producer, make = gathering(), EVENTS[shape]
    assert_counted(producer, lambda i: producer.send(make(i)), 5000 if shape in TINY else COUNT)


def test_sends_of_several_events_count_what_they_hold(gathering: Gathering) -> None:
    producer = gathering()
    assert_counted(producer, lambda i: producer.send_many([b"1", b"2"]), 2_500)


def test_callbacks_count(gathering: Gathering) -> None:
    def callback(result: Result) -> None:
        pass

    producer = gathering()
    assert_counted(producer, lambda i: producer.send(b"%d" % i * 5, callback=callback), 2_000)


def test_times_of_events_count(path: Path) -> None:
    large: dict[str, Any] = {"batch_size_threshold_in_bytes": 1 << 23, "batch_count_threshold": 10_000}
    with Channel(path) as channel, Producer(channel, linger_ms=10**6, **large) as producer:
        assert_counted(producer, lambda i: producer.send(b"%d" % i * 5, deliver_after=100 + i), 2_000)


ONE_EACH: dict[str, tuple[pa.Schema, Make]] = {
    **{f"body of {size} bytes": (EVENT_SCHEMA, body_of(size)) for size in (0, 10, 100)},
    "header": (EVENT_SCHEMA, with_headers(1)),
    "row": (pa.schema([("n", pa.int64()), ("s", pa.string())]), lambda i: {"n": 10**9 + i, "s": f"text {i}"}),
}


@pytest.mark.parametrize("shape", ONE_EACH)
def test_batches_of_one_event_count_what_they_hold(gathering: Gathering, shape: str) -> None:
    schema, make = ONE_EACH[shape]
    producer = gathering(schema, batch_count_threshold=1, linger_ms=0)
    assert_counted(producer, lambda i: producer.send(make(i)), 1000)
    assert_counted(producer, lambda i: producer.send_many([make(i)]), 1000)


@pytest.mark.parametrize("shape", ONE_EACH)
def test_an_open_batch_of_one_event_for_each_of_many_targets_counts_what_it_holds(
    produce: MakeProducer, shape: str
) -> None:
    schema, make = ONE_EACH[shape]
    targets = {str(i): Quiet(schema, name=str(i)) for i in range(1003)}
    producer, keys = produce(targets, linger_ms=1_000_000), iter(list(targets))
    assert_counted(producer, lambda i: producer.send(make(i), key=next(keys)), 1000)


def test_a_numbered_batch_of_one_event_counts_what_it_holds(gathering: Gathering) -> None:
    producer = gathering(producer_id="p")
    sequences = itertools.count(1)
    assert_counted(producer, lambda i: producer.send_many([b"%d" % i * 5], sequence=next(sequences)), 1000)


def test_a_batch_that_is_tried_again_and_again_counts_its_attempts(produce: MakeProducer, clock: FakeClock) -> None:
    """Each has a message of its own, and holds as much more after each attempt."""
    target, tries = Quiet(), itertools.count()
    target.commit = lambda *_: _raise(ConnectionError(f"no answer to request {next(tries)}"))  # type: ignore[method-assign]
    producer = produce(target, batch_count_threshold=1, retries=10, total_size_in_bytes=1 << 30)

    def send_and_fail(attempts: int) -> None:
        for i in range(200):
            producer.send(b"%d" % i * 5)
        for attempt in range(1, attempts + 1):
            while any(b.attempt_count < attempt for b in list(producer._pipeline.buffer.batches)):
                time.sleep(0)
            while producer.stats().retrying_batches < 200:
                time.sleep(0)
            if attempt < attempts:
                clock.advance(60)

    gc.collect()
    tracemalloc.start()
    send_and_fail(8)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = producer.stats().queued_bytes
    assert held / FACTOR <= counted <= held * FACTOR, f"{counted:,} counted, {held:,} held: {counted / held:.2f}"


def test_a_batch_on_its_way_to_the_dead_letters_counts_its_reasons(produce: MakeProducer) -> None:
    target, dead, tries = Quiet(), Quiet(name="dead"), itertools.count()
    target.commit = lambda *_: _raise(ValueError(f"no use for request {next(tries)}"))  # type: ignore[method-assign]
    dead.hold()
    producer = produce(target, dead_letter=dead, batch_count_threshold=1, io_thread_count=2)
    gc.collect()
    tracemalloc.start()
    for i in range(500):
        producer.send(b"%d" % i * 5)
    while any(batch.dead is None for batch in list(producer._pipeline.buffer.batches)):
        time.sleep(0)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = producer.stats().queued_bytes
    dead.let_go()
    assert held / FACTOR <= counted <= held * FACTOR, f"{counted:,} counted, {held:,} held: {counted / held:.2f}"


def _raise(error: BaseException) -> Any:
    raise error


LARGE = pa.array(range(200_000))
LISTS = pa.ListArray.from_arrays(pa.array(range(0, 200_001, 10), pa.int32()), LARGE)
WORDS = pa.array([f"{k}" * 9 for k in range(10_000)])
ARROW: dict[str, Callable[[int], pa.Array]] = {
    "slice": lambda i: LARGE.slice(abs(i) * 1000, 5000),
    "slice of lists": lambda i: LISTS.slice(abs(i) * 100, 500),
    "booleans": lambda i: pa.array([True, False] * 5_000),
    "texts": lambda i: pa.array([f"text {i}"] * 2000),
    "categories": lambda i: pa.DictionaryArray.from_arrays(pa.array([abs(i)] * 5000), WORDS),
    "views": lambda i: pa.array([f"text {k} that is not inside of the view" for k in range(1000)], pa.string_view()),
}  # fmt: skip


@pytest.mark.parametrize("shape", ARROW)
def test_arrow_batches_count_what_they_hold(gathering: Gathering, shape: str) -> None:
    make = ARROW[shape]
    column = make(0)
    producer = gathering(pa.schema([("c", column.type.value_type if shape == "categories" else column.type)]))
    assert_counted(producer, lambda i: producer.send_batch(pa.record_batch({"c": make(i)})), 50)


def test_columns_that_share_a_buffer_count_as_often_as_they_are_held(gathering: Gathering) -> None:
    column = LARGE.slice(7, 5000)
    producer = gathering(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    assert_counted(producer, lambda i: producer.send_batch(pa.record_batch({"a": column, "b": column})), 50)


def test_a_batch_that_numpy_owns_is_copied() -> None:
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(1000)
    own, size_bytes = copy_of_batch(pa.record_batch({"n": pa.array(numbers[:10])}))
    numbers[:] = 0
    assert own.column("n").to_pylist() == list(range(10))
    assert 80 <= size_bytes <= 400 and own.get_total_buffer_size() <= size_bytes


def test_a_row_that_is_refused_counts_nothing(produce: MakeProducer) -> None:
    producer = produce(Quiet(pa.schema([("n", pa.int8())])))
    for send in (lambda: producer.send({"n": 1000}), lambda: producer.send_many([{"n": 1}, {"n": "x"}])):
        with pytest.raises(SchemaError):
            send()
    assert producer.stats().queued_bytes == 0


def test_the_copy_of_a_slice_of_views_has_its_own_values_alone() -> None:
    texts = pa.array([f"text {k} that is not inside of the view" for k in range(10_000)], pa.string_view())
    batch = pa.record_batch({"text": texts}).slice(5000, 10)
    own, size_bytes = copy_of_batch(batch)
    assert own.equals(batch)
    assert own.get_total_buffer_size() <= size_bytes < 2000
