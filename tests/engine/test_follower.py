"""A handle's state follows the log, whoever writes it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, TransactionStateError
from spillable_stream.engine import deliveries, follower
from spillable_stream.errors import ChannelClosedError
from spillable_stream.format.batch import EVENT_SCHEMA
from tests.support.damage import log_file
from tests.support.events import numbered, peek, put, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.interrupts import Interrupts
from tests.support.object_channels import URL, stores_in_memory
from tests.support.one_module import replace_in

Open = Callable[..., Channel]


def test_handles_follow_each_other(open_channel: Open) -> None:
    one, two = open_channel(max_file_size=1500), open_channel()
    for i in range(20):
        put((one, two)[i % 2], b"%d" % i)
        assert one.stats().last_id == two.stats().last_id == i + 1
    assert take(two) == numbered(0, 20)
    assert one.stats().channel_size == 0


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between looks, in seconds, which take no time."""
    now, found = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        found.append(seconds)
        now[0] += seconds

    for waits in (deliveries, follower):
        replace_in(monkeypatch, waits, "time", monotonic=lambda: now[0], sleep=sleep)
    return found


def test_a_wait_that_continues_looks_at_a_log_far_away_as_rarely_as_before(pauses: list[float]) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        for _ in range(4):
            assert not channel.engine().wait_for(lambda _: False, 1.0)
        assert len(pauses) == 6 + 1 + 1 + 1, "a wait of a second looks six times, and then once a second"
        put(channel, b"1")
        pauses.clear()
        assert not channel.engine().wait_for(lambda _: False, 1.0)
        assert len(pauses) == 6


def test_a_wait_that_continues_looks_at_a_disk_as_rarely_as_before(open_channel: Open, pauses: list[float]) -> None:
    channel = open_channel()
    for _ in range(3):
        assert not channel.engine().wait_for(lambda _: False, 0.5)
    assert [p for p in pauses if p < 0.05][:6] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032]
    assert len(pauses) <= 16 + 2 * 11, "then twenty times a second"
    put(channel, b"1")
    pauses.clear()
    assert not channel.engine().wait_for(lambda _: False, 0.5)
    assert pauses[0] == 0.001


def test_a_handle_that_fell_behind_deleted_files_catches_up(open_channel: Open) -> None:
    behind, ahead = open_channel(max_file_size=1500), open_channel()
    for i in range(30):
        put(ahead, b"%d" % i)
        take(ahead)
        if i % 10 == 9:
            ahead.checkpoint()
    ahead.checkpoint()
    assert not log_file(ahead.path, 1).exists()
    put(ahead, b"new")
    assert behind.stats().channel_size == 1
    assert behind.stats().groups["default"].position == 30


def test_options_changed_by_one_handle_hold_for_all(open_channel: Open) -> None:
    one = open_channel()
    open_channel(overflow_capacity=7)
    assert one.options["overflow_capacity"] == 7


def test_a_file_of_memory_that_this_process_began_is_not_read_back(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(memory_capacity=10_000, byte_capacity=4 << 20)
    put(channel, b"first")
    other, engine = open_channel(), channel.engine()
    first, followed = engine.positions.memory.file_id, list[object]()
    monkeypatch.setattr(engine.log, "follow", lambda *_: followed.append(1))
    for i in range(40):
        put(channel, b"%d" % i * 20_000)
    assert engine.positions.memory.file_id > first + 1
    assert followed == [] and engine.log.position() is engine.follower.applied
    assert take(other) == [b"first", *(b"%d" % i * 20_000 for i in range(40))]
    monkeypatch.undo()
    assert channel.stats().channel_size == 0


@pytest.mark.parametrize("record", [1, 2], ids=["PUT", "COMMIT"])
@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_an_interrupt_while_the_state_is_applied_does_not_apply_it_twice(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, whose: str, record: int
) -> None:
    from spillable_stream.state.channel_state import ChannelState

    channel, other = open_channel(), open_channel()
    put(channel, b"0")
    real, applied = ChannelState.apply_record, [0]

    def apply(state: ChannelState, *arguments: Any) -> None:
        real(state, *arguments)
        applied[0] += 1
        if applied[0] == record:
            raise KeyboardInterrupt

    if whose == "another's":
        put(other, b"1", b"2")
    monkeypatch.setattr(ChannelState, "apply_record", apply)
    with pytest.raises(KeyboardInterrupt):
        if whose == "another's":
            channel.stats()
        else:
            put(channel, b"1", b"2")
    monkeypatch.undo()
    assert peek(channel) == numbered(0, 3)
    channel.checkpoint()
    channel.close()
    other.close()
    assert peek(open_channel()) == numbered(0, 3)


def test_a_snapshot_does_not_change_while_others_commit(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    put(other, b"0")
    with channel.engine().snapshot() as state:
        assert state.last_id == 1, "it was up to date"
        put(other, b"1")
        assert channel.engine().follow() is state and state.last_id == 1
        with channel.engine().snapshot() as inner:
            assert inner is state and inner.last_id == 1
        assert channel.engine().follow().last_id == 1, "it is still held"
    assert channel.engine().follow().last_id == 2


@pytest.mark.parametrize("held", ["snapshot", "as_known"])
def test_a_state_that_is_looked_at_is_kept_from_other_threads(open_channel: Open, held: str) -> None:
    channel, other = open_channel(), open_channel()
    seen: list[int] = []
    with getattr(channel.engine().follower, held) as state:
        put(other, b"0")
        thread = threading.Thread(target=lambda: seen.append(channel.engine().follow().last_id))
        thread.start()
        thread.join(0.05)
        assert (state.last_id, seen) == (0, [])
    thread.join(60)
    assert seen == [1]


def looks_at(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return where it is noted how often the log is asked where it ends."""
    log, asked = channel.engine().log, list[str]()

    def noting(name: str) -> Callable[[], Any]:
        real = getattr(log, name)
        return lambda: (asked.append(name), real())[1]

    for name in ("position", "latest_position"):
        monkeypatch.setattr(log, name, noting(name))
    return asked


def test_following_looks_once_at_the_log_and_takes_what_that_found(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(), open_channel()
    channel.engine().follow()
    asked = looks_at(channel, monkeypatch)
    channel.engine().follow()
    assert asked == ["position"]
    put(other, b"0")
    assert channel.engine().follow().last_id == 1
    assert asked == ["position", "position"]


def test_following_looks_again_where_another_thread_has_applied_something_meanwhile(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen before that may be older than what is known by then."""
    channel, other = open_channel(), open_channel()
    follower, log = channel.engine().follower, channel.engine().log
    follower.follow()
    put(other, b"0")
    real = log.position

    def position() -> Any:
        head = real()
        put(other, b"1")
        follower._advance(real)  # as another thread would
        return head

    asked = looks_at(channel, monkeypatch)
    monkeypatch.setattr(log, "position", position)
    assert follower.follow().last_id == 2
    assert asked == ["latest_position"]


def test_the_state_as_it_is_known_does_not_change_and_costs_no_look(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = open_channel(), open_channel()
    follower, asked = channel.engine().follower, looks_at(channel, monkeypatch)
    put(other, b"0")
    with follower.as_known as state:
        assert state.last_id == 0 and not asked
        with follower.snapshot as inner, follower.as_known as innermost:
            assert inner is innermost is state and state.last_id == 0, "it is still held"
        assert channel.engine().follow().last_id == 0
    assert not follower.snapshot.is_mine()
    with follower.snapshot as state, follower.as_known as inner:
        assert inner is state and state.last_id == 1


@pytest.mark.parametrize("held", ["snapshot", "as_known"])
def test_an_interrupt_anywhere_leaves_the_state_to_other_threads_and_calls(open_channel: Open, held: str) -> None:
    channel, other = open_channel(), open_channel()

    def look() -> None:
        with getattr(channel.engine().follower, held) as state:
            assert state.last_id >= 0

    for number in count(1):
        put(other, b"0")
        interrupts = Interrupts(number, "engine/follower.py", "test_follower.py")
        interrupts.run(look)
        if not interrupts.hit:
            break
        thread = threading.Thread(target=channel.stats, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), f"place {number}: another thread waits for ever"
        put(channel, b"1")
        assert channel.stats().last_id == 2 * number
    assert number > 5


def test_no_commit_begins_inside_of_the_state_as_it_is_known(open_channel: Open) -> None:
    channel = open_channel()
    with (
        channel.engine().follower.as_known,
        pytest.raises(TransactionStateError, match=r"a commit of the channel .* was called inside"),
    ):
        put(channel, b"0")
    put(channel, b"0")


def test_a_state_that_an_interrupt_left_half_applied_is_loaded_before_it_passes_for_known(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillable_stream.state.channel_state import ChannelState

    channel, other = open_channel(), open_channel()
    put(other, b"0", b"1")
    real = ChannelState.apply

    def interrupted(state: ChannelState, *arguments: Any) -> None:
        real(state, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ChannelState, "apply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            channel.engine().follow()
    with channel.engine().follower.as_known as state:
        assert (state.last_id, len(state.blocks)) == (2, 1)


def test_following_reads_nothing_where_nobody_has_committed(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel, other = open_channel(fs=fs), open_channel()
    put(other, b"0")
    channel.engine().follow()
    fs.calls.clear()
    for _ in range(3):
        channel.engine().follow()
    assert fs.calls == []


def test_what_this_handle_appended_is_not_read_back(open_channel: Open) -> None:
    fs = FaultyFileSystem()
    channel = open_channel(fs=fs)
    put(channel, b"0")
    fs.read_bytes = 0
    put(channel, b"1")
    assert channel.engine().follow().last_id == 2
    assert fs.read_bytes == 0


def test_a_wait_ends_when_another_handle_has_put_what_is_waited_for(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    thread = threading.Timer(0.02, put, (other, b"0"))
    thread.start()
    assert channel.engine().wait_for(lambda state: state.last_id == 1, 60)
    thread.join()


def test_a_wait_is_over_after_its_time(open_channel: Open) -> None:
    began = time.monotonic()
    assert not open_channel().engine().wait_for(lambda state: False, 0.05)
    assert time.monotonic() - began >= 0.05
    assert open_channel().engine().wait_for(lambda state: True, 0)


def test_a_channel_is_typed_or_of_events_for_life(tmp_path: Path, open_channel: Open) -> None:
    first = pa.schema([("a", pa.int64())])
    both = pa.schema([("a", pa.int64()), ("b", pa.string())])
    with Channel(tmp_path / "typed", schema=first, minimum_required_space=0) as typed:
        assert typed.engine().is_typed()
        Channel(tmp_path / "typed", schema=both).close()
        typed.engine().follow()
        assert [s.names for s in typed.engine().schemas()] == [["a"], ["a", "b"]]
        assert typed.engine().is_typed()
    events = open_channel().engine()
    assert not events.is_typed()
    assert events.schemas() == [EVENT_SCHEMA]


def test_the_ends_are_those_of_the_files_that_are_written(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, byte_capacity=1 << 20)
    put(channel, b"0")
    published = channel.engine().log.position()
    assert published.memory.end > 0
    end_of = channel.engine().follower.end_of
    assert [end_of(tier.file_id) for tier in (published.disk, published.memory)] == [
        published.disk.end,
        published.memory.end,
    ]
    assert end_of("segment") is end_of(published.disk.file_id + 1) is None


def test_files_that_were_removed_are_not_kept_open(path: Path, open_channel: Open) -> None:
    """Else their disk space is not free."""
    channel, other = open_channel(max_file_size=1000), open_channel()
    put(channel, bytes(600), bytes(100))
    with channel.take_transaction() as tx:
        tx.take_many(2)  # by a reader that stays
    for _ in range(3):
        put(other, bytes(900))
        take(other, group="another")
        other.checkpoint()
    assert not log_file(path).exists()
    channel.engine().follow()
    assert f"{log_file(path)} (deleted)" not in map(_opened, os.listdir("/proc/self/fd"))


def _opened(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # it was the list's own, or another thread has closed it
        return ""


def test_a_state_that_is_being_changed_is_not_looked_at_by_the_same_thread(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a signal handler: half a transaction may be applied."""
    channel, other = open_channel(), open_channel()
    put(other, b"0")
    log, refused = channel.engine().log, []
    real = log.follow

    def follow(*arguments: Any) -> int:
        appends: int = real(*arguments)
        with pytest.raises(TransactionStateError, match="a look of"):
            channel.engine().follow()
        refused.append(1)
        return appends

    monkeypatch.setattr(log, "follow", follow)
    assert channel.engine().follow().last_id == 1
    assert refused == [1]


@pytest.mark.parametrize("created_again", [True, False])
def test_a_state_that_is_loaded_after_its_channel_was_removed_or_replaced_is_not_called_damaged(
    path: Path, open_channel: Open, created_again: bool
) -> None:
    """As in upkeep, which looks at the channel, and follows it a moment later."""
    old = open_channel()
    put(old, b"x")
    followed = old.engine().follower
    followed.half_applied = True  # an interrupt left it so
    shutil.rmtree(path)
    if created_again:
        put(open_channel(), b"y")
    with pytest.raises(ChannelClosedError, match=r"was moved, removed or replaced, or its disk unmounted"):
        followed.follow(unchecked=True)
    old.engine().close()
