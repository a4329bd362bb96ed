"""What can't be given out again is not acknowledged: neither by a put, nor by a take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, CorruptionError, Event, SchemaError
from spillable_stream.channel import put_transaction as puts
from spillable_stream.channel import take_transaction as takes
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.format.batch import EVENT_SCHEMA, check_new_schema, fit_batch
from tests.support.arrow_values import ACCEPTED, LEAVES, nested, not_utf8
from tests.support.events import numbered, put

Open = Callable[..., Channel]

CATEGORIES = pa.dictionary(pa.int8(), pa.string())


def put_batch(channel: Channel, batch: pa.RecordBatch | pa.Table) -> None:
    with channel.put_transaction() as tx:
        tx.put_batch(batch)


def taken(channel: Channel) -> tuple[pa.Table, list[Any]]:
    """Take all as a table, as objects and one by one."""
    groups = ["table", "objects", "one-by-one"]
    for group in groups:
        channel.consumer(group)
    with channel.take_transaction(groups[0]) as tx:
        table = tx.take_batch(1_000)
        assert table is not None
    with channel.take_transaction(groups[1]) as tx:
        rows = tx.take_many(1_000)
    with channel.take_transaction(groups[2]) as tx:
        assert [tx.take(0) for _ in rows] == rows
    return table.drop_columns(["write_order_id"]), rows


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Channel, pa.RecordBatch], None]:
    """Put as versions before these checks did."""

    def put_unchecked(channel: Channel, batch: pa.RecordBatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(puts, "accept_batch", lambda batch, schema, _: fit_batch(batch, schema))
            put_batch(channel, batch)

    return put_unchecked


# ── puts ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("leaf", ACCEPTED)
def test_columns_of_every_type_are_given_out_as_they_were_put(open_channel: Open, leaf: str) -> None:
    found = {kind: column for kind, column in nested(LEAVES[leaf]) if _is_accepted(column)}
    batch = pa.record_batch(found)
    channel = open_channel(schema=batch.schema)
    for part in (batch, batch.slice(1), pa.Table.from_batches([batch]), batch.slice(2, 1)):
        put_batch(channel, part)
    table, rows = taken(channel)
    expected = [row for part in (batch, batch.slice(1), batch, batch.slice(2, 1)) for row in part.to_pylist()]
    assert rows == table.to_pylist() == expected


def _is_accepted(column: pa.Array) -> bool:
    schema = pa.schema([("c", column.type)])
    try:
        fit_batch(pa.RecordBatch.from_arrays([column], schema=schema), check_new_schema(schema))
    except SchemaError:
        return False
    return True


def test_pandas_categories_are_stored_as_their_values(open_channel: Open) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"c": pandas.Categorical(["b", None, "a"]), "n": pandas.Categorical([3, 1, 3], ordered=True)}
    )
    table = pa.Table.from_pandas(frame)
    channel = open_channel(schema=table.schema)
    put_batch(channel, table)
    assert [str(t).removeprefix("large_") for t in channel.schema.types] == ["string", "int64"]
    found, rows = taken(channel)
    assert rows == [{"c": "b", "n": 3}, {"c": None, "n": 1}, {"c": "a", "n": 3}]
    assert found.to_pandas()["n"].tolist() == [3, 1, 3]


def test_categories_fit_a_channel_of_their_values_and_one_that_they_made(open_channel: Open) -> None:
    text = pa.array(["b", None, "a"])
    coded = pa.record_batch(
        {"c": text.dictionary_encode(), "l": pa.ListArray.from_arrays([0, 2, 2, 3], text.dictionary_encode())}
    )
    plain = pa.record_batch({"c": text, "l": pa.ListArray.from_arrays([0, 2, 2, 3], text)})
    open_channel(schema=coded.schema).close()
    channel = open_channel(schema=coded.schema)  # again: it fits
    assert channel.schema.equals(plain.schema)
    for batch in (coded, plain, coded.slice(1, 2), pa.Table.from_batches([coded, coded.slice(2)])):
        put_batch(channel, batch)
    with channel.put_transaction() as tx:
        tx.put({"c": "x", "l": ["y"]})
    rows = plain.to_pylist()
    assert taken(channel)[1] == [*rows, *rows, *rows[1:], *rows, rows[2], {"c": "x", "l": ["y"]}]


def test_a_channel_that_an_earlier_version_created_of_categories_takes_no_more_puts(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it stored can't be read by anybody."""
    schema = pa.schema([("c", CATEGORIES)])
    with monkeypatch.context() as patch:
        patch.setattr("spillable_stream.channel.open_arguments.check_new_schema", lambda schema: schema)
        patch.setattr("spillable_stream.channel.stored_schema.merge_schemas", lambda current, _: current)
        patch.setattr("spillable_stream.channel.direct_puts.check_written_schema", lambda schema: None, raising=False)
        channel = open_channel(schema=schema)
        put_batch(channel, pa.record_batch([pa.array(["a"]).dictionary_encode().cast(CATEGORIES)], schema=schema))
        channel.close()
    channel = open_channel()
    with pytest.raises(SchemaError, match="an earlier version did not store, so nothing more can be put there"):
        channel.put_transaction()
    with channel.take_transaction() as tx, pytest.raises(CorruptionError):
        tx.take(0)


BAD_HEADERS = [
    pa.MapArray.from_arrays([0, 1, 2, 3], not_utf8(), pa.array(["1", "2", "3"])),
    pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["1", "2", "3"]), not_utf8()),
    pa.MapArray.from_arrays([0, 1, 2, 3], not_utf8(pa.large_string()), not_utf8(pa.string())),
]


@pytest.mark.parametrize("headers", BAD_HEADERS, ids=["keys", "values", "large"])
@pytest.mark.parametrize("as_table", [False, True])
def test_headers_that_are_not_text_are_refused_and_the_transaction_continues(
    open_channel: Open, headers: pa.Array, as_table: bool
) -> None:
    channel = open_channel()
    batch = pa.record_batch({"headers": headers, "body": pa.array([b"1", b"2", b"3"])})
    with channel.put_transaction() as tx:
        tx.put(Event(b"before"))
        with pytest.raises(SchemaError, match=r"the column 'headers' is not sound: .*UTF8"):
            tx.put_batch(pa.table(batch) if as_table else batch)
        tx.put(Event(b"after"))
    assert channel.stats().channel_size == 2
    with channel.take_transaction() as tx:
        assert [e.body for e in tx.take_many(9)] == [b"before", b"after"]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_a_typed_channel_takes_no_text_that_is_none(open_channel: Open, type_: pa.DataType) -> None:
    channel = open_channel(schema=pa.schema([("c", type_), ("s", pa.struct([("x", pa.list_(type_))]))]))
    texts = not_utf8(type_)
    inside = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2, 3], texts)], ["x"])
    for name, column in (("c", texts), ("s", inside)):
        with pytest.raises(SchemaError, match=f"the column '{name}' is not sound"):
            put_batch(channel, pa.record_batch({name: column}))
    assert channel.stats().channel_size == 0


@pytest.mark.parametrize("value", ["\ud800", b"\xff", object(), 2**70])
def test_a_row_that_does_not_fit_is_a_schema_error_whatever_pythons_error_was(open_channel: Open, value: Any) -> None:
    channel = open_channel(schema=pa.schema([("s", pa.string()), ("n", pa.int64())]))
    with channel.put_transaction() as tx, pytest.raises(SchemaError, match="a row does not fit"):
        tx.put({"n" if isinstance(value, int) else "s": value})
    assert channel.stats().channel_size == 0


# ── takes ───────────────────────────────────────────────────────────────────────────────────

WAYS: dict[str, Callable[[TakeTransaction], Any]] = {
    "take": lambda tx: tx.take(0),
    "take_many": lambda tx: tx.take_many(9),
    "take_batch": lambda tx: tx.take_batch(9),
}


@pytest.mark.parametrize("way", ["take", "take_many"])
def test_events_that_python_cannot_have_stay_in_the_queue(
    open_channel: Open, unchecked: Callable[[Channel, pa.RecordBatch], None], way: str
) -> None:
    """As an earlier version took them: they can be had as Arrow, and nothing else acknowledges them."""
    channel = open_channel()
    headers = pa.MapArray.from_arrays([0, 1, 1, 1], not_utf8().slice(1), pa.array(["v", "w"]))
    unchecked(channel, pa.record_batch([headers, pa.array([b"1", b"2", b"3"])], schema=EVENT_SCHEMA))
    with channel.take_transaction() as tx:
        for _ in range(2):
            with pytest.raises(
                SchemaError, match=r"(in the event 1|among the events 1 to \d) .* take it with take_batch"
            ):
                WAYS[way](tx)
        assert tx.count == 0
    assert channel.stats().groups["default"].position == 0
    with channel.take_transaction() as tx:
        with pytest.raises(SchemaError):
            WAYS[way](tx)
        table = tx.take_batch(1)
        assert table is not None and table.column("body").to_pylist() == [b"1"]
        assert [e.body for e in tx.take_many(9)] == [b"2", b"3"]
    assert channel.stats().groups["default"].position == 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62], pa.timestamp("us")),
        pa.array([2**62], pa.duration("s")),
        pa.array([2**30], pa.int32()).cast(pa.date32()),
        pa.array([[2**62]], pa.list_(pa.timestamp("s", "UTC"))),
    ],
    ids=lambda column: str(column.type),
)
def test_times_that_python_does_not_know_are_given_out_as_arrow_only(open_channel: Open, column: pa.Array) -> None:
    channel = open_channel(schema=pa.schema([("c", column.type)]))
    put_batch(channel, pa.record_batch({"c": column}))
    with channel.take_transaction() as tx:
        with pytest.raises(SchemaError, match="take it with take_batch"):
            tx.take(0)
        table = tx.take_batch(1)
        assert table is not None and table.column("c").combine_chunks().equals(column)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("way", WAYS)
def test_a_take_that_fails_in_any_way_acknowledges_nothing(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, way: str, error: type[BaseException]
) -> None:
    def fail(*_: Any) -> None:
        raise error

    channel = open_channel()
    put(channel, *numbered(0, 5))
    tx = channel.take_transaction()
    tx.begin()
    assert tx.take_many(1)[0].body == b"0"
    with monkeypatch.context() as patch:
        patch.setattr(takes, "events_from_batch", fail)
        patch.setattr(takes, "table_from_batches", fail)
        with pytest.raises(error):
            WAYS[way](tx)
    tx.commit()
    tx.close()
    assert channel.stats().groups["default"].position == 1
    assert channel.stats().counters.event_take_error_count == 1
    with channel.take_transaction() as tx:
        assert [e.body for e in tx.take_many(9)] == [b"1", b"2", b"3", b"4"]
