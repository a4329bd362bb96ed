"""Channels of this host as targets: full, failing, claimed, and in other processes."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, Producer, Target
from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    DiskSpaceError,
    ForeignDirectoryError,
    LockTimeoutError,
    NotAChannelError,
    OptionError,
    ProducerBusyError,
    ProducerError,
    SendFailedError,
)
from spillable_stream.producer.target import ChannelTarget
from spillable_stream.state import producer_history as producers_module
from tests.producer.conftest import MakeProducer
from tests.support import pythons
from tests.support.events import numbered, peek, take
from tests.support.fake_files import FaultyFileSystem
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget
from tests.support.producers import wait_for_retry

QUICK = {"base_retry_backoff_ms": 1, "linger_ms": 0, "context_headers": False}


def test_anything_with_the_words_of_a_target_is_one() -> None:
    assert isinstance(FakeTarget(), Target)
    assert not isinstance(object(), Target)


def test_a_full_channel_is_tried_until_there_is_room(path: Path) -> None:
    with Channel(path, overflow_capacity=2, keep_alive=0, minimum_required_space=0) as channel:
        with Producer(channel, **QUICK) as producer:
            assert producer._config.batch_count_threshold == 2  # more would never fit
            futures = [producer.send_many([b"%d" % i] * 2) for i in range(3)]
            taken: list[bytes] = []
            while not all(f.done() for f in futures):
                taken += take(channel)
            taken += take(channel)
        assert sorted(taken) == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert producer.stats().retries > 0


@pytest.mark.parametrize("handle", [True, False], ids=["a handle", "a path"])
def test_after_a_sync_that_failed_a_new_handle_continues_and_stores_nothing_twice(path: Path, handle: bool) -> None:
    """The log can't even say that the sync failed: nobody knows whether the batch is there until it is opened again."""
    fs = FaultyFileSystem()
    channel = Channel(path, fs=fs, minimum_required_space=0, checkpoint_on_close=False)
    target = ChannelTarget(channel)
    target._owned = not handle
    failed = [0]

    def failing(call: object) -> bool:
        name, file = call  # type: ignore[misc]
        bad = (name == "sync" and file.startswith("log-")) or (name == "create" and file.startswith("log-"))
        failed[0] += bad
        return bad and failed[0] <= 4

    with Producer(target, **QUICK) as producer, fs.failing(failing):
        futures = [producer.send(b"%d" % i) for i in range(5)]
        results = [f.result(PATIENCE_SECONDS) for f in futures]
    assert results[0].attempt_count > 1
    channel.close()
    with Channel(path) as again:
        assert sorted(peek(again)) == numbered(0, 5)


def test_a_handle_that_its_owner_closed_is_opened_again_rather_than_events_lost(path: Path) -> None:
    channel = Channel(path)
    with Producer(channel, **QUICK) as producer:
        producer.send(b"1").result(PATIENCE_SECONDS)
        channel.close()
        assert producer.send(b"2").result(PATIENCE_SECONDS).attempt_count == 2
    with Channel(path) as again:
        assert peek(again) == [b"1", b"2"]


def test_the_last_number_is_known_though_the_handle_was_closed(path: Path) -> None:
    """A program that numbers its batches asks after a failure, which may have closed the handle."""
    channel = Channel(path)
    with Producer(channel, producer_id="me", **QUICK) as producer:
        producer.send_many([b"1"], sequence=7).result(PATIENCE_SECONDS)
        channel.close()
        assert producer.last_sequence() == 7
        producer.send_many([b"2"], sequence=8).result(PATIENCE_SECONDS)
    with pytest.raises(ChannelClosedError, match=r"the producer of .* is closed; create a new one$"):
        producer.last_sequence()
    with Channel(path) as again:
        assert peek(again) == [b"1", b"2"]


def test_a_handle_of_a_typed_channel_that_its_owner_closed_is_opened_again_likewise(path: Path) -> None:
    channel = Channel(path, schema=pa.schema([("n", pa.int64())]))
    with Producer(channel, **QUICK) as producer:
        channel.close()
        assert producer.send({"n": 1}).result(PATIENCE_SECONDS).attempt_count == 2
        assert producer.send_batch(pa.table({"n": [2]})).result(PATIENCE_SECONDS).attempt_count == 1
    with Channel(path) as again, again.take_transaction() as tx:
        assert tx.take_many(10) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("is_mount_point", [False, True], ids=["gone", "an empty directory"])
def test_a_channel_that_is_missing_for_a_while_gets_what_was_sent_meanwhile(path: Path, is_mount_point: bool) -> None:
    away = path.with_name("away")
    with Producer(path, retries=1_000_000, max_retry_backoff_ms=5, **QUICK) as producer:
        producer.send(b"1").result(PATIENCE_SECONDS)
        path.rename(away)
        if is_mount_point:
            path.mkdir()
        future = producer.send(b"2")
        wait_for_retry(producer)
        if is_mount_point:
            path.rmdir()
        away.rename(path)
        codes = [a.error_code for a in future.result(PATIENCE_SECONDS).reserved_attempts[:-1]]
    assert codes[0] == ChannelClosedError.__name__ and set(codes[1:]) <= {NotAChannelError.__name__}
    with Channel(path) as channel:
        assert peek(channel) == [b"1", b"2"]


def test_another_channel_that_appears_at_the_path_gets_nothing(path: Path) -> None:
    away = path.with_name("away")
    with Producer(path, retries=1_000_000, **QUICK) as producer:
        producer.send(b"1").result(PATIENCE_SECONDS)
        path.rename(away)
        with Channel(path) as foreign:
            error = producer.send(b"2").exception(PATIENCE_SECONDS)
            assert peek(foreign) == []
        assert isinstance(error, SendFailedError) and error.events[0].body == b"2" and not error.result.in_doubt
        assert error.result.error_code == NotAChannelError.__name__ and error.result.attempt_count == 2
        shutil.rmtree(path)
        away.rename(path)
        producer.send(b"3").result(PATIENCE_SECONDS)
    with Channel(path) as channel:
        assert peek(channel) == [b"1", b"3"]


def test_a_channel_with_a_data_directory_that_is_missing_for_a_while_gets_what_was_sent_meanwhile(
    path: Path, tmp_path: Path
) -> None:
    data, away = tmp_path / "data disk", tmp_path / "away"
    Channel(path, data_dirs=[str(data)]).close()
    with Producer(path, retries=1_000_000, max_retry_backoff_ms=5, **QUICK) as producer:
        producer.send(b"1").result(PATIENCE_SECONDS)
        data.rename(away)
        future = producer.send(b"2")
        while len(future.batch.attempts) < 3:
            assert not future.done()
        away.rename(data)
        codes = [a.error_code for a in future.result(PATIENCE_SECONDS).reserved_attempts[:-1]]
    assert set(codes[1:]) == {ForeignDirectoryError.__name__}
    with Channel(path) as channel:
        assert peek(channel) == [b"1", b"2"]


def test_a_channel_that_was_removed_fails_with_the_events(path: Path) -> None:
    producer = Producer(path, retries=1, **QUICK)
    shutil.rmtree(path)
    error = producer.send(b"x").exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError) and error.result.attempt_count == 2 and not error.result.in_doubt
    assert isinstance(error, SendFailedError) and error.events[0].body == b"x"
    assert error.result.error_code == NotAChannelError.__name__
    with pytest.raises(ProducerError, match=r"could not be closed: .* was removed"):
        producer.close(PATIENCE_SECONDS)


# ── producers with a name ───────────────────────────────────────────────────────────────────────


def test_two_live_producers_of_one_name_are_refused_in_one_channel_and_not_in_two(path: Path, tmp_path: Path) -> None:
    with Producer(path, producer_id="me"):
        with pytest.raises(ProducerBusyError, match=r"the producer 'me' of .* is pid .* take each other's batches"):
            Producer(path, producer_id="me")
        with Producer(tmp_path / "other", producer_id="me"), Producer(path, producer_id="you"), Producer(path):
            pass
    Producer(path, producer_id="me").close()


def test_a_producer_whose_name_another_got_acknowledges_nothing_that_is_not_stored(path: Path) -> None:
    """A cleaner of old files removed the lock of the name. Both count on after the same number."""
    with Producer(path, producer_id="me", **QUICK) as first:
        first.send(b"1").result(PATIENCE_SECONDS)
        (path / "producers" / "me.lock").unlink()
        with Producer(path, producer_id="me", **QUICK) as second:
            second.send(b"2").result(PATIENCE_SECONDS)
            with pytest.raises(SendFailedError, match="this producer lost its ID 'me'") as caught:
                first.send(b"3").result(PATIENCE_SECONDS)
        assert not caught.value.result.in_doubt
    with Channel(path) as channel:
        assert take(channel) == [b"1", b"2"]


CHILD = """
import sys
from spillable_stream import Producer
producer = Producer(sys.argv[1], producer_id="me")
producer.send(b"a child's").result()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_name_is_free_when_its_process_is_killed(path: Path) -> None:
    with pythons.Popen(
        [sys.executable, "-c", CHILD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        with pytest.raises(ProducerBusyError, match=f"pid {child.pid} on"):
            Producer(path, producer_id="me")
        child.kill()
    with Producer(path, producer_id="me") as producer:
        assert producer.last_sequence() == 1
        producer.send(b"mine")
    with Channel(path) as channel:
        assert peek(channel) == [b"a child's", b"mine"]


def test_producers_that_pass_do_not_push_out_one_with_a_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "_MAX_PRODUCERS", 2)
    with Channel(path) as channel:
        for producer_id in ("me", None, None, None):
            with Producer(channel, producer_id=producer_id) as producer:
                producer.send(b"x")
        found = channel.stats().producers
    assert len(found) == 3 and found["me"] == 1


def test_a_reopened_handle_is_not_one_that_was_never_closed(path: Path, open_channel: Callable[..., Channel]) -> None:
    target = ChannelTarget(open_channel())
    failed = target._channel
    failed.close()
    for _ in range(2):
        with pytest.raises(ChannelClosedError):
            raise_from(target, failed)
    assert target._channel is not failed
    first = target._channel
    target._reopen(failed)
    assert target._channel is first
    target.close()
    with pytest.raises(ChannelClosedError):
        first.engine()


def test_a_handle_that_closed_amid_a_commit_leaves_it_in_doubt_though_the_channel_is_busy_when_it_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the batch would get another number, and be stored twice."""

    def closed(_: Channel) -> None:
        raise ChannelClosedError("a file was closed")

    def busy(_: Channel) -> None:
        raise ChannelBusyError("it is being recovered")

    with Producer(path, retries=1, **QUICK) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(Channel, "put_transaction", closed)
            patch.setattr(Channel, "another", busy)
            error = producer.send(b"x").exception(PATIENCE_SECONDS)
        assert isinstance(error, SendFailedError) and error.result.in_doubt
        assert error.result.error_code == ChannelBusyError.__name__


def test_a_target_that_is_closed_while_it_opens_its_channel_again_leaves_no_handle_open(
    open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ChannelTarget(open_channel())
    target._channel.close()
    opened = list[Channel]()

    def another_while_it_is_closed(channel: Channel) -> Channel:
        opened.append(Channel(channel.path))
        target.close()
        return opened[0]

    monkeypatch.setattr(Channel, "another", another_while_it_is_closed)
    for _ in range(2):
        with pytest.raises(ChannelClosedError):
            target.last_sequence("me")
    assert [channel._open.is_closed for channel in opened] == [True]


def raise_from(target: ChannelTarget, failed: Channel) -> None:
    target._reopen(failed)
    failed.engine()


@pytest.mark.parametrize("producer_id", ["../../x", "a/b", "", "..", "a\0b", "p" * 300, "\ud800", None], ids=ascii)
def test_a_producers_id_that_is_not_a_files_name_claims_nothing_and_leaves_no_file(
    path: Path, producer_id: str
) -> None:
    with Channel(path, minimum_required_space=0, checkpoint_on_close=False) as channel:
        before = sorted(path.parent.rglob("*"))
        with pytest.raises(OptionError, match="producer_id must be letters"):
            ChannelTarget(channel).claim(producer_id)
        assert sorted(path.parent.rglob("*")) == before


class Refusing(ChannelTarget):
    """A channel that refuses every second event once, as one does that is full at the moment."""

    def __init__(self, channel: Channel, error: type[Exception]) -> None:
        super().__init__(channel)
        self.refused: set[bytes] = set()
        self.error = error

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
        body = batch.column("body")[0].as_py()
        if int(body) % 2 and body not in self.refused:
            self.refused.add(body)
            raise self.error("it is full")
        return super().commit(batch, producer_id, numbers)


@pytest.mark.parametrize("error", [ChannelFullError, DiskSpaceError, LockTimeoutError, ChannelBusyError])
@pytest.mark.parametrize("io_thread_count", [1, 4])
def test_batches_that_were_refused_are_stored_however_many_came_between(
    path: Path, clock: FakeClock, error: type[Exception], io_thread_count: int
) -> None:
    """A refusal frees the number: else the channel forgets the oldest after 64 gaps."""
    with Channel(path) as channel:
        target = Refusing(channel, error)
        with Producer(
            target, clock=clock, rng=random.Random(1), batch_count_threshold=1, io_thread_count=io_thread_count
        ) as producer:
            futures = [producer.send(b"%d" % i) for i in range(200)]
            for future in futures[::2]:
                future.result(PATIENCE_SECONDS)
            while producer.stats().retrying_batches < 100:
                time.sleep(0.001)
            clock.advance(1)
            for future in futures:
                assert future.result(PATIENCE_SECONDS).successful
            producer_id = producer.producer_id
        events = take_events(channel)
        assert sorted(int(e.body) for e in events) == list(range(200)), "each once"
        ordered = sorted(events, key=lambda e: int(e.headers["producer_sequence"]))
        assert [int(e.body) for e in ordered] == list(range(200)), "in the order in which they were sent"
        state = channel.engine().follow().producers._states[producer_id]
        assert list(state.committed) == [(1, state.last)], "and no gap is left"


def take_events(channel: Channel) -> list[Event]:
    with channel.take_transaction() as tx:
        return tx.take_many(10_000)


def test_a_batch_of_unknown_outcome_keeps_its_number_though_it_is_refused_then(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    """What it may have stored must be known by it."""
    target.fail(ConnectionError("the answer was lost"), ChannelFullError("it is full"))
    producer = produce(linger_ms=0)
    future = producer.send(b"x")
    for count in (1, 2):
        target.wait_for_attempts(count)
        while not producer.stats().retrying_batches:
            time.sleep(0.001)
        clock.advance(1)
    assert future.result(PATIENCE_SECONDS).successful
    assert target.taken == [(1, 1)] * 3


def test_a_batch_takes_the_numbers_that_nobody_will_have_any_more(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.fail(ChannelFullError("it is full"), None, ValueError("bad"), None)
    producer = produce(linger_ms=0, batch_count_threshold=1)
    futures = []
    for body in (b"full", b"a", b"bad", b"b"):
        futures.append(producer.send(body))
        target.wait_for_attempts(len(futures))
    futures[3].result(PATIENCE_SECONDS)
    while not producer.stats().retrying_batches:
        time.sleep(0.001)
    clock.advance(1)
    assert futures[0].result(PATIENCE_SECONDS).successful
    assert target.taken == [(1, 1), (1, 2), (3, 3), (3, 4), (5, 5)]


def test_a_targets_methods_may_be_its_own_attributes() -> None:
    fake = FakeTarget()
    names = ("name", "schema", "max_events", "claim", "last_sequence", "commit", "close")
    plain = SimpleNamespace(**{name: getattr(fake, name) for name in names})
    with Producer(plain, linger_ms=0, context_headers=False) as producer:
        assert producer.send(b"x").result(PATIENCE_SECONDS).successful
    assert fake.bodies == [b"x"]
