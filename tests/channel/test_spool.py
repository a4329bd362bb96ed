"""A spool: what is acknowledged, what becomes of it while the store is down, and who may have one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    ChannelFullError,
    Event,
    MemoryLossWarning,
    OptionError,
    StorageError,
    UnsafeStoreError,
)
from spillable_stream.channel import spool as spool_module
from spillable_stream.errors import CommitOutcomeUnknownError
from tests.support.damage import remove_memory_under
from tests.support.events import numbered, put, take
from tests.support.faulty_store import Fault, Request
from tests.support.object_channels import URL, store_of, stores_in_memory
from tests.support.spools import (
    fail_store,
    kill_with_spool,
    lose_what_was_shipped,
    mend_store,
    spool_of,
)
from tests.support.waiting import wait_until

Open = Callable[..., Channel]
TYPED = pa.schema([("name", pa.string()), ("count", pa.int64())])

# ── shipping ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_what_is_put_is_shipped_in_order_without_being_asked(opened: Open, durability: str) -> None:
    channel = opened(durability=durability)
    for body in numbered(0, 50):
        put(channel, body)
    wait_until(lambda: channel.stats().spool == spool_module.SpoolStats(0, 0, None))
    assert take(channel) == numbered(0, 50)


@pytest.mark.parametrize("durability", ["local", "memory"])
def test_puts_are_acknowledged_while_the_store_is_down_and_shipped_in_order_when_it_is_back(
    by_hand: Open, durability: str
) -> None:
    channel = by_hand(durability=durability)
    fail_store(channel, Fault.UNAVAILABLE)
    for number in range(10):
        put(channel, *numbered(3 * number, 3))
    with pytest.raises(StorageError):
        channel.flush()
    put(channel, *numbered(30, 3))
    mend_store(channel)
    assert channel.flush() == 33
    assert channel.flush() == 0
    assert take(channel) == numbered(0, 33)


def test_the_thread_tries_again_until_the_store_is_back_and_warns_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spool_module, "_LONGEST_PAUSE_SECONDS", 0.02)
    channel = opened()
    fail_store(channel, Fault.UNAVAILABLE)
    put(channel, b"waits")
    wait_until(lambda: spool_of(channel)._failures > 3)
    put(channel, b"too")
    stats = channel.stats().spool
    assert stats is not None and stats.events == 2 and "unavailable" in stats.trouble
    mend_store(channel)
    wait_until(lambda: spool_of(channel).stats().events == 0)
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


def test_two_handles_may_add_columns_at_once_and_both_are_shipped(
    by_hand: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = by_hand(schema=TYPED), by_hand()
    one = TYPED.append(pa.field("one", pa.int64()))
    both, evolve = one.append(pa.field("two", pa.int64())), spool_of(first).evolve

    def late(schema: pa.Schema) -> None:
        second.evolve(both)
        evolve(schema)

    monkeypatch.setattr(spool_of(first), "evolve", late)
    assert first.evolve(one) == 1
    for channel in (first, second):
        with channel.put_transaction() as tx:
            tx.put({"name": "a", "count": 1, "one": 1, "two": 2})
    assert first.flush() == 2
    with first.take_transaction() as take_tx:
        assert take_tx.take_many(10) == [{"name": "a", "count": 1, "one": 1, "two": 2}] * 2


# ── a full spool, a refusal ─────────────────────────────────────────────────────────────────────


def test_a_full_spool_refuses_puts_until_the_store_is_back(by_hand: Open, tmp_path: Path) -> None:
    with Channel(tmp_path / "spool", overflow_capacity=5, minimum_required_space=0):
        pass
    channel = by_hand(keep_alive=0)
    fail_store(channel, Fault.UNAVAILABLE)
    put(channel, *numbered(0, 5))
    with pytest.raises(ChannelFullError, match="overflow_capacity"):
        put(channel, b"too much")
    mend_store(channel)
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
    fail_store(channel, Fault.REFUSED)
    with pytest.raises(StorageError):
        channel.flush()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"refuses what is in the spool .* Nothing is lost"):
            put(channel, b"not put")
    mend_store(channel)
    assert channel.flush() == 1
    put(channel, b"2")
    channel.flush()
    assert take(channel) == [b"1", b"2"]


def test_a_loss_that_the_thread_meets_is_raised_to_the_next_put_once_and_what_is_there_is_shipped(
    by_hand: Open, caplog: pytest.LogCaptureFixture
) -> None:
    channel = by_hand()
    put(channel, b"0")
    lose_what_was_shipped(channel)
    put(channel, b"1")
    caplog.clear()
    assert spool_of(channel).run_once()
    assert [r.levelname for r in caplog.records] == ["ERROR"] and "events are lost" in caplog.text
    with pytest.raises(UnsafeStoreError, match="events are lost"):
        put(channel, b"not put")
    put(channel, b"2")
    assert channel.flush() == 2
    assert take(channel) == [b"0", b"another's", b"x", b"another's, too", b"1", b"2"]


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
    with pytest.raises(StorageError, match="this put stored nothing") as raised:
        put(channel, b"not put")
    assert raised.value.stored_nothing and not isinstance(raised.value, CommitOutcomeUnknownError)
    mend_store(channel)
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
    fail_store(channel, Fault.UNAVAILABLE)
    found = channel.stats().spool
    assert found is not None and found.events == 2 and 2_000 <= found.size_bytes < 5_000
    assert found.oldest_seconds is not None and 0 <= found.oldest_seconds < 60 and found.trouble == ""
    assert "2 events" in channel._repr_html_()
    mend_store(channel)
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
    with pytest.raises(OptionError, match="has a memory tier: another process"):
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


def test_events_have_their_headers_in_the_store(by_hand: Open) -> None:
    channel = by_hand()
    with channel.put_transaction() as tx:
        tx.put(Event(b"x", {"country": "NL"}))
    channel.flush()
    with channel.take_transaction() as take_tx:
        event = take_tx.take()
    assert isinstance(event, Event) and (event.body, dict(event.headers)) == (b"x", {"country": "NL"})
