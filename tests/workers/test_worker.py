"""Worker: what its function gets, what becomes of an event that fails, and where the channels may be."""

from __future__ import annotations

import itertools
import threading
import time
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    DataLossError,
    DeadLetter,
    Event,
    Retry,
    WorkerFailedError,
    dead_letters,
)
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.log.event_reader import ReadBatch
from spillable_stream.objects.identity import WORKERS
from spillable_stream.state.ranges import Range
from spillable_stream.workers import reporting
from spillable_stream.workers.transfer import Transfer, transfer_name
from tests.lab.children import wait_until
from tests.support.delays import clock_of, put_late
from tests.support.events import lose, peek, put, take
from tests.support.interrupts import Interrupts
from tests.support.object_channels import stores_in_memory
from tests.support.one_module import replace_in
from tests.support.producers import Speechless
from tests.support.workers import Clock, fails_on_three, lag, letters, made

# ── what the function gets ──────────────────────────────────────────────────────────────────────


def test_the_function_gets_one_event_at_a_time_in_order(channel: Channel) -> None:
    seen: list[Event] = []
    channel.worker("g", seen.append).run(until_empty=True)
    assert [e.body for e in seen] == [b"%d" % i for i in range(10)]
    assert [e.write_order_id for e in seen] == list(range(1, 11))
    assert lag(channel) == 0


def test_with_a_batch_size_it_gets_lists_of_events(channel: Channel) -> None:
    sizes: list[int] = []
    worker = channel.worker("g", lambda events: sizes.append(len(events)), batch_size=4)
    worker.run(until_empty=True)
    assert sizes == [4, 4, 2] and worker.stats().done_events == 10


def test_in_a_typed_channel_it_gets_tables(tmp_path: Path) -> None:
    with Channel(tmp_path / "t", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many({"n": i} for i in range(3))
        found: list[pa.Table] = []
        channel.worker("g", found.append, batch_size=10).run(until_empty=True)
    assert found[0].to_pydict() == {"n": [0, 1, 2], "write_order_id": [1, 2, 3]}


def test_one_that_ends_when_nothing_is_left_has_delivered_what_was_due(channel: Channel) -> None:
    clock, seen = clock_of(channel), list[Event]()
    channel.worker("g", lambda _: None).run(until_empty=True)
    put_late(channel, 5, b"late")
    clock.pass_by(6)
    channel.worker("g", seen.append).run(until_empty=True)
    assert [event.body for event in seen] == [b"late"]


def test_several_threads_call_at_once_and_each_event_once(channel: Channel) -> None:
    together, calls, seen = threading.Barrier(3, timeout=60), itertools.count(), []

    def work(event: Event) -> None:
        if next(calls) < 3:
            together.wait()
        seen.append(event.body)

    made(channel, work, threads=3).run(until_empty=True)
    assert sorted(seen) == [b"%d" % i for i in range(10)]


# ── failures ────────────────────────────────────────────────────────────────────────────────────


def test_without_a_dead_letter_channel_an_event_that_keeps_failing_stops_the_worker(channel: Channel) -> None:
    def work(event: Event) -> None:
        if event.body == b"2":
            raise ValueError("two")

    worker = made(channel, work)
    with pytest.raises(
        WorkerFailedError, match=r"failed 3 times for the event 3 of .*ValueError: two.* no dead_letter"
    ):
        worker.run(until_empty=True)
    assert worker.stats().state == "failed" and not worker.stats().is_healthy
    assert b"2" in take(channel, 10, "g"), "the event is back in the queue"


def test_a_worker_claims_no_more_while_very_many_events_wait(tmp_path: Path) -> None:
    with Channel(tmp_path / "many", minimum_required_space=0) as channel:
        put(channel, *[b"x"] * 3000)
        clock, calls = Clock(), []

        def work(events: list[Event]) -> None:
            calls.append(len(events))
            if clock.now == 0:
                raise Retry(after=10)

        worker = made(channel, work, clock=clock, batch_size=500)
        thread = threading.Thread(target=lambda: worker.run(until_empty=True))
        thread.start()
        assert wait_until(lambda: worker.stats().waiting_events == 1000)
        assert not threading.Event().wait(0.1) and calls == [500, 500]
        clock.now = 10.0
        thread.join()
        assert sum(calls[2:]) == 3000


def test_events_that_expire_while_they_wait_are_passed_over(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Consumer.read
    calls: list[bytes] = []

    def gone(consumer: Consumer, ranges: list[Range]) -> list[ReadBatch]:
        if calls and ranges == [(1, 1)]:
            raise DataLossError("the event 1 has left the channel")
        return read(consumer, ranges)

    def work(event: Event) -> None:
        calls.append(event.body)
        if event.body == b"0":
            lose(channel, 1, 1)
            raise ValueError

    monkeypatch.setattr(Consumer, "read", gone)
    made(channel, work).run(until_empty=True)
    assert calls == [b"%d" % i for i in range(10)] and lag(channel) == 0


def test_a_batch_that_loses_a_later_part_while_it_waits_ends_no_worker(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, other = Consumer.read, Consumer.claim
    calls: list[list[bytes]] = []

    def with_a_gap(consumer: Consumer, limit: int) -> list[Range]:
        claimed = other(consumer, limit)
        return [(1, 2), (4, 10)] if claimed == [(1, 10)] else claimed

    def gone(consumer: Consumer, ranges: list[Range]) -> list[ReadBatch]:
        if calls and any(first <= 7 <= last for first, last in ranges):
            raise DataLossError("the event 7 has left the channel")
        return read(consumer, ranges)

    def work(events: list[Event]) -> None:
        calls.append([event.body for event in events])
        if len(calls) == 1:
            lose(channel, 7, 7)
            raise Retry

    monkeypatch.setattr(Consumer, "claim", with_a_gap)
    monkeypatch.setattr(Consumer, "read", gone)
    worker = made(channel, work, batch_size=10)
    worker.run(until_empty=True)
    assert calls[1:] == [[b"0", b"1", b"3", b"4", b"5", b"7", b"8", b"9"]]


def test_events_that_are_gone_and_were_not_taken_end_the_worker(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(consumer: Consumer, ranges: list[Range]) -> list[ReadBatch]:
        raise DataLossError("somebody removed the file")

    monkeypatch.setattr(Consumer, "read", gone)
    with pytest.raises(DataLossError, match="somebody"):
        made(channel, lambda _: None).run(until_empty=True)


# ── dead letters, each once ─────────────────────────────────────────────────────────────────────


def test_a_dead_letter_that_a_killed_worker_stored_is_taken_without_a_call(channel: Channel, dead: Channel) -> None:
    killed = Consumer(channel.engine(), "g", resume=True)
    name = transfer_name("worker", channel.uuid, "g")
    Transfer(killed, dead, name).store(killed.claim(1), batch_from_events([Event(b"0")]))
    killed.close()
    calls: list[bytes] = []
    made(channel, lambda event: calls.append(event.body), dead).run(until_empty=True)
    assert calls == [b"%d" % i for i in range(1, 10)] and peek(dead) == [b"0"]


def test_a_typed_row_becomes_a_dead_letter_and_a_row_again(tmp_path: Path, dead: Channel) -> None:
    with Channel(tmp_path / "t", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as channel:
        with channel.put_transaction() as tx:
            tx.put_many({"n": i} for i in range(4))

        def work(table: pa.Table) -> None:
            if 2 in table["n"].to_pylist():
                raise ValueError

        made(channel, work, dead, batch_size=4).run(until_empty=True)
        assert len(letters(dead)) == 1
        assert dead_letters.replay(dead, channel) == 1
        with channel.take_transaction("g") as tx:
            assert [row["n"] for row in tx.take_many(10)] == [2]


# ── wherever the channels are ───────────────────────────────────────────────────────────────────


def worked_and_replayed(channel: Channel, dead: Channel) -> None:
    """Prove that a bad event becomes a dead letter, and is put back and done."""
    put(channel, *(b"%d" % i for i in range(10)))
    worker = made(channel, fails_on_three, dead, batch_size=4, threads=2)
    worker.run(until_empty=True)
    assert (worker.stats().done_events, worker.stats().dead_letter_events) == (9, 1)
    assert dead_letters.replay(dead, channel) == 1 and dead_letters.replay(dead, channel) == 0
    seen: list[bytes] = []
    made(channel, lambda event: seen.append(event.body)).run(until_empty=True)
    assert seen == [b"3"] and lag(channel) == 0


def test_it_works_the_same_in_an_object_store() -> None:
    with (
        stores_in_memory(),
        Channel("s3://bucket/orders", commit_interval=0) as channel,
        Channel("s3://bucket/dead", commit_interval=0) as dead,
    ):
        worked_and_replayed(channel, dead)


def test_it_works_the_same_with_a_memory_tier(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "m", memory_capacity=6, overflow_timeout=0, minimum_required_space=0) as channel,
        Channel(tmp_path / "dead", memory_capacity=100, minimum_required_space=0) as dead,
    ):
        worked_and_replayed(channel, dead)


def test_it_works_the_same_where_kept_events_stay(tmp_path: Path) -> None:
    with (
        Channel(tmp_path / "k", retention_ms=3_600_000, minimum_required_space=0) as channel,
        Channel(tmp_path / "dead", minimum_required_space=0) as dead,
    ):
        worked_and_replayed(channel, dead)


def test_an_idle_worker_looks_at_a_store_no_more_often_than_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    with stores_in_memory(), Channel("s3://bucket/orders", commit_interval=0) as channel:
        put(channel, b"a")
        worker = made(channel, lambda _: None, threads=8)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert wait_until(lambda: worker.stats().done_events == 1)
        assert wait_until(lambda: any(channel.engine().log.store.list(WORKERS)))  # type: ignore[attr-defined]
        assert wait_until(lambda: all(t.name != "spillable worker status" for t in threading.enumerate()))
        began = time.monotonic()
        replace_in(monkeypatch, reporting, "time", monotonic=lambda: began)  # it says no more
        before = channel.stats().store
        threading.Event().wait(1.0)
        after, seconds = channel.stats().store, time.monotonic() - began
        worker.stop()
        thread.join()
        assert before is not None and after is not None
        assert after.writes == before.writes and after.reads - before.reads < 30 * seconds


def test_after_an_interrupt_anywhere_in_a_run_its_close_leaves_the_group_to_the_next_one(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # of interrupts while something is freed
    for number in count(1):
        put(channel, b"later")
        worker = channel.worker("g", lambda event: None)
        interrupts = Interrupts(number, "/workers/worker.py", "/workers/worker_threads.py", "/channel/consumer.py")
        interrupts.run(lambda worker=worker: worker.run(until_empty=True))  # type: ignore[misc]
        threads = worker._shared.threads
        assert wait_until(lambda threads=threads: not threads.at_work)  # type: ignore[misc]
        worker.close()
        channel.another().consumer("g", owner_timeout_seconds=0).close()
        if not interrupts.hit:
            break
    assert number > 100


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_as_a_worker_ends_leaves_the_group_to_the_next_one(
    channel: Channel, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # of interrupts while something is freed
    for number in count(1, 3):
        worker = channel.worker("g", lambda event: None)
        within = ("/channel/consumer.py", "/engine/local/local_owners.py", "/interruptible.py")
        interrupts = Interrupts(number, *within, error=error)
        close = worker._close
        monkeypatch.setattr(worker, "_close", lambda i=interrupts, close=close: i.run(close))
        worker.run(until_empty=True)
        channel.another().consumer("g", owner_timeout_seconds=0).close()
        if not interrupts.hit:
            break
    assert number > 20


def test_an_error_whose_text_raises_makes_a_dead_letter_like_any_other(channel: Channel, dead: Channel) -> None:
    def fail(event: Event) -> None:
        if event.body == b"3":
            raise Speechless

    worker = made(channel, fail, dead)
    worker.run(until_empty=True)
    (letter,) = letters(dead)
    assert letter["headers"]["dead_letter_error_code"] == "Speechless"
    assert letter["headers"]["dead_letter_error_message"] == "(its text can't be told: SystemExit)"
    assert worker.stats().last_error == "Speechless: (its text can't be told: SystemExit)" and lag(channel) == 0


def test_an_error_whose_text_raises_ends_a_worker_without_dead_letters_with_its_name(channel: Channel) -> None:
    def fail(event: Event) -> None:
        raise Speechless

    with pytest.raises(WorkerFailedError, match="Speechless"):
        made(channel, fail).run()


def test_an_event_whose_body_is_null_becomes_a_dead_letter_and_stops_no_worker(
    channel: Channel, dead: Channel, tmp_path: Path
) -> None:
    """Spark writes a null body, and so does `put_batch`."""
    with Channel(tmp_path / "nulls", minimum_required_space=0) as nulls:
        with nulls.put_transaction() as tx:
            tx.put_batch(pa.RecordBatch.from_pydict({"headers": [None], "body": [None]}, schema=EVENT_SCHEMA))
        got: list[bytes] = []

        def fails(event: Event) -> None:
            got.append(event.body)
            raise DeadLetter

        made(nulls, fails, dead).run(until_empty=True)
    assert (got, [letter["body"] for letter in letters(dead)]) == ([b""], [b""])
