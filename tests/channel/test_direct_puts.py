"""Where puts go that no spool takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, CorruptionError, OptionError, ReadonlyChannelError, SchemaError
from spillable_stream.channel import direct_puts
from spillable_stream.channel.stored_options import stored_together
from spillable_stream.engine import follower
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.events import put

Open = Callable[..., Channel]
N, M = pa.field("n", pa.int64()), pa.field("m", pa.int64())


def test_each_schema_is_checked_once(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = open_channel(schema=pa.schema([N]))
    checked: list[pa.Schema] = []
    monkeypatch.setattr(direct_puts, "check_written_schema", checked.append)
    for _ in range(2):
        channel.put_transaction()
    open_channel().evolve(pa.schema([N, M]))
    channel.stats()  # a look at the log
    for _ in range(2):
        channel.put_transaction()
    assert checked == [pa.schema([N]), pa.schema([N, M])]


def test_a_schema_that_nobody_can_write_is_refused_each_time(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: pa.Schema) -> None:
        raise SchemaError("a dictionary")

    channel = open_channel()
    monkeypatch.setattr(direct_puts, "check_written_schema", refuse)
    for _ in range(2):
        with pytest.raises(SchemaError):
            channel.put_transaction()


def test_a_channel_whose_schema_is_not_known_to_this_arrow_opens_and_says_so_at_a_put(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: bytes) -> pa.Schema:
        raise CorruptionError("a schema is not Arrow's")

    put(open_channel(), b"x")
    monkeypatch.setattr(follower, "decode_schema", refuse)
    channel = open_channel()
    assert channel.stats().channel_size == 1
    with pytest.raises(CorruptionError, match="not Arrow's"):
        channel.put_transaction()


def test_a_delay_is_refused_where_no_event_can_wait(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=0)
    assert channel.due_ms(None, None) == 0
    with pytest.raises(OptionError, match="has no disk tier"):
        channel.due_ms(1, None)


def test_the_options_are_those_that_another_handle_stored(open_channel: Open) -> None:
    channel = open_channel()
    open_channel(transaction_capacity=5)
    assert channel.put_options().transaction_capacity == 5


def test_what_is_in_memory_is_moved(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10)
    put(channel, b"x")
    assert channel.flush() == 1
    assert channel.stats().disk.events == 1


def test_a_handle_that_only_looks_puts_nothing(open_channel: Open, path: object) -> None:
    assert open_channel().schema == EVENT_SCHEMA
    with Channel(str(path), readonly=True) as channel:
        for use in (channel.put_transaction, lambda: channel.due_ms(1, None), channel.flush):
            with pytest.raises(ReadonlyChannelError):
                use()


def test_events_can_be_delayed_where_an_open_is_about_to_give_the_channel_a_disk_tier(tmp_path: Path) -> None:
    Channel(tmp_path / "c", memory_capacity=10, overflow_capacity=0).close()
    with stored_together(), Channel(tmp_path / "c", overflow_capacity=0) as without:
        with pytest.raises(OptionError, match="has no disk tier"):
            without.due_ms(1, None)
        with Channel(tmp_path / "c", overflow_capacity=10) as channel:
            channel.put_transaction().require_delays()
            assert channel.due_ms(1, None)
