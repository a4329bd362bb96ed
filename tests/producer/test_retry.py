"""Which errors may pass, and whether a batch is tried again."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel, Producer, errors
from spillable_stream.producer.batch import ProducerBatch
from spillable_stream.producer.result import Attempt
from spillable_stream.producer.retry import MISFITS, REFUSALS, RetryQueue, is_tried_again, may_pass
from tests.producer.conftest import MakeProducer
from tests.support.events import peek
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget
from tests.support.faulty_store import FaultyStore
from tests.support.object_channels import URL, log_of, lose_slots, store_of, stores_in_memory
from tests.support.producers import error_of, wait_for_retry

PASSING = [
    errors.ChannelBusyError,
    errors.ChannelClosedError,
    errors.ChannelFullError,
    errors.CommitOutcomeUnknownError,
    errors.DiskSpaceError,
    errors.ForeignDirectoryError,
    errors.LockTimeoutError,
    errors.StorageError,
    ConnectionError,
    TimeoutError,
    errors.UnsafeStoreError,
]


LASTING = [
    errors.CorruptionError,
    errors.EventTooLargeError,
    errors.NotAChannelError,
    errors.OptionError,
    errors.ProducerSequenceError,
    errors.SchemaError,
    errors.UnsupportedFormatError,
    KeyError,
    MemoryError,
    SystemExit,
]


@pytest.mark.parametrize("error", [*PASSING, *LASTING], ids=lambda e: e.__name__)
def test_only_what_may_pass_is_tried_again(
    produce: MakeProducer, target: FakeTarget, clock: FakeClock, error: type[BaseException]
) -> None:
    assert may_pass(error("x")) == (error in PASSING)
    target.fail(error("trouble"))
    producer = produce(linger_ms=0)
    future = producer.send(b"x")
    if error in LASTING:
        assert future.exception(PATIENCE_SECONDS) is not None and len(target.attempts) == 1
        return
    wait_for_retry(producer)
    clock.advance(0.1)
    result = future.result(PATIENCE_SECONDS)
    assert [a.error_code for a in result.reserved_attempts] == [error.__name__, ""]


@pytest.fixture
def batch(produce: MakeProducer) -> ProducerBatch:
    """A batch that some target has stored."""
    future = produce(linger_ms=0).send(b"x")
    future.result(PATIENCE_SECONDS)
    return future.batch


def failed(*errors_: type[BaseException]) -> tuple[Attempt, ...]:
    return tuple(Attempt(False, 0.0, error.__name__, "x") for error in errors_)


def test_a_batch_is_tried_again_as_often_as_it_may_be(batch: ProducerBatch) -> None:
    found = []
    for batch.retry in range(4):
        found.append(is_tried_again(batch, 2, closing=False))
    assert found == [True, True, False, False]
    batch.retry = 0
    assert not is_tried_again(batch, 0, closing=False)


def test_a_close_gives_up_what_failed(batch: ProducerBatch) -> None:
    batch.retry, batch.attempts = 0, failed(errors.ChannelFullError)
    assert is_tried_again(batch, 2, closing=False)
    assert not is_tried_again(batch, 2, closing=True)


@pytest.mark.parametrize("once", [errors.ChannelClosedError, errors.UnsafeStoreError], ids=lambda e: e.__name__)
def test_a_close_tries_once_again_after_what_says_nothing_of_the_batch(
    batch: ProducerBatch, once: type[BaseException]
) -> None:
    full_ = errors.ChannelFullError
    for last, again in (
        ((once,), True),
        ((full_, once), True),
        ((once, once), False),
        ((once, full_), False),
        ((), False),
    ):
        batch.retry, batch.attempts = 0, failed(*last)
        assert is_tried_again(batch, 2, closing=True) == again, last
    batch.retry, batch.attempts = 2, failed(once)
    assert not is_tried_again(batch, 2, closing=True), "it was tried often enough"


def test_what_is_refused_for_now_may_pass_and_what_does_not_fit_never_does() -> None:
    assert all(may_pass(error("x")) for error in REFUSALS)
    assert not any(may_pass(error("x")) for error in MISFITS)


@pytest.mark.parametrize("ends", [False, True], ids=["sent", "sent and closed"])
def test_a_batch_that_is_told_a_loss_is_stored_once_by_its_next_attempt(
    ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        producer = Producer(channel, linger_ms=60_000)
        producer.send(b"1")
        producer.flush()
        with log_of(channel).untold_loss.block():
            raise errors.UnsafeStoreError("lost")
        caplog.clear()
        future = producer.send(b"2")
        producer.close() if ends else producer.flush()
        assert [a.error_code for a in future.result(PATIENCE_SECONDS).reserved_attempts] == ["UnsafeStoreError", ""]
        producer.close()
        assert [(r.levelname, r.message) for r in caplog.records] == [
            ("ERROR", f"{URL}: a batch is sent again after a loss of events: lost")
        ]
        assert peek(channel) == [b"1", b"2"]


def test_a_batch_that_meets_a_loss_is_stored_once_by_its_next_attempt(caplog: pytest.LogCaptureFixture) -> None:
    with stores_in_memory(FaultyStore), Channel(URL, commit_interval=0) as channel:
        producer = Producer(channel, linger_ms=60_000)
        producer.send(b"1")
        producer.flush()
        lose_slots(channel)
        log_of(channel)._presence.is_proven = False  # as after an idle time: it looks before it appends
        caplog.clear()
        future = producer.send(b"2")
        producer.close()
        assert future.result(PATIENCE_SECONDS).successful
        assert "Acknowledged events are lost" in caplog.text
        assert peek(channel) == [b"1", b"2"]


def test_a_batch_that_is_told_a_loss_and_not_tried_again_is_not_in_doubt() -> None:
    with stores_in_memory(), Channel(URL, commit_interval=0) as channel:
        producer = Producer(channel, linger_ms=60_000, retries=0)
        with log_of(channel).untold_loss.block():
            raise errors.UnsafeStoreError("lost")
        future = producer.send(b"1")
        producer.flush()
        assert not error_of(future).result.in_doubt
        producer.close()
        assert peek(channel) == []


def test_a_batch_that_the_application_numbered_fails_with_a_loss_and_a_resume_stores_what_is_lost(
    tmp_path: Path,
) -> None:
    with stores_in_memory(FaultyStore), Channel(URL, commit_interval=0) as channel:
        producer = Producer(channel, producer_id="tail", linger_ms=0, dead_letter=tmp_path / "dead")
        producer.send_many([b"10"], sequence=10).result(PATIENCE_SECONDS)
        with store_of(channel).inner.put_back():  # type: ignore[attr-defined]
            producer.send_many([b"20"], sequence=20).result(PATIENCE_SECONDS)
        channel.stats()  # meets the loss
        error = error_of(producer.send_many([b"30"], sequence=30))
        assert [a.error_code for a in error.result.reserved_attempts] == ["UnsafeStoreError"]
        assert not error.result.in_doubt and not error.result.dead_letter
        with pytest.raises(errors.ProducerSequenceError, match="before batch 30, which failed"):
            producer.send_many([b"40"], sequence=40)
        producer.close()
        with Producer(channel, producer_id="tail") as resumed:
            assert resumed.last_sequence() == 10
            for sequence in (20, 30):
                resumed.send_many([b"%d" % sequence], sequence=sequence)
        assert peek(channel) == [b"10", b"20", b"30"]


def test_a_dead_letter_that_the_application_numbered_is_tried_again_after_a_loss_of_others() -> None:
    target = FakeTarget()
    target.fail(ValueError("bad"))
    with stores_in_memory(), Channel(URL, commit_interval=0) as dead:
        with Producer(target, producer_id="tail", linger_ms=0, dead_letter=dead, base_retry_backoff_ms=1) as producer:
            with log_of(dead).untold_loss.block():
                raise errors.UnsafeStoreError("lost")
            error = error_of(producer.send_many([b"10"], sequence=10))
        assert error.result.dead_letter and peek(dead) == [b"10"]


# ── the queue ─────────────────────────────────────────────────────────────────────────────


def test_batches_are_taken_when_they_are_due_and_in_that_order() -> None:
    queue, late, early, later = RetryQueue(), *(object() for _ in range(3))
    assert queue.next_due() is None
    put(queue, (late, 5.0), (early, 2.0), (later, 9.0))
    assert queue.next_due() == 2.0 and len(queue) == 3
    assert queue.take_due(1.9) == []
    assert queue.take_due(5.0) == [early, late]
    assert queue.next_due() == 9.0 and queue.take_all() == [later] and len(queue) == 0


def test_batches_that_are_due_at_once_keep_the_order_in_which_they_were_put() -> None:
    queue, batches = RetryQueue(), [object() for _ in range(20)]
    put(queue, *((batch, 1.0) for batch in batches))
    assert queue.take_all() == batches


def put(queue: RetryQueue, *batches: tuple[Any, float]) -> None:
    for batch, due in batches:
        queue.put(batch, due)


def test_a_batch_whose_put_raised_a_warning_of_its_memory_tier_is_stored_by_its_next_attempt(tmp_path: Path) -> None:
    """As under ``python -W error``: the put that met it stored nothing, and the next one goes to disk."""
    with Channel(tmp_path / "channel", memory_capacity=10, memory_dir=tmp_path / "missing") as channel:
        with warnings.catch_warnings():
            warnings.simplefilter("error", errors.MemoryTierWarning)
            with Producer(channel, base_retry_backoff_ms=1) as producer:
                result = producer.send(b"1").result(PATIENCE_SECONDS)
        assert [a.error_code for a in result.reserved_attempts] == ["MemoryTierWarning", ""]
        assert peek(channel) == [b"1"]
