"""Which events have expired, and what takes, looks and reopened channels make of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, OptionError
from spillable_stream.channel.consumer import Consumer
from spillable_stream.engine.append_plan import CommitResult
from spillable_stream.engine.expiry import expired_events, now_us
from spillable_stream.engine.requests import Request
from spillable_stream.errors import LockTimeoutError, TransactionStateError
from spillable_stream.format.extent import Extent
from spillable_stream.integrity.verify import verify
from tests.support.damage import kill, lose_memory
from tests.support.events import peek, take
from tests.support.expiry import WallClock, expired, put_for
from tests.support.object_channels import URL, stores_in_memory
from tests.support.store_limits import SetLimits

Open = Callable[..., Channel]
MEMORY: dict[str, Any] = {"memory_capacity": 1_000, "overflow_timeout": 0}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture(params=["disk", "memory", "objects"])
def channel(request: pytest.FixtureRequest, open_channel: Open) -> Any:
    if request.param != "objects":
        yield open_channel(**(MEMORY if request.param == "memory" else {}))
        return
    with ExitStack() as stack:
        stack.enter_context(stores_in_memory())
        yield stack.enter_context(Channel(URL, commit_interval=0))


def test_a_take_passes_over_what_has_expired_and_counts_it(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 10, b"a", b"b")
    put_for(channel, None, b"c")
    put_for(channel, timedelta(seconds=30), b"d")
    clock.pass_by(20)
    assert take(channel, 1) == [b"c"]
    assert (expired(channel), channel.stats().groups["default"].lag) == (2, 1)
    clock.pass_by(20)
    assert take(channel) == []
    assert (expired(channel), channel.stats().groups["default"].lag) == (3, 0)


def test_events_of_one_transaction_may_have_different_ttls(channel: Channel, clock: WallClock) -> None:
    with channel.put_transaction() as tx:
        for i in range(6):
            tx.put(Event(b"%d" % i), ttl=[None, 10, 30][i % 3])
    clock.pass_by(20)
    assert take(channel, 3) == [b"0", b"2", b"3"]
    assert take(channel) == [b"5"]
    assert expired(channel) == 2


def test_an_event_expires_at_the_end_of_its_ttl_and_not_before(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 1, b"a")
    clock.pass_by(0.99)
    assert peek(channel) == [b"a"]
    clock.pass_by(0.02)
    assert peek(channel) == []


def test_each_group_judges_for_itself(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 10, b"a")
    channel.consumer("late")
    assert take(channel, group="early") == [b"a"]
    clock.pass_by(11)
    assert take(channel, group="late") == []
    assert (expired(channel, "early"), expired(channel, "late")) == (0, 1)


def test_what_was_given_to_a_transaction_stays_its_own_however_long_that_takes(
    channel: Channel, clock: WallClock
) -> None:
    put_for(channel, 10, b"a")
    with channel.take_transaction("default") as tx:
        assert [e.body for e in tx.take_many(9)] == [b"a"]
        clock.pass_by(20)
    assert expired(channel) == 0
    assert take(channel) == []
    assert expired(channel) == 0


def test_an_event_that_comes_back_from_a_rollback_is_judged_again(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 10, b"a")
    assert peek(channel) == [b"a"]
    clock.pass_by(11)
    assert take(channel) == []
    assert expired(channel) == 1


def test_a_clock_that_is_set_back_brings_nothing_back_that_was_passed_over(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 10, b"a")
    put_for(channel, 100, b"b")
    clock.pass_by(20)
    assert peek(channel) == [b"b"]  # rolled back: what had expired stays passed over
    clock.pass_by(-15)
    assert take(channel) == [b"b"]
    assert expired(channel) == 1


def test_a_channel_full_of_expired_events_empties_with_the_next_take(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 10, *(b"%d" % i for i in range(500)))
    clock.pass_by(11)
    with channel.take_transaction("default") as tx:
        assert tx.take_many(1) == []  # which waits for nothing
        tx.rollback()
    stats = channel.stats()
    assert (stats.channel_size, stats.groups["default"].lag, stats.groups["default"].expired_events) == (0, 0, 500)


def test_looks_leave_out_what_has_expired(channel: Channel, clock: WallClock) -> None:
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    clock.pass_by(11)
    assert [row["body"] for row in channel.head(9).rows()] == [b"b"]
    assert [row["body"] for row in channel.tail(9).rows()] == [b"b"]
    assert [b for batch in channel.read() for b in batch.column("body").to_pylist()] == [b"b"]
    assert channel.stats().channel_size == 2  # nobody has taken it


def test_rows_of_arrow_and_of_a_typed_channel_have_a_ttl(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel(schema=pa.schema([("n", pa.int64())]))
    with channel.put_transaction() as tx:
        tx.put_batch(pa.record_batch({"n": [1, 2]}), ttl=10)
        tx.put({"n": 3})
        tx.put({"n": 4}, ttl=10)
    clock.pass_by(11)
    with channel.take_transaction("default") as taken:
        batch = taken.take_batch(9)
    assert batch is not None and batch.column("n").to_pylist() == [3]


def test_a_staged_transaction_keeps_the_ttls_of_its_events(channel: Channel, clock: WallClock) -> None:
    with channel.put_transaction() as tx:
        tx.put_many([Event(bytes(6 << 20))], ttl=10)
        tx.put_many([Event(b"kept" + bytes(6 << 20))])
        tx.put_many([Event(bytes(6 << 20))], ttl=10)
    clock.pass_by(11)
    assert [body[:4] for body in take(channel)] == [b"kept"]
    assert expired(channel) == 2


def test_a_move_to_disk_and_a_reopening_keep_ttls_and_counts(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel(**MEMORY)
    put_for(channel, 10, b"a")
    put_for(channel, 30, b"b")
    put_for(channel, None, b"c")
    clock.pass_by(11)
    assert take(channel, 1) == [b"b"]
    put_for(channel, 10, b"d")
    channel.close()
    clock.pass_by(11)
    again = open_channel()
    assert take(again) == [b"c"]
    assert expired(again) == 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_killed_process_leaves_the_judgement_that_it_committed(
    open_channel: Open, clock: WallClock, checkpoint: bool
) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a", b"b")
    put_for(channel, None, b"c")
    clock.pass_by(11)
    consumer = channel.consumer("default")
    consumer.prepare([(1, 3)])
    if checkpoint:
        channel.checkpoint()
    kill(channel)
    clock.pass_by(-11)
    state = open_channel().engine().state
    assert list(state.passing("default")) == [(1, 2)]


def test_a_judgement_that_was_written_in_memory_is_the_same_on_disk(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel(**MEMORY)
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    clock.pass_by(11)
    transaction = channel.consumer("default").prepare([(1, 2)])
    assert channel.engine().state.pending[transaction].in_memory
    channel.close()
    clock.pass_by(-11)
    again = open_channel(**MEMORY)
    assert list(again.engine().state.passing("default")) == [(1, 1)]
    owner = Consumer(again.engine(), "default", resume=True)
    owner.commit([(1, 2)], transaction)
    assert expired(again) == 1


@pytest.mark.filterwarnings("ignore::spillable_stream.MemoryLossWarning")
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_judgement_is_on_disk_once_its_events_are(
    open_channel: Open, clock: WallClock, path: Path, is_lost: bool, checkpoint: bool
) -> None:
    channel = open_channel(**MEMORY)
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    put_for(channel, 30, b"c")
    clock.pass_by(11)
    transaction = channel.consumer("default").prepare([(1, 3)])
    channel.flush()
    if checkpoint:
        channel.checkpoint()
    kill(channel)
    if is_lost:
        lose_memory(path)
    clock.pass_by(30)
    again = open_channel(**MEMORY)
    assert list(again.engine().state.passing("default")) == [(1, 1)]
    owner = Consumer(again.engine(), "default", resume=True)
    assert owner.prepared() == {transaction: [(1, 3)]}
    owner.commit([(1, 3)], transaction)
    assert (expired(again), again.stats().groups["default"].lag) == (1, 0)
    owner.close()
    kill(again)
    assert (expired(open_channel(**MEMORY)), verify(path).healthy) == (1, True)


@pytest.mark.filterwarnings("ignore::spillable_stream.MemoryLossWarning")
def test_a_judgement_that_nothing_had_expired_is_on_disk_once_its_events_are(
    open_channel: Open, clock: WallClock, path: Path
) -> None:
    channel = open_channel(**MEMORY)
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    transaction = channel.consumer("default").prepare([(1, 2)])
    channel.flush()
    kill(channel)
    lose_memory(path)
    clock.pass_by(11)
    owner = Consumer(open_channel(**MEMORY).engine(), "default", resume=True)
    assert owner.prepared() == {transaction: [(1, 2)]}, "else the batch is planned again, without the event a"


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_store_keeps_the_judgement_of_a_prepared_take(clock: WallClock, checkpoint: bool) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        put_for(channel, 10, b"a")
        put_for(channel, None, b"b")
        clock.pass_by(11)
        transaction = channel.consumer("default").prepare([(1, 2)])
        if checkpoint:
            channel.checkpoint()
        channel.close()
        clock.pass_by(-11)
        with Channel(URL) as again:
            assert list(again.engine().state.passing("default")) == [(1, 1)]
            Consumer(again.engine(), "default", resume=True).commit([(1, 2)], transaction)
            assert expired(again) == 1


def test_small_slots_that_are_merged_keep_their_ttls(clock: WallClock, set_limits: SetLimits) -> None:
    with stores_in_memory() as stores, Channel(URL, commit_interval=0) as channel:
        set_limits(many_slots=4, quiet_seconds=0)
        for i, ttl in enumerate([10, None, 30, 10, None, 30]):
            put_for(channel, ttl, b"%d" % i)
        channel.checkpoint()
        assert any("-merged." in key for key in stores[URL].objects)
        with Channel(URL) as again:
            clock.pass_by(11)
            assert take(again) == [b"1", b"2", b"4", b"5"]
            assert expired(again) == 2


def test_the_judgement_of_a_prepared_take_is_counted_with_its_commit(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a", b"b")
    put_for(channel, None, b"c")
    clock.pass_by(11)
    consumer = channel.consumer("default")
    transaction = consumer.prepare([(1, 3)])
    assert expired(channel) == 0
    consumer.commit([(1, 3)], transaction)
    assert (expired(channel), consumer.position()) == (2, 3)


def test_a_seek_back_passes_over_expired_events_again(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel(retention_ms=3_600_000)
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    assert take(channel) == [b"a", b"b"]
    clock.pass_by(11)
    channel.seek("default", "earliest")
    assert take(channel) == [b"b"]
    assert expired(channel) == 1


def test_an_open_transaction_is_void_after_a_seek_and_counts_nothing(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel(retention_ms=3_600_000)
    put_for(channel, 10, b"a")
    put_for(channel, None, b"b")
    clock.pass_by(11)
    tx = channel.take_transaction("default")
    tx.begin()
    tx.take_many(1)
    channel.seek("default", "earliest")
    with pytest.raises(TransactionStateError, match="was moved by a seek"):
        tx.commit()
    tx.rollback()
    assert expired(channel) == 0
    assert take(channel) == [b"b"]
    assert expired(channel) == 1


def test_only_frames_of_blocks_where_some_have_expired_are_read(
    open_channel: Open, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a", b"b")
    clock.pass_by(5)  # so the next one is in a block of its own
    put_for(channel, 10, b"c")
    put_for(channel, 30, b"d")
    engine = channel.engine()
    reader = engine.reader()
    monkeypatch.setattr(reader, "frames", lambda extent: pytest.fail("it was read"))
    assert expired_events(engine, reader, [(1, 4)], now_us()) == []
    clock.pass_by(6)
    assert expired_events(engine, reader, [(1, 4)], now_us()) == [(1, 2)]
    clock.pass_by(6)
    with pytest.raises(pytest.fail.Exception, match="it was read"):
        expired_events(engine, reader, [(1, 4)], now_us())
    monkeypatch.undo()
    assert expired_events(engine, reader, [(2, 4)], clock.now_ns // 1000) == [(2, 3)]
    assert expired_events(engine, reader, [(2, 4)], clock.now_ns // 1000 + 60_000_000) == [(2, 4)]


def test_a_long_run_of_expired_events_in_one_block_is_read_few_times(
    channel: Channel, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with channel.put_transaction() as tx:
        tx.put_many([Event(b"gone")] * 1_000, ttl=10)
        tx.put_many([Event(b"%d" % i) for i in range(3)])
        tx.put_many([Event(b"gone")] * 10, ttl=10)
    clock.pass_by(11)
    consumer = channel.consumer("default")
    reader = channel.engine().readers.get("default", channel.engine().reader)
    frames, reads = reader.frames, list[Extent]()
    monkeypatch.setattr(reader, "frames", lambda extent: (reads.append(extent), frames(extent))[1])
    assert consumer.claim(1) == [(1_001, 1_001)]
    assert len(reads) < 15
    assert consumer.claim(9) == [(1_002, 1_003)]
    consumer.commit([(1_001, 1_003)])
    assert (expired(channel), consumer.position()) == (1_010, 1_013)


def test_a_take_that_finds_only_expired_events_does_not_fail_while_their_commit_is_refused(
    channel: Channel, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: object) -> None:
        raise LockTimeoutError("somebody has the lock")

    put_for(channel, 10, b"a")
    clock.pass_by(11)
    channel.consumer("default")
    with monkeypatch.context() as patched:
        patched.setattr(channel.engine(), "commit", refuse)
        assert channel.consumer("default").claim(1) == []
    assert expired(channel) == 0
    assert take(channel) == []
    assert expired(channel) == 1


def test_a_seek_in_the_middle_of_passing_over_expired_events_is_no_error_of_the_take(
    open_channel: Open, clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(retention_ms=3_600_000)
    put_for(channel, 10, b"a")
    clock.pass_by(11)
    consumer, commit = channel.consumer("default"), channel.engine().commit

    def seek_first(request: Request, *arguments: Any) -> CommitResult:
        monkeypatch.undo()
        thread = threading.Thread(target=channel.seek, args=("default", "earliest"))
        thread.start()
        thread.join()
        return commit(request, *arguments)

    monkeypatch.setattr(channel.engine(), "commit", seek_first)
    assert consumer.claim(1) == []
    assert (expired(channel), consumer.position()) == (0, 0)


def test_two_threads_that_pass_over_the_same_events_commit_them_once(open_channel: Open, clock: WallClock) -> None:
    channel = open_channel()
    put_for(channel, 10, b"a")
    clock.pass_by(11)
    consumer = channel.consumer("default")
    assert consumer.claim(1) == []
    before = channel.engine().state.next_transaction
    consumer._commit([])  # as of the second one, which has found nothing left to pass over
    assert (channel.engine().state.next_transaction, expired(channel)) == (before, 1)


def test_a_ttl_that_cannot_be_refuses_the_put_and_leaves_the_transaction_as_it_was(channel: Channel) -> None:
    with channel.put_transaction() as tx:
        tx.put(Event(b"a"))
        with pytest.raises(OptionError, match="ttl must be more than 0 and at most 100 years, not -1"):
            tx.put_many([Event(b"b")], ttl=-1)
        with pytest.raises(OptionError, match=r"^ttl must be seconds, or a number .*, not True"):
            tx.put_batch(pa.record_batch({"body": [b"c"]}), ttl=True)
    assert take(channel) == [b"a"]
