"""A channel does all that it does on an engine without a memory tier, files and locks of its own, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    ChannelFullError,
    Event,
    GroupOwnedError,
    OptionError,
    ReadonlyChannelError,
    TransactionStateError,
)
from spillable_stream.channel import open_channel as open_channel_module
from spillable_stream.engine.automatic_groups import AutomaticGroups
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.groups import create_group
from spillable_stream.storage.filesystem import FileSystem
from tests.support.bare_engine import BareEngine
from tests.support.events import numbered, peek, put, take

Open = Callable[..., Channel]


@pytest.fixture
def open_bare(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open handles of the channel at `path`, each on a bare engine."""
    notes: tuple[dict[str, str], ...] = ({}, {})

    def open_engine(fs: FileSystem, path: Any, timeout_seconds: float, *, readonly: bool, **_: object) -> BareEngine:
        return BareEngine(fs, path, timeout_seconds, readonly, notes)

    monkeypatch.setattr(open_channel_module, "open_engine", open_engine)
    return open_channel


def engine_of(channel: Channel) -> BareEngine:
    engine = channel.engine()
    assert isinstance(engine, BareEngine)
    return engine


def test_events_are_put_and_taken_in_order_by_several_handles(open_bare: Open) -> None:
    one, two = open_bare(), open_bare()
    for i in range(10):
        put((one, two)[i % 2], b"%d" % i)
    assert peek(two, 3) == numbered(0, 3)
    assert take(two, 4) == numbered(0, 4)
    assert take(two) == numbered(4, 6)
    assert one.stats().groups["default"].lag == 0
    assert engine_of(two).checkpointing.calls.count("make if due") >= 7


def test_a_large_put_is_staged_and_adopted(open_bare: Open) -> None:
    channel = open_bare(max_inline_bytes=1000)
    put(channel, *[bytes([i]) * 500 for i in range(20)])
    assert isinstance(next(iter(channel.engine().state.blocks)).file, str)
    assert take(channel) == [bytes([i]) * 500 for i in range(20)]


def test_an_empty_channel_is_looked_at_until_the_time_is_over_and_asked_to_give_space_back(open_bare: Open) -> None:
    channel = open_bare()
    with channel.take_transaction() as tx:
        assert tx.take_many(1, timeout_seconds=0.01) == []
    assert "give back" in engine_of(channel).checkpointing.calls


def test_a_channel_that_is_full_says_so_and_has_room_after_a_take(open_bare: Open) -> None:
    channel = open_bare(overflow_capacity=3, keep_alive=0, memory_capacity=0)
    put(channel, *numbered(0, 3))
    with pytest.raises(ChannelFullError, match=r"disk holds 3 of overflow_capacity 3 events"):
        put(channel, b"3")
    take(channel, 1)
    put(channel, b"3")


def test_a_group_has_one_owner_until_that_is_closed(open_bare: Open) -> None:
    one, two = open_bare(), open_bare()
    put(one, *numbered(0, 2))
    consumer = one.consumer("g", note="first")
    assert consumer.owner.endswith("first") and engine_of(two).owners.look("g") == (True, consumer.owner)
    with pytest.raises(GroupOwnedError, match="is owned by"):
        two.consumer("g")
    with pytest.raises(GroupOwnedError, match="is owned by"):
        two.drop_group("g")
    one.close()
    assert take(two, 10, "g") == numbered(0, 2)


def test_an_owner_whose_group_was_taken_over_commits_nothing_any_more(open_bare: Open) -> None:
    """It is refused where its take is planned, as the state is at the log's end."""
    channel = open_bare()
    put(channel, *numbered(0, 4))
    tx, consumer = channel.take_transaction("g"), channel.consumer("g")
    tx.begin()
    assert len(tx.take_many(2)) == 2
    engine_of(channel).owners.owned["g"] = "another one"
    before = channel.engine().positions
    for use in (tx.commit, lambda: consumer.prepare([(1, 1)]), lambda: consumer.seek(4)):
        with pytest.raises(GroupOwnedError, match="somebody took the group 'g' over"):
            use()
    for again in (lambda: channel.consumer("g"), lambda: channel.seek("g", "latest")):
        with pytest.raises(GroupOwnedError, match="is owned by another one"):
            again()
    tx.rollback()
    assert channel.engine().positions == before


def test_what_a_former_owner_left_prepared_is_rolled_back_or_kept(open_bare: Open) -> None:
    one, two, three = open_bare(), open_bare(), open_bare()
    put(one, *numbered(0, 4))
    one.consumer("g").prepare([(1, 2)])
    one.close()
    assert list(two.consumer("g", resume=True).prepared().values()) == [[(1, 2)]]
    two.close()
    assert three.consumer("g").prepared() == {}


def test_takes_are_committed_on_behalf_of_the_owner_that_prepared_them(open_bare: Open) -> None:
    one, two = open_bare(), open_bare()
    put(one, *numbered(0, 4))
    consumer = one.consumer("g")
    consumer.prepare([(1, 2)])
    assert finish_takes(two.engine(), "g", 2, "somebody else") == 0
    assert finish_takes(two.engine(), "g", 2, consumer.owner) == 1
    assert one.stats().groups["g"].position == 2


def test_groups_are_moved_and_dropped(open_bare: Open) -> None:
    channel = open_bare(retention_ms=3_600_000)
    put(channel, *numbered(0, 5))
    assert take(channel) == numbered(0, 5)
    assert channel.seek("default", 3) == 3
    assert take(channel) == numbered(2, 3)
    assert channel.seek("default", timedelta(hours=1)) == 1
    tx = channel.take_transaction()
    tx.begin()
    tx.take_many(2)
    channel.seek("default", "latest")
    with pytest.raises(TransactionStateError, match="was moved by a seek"):
        tx.commit()
    tx.rollback()
    channel.drop_group("default")
    assert not channel.stats().groups


def test_what_is_there_is_read_and_not_taken(open_bare: Open) -> None:
    channel = open_bare()
    for i in range(0, 60, 2):
        put(channel, *[b"%d" % n * 100_000 for n in (i, i + 1)])
    assert len(channel.engine().state.blocks) > 16
    bodies = [body for batch in channel.read(3, 50, max_bytes=1) for body in batch["body"].to_pylist()]
    assert bodies == [b"%d" % n * 100_000 for n in range(2, 50)]
    assert channel.stats().channel_size == 60


def test_a_group_that_nobody_reads_as_is_named_and_dropped_in_time(open_bare: Open) -> None:
    channel = open_bare()
    put(channel, *numbered(0, 3))
    create_group(channel.engine(), "auto", "earliest", automatic=True)
    assert channel.stats().without_owner == ("auto",)
    engine = channel.engine()
    groups = AutomaticGroups(engine.log, engine.follower, engine.appender, engine.owners)
    groups.look(0)
    channel.consumer("auto")
    for _ in range(3):
        groups.look(300_000)
    assert "auto" in channel.stats().groups, "it has an owner"
    channel._open.owned.consumers.pop("auto").close()
    for _ in range(4):
        groups.look(300_000)
    assert "auto" not in channel.stats().groups


def test_statistics_have_what_the_engine_knows_of_files(open_bare: Open) -> None:
    channel = open_bare(memory_capacity=100)
    put(channel, b"1")
    stats = channel.stats()
    assert stats.channel == channel.uuid == channel.engine().channel
    assert (stats.data_files, stats.memory_files, stats.segments, stats.torn_bytes) == (1, 0, 0, 0)
    assert (stats.disk.events, stats.memory.events, stats.memory.byte_capacity) == (1, 0, 0)
    assert str(channel.path) in channel._repr_html_()


def test_options_and_columns_are_changed(tmp_path: Path, open_bare: Open) -> None:
    one, two = open_bare(keep_alive=1.0), open_bare(keep_alive=2.0)
    assert one.options["keep_alive"] == 2.0
    with Channel(tmp_path / "typed", schema=pa.schema([("a", pa.int64())]), minimum_required_space=0) as typed:
        typed.evolve(pa.schema([("a", pa.int64()), ("b", pa.string())]))
        assert typed.schema.names == ["a", "b"]
    with pytest.raises(OptionError, match="are both 0"):
        open_bare(memory_capacity=0, overflow_capacity=0)
    two.close()


def test_a_handle_that_only_looks_refuses_what_would_change_the_channel(open_bare: Open, path: Path) -> None:
    put(open_bare(), b"1")
    with Channel(path, readonly=True) as view:
        assert view.stats().channel_size == 1
        for what in (view.put_transaction, view.take_transaction, view.checkpoint, view.flush):
            with pytest.raises(ReadonlyChannelError, match=f"{path} is open read-only, but "):
                what()


def test_the_ends_of_a_handle_are_the_engines(open_bare: Open) -> None:
    channel = open_bare()
    engine = engine_of(channel)
    put(channel, b"1")
    channel.park()
    assert engine.is_parked and channel.resume() and not engine.is_parked
    assert channel.flush() == 0
    channel.checkpoint()
    channel.close(checkpoint=True)
    assert engine.checkpointing.calls.count("create") == 2
    for use in (lambda: channel.stats(), lambda: put(channel, b"2"), channel.port):
        with pytest.raises(ChannelClosedError):
            use()


def test_an_event_that_was_put_has_the_time_and_the_id_of_its_commit(open_bare: Open) -> None:
    channel = open_bare()
    with channel.put_transaction() as tx:
        tx.put(Event(b"1", {"k": "v"}))
    with channel.take_transaction() as take_tx:
        found = take_tx.take()
    assert found.headers == {"k": "v"} and found.write_order_id == tx.committed.first_id == 1
