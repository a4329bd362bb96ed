"""Appends under the commit lock, and what was appended in the state at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelClosedError, TransactionStateError
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.put_request import Put
from spillable_stream.errors import ReadonlyChannelError
from spillable_stream.format.batch import encode_batch
from spillable_stream.format.file_names import Tier
from spillable_stream.format.head_page import HeadState
from spillable_stream.log.wal import Position
from tests.support.damage import log_file
from tests.support.events import peek, put
from tests.support.fake_files import FaultyFileSystem

Open = Callable[..., Channel]


def put_of(channel: Channel, *bodies: bytes) -> Put:
    """Return a request that puts bodies."""
    headers = pa.array([{}] * len(bodies), channel.schema.field("headers").type)
    rows = pa.record_batch({"headers": headers, "body": list(bodies)})
    return Put(encode_batch(rows.cast(channel.schema)))


def planned(channel: Channel, start: Position, *bodies: bytes) -> AppendPlan:
    plan = AppendPlan(channel.engine().state, Tier.DISK, start=start.offset)
    put_of(channel, *bodies).plan(plan)
    return plan


def lose_once(channel: Channel, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let the next append be lost to what comes meanwhile, as on a log without a lock."""
    log = channel.engine().log
    real = log.append

    def append(*_: object) -> None:
        monkeypatch.setattr(log, "append", real)
        meanwhile()

    monkeypatch.setattr(log, "append", append)


def test_what_is_appended_is_in_the_log_and_in_the_state_at_once(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    engine, appender = channel.engine(), channel.engine().appender
    with appender.committing():
        start = appender.reserve_room(Tier.DISK, 10_000)
        assert appender.append(planned(channel, start, b"a", b"b"), start)
        assert engine.state.last_id == 2
        assert engine.positions.disk.offset > start.offset
    assert peek(other) == [b"a", b"b"]


@pytest.mark.parametrize("tier", Tier)
def test_what_is_appended_to_a_new_file_is_in_the_state_at_once(open_channel: Open, tier: Tier) -> None:
    """A group's next append would use its IDs again."""
    channel = open_channel(memory_capacity=1000, byte_capacity=4 << 20)
    put(channel, b"a")
    engine, appender = channel.engine(), channel.engine().appender
    with appender.committing():
        before = appender.reserve_room(tier, 10_000)
        start = appender.reserve_room(tier, 1 << 30)
        assert start.file_id > before.file_id
        plan = AppendPlan(engine.state, tier, start=start.offset)
        put_of(channel, b"b").plan(plan)
        assert appender.append(plan, start)
        assert engine.state.last_id == 2
    assert peek(channel) == [b"a", b"b"]


def test_syncs_and_bytes_of_the_disk_tier_are_counted(open_channel: Open) -> None:
    channel = open_channel()
    appender, counters = channel.engine().appender, channel.engine().counters
    syncs, size_bytes = counters.disk_syncs, counters.disk_bytes
    with appender.committing():
        start = appender.reserve_room(Tier.DISK, 10_000)
        appender.append(planned(channel, start, b"a"), start)
    assert counters.disk_syncs == syncs + 1
    assert counters.disk_bytes - size_bytes == channel.engine().positions.disk.offset - start.offset > 0


def test_a_record_that_earlier_versions_cannot_read_is_announced_in_the_identity_before_it(open_channel: Open) -> None:
    channel = open_channel()
    appender, log = channel.engine().appender, channel.engine().log
    with appender.committing():
        start = appender.reserve_room(Tier.DISK, 10_000)
        plan = planned(channel, start, b"a")
        plan.is_extended = True
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log, "append", lambda *_: pytest.fail(read_format(channel)))
            with pytest.raises(pytest.fail.Exception, match="3"):
                appender.append(plan, start)
        assert appender.append(plan, start)
    assert peek(channel) == [b"a"]


def read_format(channel: Channel) -> str:
    assert isinstance(channel.path, Path)
    return str(json.loads((channel.path / "channel.json").read_text())["format"])


def test_a_plan_of_nothing_is_not_written(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    appender = channel.engine().appender
    with appender.committing():
        start = appender.reserve_room(Tier.DISK, 0)
        fs.calls.clear()
        assert appender.append(AppendPlan(channel.engine().state, start=start.offset), start)
    assert fs.count("write") == fs.count("sync") == 0


def test_a_lost_append_counts_for_nothing_and_leaves_the_state_up_to_date(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(), open_channel()
    engine, appender = channel.engine(), channel.engine().appender
    syncs = engine.counters.disk_syncs
    with other.engine().committing():
        start = other.engine().appender.reserve_room(Tier.DISK, 10_000)
        lose_once(channel, monkeypatch, lambda: other.engine().appender.append(planned(other, start, b"first"), start))
        assert not appender.append(planned(channel, start, b"lost", b"lost"), start)
    assert (engine.state.last_id, engine.counters.disk_syncs) == (1, syncs)
    assert peek(channel) == [b"first"]


def test_what_is_appended_alone_is_planned_again_until_it_is_in_the_log(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, lost = open_channel(), []
    lose_once(channel, monkeypatch, lambda: lost.append(1))
    with channel.engine().committing():
        result = channel.engine().appender.append_alone(put_of(channel, b"a", b"b"))
    assert lost == [1]
    assert (result.first_id, result.last_id) == (1, 2)
    assert peek(channel) == [b"a", b"b"]


def test_whoever_commits_is_up_to_date_first(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    put(other, b"a", b"b")
    assert channel.engine().state.last_id == 0
    with channel.engine().committing():
        assert channel.engine().state.last_id == 2


def test_whoever_commits_cuts_what_a_dead_holder_left_first(path: Path, open_channel: Open) -> None:
    channel, dead = open_channel(), open_channel()
    put(dead, b"a")
    end = channel.engine().log.position().disk.end
    with dead.engine().log.hold(1):
        dead.engine().log.lock.head.mark()
    with log_file(path).open("r+b") as file:
        file.seek(end)
        file.write(b"half an append")
    with channel.engine().committing():
        assert channel.engine().log.held_position().disk.state == HeadState.CLEAN
        assert channel.engine().state.last_id == 1
    assert log_file(path).stat().st_size == end


def test_a_closed_handle_commits_nothing(open_channel: Open) -> None:
    channel = open_channel()
    appender = channel.engine().appender
    channel.close()
    with pytest.raises(ChannelClosedError, match="is closed; open it again"), appender.committing():
        raise AssertionError


def test_a_view_commits_nothing(path: Path, open_channel: Open) -> None:
    open_channel().close()
    with Channel(path, readonly=True) as view, pytest.raises(ReadonlyChannelError):
        appender: Appender = view.engine().appender
        with appender.committing():
            raise AssertionError


def test_a_thread_that_commits_does_not_commit_inside(open_channel: Open) -> None:
    appender = open_channel().engine().appender
    with appender.committing(), pytest.raises(TransactionStateError, match=r"holds .*lock already"):
        appender.committing().__enter__()
