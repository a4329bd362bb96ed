"""Moving a group, back or forward, whoever owns it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import (
    Channel,
    ChannelClosedError,
    DataLossError,
    GroupOwnedError,
    MemoryLossWarning,
    OptionError,
    StorageError,
    TransactionStateError,
)
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.seeking import Seek, checked_position, seek_group
from spillable_stream.format.frame import FrameType
from spillable_stream.log.wal import Position
from spillable_stream.state.channel_state import ChannelState
from tests.support.damage import frames, kill, lose_memory, reboot
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]

HOUR_MS = 3_600_000


def to(position: int, path: Path) -> Callable[[ChannelState], int]:
    return lambda state: checked_position(position, state, path)


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel that keeps what is taken, of ten events, of which a group has taken seven."""
    channel = open_channel(retention_ms=HOUR_MS)
    put(channel, *numbered(0, 10))
    take(channel, 7, "g")
    return channel


# ── by its owner ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("position", [0, 3, 7, 9, 10])
def test_an_owner_moves_its_group_to_any_event_that_is_kept(channel: Channel, position: int) -> None:
    channel.consumer("g").seek(position)
    assert channel.consumer("g").position() == position
    assert peek(channel, group="g") == numbered(position, 10 - position)


def test_a_seek_outlives_the_channels_last_handle_and_a_reboot(
    open_channel: Open, channel: Channel, path: Path
) -> None:
    channel.consumer("g").seek(2)
    channel.close()
    with open_channel() as again:
        assert peek(again, group="g") == numbered(2, 8)
    reboot(path)
    assert peek(open_channel(), group="g") == numbered(2, 8)


def test_another_handle_sees_the_seek_at_once(open_channel: Open, channel: Channel) -> None:
    other = open_channel()
    assert other.stats().groups["g"].lag == 3
    channel.consumer("g").seek(0)
    assert other.stats().groups["g"].lag == 10


def test_what_was_claimed_before_a_seek_is_given_out_again_once(channel: Channel) -> None:
    consumer = channel.consumer("g")
    assert consumer.claim(2) == [(8, 9)]
    consumer.seek(8)
    assert consumer.claim(10) == [(9, 10)]


def test_an_open_transaction_can_only_be_rolled_back_after_a_seek(channel: Channel) -> None:
    tx = channel.take_transaction("g")
    tx.begin()
    assert [e.body for e in tx.take_many(2)] == numbered(7, 2)
    channel.consumer("g").seek(4)
    message = rf"the group 'g' of {re.escape(str(channel.path))} was moved by a seek .* Roll it back"
    with pytest.raises(TransactionStateError, match=message):
        tx.take_many(1)
    with pytest.raises(TransactionStateError, match=message):
        tx.commit()
    tx.rollback()
    assert take(channel, group="g") == numbered(4, 6)


def test_a_void_transaction_takes_nothing_from_one_that_was_begun_after_the_seek(channel: Channel) -> None:
    old, new = channel.take_transaction("g"), channel.take_transaction("g")
    old.begin()
    old.take_many(3)
    channel.consumer("g").seek(7)
    new.begin()
    assert [e.body for e in new.take_many(2)] == numbered(7, 2)
    with pytest.raises(TransactionStateError, match="was moved by a seek"):
        old.commit()
    old.rollback()  # gives nothing back that the new one holds
    assert channel.consumer("g").claim(10) == [(10, 10)]
    new.commit()
    assert channel.stats().groups["g"].position == 9


def test_a_transaction_that_has_taken_nothing_continues_after_a_seek(channel: Channel) -> None:
    take(channel, group="g")
    with channel.take_transaction("g") as tx:
        assert tx.take_many(1) == []
        channel.consumer("g").seek(9)
        assert [e.body for e in tx.take_many(5)] == numbered(9, 1)
    assert channel.stats().groups["g"].position == 10


@pytest.mark.parametrize("memory", [0, 100])
def test_prepared_takes_are_rolled_back_by_a_seek(open_channel: Open, path: Path, memory: int) -> None:
    channel = open_channel(memory_capacity=memory)
    put(channel, *numbered(0, 10))
    consumer = channel.consumer("g")
    one, two = consumer.claim(3), consumer.claim(3)
    first, second = consumer.prepare(one), consumer.prepare(two)
    assert channel.stats().groups["g"].in_flight == 6
    consumer.seek(1)
    assert channel.stats().groups["g"].in_flight == 0
    with pytest.raises(TransactionStateError, match="was moved by a seek"):
        consumer.commit(one, first)
    with pytest.raises(TransactionStateError, match="was moved by a seek"):
        consumer.commit_all([(two, second)])
    assert channel.port().commit_through("g", 10, None) == 0
    assert consumer.prepare(consumer.claim(2)) > second
    channel.close()
    reboot(path)
    assert peek(open_channel(), group="g") == numbered(1, 9)


def test_a_group_that_has_taken_ahead_takes_it_again_after_a_seek(channel: Channel) -> None:
    consumer = channel.consumer("g")
    consumer.claim(1)
    consumer.commit(consumer.claim(2))
    consumer.seek(6)
    assert take(channel, group="g") == numbered(6, 4)


def test_a_seek_out_of_the_channel_changes_nothing_and_says_where_it_begins(channel: Channel) -> None:
    consumer, log = channel.consumer("g"), channel.engine().positions
    held = consumer.claim(1)
    with pytest.raises(OptionError, match=f"the event 12 is after the next event of {channel.path}, 11"):
        consumer.seek(11)
    with pytest.raises(OptionError, match="position must be an integer, 0 or more, not -4"):
        consumer.seek(-4)
    assert channel.engine().positions == log
    consumer.commit(held)
    assert consumer.position() == 8


def test_a_seek_before_the_first_kept_event_names_it(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    peek(channel, group="slow")
    take(channel, group="g")
    take(channel, 4, "slow")
    with pytest.raises(DataLossError, match=r"the events 3 to 4 have left .*: the first event that it keeps is 5"):
        channel.consumer("g").seek(2)
    channel.consumer("g").seek(4)
    assert peek(channel, group="g") == numbered(4, 6)


def test_a_seek_of_an_empty_channel_that_keeps_nothing_names_the_next_event(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 3))
    take(channel, group="g")
    with pytest.raises(DataLossError, match=r"the events 2 to 3 .*: it keeps none, and the next event will be 4"):
        channel.consumer("g").seek(1)
    channel.consumer("g").seek(3)


def test_a_seek_that_must_not_be_done_twice_is_done_once(channel: Channel) -> None:
    consumer = channel.consumer("g")
    consumer.seek(2, "first batch of a query")
    assert take(channel, 3, "g") == numbered(2, 3)
    held = consumer.claim(1)
    consumer.seek(2, "first batch of a query")
    consumer.commit(held)
    assert consumer.position() == 6
    consumer.seek(2, "another")
    assert consumer.position() == 2


def test_a_seek_of_a_group_that_was_dropped_says_so(open_channel: Open, channel: Channel) -> None:
    consumer = channel.consumer("g")
    channel.drop_group("g")
    with pytest.raises(ChannelClosedError, match="was dropped"):
        consumer.seek(0)


def test_a_seek_that_the_disk_refuses_leaves_the_group_where_it_was(path: Path) -> None:
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, retention_ms=HOUR_MS, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        take(channel, 7, "g")
        with (
            fs.failing(lambda call: call.name == "write" and call.file.startswith("log-")),
            pytest.raises(StorageError),
        ):
            channel.consumer("g").seek(0)
        assert channel.stats().groups["g"].position == 7
        channel.consumer("g").seek(5)
    with Channel(path) as channel:
        assert peek(channel, group="g") == numbered(5, 5)


@pytest.mark.parametrize("change", [lambda c: c.seek("g", 5), lambda c: c.drop_group("g")], ids=["seek", "drop"])
def test_a_change_that_the_disk_refuses_leaves_what_the_last_owner_noted(
    path: Path, change: Callable[[Channel], object]
) -> None:
    """A worker notes there how often an event has failed."""
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, retention_ms=HOUR_MS, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        with Channel(path, minimum_required_space=0) as worker:
            note = worker.consumer("g", note="an event has failed twice").owner
        owners = channel.engine().owners
        with fs.failing(lambda call: call.name == "write" and call.file.startswith("log-")):
            for _ in range(2):
                with pytest.raises(StorageError):
                    change(channel)
        assert owners.owner_of("g") == note
        change(channel)
        assert owners.owner_of("g") == ""


@pytest.mark.parametrize("store", ["", "object+file://"])
def test_a_seek_that_is_refused_leaves_what_the_last_owner_noted(path: Path, store: str) -> None:
    options: dict[str, Any] = {} if store else {"minimum_required_space": 0}
    with Channel(f"{store}{path}", retention_ms=HOUR_MS, **options) as channel:
        put(channel, *numbered(0, 10))
        with Channel(f"{store}{path}", **options) as worker:
            worker.consumer("g").leave_note("an event has failed twice")
        engine = channel.engine()
        engine.follow()
        note = engine.owners.owner_of("g")
        assert note.endswith("an event has failed twice")
        for _ in range(2):
            with pytest.raises(OptionError, match="after the next event"):
                channel.seek("g", 1000)
            assert engine.owners.owner_of("g") == note
        channel.seek("g", 5)
        assert engine.owners.owner_of("g") == ""


@pytest.mark.parametrize("has_come_to_be", [False, True])
@pytest.mark.parametrize("store", ["", "object+file://"])
def test_a_seek_that_is_interrupted_leaves_what_the_last_owner_noted_unless_it_has_come_to_be(
    path: Path, store: str, has_come_to_be: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {} if store else {"minimum_required_space": 0}
    append, seeks = Appender.append, list[Seek]()

    def interrupted(appender: Appender, plan: AppendPlan, start: Position) -> bool:
        if not seeks:
            return append(appender, plan, start)
        seeks.clear()
        if has_come_to_be:
            append(appender, plan, start)
        raise KeyboardInterrupt

    with Channel(f"{store}{path}", retention_ms=HOUR_MS, **options) as channel:
        put(channel, *numbered(0, 10))
        with Channel(f"{store}{path}", **options) as worker:
            worker.consumer("g").leave_note("an event has failed twice")
        with monkeypatch.context() as patched:
            patched.setattr(Appender, "append", interrupted)
            patched.setattr(Seek, "size_bytes", lambda seek: seeks.append(seek) or 1000)
            with pytest.raises(KeyboardInterrupt):
                channel.seek("g", 5)
        assert channel.stats().groups["g"].position == (4 if has_come_to_be else 0)
        assert channel.engine().owners.owner_of("g").endswith("failed twice") is not has_come_to_be


def test_a_seek_that_the_disk_refuses_leaves_an_open_transaction_as_it_was(path: Path) -> None:
    fs = FaultyFileSystem()
    with Channel(path, fs=fs, retention_ms=HOUR_MS, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 10))
        with channel.take_transaction("g") as tx:
            assert [e.body for e in tx.take_many(3)] == numbered(0, 3)
            with (
                fs.failing(lambda call: call.name == "write" and call.file.startswith("log-")),
                pytest.raises(StorageError),
            ):
                channel.consumer("g").seek(0)
            assert channel.consumer("g").claim(1) == [(4, 4)]
        assert channel.stats().groups["g"].position == 3


def test_a_seek_is_one_record(channel: Channel, path: Path) -> None:
    before = len(frames(path))
    channel.consumer("g").seek(0)
    channel.checkpoint()
    assert [f.header.type for f in frames(path)[before:]] == [FrameType.GROUP, FrameType.COMMIT]


# ── of a group that nobody owns ─────────────────────────────────────────────────────────────────


def test_a_group_without_an_owner_is_moved_by_anybody(open_channel: Open, channel: Channel) -> None:
    path = channel.path
    channel.close()
    other = open_channel()
    assert seek_group(other.engine(), "g", to(2, path)) == 3
    assert peek(other, group="g") == numbered(2, 8)


def test_a_group_with_a_live_owner_is_not_moved_and_the_owner_is_named(open_channel: Open, channel: Channel) -> None:
    other = open_channel()
    with pytest.raises(
        GroupOwnedError, match=r"the group 'g' of .* is owned by pid .*Close that handle first"
    ) as caught:
        seek_group(other.engine(), "g", to(0, channel.path))
    assert caught.value.owner == channel.consumer("g").owner
    assert channel.consumer("g").position() == 7


def test_a_group_that_does_not_exist_is_not_moved_and_the_others_are_named(channel: Channel) -> None:
    with pytest.raises(OptionError, match="has no group 'G'; its groups are: 'g'"):
        seek_group(channel.engine(), "G", to(0, channel.path))


def test_what_a_killed_owner_had_prepared_is_rolled_back(open_channel: Open, channel: Channel) -> None:
    consumer = channel.consumer("g")
    consumer.prepare(consumer.claim(2))
    kill(channel)
    other = open_channel()
    assert other.stats().groups["g"].in_flight == 2
    seek_group(other.engine(), "g", to(7, channel.path))
    assert other.stats().groups["g"].in_flight == 0
    assert take(other, group="g") == numbered(7, 3)


# ── with a memory tier ──────────────────────────────────────────────────────────────────────────


def test_a_group_that_was_moved_back_reads_what_is_left_after_its_memory_is_lost(
    open_channel: Open, path: Path
) -> None:
    """What its file said that it had taken would move it forward again."""
    with open_channel(memory_capacity=5, overflow_timeout=0, flush_on_close=False) as channel:
        put(channel, *numbered(0, 5))
        peek(channel, group="slow")
        put(channel, *numbered(5, 5))
        assert channel.stats().drain_order == [5, -5]
        assert take(channel, 8, "g") == numbered(0, 8)
        channel.consumer("g").seek(0)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    assert channel.consumer("g").lost()[0] == (1, 5)
    assert take(channel, group="g") == numbered(5, 5)


def test_a_take_after_a_seek_is_remembered_when_memory_is_lost(open_channel: Open, path: Path) -> None:
    with open_channel(memory_capacity=100, flush_on_close=False) as channel:
        put(channel, *numbered(0, 10))
        peek(channel, group="slow")
        take(channel, group="g")
        channel.consumer("g").seek(2)
        assert take(channel, 3, "g") == numbered(2, 3)
    lose_memory(path)
    with pytest.warns(MemoryLossWarning):
        channel = open_channel()
    assert channel.consumer("g").lost()[0][0] == 6


@pytest.mark.usefixtures("one_block")
def test_a_group_that_goes_back_passes_over_what_memory_has_freed(open_channel: Open, path: Path) -> None:
    """Without retention memory frees what was taken ahead, though events before it are still there."""
    channel = open_channel(memory_capacity=1000)
    put(channel, *[b"a" * 200_000] * 3)
    put(channel, *[b"b" * 200_000] * 3)
    put(channel, *[b"c" * 200_000] * 3)
    consumer = channel.consumer("g")
    consumer.claim(3)
    consumer.commit(consumer.claim(3))
    assert [b.first_id for b in channel.engine().state.blocks] == [1, 7]
    consumer.seek(1)
    assert [body[:1] for body in peek(channel, group="g")] == [b"a", b"a", b"c", b"c", b"c"]
    kill(channel)
    assert [body[:1] for body in peek(open_channel(), group="g")] == [b"a", b"a", b"c", b"c", b"c"]


def test_the_next_event_is_the_first_that_is_there(open_channel: Open, path: Path) -> None:
    channel = open_channel(memory_capacity=1000)
    put(channel, *[b"a" * 200_000] * 3)
    put(channel, *[b"b" * 200_000] * 3)
    consumer = channel.consumer("g")
    consumer.claim(3)
    consumer.commit(consumer.claim(3))
    assert consumer.seek_to(lambda _: 2) == 3
    assert consumer.seek_to(lambda _: 3) == 7
