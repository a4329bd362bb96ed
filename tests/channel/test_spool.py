"""A spool: what is acknowledged, what becomes of it while the store is down, and who may have one."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelFullError,
    Event,
    MemoryLossWarning,
    OptionError,
    Producer,
    StorageError,
    TransactionStateError,
    backup,
    repair,
    restore,
)
from spillable_stream.channel import spool as spool_module
from spillable_stream.errors import ChannelClosedError, CommitOutcomeUnknownError
from spillable_stream.integrity.verify import verify
from tests.support.damage import remove_memory_under
from tests.support.delays import clock_of, put_late
from tests.support.events import numbered, put, take
from tests.support.expiry import WallClock
from tests.support.faulty_store import Fault, FaultyStore, Request
from tests.support.object_channels import URL, store_of, stores_in_memory
from tests.support.spools import kill_with_spool, open_spooled, spool_of, without_threads
from tests.support.waiting import wait_until

Open = Callable[..., Channel]
TYPED = pa.schema([("name", pa.string()), ("count", pa.int64())])


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Open handles with a spool, closed at the end, on stores that are dictionaries; threads ship."""
    with stores_in_memory(FaultyStore), ExitStack() as stack:

        def open_one(**options: Any) -> Channel:
            directory = options.pop("spool", tmp_path / "spool")
            channel = open_spooled(directory, **options)
            stack.callback(close, channel)
            return channel

        yield open_one


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch, opened: Open) -> Open:
    """Open such handles, of which nothing is shipped but by a flush or a close."""
    without_threads(monkeypatch)
    return opened


def close(channel: Channel) -> None:
    if not channel._open.is_closed:
        bring(channel)
        channel.close()


def fail(channel: Channel, fault: Fault) -> None:
    store_of(channel).schedule = lambda request: fault if request.kind in ("create", "get") else None


def bring(channel: Channel) -> None:
    store_of(channel).schedule = None


def in_store() -> list[bytes]:
    with Channel(URL, create=False) as channel:
        return take(channel)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ── shipping ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_what_is_put_is_shipped_in_order_without_being_asked(opened: Open, durability: str) -> None:
    channel = opened(durability=durability)
    for body in numbered(0, 50):
        put(channel, body)
    until(lambda: channel.stats().spool == spool_module.SpoolStats(0, 0, None))
    assert take(channel) == numbered(0, 50)


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_puts_are_acknowledged_while_the_store_is_down_and_shipped_in_order_when_it_is_back(
    by_hand: Open, durability: str
) -> None:
    channel = by_hand(durability=durability)
    fail(channel, Fault.UNAVAILABLE)
    for number in range(10):
        put(channel, *numbered(3 * number, 3))
    with pytest.raises(StorageError):
        channel.flush()
    put(channel, *numbered(30, 3))
    bring(channel)
    assert channel.flush() == 33
    assert channel.flush() == 0
    assert take(channel) == numbered(0, 33)


def test_the_thread_tries_again_until_the_store_is_back_and_warns_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spool_module, "_LONGEST_PAUSE_SECONDS", 0.02)
    channel = opened()
    fail(channel, Fault.UNAVAILABLE)
    put(channel, b"waits")
    until(lambda: spool_of(channel)._failures > 3)
    put(channel, b"too")
    stats = channel.stats().spool
    assert stats is not None and stats.events == 2 and "unavailable" in stats.trouble
    bring(channel)
    until(lambda: spool_of(channel).stats().events == 0)
    assert take(channel) == [b"waits", b"too"]
    assert [r.levelno for r in caplog.records if "is tried again" in r.message] == [logging.WARNING]


def test_what_waits_goes_in_one_put_and_one_append(by_hand: Open) -> None:
    channel = by_hand()
    for body in numbered(0, 200):
        put(channel, body)
    channel.flush()
    put(channel, *numbered(200, 5))
    before = store_of(channel).counts["create"]
    for body in numbered(205, 100):
        put(channel, body)
    assert channel.flush() == 105
    assert store_of(channel).counts["create"] == before + 1
    assert take(channel) == numbered(0, 305)


def test_a_put_transaction_of_any_size_is_one_in_the_store(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillable_stream.channel.spool_mover._PUT_EVENTS", 10)
    monkeypatch.setattr("spillable_stream.channel.spool_mover._PUT_BYTES", 3_000)
    channel = by_hand(max_inline_bytes=2_000)
    sizes = [3, 3, 3, 50, 3, 400, 1]
    for number, size in enumerate(sizes):
        put(channel, *[b"%d" % number + bytes(100)] * size)
    assert channel.flush() == sum(sizes)
    transactions: dict[int, set[bytes]] = {}
    consumer = channel.consumer("looks")
    for read in consumer.read(consumer.claim(10_000)):
        bodies = read.batch.column("body").to_pylist()
        transactions.setdefault(read.transaction_id, set()).update(body[:1] for body in bodies)
    assert sorted(name for names in transactions.values() for name in names) == [b"%d" % i for i in range(len(sizes))]
    assert [body[:1] for body in take(channel)] == [b"%d" % n for n, size in enumerate(sizes) for _ in range(size)]


def test_large_events_are_shipped_a_few_at_once(by_hand: Open) -> None:
    channel = by_hand()
    bodies = [b"%d" % i + bytes(3 << 20) for i in range(8)]
    for body in bodies:
        put(channel, body)
    channel.flush()
    assert channel.engine().state.last_id == 8
    assert len({block.transaction_id or block.file for block in channel.engine().state.blocks}) >= 3
    assert take(channel) == bodies


def test_others_see_events_when_they_are_shipped_and_write_order_ids_are_of_then(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, b"first put")
    with Channel(URL) as other:
        assert take(other) == []
        put(other, b"first there")
        channel.flush()
        with other.take_transaction() as tx:
            found = tx.take_many(10)
    assert [(e.body, e.write_order_id) for e in found] == [(b"first there", 1), (b"first put", 2)]


def test_typed_events_are_shipped_with_columns_that_came_later(by_hand: Open) -> None:
    channel = by_hand(schema=TYPED)
    with channel.put_transaction() as tx:
        tx.put({"name": "a", "count": 1})
    channel.evolve(TYPED.append(pa.field("more", pa.float64())))
    with channel.put_transaction() as tx:
        tx.put_batch(pa.table({"name": ["b", "c"], "more": [0.5, None], "count": [2, 3]}))
    channel.flush()
    with channel.take_transaction() as take_tx:
        rows = take_tx.take_many(10)
    assert rows == [
        {"name": "a", "count": 1, "more": None},
        {"name": "b", "count": 2, "more": 0.5},
        {"name": "c", "count": 3, "more": None},
    ]


def test_a_spool_learns_at_its_open_of_columns_that_others_added(by_hand: Open) -> None:
    by_hand(schema=TYPED).close()
    with Channel(URL, schema=TYPED.append(pa.field("more", pa.float64()))):
        pass
    channel = by_hand()
    with channel.put_transaction() as tx:
        tx.put({"name": "a", "count": 1, "more": 2.0})
    assert channel.flush() == 1


# ── events that wait ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_delayed_events_are_shipped_at_once_and_wait_in_the_store(by_hand: Open, durability: str) -> None:
    channel = by_hand(durability=durability)
    with channel.put_transaction() as tx:
        tx.put(Event(b"late"), deliver_after=60)
        tx.put(Event(b"now"))
        tx.put_many([Event(b"sooner"), Event(b"sooner too")], deliver_at=datetime.now(UTC) + timedelta(seconds=30))
    assert spool_of(channel).stats().events == 4 and channel.stats().delayed.events == 0
    assert channel.flush() == 4
    assert spool_of(channel).stats().events == 0 and channel.stats().delayed.events == 3
    clock = clock_of(channel)
    assert take(channel) == [b"now"]
    clock.pass_by(31)
    assert take(channel) == [b"sooner", b"sooner too"]
    clock.pass_by(30)
    assert take(channel) == [b"late"]


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_a_delay_counts_from_the_put_however_long_the_store_is_down_and_who_ships(
    by_hand: Open, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, channel = WallClock(monkeypatch), by_hand(durability=durability)
    fail(channel, Fault.UNAVAILABLE)
    put_late(channel, 60, b"a")
    put_late(channel, 90, b"c")
    put_late(channel, 30, b"b")
    put(channel, b"plain")
    clock.pass_by(60)
    channel.close()
    channel = by_hand(durability=durability)
    assert channel.flush() == 4
    assert take(channel) == [b"plain", b"b", b"a"], "what is due by now comes in the order of due times"
    clock.pass_by(29)
    assert take(channel) == []
    clock.pass_by(1)
    assert take(channel) == [b"c"]


def test_a_ttl_counts_from_when_its_event_is_due_and_goes_on_while_it_is_not_shipped(
    by_hand: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, channel = WallClock(monkeypatch), by_hand()
    for delay_seconds, ttl, body in ((30, 5, b"expires"), (30, 100, b"late"), (50, 5, b"in time"), (0, 5, b"plain")):
        with channel.put_transaction() as tx:
            tx.put(Event(body), deliver_after=delay_seconds, ttl=ttl)
    clock.pass_by(40)
    channel.flush()
    clock.pass_by(0.001)  # what had expired was shipped with a microsecond, to be counted there
    assert take(channel) == [b"late"]
    clock.pass_by(12)
    assert take(channel) == [b"in time"]
    assert channel.stats().groups["default"].expired_events == 2


def test_delayed_events_count_against_the_spool_and_then_against_the_channel(by_hand: Open, tmp_path: Path) -> None:
    with Channel(tmp_path / "spool", overflow_capacity=3, minimum_required_space=0):
        pass
    channel = by_hand(keep_alive=0, overflow_capacity=4)
    put_late(channel, 60, *numbered(0, 3))
    with pytest.raises(ChannelFullError):
        put_late(channel, 60, b"no room in the spool")
    channel.flush()
    put_late(channel, 60, *numbered(3, 2))
    with pytest.raises(ChannelFullError):
        channel.flush()
    assert spool_of(channel).stats().events == 2
    clock = clock_of(channel)
    clock.pass_by(61)
    assert take(channel) == numbered(0, 3)
    assert channel.flush() == 2
    clock.pass_by(61)
    assert take(channel) == numbered(3, 2)


def test_typed_events_with_columns_that_came_later_and_large_ones_wait_too(by_hand: Open) -> None:
    channel = by_hand(schema=TYPED, max_inline_bytes=2000)
    with channel.put_transaction() as tx:
        tx.put({"name": "a" * 3000, "count": 1}, deliver_after=60)
    channel.evolve(TYPED.append(pa.field("more", pa.float64())))
    with channel.put_transaction() as tx:
        tx.put_batch(pa.table({"name": ["b", "c"], "more": [0.5, None], "count": [2, 3]}), deliver_after=60)
        tx.put_batch(pa.table({"name": ["x" * 100] * 500, "count": range(500)}), deliver_after=90)
    channel.flush()
    clock = clock_of(channel)
    clock.pass_by(60)
    with channel.take_transaction() as take_tx:
        rows = take_tx.take_many(10)
    assert [(row["count"], row["more"]) for row in rows] == [(1, None), (2, 0.5), (3, None)]  # type: ignore[index, call-overload]
    clock.pass_by(30)
    with channel.take_transaction() as take_tx:
        assert [row["count"] for row in take_tx.take_many(1000)] == list(range(500))  # type: ignore[index, call-overload]


def test_delayed_rows_are_shipped_after_the_channel_got_a_column_that_can_not_be_ordered(by_hand: Open) -> None:
    channel = by_hand(schema=TYPED)
    with channel.put_transaction() as tx:
        tx.put({"name": "last", "count": 3}, deliver_after=90)
        tx.put({"name": "late", "count": 2}, deliver_after=60)
        tx.put({"name": "due by then", "count": 1}, deliver_after=30)
    channel.evolve(TYPED.append(pa.field("text", pa.string_view())))
    with channel.put_transaction() as tx:
        tx.put({"name": "now", "count": 0, "text": "a text that is longer than a view keeps inside"})
    clock = clock_of(channel)
    assert channel.flush() == 4
    found = []
    for _ in range(4):
        with channel.take_transaction() as take_tx:
            found += [(row["count"], row["text"]) for row in take_tx.take_many(10)]  # type: ignore[index, call-overload]
        clock.pass_by(30)
    assert found == [(0, "a text that is longer than a view keeps inside"), (1, None), (2, None), (3, None)]


def test_a_spool_with_delayed_events_is_one_that_earlier_versions_refuse(by_hand: Open, tmp_path: Path) -> None:
    channel = by_hand()
    put(channel, b"plain")
    identity = tmp_path / "spool" / "channel.json"
    assert json.loads(identity.read_text())["format"] == 1
    put_late(channel, 60, bytes(5 << 20))  # in a staged file
    assert json.loads(identity.read_text())["format"] == 3
    assert verify(tmp_path / "spool").healthy


def test_a_spool_with_delayed_events_is_refused_by_earlier_versions_after_a_repair_and_a_restore(
    by_hand: Open, tmp_path: Path
) -> None:
    channel = by_hand()
    put_late(channel, 60, b"late")
    channel.close()
    spool, again = tmp_path / "spool", tmp_path / "again"
    backup(spool, tmp_path / "copy")
    restore(tmp_path / "copy", again, new_identity=True)
    (spool / "channel.json").write_text("damaged")
    repair(spool)
    assert [json.loads((path / "channel.json").read_text())["format"] for path in (spool, again)] == [3, 3]


def test_a_spool_takes_no_delayed_rows_that_nobody_could_ship(by_hand: Open) -> None:
    channel = by_hand(schema=pa.schema([("text", pa.string_view())]))
    with channel.put_transaction() as tx:
        tx.put({"text": "now"})
        with pytest.raises(OptionError, match="of the column 'text' in another order"):
            tx.put({"text": "late"}, deliver_after=60)
    assert channel.flush() == 1


def test_a_delay_that_can_not_be_is_refused_by_a_spool(by_hand: Open) -> None:
    channel = by_hand()
    with pytest.raises(OptionError, match="at most a year"):
        put_late(channel, 400 * 86_400, b"no")
    assert spool_of(channel).stats().events == 0


# ── the end, and the next time ──────────────────────────────────────────────────────────────────


def test_a_close_ships_what_is_there(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, *numbered(0, 20))
    channel.close()
    channel.close()
    assert in_store() == numbered(0, 20)
    with pytest.raises(ChannelClosedError):
        channel.put_transaction()


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_a_close_while_the_store_is_down_leaves_it_to_the_next_open(
    by_hand: Open, durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel = by_hand(durability=durability)
    put(channel, *numbered(0, 5))
    channel.flush()
    put(channel, *numbered(5, 5))
    fail(channel, Fault.UNAVAILABLE)
    channel.close()
    assert "5 events are left in the spool" in caplog.text
    channel = by_hand(durability=durability)
    assert channel.flush() == 5
    assert take(channel) == numbered(0, 10)


def test_a_close_ships_no_longer_than_its_time(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "CLOSE_SECONDS", 0.0)
    channel = by_hand()
    put(channel, b"stays")
    channel.close()
    assert in_store() == []
    assert by_hand().flush() == 1


def test_a_close_without_a_flush_ships_nothing(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, b"stays")
    channel.close(flush=False)
    assert in_store() == []
    assert by_hand().flush() == 1


def test_a_close_inside_of_a_call_is_refused_and_the_spool_goes_on(by_hand: Open) -> None:
    channel = by_hand()
    calls = spool_of(channel)._local.engine().active_calls
    with pytest.raises(TransactionStateError):
        calls.run("a test", channel.close)
    put(channel, b"goes on")
    assert channel.flush() == 1


def test_a_forked_child_puts_to_the_same_spool(tmp_path: Path) -> None:
    channel = open_spooled(tmp_path / "spool", f"object+file://{tmp_path}/orders")
    put(channel, b"parent")
    child = os.fork()
    if not child:
        try:
            put(channel, b"child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    channel.flush()
    put(channel, b"parent again")
    channel.flush()
    assert take(channel) == [b"parent", b"child", b"parent again"]
    channel.close()


# ── several handles ─────────────────────────────────────────────────────────────────────────────


def test_one_handle_ships_for_all_that_have_the_spool_and_another_when_it_ends(by_hand: Open) -> None:
    one, other = by_hand(), by_hand()
    put(one, b"1")
    one.flush()
    put(other, b"2")
    assert other._open.spool is not None and not other._open.spool._ship(), "there are two movers"
    assert one.flush() == 1
    put(other, b"3")
    fail(one, Fault.UNAVAILABLE)
    one.close()
    assert other.flush() == 1
    assert take(other) == [b"1", b"2", b"3"]


def test_a_flush_that_another_handle_holds_up_says_so(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_STALLED_SECONDS", 0.0)
    one, other = by_hand(), by_hand()
    put(one, b"1")
    one.flush()
    put(one, b"2")
    with pytest.raises(StorageError, match=r"another process ships the spool .* still in the spool"):
        other.flush()


def test_threads_and_handles_put_at_once_and_nothing_is_lost_or_doubled(opened: Open) -> None:
    handles = [opened(), opened(durability="local")]

    def work(number: int) -> None:
        for i in range(40):
            put(handles[number % 2], b"%d %d" % (number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for handle in handles:
        handle.flush()
    found = take(handles[0])
    assert sorted(found) == sorted(b"%d %d" % (n, i) for n in range(4) for i in range(40))
    for number in range(4):
        assert [b for b in found if b.startswith(b"%d " % number)] == [b"%d %d" % (number, i) for i in range(40)]


def test_a_producer_with_a_name_continues_after_what_is_in_the_spool(by_hand: Open) -> None:
    channel = by_hand()
    for end in (1, 2):
        with Producer(channel, producer_id="import") as producer:
            assert producer.last_sequence() == end - 1
            producer.send_many([b"line %d" % end], sequence=end).result()
    channel.flush()
    assert [e.split()[1] for e in take(channel)] == [b"1", b"2"]


def test_another_handle_has_the_same_spool(by_hand: Open) -> None:
    channel = by_hand()
    other = channel.another()
    put(other, b"1")
    assert spool_of(channel).stats().events == 1
    other.close(flush=False)
    plain = Channel(URL)
    assert plain.another()._open.spool is None


# ── a full spool, a refusal ─────────────────────────────────────────────────────────────────────


def test_a_full_spool_refuses_puts_until_the_store_is_back(by_hand: Open, tmp_path: Path) -> None:
    with Channel(tmp_path / "spool", overflow_capacity=5, minimum_required_space=0):
        pass
    channel = by_hand(keep_alive=0)
    fail(channel, Fault.UNAVAILABLE)
    put(channel, *numbered(0, 5))
    with pytest.raises(ChannelFullError, match="overflow_capacity"):
        put(channel, b"too much")
    bring(channel)
    channel.flush()
    put(channel, b"5")
    channel.flush()
    assert take(channel) == numbered(0, 6)


def test_a_full_memory_goes_to_the_disk_of_the_spool(by_hand: Open) -> None:
    channel = by_hand(durability="memory", memory_capacity=10, overflow_timeout=0)
    for number in range(4):
        put(channel, *numbered(5 * number, 5))
    stats = spool_of(channel)._local.stats()
    assert (stats.memory.events, stats.disk.events) == (10, 10)
    assert channel.flush() == 20
    assert take(channel) == numbered(0, 20)


def test_what_the_store_refuses_for_good_is_raised_to_the_next_puts_until_it_is_repaired(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, b"1")
    fail(channel, Fault.REFUSED)
    with pytest.raises(StorageError):
        channel.flush()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"refuses what is in the spool .* Nothing is lost"):
            put(channel, b"not put")
    bring(channel)
    assert channel.flush() == 1
    put(channel, b"2")
    channel.flush()
    assert take(channel) == [b"1", b"2"]


def test_a_put_is_refused_and_not_in_doubt_where_the_store_refuses_to_show_what_was_shipped(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, b"1")
    created: list[Request] = []

    def refuse_proofs(request: Request) -> Fault | None:
        created.extend([request] if request.kind == "create" else [])
        return Fault.REFUSED if created and request.kind in ("get", "get_range") else None

    store_of(channel).schedule = refuse_proofs
    with pytest.raises(CommitOutcomeUnknownError):
        channel.flush()
    with pytest.raises(StorageError, match="nothing was put now") as raised:
        put(channel, b"not put")
    assert raised.value.stored_nothing and not isinstance(raised.value, CommitOutcomeUnknownError)
    bring(channel)
    channel.flush()
    assert take(channel) == [b"1"]


def test_a_full_channel_in_the_store_is_waited_for(by_hand: Open) -> None:
    channel = by_hand(overflow_capacity=3, keep_alive=0)
    put(channel, *numbered(0, 3))
    channel.flush()
    put(channel, b"3")
    with pytest.raises(ChannelFullError):
        channel.flush()
    put(channel, b"4")
    assert take(channel) == numbered(0, 3)
    channel.flush()
    assert take(channel) == [b"3", b"4"]


# ── stats ───────────────────────────────────────────────────────────────────────────────────────


def test_stats_say_what_is_not_shipped_also_while_the_store_is_down(by_hand: Open) -> None:
    channel = by_hand()
    put(channel, b"x" * 1000, b"y" * 1000)
    fail(channel, Fault.UNAVAILABLE)
    found = channel.stats().spool
    assert found is not None and found.events == 2 and 2_000 <= found.size_bytes < 5_000
    assert found.oldest_seconds is not None and 0 <= found.oldest_seconds < 60 and found.trouble == ""
    assert "2 events" in channel._repr_html_()
    bring(channel)
    channel.flush()
    assert channel.stats().spool == spool_module.SpoolStats(0, 0, None)


def test_stats_have_no_spool_without_one() -> None:
    with stores_in_memory(), Channel(URL) as channel:
        assert channel.stats().spool is None


# ── what can't be ───────────────────────────────────────────────────────────────────────────────


def test_a_handle_that_is_promised_a_disk_puts_to_no_memory(by_hand: Open) -> None:
    durable = by_hand()
    put(durable, b"1")
    other = by_hand(durability="memory")
    put(other, b"2")
    with pytest.raises(OptionError, match="has a memory tier by now"):
        put(durable, b"refused")
    again = by_hand()
    assert spool_of(again)._local.stats().memory.events == 0, "what was in memory is on disk"
    put(durable, b"3")
    assert spool_of(again)._local.stats().disk.events == 3


def test_a_spool_that_lost_its_memory_ships_what_comes_after(
    by_hand: Open, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    channel = by_hand(durability="memory")
    put(channel, *numbered(0, 5))
    channel.flush()
    put(channel, b"lost")
    kill_with_spool(channel)
    remove_memory_under(tmp_path)
    channel = by_hand(durability="memory")
    assert MemoryLossWarning in {w.category for w in recwarn.list}
    put(channel, *numbered(5, 5))
    channel.flush()
    assert take(channel) == numbered(0, 10)


def test_a_close_closes_both_channels_if_the_spool_fails(by_hand: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = by_hand()
    put(channel, b"1")
    local = spool_of(channel)._local
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="a test"):
        patch.setattr(local._open._engine, "leave", failing)
        channel.close()
    assert local._open.is_closed and channel._open.is_closed and channel._open._engine.closed
    channel = by_hand()
    put(channel, b"2")
    channel.flush()
    assert take(channel) == [b"1", b"2"]


def failing(**_: object) -> None:
    raise StorageError("a test")


def test_a_handle_that_is_forgotten_leaves_its_spool_to_the_next(opened: Open, tmp_path: Path) -> None:
    url = f"object+file://{tmp_path}/orders"
    channel = open_spooled(tmp_path / "forgotten", url)
    put(channel, b"1")
    channel.flush()
    put(channel, b"2")
    spool = weakref.ref(spool_of(channel))
    del channel
    wait_until(lambda: gc.collect() is not None and spool() is None)  # its thread may be using it now
    with open_spooled(tmp_path / "forgotten", url) as channel:
        put(channel, b"3")
        channel.flush()
        assert take(channel) == [b"1", b"2", b"3"]


def test_a_spool_that_could_not_be_opened_leaves_nothing_open(by_hand: Open, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(Exception, match="spool"):
        by_hand()
    (tmp_path / "spool").unlink()
    channel = by_hand()
    put(channel, b"1")
    assert channel.flush() == 1


def test_events_have_their_headers_in_the_store(by_hand: Open) -> None:
    channel = by_hand()
    with channel.put_transaction() as tx:
        tx.put(Event(b"x", {"country": "NL"}))
    channel.flush()
    with channel.take_transaction() as take_tx:
        event = take_tx.take()
    assert isinstance(event, Event) and (event.body, dict(event.headers)) == (b"x", {"country": "NL"})
