"""What holds a producer until it has ended, and who says that it was forgotten."""

from __future__ import annotations

import gc
import threading
import time
import warnings

import pytest

from spillable_stream import Producer
from spillable_stream.errors import OptionError, ProducerTimeoutError, SendFailedError
from spillable_stream.producer import process_end
from spillable_stream.producer.pipeline import Pipeline
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget


def test_a_producer_that_is_forgotten_warns_and_its_events_are_stored_as_they_linger() -> None:
    target = FakeTarget()
    producer = Producer(target, producer_id="web-1", linger_ms=1)
    pipeline = producer._pipeline
    futures = [producer.send(b"%d" % i) for i in range(3)]
    with pytest.warns(ResourceWarning, match=r"web-1 was forgotten, but not closed.*Close it, or use it in a with"):
        del producer
        gc.collect()
    assert all(f.result(PATIENCE_SECONDS).successful for f in futures)
    assert pipeline in process_end._running
    pipeline.shutdown.close(PATIENCE_SECONDS)
    assert target.closed == 1


def test_a_producer_that_was_closed_or_never_made_is_forgotten_in_silence() -> None:
    gc.collect()  # what other tests left says so now
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with Producer(FakeTarget()) as producer:
            pipeline = producer._pipeline
        del producer
        with pytest.raises(OptionError):
            Producer(FakeTarget(), linger_ms=-1)
        gc.collect()
    assert not [warning for warning in found if "forgotten" in str(warning.message)]
    assert pipeline not in process_end._running


def test_a_producer_may_be_forgotten_where_a_warning_could_wait_for_this_thread() -> None:
    """As where a warning becomes a log record, whose handler sends."""
    other = Producer(FakeTarget(), linger_ms=60_000)
    forgotten: list[Producer] = []
    found: list[object] = []

    def forget() -> None:
        forgotten.clear()
        gc.collect()

    pipelines = []
    gc.collect()  # what other tests left says so now
    with warnings.catch_warnings():  # puts `showwarning` back, too
        warnings.simplefilter("always")
        warnings.showwarning = lambda *a, **k: found.append(other.send(b"a warning"))
        for amid in (lambda: other._pipeline._mutex.run(forget), lambda: in_a_callback(other, forget)):
            forgotten.append(Producer(FakeTarget()))
            pipelines.append(forgotten[0]._pipeline)
            amid()
        assert found == []
        forgotten.append(Producer(FakeTarget()))
        pipelines.append(forgotten[0]._pipeline)
        forget()
        assert len(found) == 1
    other.close(PATIENCE_SECONDS)
    for pipeline in pipelines:
        pipeline.shutdown.close(PATIENCE_SECONDS)


def in_a_callback(producer: Producer, do: object) -> None:
    producer.send(b"x", callback=lambda result: do())  # type: ignore[operator]
    producer.flush(PATIENCE_SECONDS)


def test_a_close_that_was_not_done_in_time_is_held_until_it_is(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(linger_ms=0)
    producer.send(b"x")
    target.wait_for_attempts(1)
    with pytest.raises(ProducerTimeoutError):
        producer.close(0)
    assert producer._pipeline in process_end._running
    target.let_go()
    producer.close(PATIENCE_SECONDS)
    assert producer._pipeline not in process_end._running


def test_a_producer_whose_end_is_told_is_held_no_more(produce: MakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ended in between said that the channels of a producer could not be closed, which they were."""
    was_finished: list[bool] = []
    ended = process_end.ended

    def noted(pipeline: Pipeline) -> None:
        was_finished.append(pipeline.shutdown.is_finished)
        ended(pipeline)

    monkeypatch.setattr(process_end, "ended", noted)
    produce().close(PATIENCE_SECONDS)
    assert was_finished == [False]


def test_what_is_given_up_while_it_is_being_committed_is_told_once(
    produce: MakeProducer, target: FakeTarget, caplog: pytest.LogCaptureFixture
) -> None:
    target.hold()
    producer = produce(batch_count_threshold=2)
    told: list[bool] = []
    futures = [producer.send(b"%d" % i, callback=lambda result: told.append(result.successful)) for i in range(5)]
    target.wait_for_attempts(1)
    pipeline = producer._pipeline
    pipeline.shutdown.begin_close()
    pipeline.shutdown.give_up()
    errors = [f.exception(PATIENCE_SECONDS) for f in futures]
    assert all(isinstance(e, SendFailedError) and e.events[0].body == b"%d" % i for i, e in enumerate(errors))
    assert "it may be stored" in str(errors[0]) and "before it was sent" in str(errors[4])
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "5 events were not stored before the process ended" in record.getMessage()
    assert "2 of them were being committed" in record.getMessage()
    target.let_go()
    producer.close(PATIENCE_SECONDS)
    assert told == [False] * 5 and target.bodies == [b"0", b"1"]
    assert producer.stats().failed_events == 5


def test_at_the_end_of_the_process_nobody_waits_beyond_the_deadline(
    target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.hold()
    producer = Producer(target, linger_ms=0)
    producer.send(b"x")
    monkeypatch.setattr(process_end, "_deadline", time.monotonic())
    for wait in (producer.flush, producer.close):
        with pytest.raises(ProducerTimeoutError):
            wait()
    target.let_go()
    monkeypatch.undo()
    producer.close(PATIENCE_SECONDS)


def test_who_waits_for_a_flush_without_a_timeout_is_let_go_at_the_end(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(linger_ms=0)
    future = producer.send(b"x", callback=lambda result: stuck.wait(PATIENCE_SECONDS))
    stuck = threading.Event()
    flushing = threading.Thread(target=producer.flush)
    flushing.start()
    target.wait_for_attempts(1)
    producer._pipeline.shutdown.begin_close()
    producer._pipeline.shutdown.give_up()
    producer._pipeline.shutdown.abandon()
    flushing.join(PATIENCE_SECONDS)
    assert not flushing.is_alive() and isinstance(future.exception(0), SendFailedError)
    stuck.set()
    target.let_go()
