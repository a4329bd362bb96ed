"""Delayed events enter the order when they are due: once, and by whoever commits next."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from spillable_stream import Channel, ChannelFullError, Event, OptionError
from spillable_stream.engine import deliveries
from spillable_stream.engine.deliveries import wall_clock_ms
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from tests.support.damage import kill
from tests.support.delays import clock_of, deliver_all, deliveries_of, put_late, side_files
from tests.support.events import put, take
from tests.support.interrupts import Interrupts

Open = Callable[..., Channel]
pytestmark = pytest.mark.usefixtures("no_second_passes")


def test_the_clock_is_the_wall_clock() -> None:
    assert abs(wall_clock_ms() / 1000 - datetime.now(UTC).timestamp()) < 60


def test_an_event_is_taken_when_it_is_due_and_not_before(open_channel: Open) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    with channel.put_transaction() as tx:
        tx.put(Event(b"late", {"k": "v"}), deliver_after=10)
        tx.put(Event(b"now"))
    assert (tx.committed.first_id, tx.committed.last_id) == (1, 1)
    assert take(channel) == [b"now"]
    clock.pass_by(9.999)
    assert take(channel) == []
    clock.pass_by(0.001)
    with channel.take_transaction() as taking:
        (event,) = taking.take_many(10)
    assert (event.write_order_id, event.body, event.headers) == (2, b"late", {"k": "v"})
    assert take(channel) == []


def test_events_enter_the_order_in_that_of_their_due_times(open_channel: Open, path: Path) -> None:
    channel, rng = open_channel(), random.Random(1)
    clock = clock_of(channel)
    delays = [rng.uniform(1, 5000) for _ in range(300)]
    for part in (delays[:150], delays[150:]):
        with channel.put_transaction() as tx:
            for seconds in part:
                tx.put(Event(b"%f" % seconds), deliver_after=seconds)
    assert len(side_files(path)) > 3
    clock.pass_by(5001)
    assert take(channel) == [b"%f" % seconds for seconds in sorted(delays)]
    assert side_files(path) == []


def test_a_deliver_at_in_the_past_is_an_ordinary_put(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    with channel.put_transaction() as tx:
        tx.put(Event(b"past"), deliver_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert tx.committed.first_id == 1
    assert side_files(path) == []
    assert (path / "channel.json").read_text().count('"format": 1')


def test_a_put_by_anybody_delivers_what_is_due(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    clock = clock_of(channel, other)
    put_late(channel, 5, b"late")
    clock.pass_by(6)
    put(other, b"new")
    assert channel.stats().last_id == 2
    assert take(channel) == [b"new", b"late"]


def test_a_waiting_take_wakes_up_when_an_event_is_due(open_channel: Open) -> None:
    channel, other = open_channel(), open_channel()
    put_late(other, 0.2, b"late")
    with channel.take_transaction() as tx:
        event = tx.take(60)
    assert event is not None
    assert event.body == b"late"


def test_a_clock_that_goes_back_takes_nothing_back(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 10, b"first")
    put_late(channel, 20, b"second")
    clock.pass_by(15)
    assert take(channel) == [b"first"]
    clock.pass_by(-14)
    put_late(channel, 5, b"third")  # before what was delivered already, by this clock
    clock.pass_by(4)
    assert take(channel) == []
    clock.pass_by(2)
    assert take(channel) == [b"third"]
    clock.pass_by(100)
    assert take(channel) == [b"second"]
    assert side_files(path) == []


def test_a_transaction_that_is_rolled_back_leaves_nothing(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    tx = channel.put_transaction()
    tx.begin()
    tx.put(Event(b"late"), deliver_after=5)
    tx.rollback()
    tx.close()
    assert side_files(path) == []
    assert channel.stats().delayed.events == 0


def test_what_waits_outlives_its_process_and_the_head(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    now_ms = clock_of(channel).now_ms
    put_late(channel, 10, b"a")
    channel.checkpoint()
    put_late(channel, 20, b"b")
    kill(channel)
    (path / "head").unlink()
    channel = open_channel()
    deliveries_of(channel).clock_ms = lambda: now_ms + 30_000
    assert take(channel) == [b"a", b"b"]


def test_what_waits_counts_against_the_capacity_from_its_put(open_channel: Open) -> None:
    channel = open_channel(overflow_capacity=3, keep_alive=0)
    clock = clock_of(channel)
    put_late(channel, 10, b"a", b"b")
    with pytest.raises(ChannelFullError, match=r"disk holds 2 of .* \(2 of them wait until they are due\)"):
        put(channel, b"c", b"d")
    with pytest.raises(ChannelFullError):
        put_late(channel, 10, b"c", b"d")
    put(channel, b"c")
    clock.pass_by(11)  # it finds the channel full, and has its place
    assert sorted(take(channel)) == [b"a", b"b", b"c"]
    assert channel.stats().channel_fill_percentage == 0


def test_events_of_a_memory_tier_wait_on_disk(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 20)
    clock = clock_of(channel)
    put(channel, b"a")
    with channel.put_transaction() as tx:
        tx.put(Event(b"b"))
        tx.put(Event(b"late"), deliver_after=5)
    put(channel, b"c")
    stats = channel.stats()
    assert (stats.memory.events, stats.disk.events, stats.delayed.events) == (2, 2, 1)
    clock.pass_by(6)
    assert sorted(take(channel)) == [b"a", b"b", b"c", b"late"]


def test_a_typed_channel_delays_rows_and_batches(open_channel: Open) -> None:
    channel = open_channel(schema=pa.schema([pa.field("n", pa.int64()), pa.field("name", pa.string())]))
    clock = clock_of(channel)
    with channel.put_transaction() as tx:
        tx.put({"n": 3, "name": "c"}, deliver_after=30)
        tx.put_batch(pa.table({"n": [1, 2], "name": ["a", "b"]}), deliver_after=10)
    channel.evolve(channel.schema.append(pa.field("more", pa.bool_())))
    with channel.put_transaction() as tx:
        tx.put({"n": 4, "more": True}, deliver_after=40)
    clock.pass_by(100)
    with channel.take_transaction() as taking:
        rows = taking.take_many(10)
    assert [(row["n"], row["name"], row["more"]) for row in rows] == [
        (1, "a", None),
        (2, "b", None),
        (3, "c", None),
        (4, None, True),
    ]


# To which one is sorted, and into which one is inserted.
@pytest.mark.parametrize(
    ("known", "step"), [(4, 3), *(pytest.param(known, 1, marks=pytest.mark.slow) for known in (4, 150))]
)
def test_an_interrupt_anywhere_of_a_delivery_loses_no_event_and_delivers_none_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, known: int, step: int
) -> None:
    """Before, events that the index lacked were left for good, as those of a damaged file."""
    number, hit = 0, True
    while hit:
        number += step
        with Channel(tmp_path / str(number), minimum_required_space=0, checkpoint_on_close=False) as channel:
            clock = clock_of(channel)
            clock.begin_stretch(10)  # all are in one file
            put_late(channel, 10, b"first", b"second")
            put_late(channel, 12, *[b"%d" % i for i in range(known)])
            clock.pass_by(10)
            assert take(channel) == [b"first", b"second"]
            put_late(channel, 1, b"third")
            clock.pass_by(1)
            interrupts = Interrupts(number, "log/delayed_index.py", "engine/deliveries.py")
            interrupts.run(lambda: deliver_all(channel))
            hit = interrupts.hit
            clock.pass_by(2)
            deliver_all(channel)
            assert take(channel, known + 1) == [b"third", *[b"%d" % i for i in range(known)]]
    assert number > 20
    assert not caplog.text


def test_two_handles_that_deliver_at_once_deliver_once(open_channel: Open) -> None:
    one, two = open_channel(), open_channel()
    clock = clock_of(one, two)
    put_late(one, 1, b"a")
    put_late(two, 2, b"b")
    clock.pass_by(3)
    assert deliveries_of(one).deliver()
    assert not deliveries_of(two).deliver()
    put_late(two, 1, b"c")
    clock.pass_by(2)
    assert deliveries_of(two).deliver()
    assert take(one) == [b"a", b"b", b"c"]


def test_a_put_that_is_stored_does_not_fail_for_the_delivery_behind_it(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is told of an error puts again what is there."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise MemoryError("malloc of size 16777216 failed")

    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 10, b"late")
    clock.pass_by(11)
    with monkeypatch.context() as short:
        short.setattr(deliveries, "encode_batch", refuse)
        assert put(channel, b"now") == (1, 1)
    assert "are late, and tried again: malloc of size" in caplog.text
    deliveries_of(channel)._again_at = float("-inf")
    assert take(channel) == [b"now", b"late"]


def test_a_handle_that_only_looks_delivers_nothing(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 1, b"a")
    clock.pass_by(2)
    with Channel(path, readonly=True) as view:
        deliveries_of(view).clock_ms = clock
        assert not deliveries_of(view).deliver()
        assert view.stats().delayed.events == 1
        assert view.stats().delayed.next_due == (clock.now_ms - 1000) / 1000
        assert not deliveries_of(view).wait_for(lambda state: state.last_id > 0, 0.05)


def test_a_producer_s_batch_with_delayed_events_is_stored_once(open_channel: Open) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    for _ in range(2):
        with channel.put_transaction() as tx:
            tx.producer = NumberedBatch("p", Numbers(1, 1))
            tx.put(Event(b"late"), deliver_after=1)
            tx.put(Event(b"now"))
    with channel.put_transaction() as tx:
        tx.producer = NumberedBatch("p", Numbers(2, 2))
        tx.put(Event(b"alone"), deliver_after=2)
    with channel.put_transaction() as tx:
        tx.producer = NumberedBatch("p", Numbers(2, 2))
        tx.put(Event(b"alone"), deliver_after=2)
    assert channel.stats().delayed.events == 2
    clock.pass_by(3)
    assert take(channel) == [b"now", b"late", b"alone"]
    kill(channel)
    assert open_channel().stats().producers == {"p": 2}


def test_earlier_versions_are_told_before_the_first_event_waits(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    before = (path / "channel.json").read_text()
    put(channel, b"a")
    assert (path / "channel.json").read_text() == before
    put_late(channel, 1, b"b")
    assert '"format": 3' in (path / "channel.json").read_text()


def test_a_checkpoint_removes_a_file_that_no_commit_names(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    put_late(channel, 1000, b"a")
    stray = path / "data" / "delayed-000002"
    stray.write_bytes(b"left by a crash")
    channel.checkpoint()
    assert stray.exists()  # its COMMIT may be found at the next crash
    put_late(channel, 1_000_000, b"b")
    assert side_files(path) == ["delayed-000001", "delayed-000002", "delayed-000003"]
    channel.checkpoint()
    assert side_files(path) == ["delayed-000001", "delayed-000003"]


def test_a_side_file_with_more_than_counts_is_not_appended_to(open_channel: Open, path: Path) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 1000, b"a")
    with (path / "data" / "delayed-000001").open("ab") as file:
        file.write(b"left by a crash")
    put_late(channel, 1000, b"b")
    assert side_files(path) == ["delayed-000001", "delayed-000002"]
    clock.pass_by(2000)
    assert take(channel) == [b"a", b"b"]


def test_a_port_delivers_for_an_idle_stream(open_channel: Open) -> None:
    channel = open_channel()
    clock = clock_of(channel)
    put_late(channel, 1, b"a")
    channel.port().deliver()
    assert channel.stats().last_id == 0
    clock.pass_by(2)
    channel.port().deliver()
    assert channel.stats().last_id == 1


def test_a_worker_gets_what_is_due(open_channel: Open) -> None:
    channel, seen = open_channel(), []
    put_late(channel, 0.1, b"a")
    worker = channel.worker("group", lambda event: seen.append(event.body) or worker.stop())
    worker.run()
    assert seen == [b"a"]


def test_a_channel_without_a_disk_tier_refuses_a_delay(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=10, overflow_capacity=0, byte_capacity=1 << 20)
    with pytest.raises(OptionError, match="no disk tier"):
        put_late(channel, 1, b"a")
