"""A channel in every kind of store: what a user does with one, from the first open to a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream import Channel, Event, GroupOwnedError, ReadonlyChannelError, repair, verify
from spillable_stream.engine.store import object_opening
from spillable_stream.integrity import object_verify
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.store import Store
from tests.support.events import numbered, peek, put, take
from tests.support.threads import in_threads

URL = "s3://bucket/anywhere"

Open = Callable[..., Channel]


@pytest.fixture
def opened(store: Store) -> Iterator[Open]:
    """Open the channel in the store, whatever kind that is."""
    channels: list[Channel] = []

    def opened(**options: object) -> Channel:
        with mock.patch.object(object_opening, "open_store", lambda *_: store):
            channels.append(Channel(URL, **{"commit_interval": 0, **options}))
        return channels[-1]

    yield opened
    for channel in channels:
        channel.close()


def test_what_one_handle_puts_another_takes_at_once(opened: Open) -> None:
    one, other = opened(), opened()
    for number in range(5):
        put(one, b"%d" % number)
        assert peek(other)[-1] == b"%d" % number
    assert take(other, 3) == numbered(0, 3)
    assert peek(other) == numbered(3, 2)
    assert one.stats().groups["default"].lag == 2


def test_two_handles_that_put_at_once_lose_and_repeat_nothing(opened: Open) -> None:
    handles = [opened(), opened()]
    in_threads(2, lambda i: [put(handles[i], b"%d %d" % (i, n)) for n in range(8)])
    bodies = peek(handles[0])
    assert sorted(bodies) == sorted(b"%d %d" % (i, n) for i in range(2) for n in range(8))
    for i in range(2):
        assert [b for b in bodies if b.startswith(b"%d " % i)] == [b"%d %d" % (i, n) for n in range(8)]


def test_a_large_transaction_is_staged_and_read_from_there(opened: Open) -> None:
    with opened(max_inline_bytes=1000) as channel:
        put(channel, *[b"%d" % n * 500 for n in range(20)])
        assert channel.stats().segments == 1
        assert peek(channel) == [b"%d" % n * 500 for n in range(20)]


@pytest.mark.parametrize("data", [None, b"", b"nonsense"])
def test_a_channel_is_verified_and_repaired(opened: Open, store: Store, data: bytes | None) -> None:
    with opened(max_inline_bytes=1000, checkpoint_on_close=False) as channel:
        for number in range(4):
            put(channel, b"%d" % number)
        put(channel, b"large" * 500)
        channel.checkpoint()
    with mock.patch.object(object_verify, "open_store", lambda *_: store):
        assert verify(URL).findings == ()
        store.delete(slot_key(3))
        if data is not None:
            store.replace(slot_key(3), data)
        assert verify(URL).loss.lost == ((3, 3),)
        assert repair(URL).loss.lost == ((3, 3),)
        assert verify(URL).healthy
    with opened(create=False) as channel:
        assert take(channel) == [b"0", b"1", b"3", b"large" * 500]


def test_a_typed_channel_keeps_its_schema_and_a_new_column(opened: Open) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with opened(schema=schema) as channel, channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"id": [1, 2], "name": ["a", None]}, schema))
    with opened(schema=schema.append(pa.field("more", pa.float64()))) as channel:
        assert channel.schema.names == ["id", "name", "more"]
        with channel.take_transaction() as tx:
            table = tx.take_batch(10)
        assert table is not None
        assert table.drop_columns("write_order_id").to_pylist() == [
            {"id": 1, "name": "a", "more": None},
            {"id": 2, "name": None, "more": None},
        ]


def test_a_group_that_was_moved_back_takes_again(opened: Open) -> None:
    with opened(retention_ms=3_600_000) as channel:
        put(channel, *numbered(0, 4))
        assert take(channel) == numbered(0, 4)
        assert channel.seek("default", 3) == 3
        assert take(channel) == numbered(2, 2)
        channel.seek("default", timedelta(hours=1))
        assert take(channel) == numbered(0, 4)


def test_a_checkpoint_is_what_the_next_open_begins_with(opened: Open, store: Store) -> None:
    with opened() as channel:
        put(channel, *numbered(0, 3))
        channel.checkpoint()
        put(channel, b"3")
    assert any(info.key.startswith("checkpoints/") for info in store.list("checkpoints/"))
    with opened() as again:
        assert peek(again) == numbered(0, 4)


def test_a_group_has_one_owner_and_the_next_one_waits_for_its_answer(opened: Open) -> None:
    one, other = opened(), opened()
    put(one, b"0")
    one.consumer("g")
    with pytest.raises(GroupOwnedError, match="which is this process: the thread 'MainThread' took with another"):
        other.consumer("g", owner_timeout_seconds=0)
    one.close()
    assert take(other, group="g") == [b"0"]


def test_a_handle_that_only_looks_writes_nothing(opened: Open, store: Store) -> None:
    put(opened(), b"0")
    before = {info.key: info.size_bytes for info in store.list("")}
    looking = opened(readonly=True)
    assert [batch.column("body")[0].as_py() for batch in looking.read()] == [b"0"]
    assert looking.stats().channel_size == 1
    for call in (looking.checkpoint, looking.put_transaction, looking.take_transaction):
        with pytest.raises(ReadonlyChannelError):
            call()
    assert {info.key: info.size_bytes for info in store.list("")} == before


def test_an_event_of_many_megabytes_comes_back(opened: Open) -> None:
    body = os.urandom(20 << 20)
    with opened() as channel:
        with channel.put_transaction() as tx:
            tx.put(Event(body))
        assert peek(channel) == [body]


def test_a_location_is_shown_and_never_a_credential(opened: Open) -> None:
    with opened() as channel:
        assert repr(channel) == f"Channel({URL!r})"
        assert channel.path == Location.parse(URL)


def test_the_path_of_a_channel_is_taken_wherever_a_path_is(tmp_path: Path) -> None:
    with ss.Channel(f"object+file://{tmp_path}/orders") as channel:
        put(channel, b"a")
        path = channel.path
    with ss.Channel(path, create=False, readonly=True) as channel:
        assert channel.path == path
    assert ss.verify(path).healthy and ss.repair(path).healthy
    assert ss.backup(path, tmp_path / "copy").copied_events == 1
    with pytest.raises(ss.ChannelError, match="orders is there"):
        ss.restore(tmp_path / "copy", path, new_identity=True)
