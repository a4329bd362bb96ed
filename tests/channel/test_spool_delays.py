"""Events that wait, through a spool: they are shipped at once, and wait in the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelFullError, Event, OptionError, backup, repair, restore
from spillable_stream.integrity.verify import verify
from tests.support.delays import clock_of, put_late
from tests.support.events import numbered, put, take
from tests.support.expiry import WallClock
from tests.support.faulty_store import Fault
from tests.support.spools import fail_store, spool_of

Open = Callable[..., Channel]
TYPED = pa.schema([("name", pa.string()), ("count", pa.int64())])


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
    fail_store(channel, Fault.UNAVAILABLE)
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


def test_a_ttl_counts_from_when_its_event_is_due_and_continues_while_it_is_not_shipped(
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


def test_delayed_rows_are_shipped_after_the_channel_got_a_column_that_cannot_be_ordered(by_hand: Open) -> None:
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
        with pytest.raises(OptionError, match="can't reorder its column 'text'"):
            tx.put({"text": "late"}, deliver_after=60)
    assert channel.flush() == 1


def test_a_delay_that_cannot_be_is_refused_by_a_spool(by_hand: Open) -> None:
    channel = by_hand()
    with pytest.raises(OptionError, match="at most a year"):
        put_late(channel, 400 * 86_400, b"no")
    assert spool_of(channel).stats().events == 0
