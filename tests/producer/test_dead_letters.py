"""What can't be committed goes to the dead-letter channel, with the reasons, or comes back: it is never dropped."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Channel, Event, Producer, Result
from spillable_stream.errors import (
    LockTimeoutError,
    OptionError,
    ProducerSequenceError,
    SchemaError,
    SendFailedError,
    StorageError,
)
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.producer.target import ChannelTarget
from spillable_stream.state.ranges import Range
from spillable_stream.workers.letter_headers import Reason, reason_of
from spillable_stream.workers.letters import LetterOrigin
from tests.producer.conftest import MakeProducer
from tests.support.events import peek
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget, full
from tests.support.producers import error_of

TYPED = pa.schema([("sku", pa.string())])


def read(path: Path) -> list[Event]:
    with Channel(path) as channel, channel.take_transaction() as tx:
        found: list[Event] = tx.take_many(1000)
        return found


def test_events_are_there_with_their_headers_and_the_reasons(
    produce: MakeProducer, target: FakeTarget, path: Path
) -> None:
    target.fail(ValueError("bad \udcff"))
    told: list[Result] = []
    producer = produce(dead_letter=path, producer_id="me")
    future = producer.send(b"x", {"k": "v"}, callback=told.append)
    producer.send(b"y")
    producer.close()
    x, y = read(path)
    reasons = {
        "dead_letter_channel": "fake",
        "dead_letter_error_code": "ValueError",
        "dead_letter_error_message": "bad \\udcff",
        "dead_letter_attempts": "1",
        "dead_letter_producer_id": "me",
        "dead_letter_producer_sequence": "1",
    }
    assert (x.body, x.headers, y.body, y.headers) == (b"x", {**reasons, "k": "v"}, b"y", reasons)
    error = future.exception(0)
    assert isinstance(error, SendFailedError) and str(path) in str(error)
    assert (error.result.successful, error.result.dead_letter, error.events) == (False, str(path), ())
    assert [r.dead_letter for r in told] == [str(path)]
    stats = producer.stats()
    assert (stats.dead_letter_events, stats.failed_events) == (2, 0)


def test_an_event_that_was_a_dead_letter_before_has_the_reasons_of_the_last_time(
    produce: MakeProducer, target: FakeTarget, path: Path
) -> None:
    target.fail(ValueError("new"))
    producer = produce(dead_letter=path)
    origin = LetterOrigin("/old", "its UUID", "g", 3, KeyError("old"))
    producer.send(b"x", {**origin.headers(7, 0), "k": "v"})
    producer.close()
    (letter,) = read(path)
    assert reason_of(letter.headers) == Reason("ValueError: new", "fake", "", "1")
    assert "old" not in str(letter.headers) and letter.headers["k"] == "v"


def test_it_is_the_last_resort(produce: MakeProducer, target: FakeTarget, clock: FakeClock) -> None:
    target.fail_while(lambda sequence: next(iter(full())))
    dead = FakeTarget(name="dead")
    producer = produce(dead_letter=dead, retries=2, linger_ms=0)
    future = producer.send(b"x")
    while not future.done():
        assert not dead.stored or len(target.attempts) == 3
        clock.advance(1)
    assert (len(target.attempts), dead.bodies) == (3, [b"x"])


def test_it_has_retries_of_its_own(produce: MakeProducer, target: FakeTarget, clock: FakeClock) -> None:
    target.fail_while(lambda sequence: next(iter(full())))
    dead = FakeTarget(name="dead")
    dead.fail(*full(2))
    producer = produce(dead_letter=dead, retries=2, linger_ms=0)
    future = producer.send(b"x")
    while not future.done():
        clock.advance(1)
    assert (len(target.attempts), len(dead.attempts), dead.bodies) == (3, 3, [b"x"])


def test_it_is_tried_again_itself_and_once_only_stored(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    target.fail_while(lambda sequence: ValueError("bad"))
    dead = FakeTarget(name="dead")
    dead.fail(StorageError("a moment, please"))
    dead.answer = False
    producer = produce(dead_letter=dead, retries=5, linger_ms=0)
    future = producer.send(b"x")
    while len(dead.attempts) < 3:
        clock.advance(1)
    dead.answer = True
    while not future.done():
        clock.advance(1)
    assert dead.bodies == [b"x"]


@pytest.mark.parametrize("max_reserved_attempts", [1, 11])
def test_the_error_is_why_they_are_there_and_not_what_the_dead_letter_channel_said(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, max_reserved_attempts: int
) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    dead.fail(*full())
    producer = produce(dead_letter=dead, linger_ms=0, max_reserved_attempts=max_reserved_attempts)
    future = producer.send(b"x")
    while not future.done():
        clock.advance(1)
    assert str(error_of(future)).startswith("1 event for fake not stored after 3 attempts: ValueError: bad; the events")


def test_letters_that_were_refused_are_stored_however_many_came_between(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, path: Path
) -> None:
    """A refusal frees the number: else the channel forgets the oldest after 64 gaps."""
    target.fail_while(lambda sequence: ValueError("bad"))
    dead = ChannelTarget(path)
    commit, refused = dead.commit, set[int]()

    def refuse_half(batch: pa.RecordBatch, *arguments: Any, **keywords: Any) -> Range:
        number = int(batch.column("body")[0].as_py())
        if number % 2 and number not in refused:
            refused.add(number)
            raise LockTimeoutError("busy")
        return commit(batch, *arguments, **keywords)

    dead.commit = refuse_half  # type: ignore[method-assign, assignment]
    producer = produce(dead_letter=dead, batch_count_threshold=1)
    futures = [producer.send(b"%d" % i) for i in range(200)]
    while producer.stats().retrying_batches < 100:
        time.sleep(0.001)
    clock.advance(1)
    assert all(error_of(future).result.dead_letter for future in futures)
    producer.close(PATIENCE_SECONDS)
    assert sorted(int(letter.body) for letter in read(path)) == list(range(200)), "each once"


def test_a_letter_of_unknown_outcome_keeps_its_number_though_it_is_refused_then(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock
) -> None:
    """What the dead-letter channel may have stored must be known there by it."""
    target.fail(ValueError("bad"), ValueError("bad"))
    dead = FakeTarget(name="dead")
    dead.fail(ConnectionError("the answer was lost"), *full(), None, *full())
    producer = produce(dead_letter=dead, batch_count_threshold=1)
    for _ in range(2):
        future = producer.send(b"x")
        while not future.done():
            clock.advance(1)
    assert dead.taken == [(1, 1)] * 3 + [(2, 2), (2, 3)], "a number that was only refused is free"


def test_where_it_fails_too_the_events_come_back(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    dead.fail(KeyError("worse"))
    told: list[Result] = []
    producer = produce(dead_letter=dead)
    future = producer.send(b"x", callback=told.append)
    producer.close()
    error = future.exception(0)
    assert isinstance(error, SendFailedError) and error.events == (Event(b"x"),)
    assert [a.error_code for a in error.result.reserved_attempts] == ["ValueError", "KeyError"]
    assert [r.events for r in told] == [(Event(b"x"),)]
    assert producer.stats().failed_events == 1


def test_rows_of_a_typed_channel_are_one_event_that_reads_back(produce: MakeProducer, path: Path) -> None:
    target = FakeTarget(TYPED)
    target.fail(ValueError("bad"))
    producer = produce(target, dead_letter=path)
    producer.send_many([{"sku": "a"}, {"sku": "b"}])
    producer.close()
    (event,) = read(path)
    assert event.headers["content_type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(event.body).read_all().to_pylist() == [{"sku": "a"}, {"sku": "b"}]


def test_arrow_batches_are_events_there_too(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    producer = produce(dead_letter=dead)
    headers = pa.array([[("k", "v")], []], target.schema.field("headers").type)
    producer.send_batch(pa.record_batch([headers, pa.array([b"a", b"b"])], schema=target.schema))
    producer.close()
    assert dead.bodies == [b"a", b"b"]
    assert dict(dead.stored[1].column("headers").to_pylist()[0])["k"] == "v"


def test_numbered_batches_continue_after_one_that_is_there(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    producer = produce(dead_letter=dead, producer_id="tail")
    for i in (1, 2):
        producer.send_many([b"%d" % i], sequence=i)
    producer.close()
    assert (dead.bodies, target.bodies) == ([b"1"], [b"2"])


def test_a_number_that_is_there_is_remembered_there(path: Path, tmp_path: Path) -> None:
    """In the same run, in later ones, and once batches after it are stored."""
    dead = tmp_path / "dead"
    target = Refusing(path, 10)

    def send(*sequences: int) -> list[str]:
        with Producer(target, producer_id="tail", dead_letter=dead) as producer:
            found = [producer.send_many([b"%d" % i], sequence=i) for i in sequences]
            producer.flush()
        errors = [f.exception() for f in found]
        assert all(e is None or isinstance(e, SendFailedError) for e in errors)
        return [e.result.dead_letter if isinstance(e, SendFailedError) else "stored" for e in errors]

    place = str(dead)
    assert send(10, 10) == [place, place]
    target.refused = 0  # what failed would not fail any more
    assert send(10) == [place]
    assert send(10, 20, 10) == [place, "stored", place]
    assert send(10, 20, 30) == [place, "stored", "stored"]
    with Channel(path) as channel:
        assert peek(channel) == [b"20", b"30"]
    (letter,) = read(dead)
    assert (letter.body, letter.headers["dead_letter_error_code"]) == (b"10", "ValueError")


def test_other_events_under_a_number_that_is_there_are_refused(path: Path, tmp_path: Path) -> None:
    target = Refusing(path, 10)
    for body in (b"a", b"b"):
        with Producer(target, producer_id="tail", dead_letter=tmp_path / "dead") as producer:
            error = producer.send_many([body], sequence=10).exception()
            with suppress(ProducerSequenceError):
                producer.send_many([b"c"], sequence=20).exception()
    assert isinstance(error, SendFailedError) and "with other events" in str(error)
    assert (error.result.dead_letter, error.events) == ("", (Event(b"b"),))
    with Channel(path) as channel:
        assert peek(channel) == [b"c"]  # of the first run; in the second, it must not pass the one that was refused


def test_a_number_that_does_not_fit_is_not_a_dead_letter(path: Path, tmp_path: Path) -> None:
    with Channel(path) as channel:
        with Producer(channel, producer_id="tail", dead_letter=tmp_path / "dead") as producer:
            producer.send_many([b"20"], sequence=20).result()
            error = producer.send_many([b"10"], sequence=10).exception()
        assert isinstance(error, SendFailedError) and "comes after batch 20" in str(error)
    assert not read(tmp_path / "dead")


def test_what_is_there_says_why_it_is_not_in_its_channel(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    error = produce(dead_letter=FakeTarget(name="dead"), linger_ms=0).send(b"x").exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError) and "ValueError: bad; the events are in the dead-letter" in str(error)
    assert (error.result.error_code, error.result.error_message) == ("ValueError", "bad")


def test_events_are_not_dead_letters_of_the_channel_that_they_are_for(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OptionError, match="can't be the dead-letter channel: events are sent there"):
        Producer({"a": path, "b": tmp_path / "other"}, dead_letter=tmp_path / "link")
    assert os.listdir(tmp_path) == ["link"]


class Refusing(ChannelTarget):
    """A channel that refuses one number."""

    def __init__(self, path: Path, refused: int) -> None:
        super().__init__(path)
        self.refused = refused

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
        if numbers.last == self.refused:
            raise ValueError("bad")
        return super().commit(batch, producer_id, numbers)

    def close(self) -> None:
        """Stay open for the next producer."""
        for lock in self._claims.values():
            lock.release()
        self._claims = {}


def test_a_dead_letter_channel_takes_events_and_as_many_as_a_batch_has(path: Path, produce: MakeProducer) -> None:
    with Channel(path, schema=TYPED) as typed, pytest.raises(SchemaError, match="must be an event channel"):
        produce(dead_letter=typed)
    with pytest.raises(OptionError, match="takes 5 events at once, fewer than a batch may have"):
        produce(dead_letter=FakeTarget(max_events=5))


def test_targets_whose_dead_letters_could_not_be_told_apart_are_refused(produce: MakeProducer) -> None:
    targets = {"a": FakeTarget(name="http"), "b": FakeTarget(name="http")}
    produce(targets, dead_letter=FakeTarget(name="dead"))  # without a name nobody goes on after a restart
    with pytest.raises(OptionError, match="two targets are called http"):
        produce(targets, dead_letter=FakeTarget(name="dead"), producer_id="me")


def test_a_target_that_does_not_know_its_ids_has_the_dead_letters_and_every_future_says_so(
    produce: MakeProducer, target: FakeTarget
) -> None:
    class Forgetful(FakeTarget):
        def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> tuple[int, int]:
            super().commit(batch, producer_id, numbers)
            return 0, -1

    target.fail(ValueError("bad"))
    told: list[Result] = []
    producer = produce(dead_letter=Forgetful(name="dead"))
    futures = [producer.send(b"%d" % i, callback=told.append) for i in range(2)]
    told_later: list[object] = []
    futures[1].add_done_callback(told_later.append)
    producer.close()
    for result in [*told, *(error_of(future).result for future in futures)]:
        assert (result.dead_letter, result.first_id, result.last_id, result.events) == ("dead", 0, -1, ())
    assert told_later == [futures[1]]


def test_each_send_is_told_the_ids_of_its_own_dead_letters_also_of_events_that_were_to_wait(
    path: Path, tmp_path: Path
) -> None:
    """A dead letter does not wait: it has an ID at once."""
    with Producer(Refusing(path, 1), dead_letter=tmp_path / "dead", linger_ms=60_000) as producer:
        futures = [producer.send(b"later", deliver_after=60), producer.send(b"now"), producer.send(b"now", ttl=60)]
    found = [error_of(future).result.first_id for future in futures]
    assert found == [1, 2, 3] and [e.body for e in read(tmp_path / "dead")] == [b"later", b"now", b"now"]


def test_rows_of_a_typed_channel_have_the_id_of_the_one_event_that_they_are_in(produce: MakeProducer) -> None:
    target, dead = FakeTarget(TYPED), FakeTarget(name="dead")
    target.fail(ValueError("bad"))
    producer = produce(target, dead_letter=dead)
    futures = [producer.send({"sku": "a"}), producer.send_many([{"sku": "b"}, {"sku": "c"}])]
    producer.close()
    results = [error_of(future).result for future in futures]
    assert [(r.first_id, r.last_id) for r in results] == [(1, 1), (1, 1)]


@pytest.mark.parametrize("in_doubt", [False, True])
def test_it_says_whether_the_events_may_be_in_their_channel_too(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, in_doubt: bool
) -> None:
    target.answer = not in_doubt
    target.fail_while(lambda sequence: None if in_doubt else next(iter(full())))
    dead = FakeTarget(name="dead")
    dead.fail(StorageError("a moment, please"))  # which leaves no doubt, once they are there
    future = produce(dead_letter=dead, retries=1, linger_ms=0).send(b"x")
    while not future.done():
        clock.advance(1)
    assert (error_of(future).result.dead_letter, error_of(future).result.in_doubt) == ("dead", in_doubt)


def test_a_channel_whose_name_is_not_unicode_has_dead_letters_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "spillable_stream")  # no report can have the name
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    with Producer(Refusing(path, 1), dead_letter=tmp_path / "dead") as producer:
        future = producer.send(b"x")
    assert error_of(future).result.dead_letter == str(tmp_path / "dead")
    (letter,) = read(tmp_path / "dead")
    assert letter.headers["dead_letter_channel"] == f"{tmp_path}/caf\\udce9"


def test_a_long_error_is_not_all_in_each_of_the_letters(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad " * 100_000))
    dead = FakeTarget(name="dead")
    producer = produce(dead_letter=dead)
    producer.send_many([b"x"] * 100)
    producer.close()
    said = [dict(headers)["dead_letter_error_message"] for headers in dead.stored[1].column("headers").to_pylist()]
    assert set(map(len, said)) == {4000} and said[0].startswith("bad bad")


def test_a_null_in_place_of_a_body_is_an_empty_one_there(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    producer = produce(dead_letter=dead)
    producer.send_batch(pa.RecordBatch.from_pydict({"headers": [None, None], "body": [None, b"1"]}, target.schema))
    producer.close()
    assert dead.bodies == [b"", b"1"]
