"""The schema of a channel that exists: what fits it, and the columns that are added to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, ReadonlyChannelError, SchemaError
from spillable_stream.channel import stored_schema
from spillable_stream.channel.stored_schema import has_columns, store_columns
from spillable_stream.format.batch import EVENT_SCHEMA

Open = Callable[..., Channel]
N = pa.field("n", pa.int64())


def test_a_typed_channel_keeps_its_schema(path: Path, open_channel: Open) -> None:
    open_channel(schema=pa.schema([N])).close()
    channel = open_channel()
    assert channel.typed and channel.schema.equals(pa.schema([N]))


def test_a_schema_that_does_not_fit_is_refused_with_both(open_channel: Open) -> None:
    open_channel(schema=pa.schema([N])).close()
    with pytest.raises(SchemaError, match=r"The channel has \(n: int64\); what is given has \(n: string\)"):
        open_channel(schema=pa.schema([("n", pa.string())]))


def test_new_nullable_columns_are_added_and_read_as_null_before(path: Path, open_channel: Open) -> None:
    channel = open_channel(schema=pa.schema([N]))
    with channel.put_transaction() as tx:
        tx.put({"n": 1})
    other = open_channel(schema=pa.schema([("s", pa.string()), N]))
    with channel.put_transaction() as tx:
        tx.put({"n": 2, "s": "two"})
    with other.take_transaction() as tx:
        assert tx.take_many(5) == [{"n": 1, "s": None}, {"n": 2, "s": "two"}]
        tx.rollback()
    with other.take_transaction() as tx:
        table = tx.take_batch(5)
        assert table is not None and table.column("s").to_pylist() == [None, "two"]
        tx.rollback()
    channel.close()
    other.close()
    assert open_channel().schema.names == ["n", "s"]


def test_the_log_names_the_columns_that_were_added(open_channel: Open, caplog: pytest.LogCaptureFixture) -> None:
    channel = open_channel(schema=pa.schema([N]))
    with caplog.at_level("INFO", "spillable_stream.channel.stored_schema"):
        channel.evolve(pa.schema([N]))
        assert not caplog.messages
        channel.evolve(pa.schema([N, ("misspelled", pa.string()), ("other", pa.int8())]))
    assert caplog.messages == [f"{channel.path} has more columns, which stay: misspelled, other"]


def test_a_new_column_without_a_type_is_refused(open_channel: Open) -> None:
    channel = open_channel(schema=pa.schema([N]))
    with pytest.raises(SchemaError, match="the column 'm' has the type null"):
        channel.evolve(pa.schema([N, ("m", pa.null())]))


def test_a_channel_that_has_a_column_without_a_type_opens_and_takes_its_schema(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version before this check may have made it."""
    schema = pa.schema([N, ("N", pa.int64()), ("m", pa.null())])
    with monkeypatch.context() as patch:
        patch.setattr("spillable_stream.channel.open_arguments.check_new_schema", lambda schema: schema)
        open_channel(schema=schema).close()
    assert open_channel(schema=schema).schema.equals(schema)


def test_a_transaction_begun_before_an_evolution_commits(open_channel: Open) -> None:
    channel = open_channel(schema=pa.schema([N]))
    with channel.put_transaction() as tx:
        tx.put({"n": 1})
        channel.evolve(pa.schema([N, ("s", pa.string())]))
        tx.put({"n": 2})
    with channel.take_transaction() as tx:
        assert tx.take_many(5) == [{"n": 1, "s": None}, {"n": 2, "s": None}]


def test_an_event_channel_takes_no_other_columns(open_channel: Open) -> None:
    with pytest.raises(SchemaError, match="is an event channel"):
        open_channel().evolve(EVENT_SCHEMA.append(N))


def test_a_channel_has_no_more_schemas_than_a_frame_can_name(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_schema, "MAX_SCHEMAS", 2)
    channel = open_channel(schema=pa.schema([("a", pa.int8())]))
    channel.evolve(pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    with pytest.raises(SchemaError, match="has had 2 schemas, the most it can have"):
        channel.evolve(pa.schema([("a", pa.int8()), ("c", pa.int8())]))
    assert channel.evolve(pa.schema([("b", pa.int8()), ("a", pa.int8())])) == 1


@pytest.mark.parametrize("names", [["a"], ["b"], ["a", "c"]])
def test_a_column_cannot_be_left_out_of_an_evolution(open_channel: Open, names: list[str]) -> None:
    """Columns are only added: whoever leaves one out may believe that it is gone, or has another name now."""
    channel = open_channel(schema=pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    given = pa.schema([(name, pa.int8()) for name in names])
    with pytest.raises(
        SchemaError, match=r"leaves out the column .[ab].*\. The channel has \(a: int8, b: int8\); what is"
    ):
        channel.evolve(given)
    assert channel.schema.names == ["a", "b"]


def test_a_schema_that_the_channel_has_had_evolves_nothing(open_channel: Open) -> None:
    """A program of before, which starts again while newer ones run, is not stopped by them."""
    channel = open_channel(schema=pa.schema([N]))
    assert channel.evolve(pa.schema([N, ("s", pa.string())])) == 1
    assert channel.evolve(pa.schema([N])) == 1
    assert channel.schema.names == ["n", "s"]


def test_an_open_may_give_fewer_columns_than_the_channel_has(open_channel: Open) -> None:
    """It says what the program puts, and a put may leave columns out."""
    open_channel(schema=pa.schema([("a", pa.int8()), ("b", pa.int8())])).close()
    assert open_channel(schema=pa.schema([("a", pa.int8()), ("c", pa.int8())])).schema.names == ["a", "b", "c"]


def test_columns_that_another_handle_adds_at_the_same_time_both_stay(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(schema=pa.schema([N])), open_channel()
    engine = channel.engine()
    commit = engine.commit

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        other.evolve(pa.schema([N, ("first", pa.string())]))
        return commit(*arguments)

    monkeypatch.setattr(engine, "commit", late)
    assert channel.evolve(pa.schema([N, ("second", pa.string())])) == 2
    assert channel.schema.names == ["n", "first", "second"]


def test_only_new_columns_are_stored(open_channel: Open) -> None:
    engine = open_channel(schema=pa.schema([N])).engine()
    before = engine.positions
    assert has_columns(engine, pa.schema([N])) and store_columns(engine, pa.schema([N])) == 0
    assert engine.positions == before
    wider = pa.schema([N, ("s", pa.string())])
    assert not has_columns(engine, wider)
    assert store_columns(engine, wider) == 1 and has_columns(engine, wider)


def test_columns_that_another_handle_added_are_not_stored_again(open_channel: Open) -> None:
    wider = pa.schema([N, ("s", pa.string())])
    channel, other = open_channel(schema=pa.schema([N])), open_channel()
    store_columns(other.engine(), wider)
    assert store_columns(channel.engine(), wider) == 1
    assert len(channel.engine().schemas()) == 2


def test_a_handle_that_only_looks_adds_no_column(open_channel: Open, path: Path) -> None:
    open_channel(schema=pa.schema([N])).close()
    with Channel(path, readonly=True) as view:
        with pytest.raises(ReadonlyChannelError, match="another column would change"):
            store_columns(view.engine(), pa.schema([N, ("s", pa.string())]))
        assert store_columns(view.engine(), pa.schema([N])) == 0
