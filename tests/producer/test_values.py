"""What a producer accepts is the producer's own, can be taken, and is what was sent."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import Channel, Event, Producer, SchemaError, SendFailedError
from tests.channel.test_event import Broken
from tests.support.examples import examples
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget
from tests.support.python_values import HOSTILE, TYPES, change, is_read_as, values_of

MakeProducer = Callable[..., Producer]


@settings(max_examples=examples(40))
@given(TYPES, st.data())
def test_what_is_accepted_is_taken_as_it_was_sent_or_put(
    tmp_path_factory: pytest.TempPathFactory, t: pa.DataType, data: st.DataObject
) -> None:
    given = data.draw(st.lists(values_of(t), min_size=1, max_size=4))
    schema = pa.schema([("c", t)])
    with Channel(tmp_path_factory.mktemp("c"), schema=schema, minimum_required_space=0) as channel:
        with Producer(channel) as producer:
            sent = _accepted(given, lambda row: producer.send(row))
        with channel.put_transaction() as put:
            sent += _accepted(given, put.put)
        with channel.take_transaction() as take:
            found = [row["c"] for row in take.take_many(100)]
    for one, other in zip(sent, found, strict=True):
        assert is_read_as(one, other, t), (one, other, t)


def _accepted(values: list[Any], send: Callable[[Any], object]) -> list[Any]:
    """Return the values that were accepted; all are changed afterwards."""
    found = []
    for value in values:
        given = {"c": copy.deepcopy(value)}
        try:
            send(given)
        except SchemaError:
            continue
        change(given)
        found.append(value)
    return found


DEEP = pa.struct([("b", pa.binary()), ("l", pa.list_(pa.map_(pa.string(), pa.list_(pa.int64()))))])


@pytest.mark.parametrize("events", [None, "text", b"bytes", {"n": 1}, Event(b"one"), pa.table({"n": [1]})])
def test_send_many_takes_an_iterable_of_events(produce: MakeProducer, events: Any) -> None:
    with pytest.raises(SchemaError, match="send_many takes a list or another iterable of events, not "):
        produce(FakeTarget()).send_many(events)


def test_what_failed_is_given_back_as_it_was_sent(produce: MakeProducer) -> None:
    target = FakeTarget(pa.schema([("s", DEEP)]))
    target.fail(ValueError("no"))
    producer = produce(target)
    row = {"s": {"b": bytearray(b"x"), "l": [{"k": [1, 2]}, [("k", (3,))]]}}
    before = copy.deepcopy(row)
    future = producer.send(row)
    change(row)
    producer.flush()
    error = future.exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError) and list(error.events) == [before]


def test_headers_and_batches_that_are_changed_later_are_stored_as_they_were_sent(produce: MakeProducer) -> None:
    numpy = pytest.importorskip("numpy")
    target = FakeTarget(pa.schema([("n", pa.int64())]))
    producer, numbers = produce(target), numpy.arange(3)
    producer.send_batch(pa.record_batch({"n": pa.array(numbers)}))
    numbers[:] = 9
    producer.flush()
    assert target.bodies == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_an_event_that_is_changed_after_it_was_put_is_stored_as_it_was(path: Path) -> None:
    headers, later = {"k": "v"}, Event(b"2")
    with Channel(path, minimum_required_space=0) as channel:
        with channel.put_transaction() as put:
            put.put(Event(b"1", headers))
            put.put(later)
            headers["k"] = "w"
            dict.__setitem__(later.headers, "k", "w")  # type: ignore[arg-type]
        with channel.take_transaction() as take:
            assert [e.headers for e in take.take_many(9)] == [{"k": "v"}, {}]


SCHEMAS = [
    pa.map_(pa.string(), pa.int64()),
    pa.map_(pa.list_(pa.string()), pa.map_(pa.string(), pa.int8())),
    pa.list_(pa.struct([("f0", pa.string()), ("f1", pa.list_(pa.float64()))])),
    pa.struct([("f0", pa.map_(pa.string(), pa.string()))]),
    pa.string(),
    pa.binary(),
    pa.int64(),
    pa.float32(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(5, 2),
]
INSIDE: list[Callable[[Any], Any]] = [
    lambda v: v,
    lambda v: [v],
    lambda v: [(v, 1)],
    lambda v: [("k", v)],
    lambda v: {"f0": v},
    lambda v: [{"f1": v}],
    lambda v: (v,),
]


@pytest.mark.parametrize("t", SCHEMAS, ids=str)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_value_that_raises_or_lies_raises_nothing_but_schema_errors(
    produce: MakeProducer, t: pa.DataType, hostile: str
) -> None:
    target = FakeTarget(pa.schema([("c", t)]))
    producer, sent = produce(target), 0
    for inside in INSIDE:
        for send in (lambda row: producer.send(row), lambda row: producer.send_many([row])):
            try:
                send({"c": inside(HOSTILE[hostile]())})
                sent += 1
            except SchemaError as e:
                assert "'c" in str(e)
    producer.flush()
    assert len(target.bodies) == sent


@pytest.mark.parametrize(
    "row", [None, 5, [("c", 1)], "c", {1: 2}, {None: 1}, {b"c": 1}, {"c": 1, 2: 3, "z": 4}, Broken(c=1)]
)
def test_a_row_that_is_none_is_a_schema_error(produce: MakeProducer, row: Any) -> None:
    producer = produce(FakeTarget(pa.schema([("c", pa.int64())])))
    with pytest.raises(SchemaError):
        producer.send(row)
    with pytest.raises(SchemaError):
        producer.send_many([row])


NAMED = [
    (pa.map_(pa.string(), pa.int64()), [None], "'c', .* takes a mapping, or a list of pairs"),
    (pa.map_(pa.string(), pa.int64()), [(None, 1)], "'c.key' is not nullable"),
    (pa.map_(pa.string(), pa.int64()), [("a", 1, 2)], "'c', "),
    (pa.map_(pa.string(), pa.int64()), {"a": "x"}, "'c.value', "),
    (pa.list_(pa.struct([("f", pa.int8())])), [{"f": 1}, {"f": 128}], "'c.element.f', .* from -128 to 127"),
    (pa.list_(pa.struct([("f", pa.int8())])), [{"g": 1}], "'c.element' has no field 'g'"),
    (pa.struct([("s", pa.struct([("f", pa.int8())]))]), {"s": {"f": 1, "g": 1}}, "'c.s' has no field 'g'"),
    (pa.struct([("f", pa.int8())]), (1, 2), "'c', .* a tuple with a value for each field"),
    (pa.timestamp("us"), 1_700_000_000_000_000_000, "'c', .* as far as Python's datetime goes"),
    (pa.int64(), True, "'c', .* a whole number"),
    (pa.binary(), "text", "'c', .* takes bytes"),
    (pa.string(), b"bytes", "'c', .* takes a str"),
]


@pytest.mark.parametrize(("t", "value", "said"), NAMED, ids=lambda p: str(p)[:30])
def test_an_error_names_the_place_and_what_it_takes(
    produce: MakeProducer, t: pa.DataType, value: Any, said: str
) -> None:
    producer = produce(FakeTarget(pa.schema([("c", t)])))
    with pytest.raises(SchemaError, match=said):
        producer.send({"c": value})
