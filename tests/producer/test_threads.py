"""No exception of anybody's code ends a thread of a producer; if one ends all the same, everybody is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Producer, Result
from spillable_stream.errors import ProducerClosedError, ProducerError, SendFailedError
from spillable_stream.producer.clock import Clock
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget, full

HUGE = 2**63 - 1


class Speechless(ValueError):
    def __str__(self) -> str:
        raise SystemExit("no text")


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def error_of(future: Any) -> SendFailedError:
    error = future.exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError)
    return error


def assert_it_goes_on(producer: Producer) -> None:
    """Assert that sends are stored and told, and that all threads live."""
    told: list[Result] = []
    assert producer.send(b"next", callback=told.append).result(PATIENCE_SECONDS).successful and len(told) == 1
    assert producer.stats().state == "running"
    assert all(thread.is_alive() for thread in producer._pipeline.threads)


# ── targets ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "answer", [None, 7, "xy", (1,), ("a", "b"), (1, 2, 3), (1.0, 2.0), Unshowable()], ids=lambda a: type(a).__name__
)
def test_a_target_that_answers_rubbish_is_told_what_to_answer(produce: MakeProducer, answer: Any) -> None:
    class Rubbish(FakeTarget):
        def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: tuple[int, int]) -> tuple[int, int]:
            found = super().commit(batch, producer_id, numbers)
            return answer if len(self.attempts) == 1 else found  # type: ignore[no-any-return]

    target = Rubbish()
    producer = produce(target, linger_ms=0)
    error = error_of(producer.send(b"x"))
    assert error.result.error_code == "TypeError" and error.result.attempt_count == 1
    assert "the commit of fake must return the write-order IDs of the first and the last event" in str(error)
    assert "whether it stored the events is not known" in str(error)
    assert_it_goes_on(producer)


def test_an_error_whose_text_raises_is_told_without_it(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(Speechless())
    producer = produce(linger_ms=0)
    result = error_of(producer.send(b"x")).result
    assert (result.error_code, result.error_message) == ("Speechless", "(its text can't be told: SystemExit)")
    assert producer.stats().last_error == "Speechless: (its text can't be told: SystemExit)"
    assert_it_goes_on(producer)


@pytest.mark.parametrize("error", [Speechless(), SystemExit(3)], ids=lambda e: type(e).__name__)
def test_a_target_whose_close_raises_anything_does_not_keep_a_producer_from_its_end(
    produce: MakeProducer, error: BaseException
) -> None:
    class Stuck(FakeTarget):
        def close(self) -> None:
            raise error

    producer = produce(Stuck())
    with pytest.raises(ProducerError, match="a target could not be closed"):
        producer.close(PATIENCE_SECONDS)
    assert producer.stats().state == "closed"


# ── logging ─────────────────────────────────────────────────────────────────────────────────────


class Raising(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit("the log is full")


def refuse(record: logging.LogRecord) -> bool:
    raise ValueError("a filter's trouble")


@pytest.fixture(params=["handler", "filter"])
def broken_log(request: pytest.FixtureRequest) -> Iterator[None]:
    log, handler = logging.getLogger("spillable_stream.producer"), Raising()
    if request.param == "handler":
        log.addHandler(handler)
    else:
        log.addFilter(refuse)
    yield
    log.removeHandler(handler)
    log.removeFilter(refuse)


def bad(result: Result) -> None:
    raise ValueError("mine")


@pytest.mark.usefixtures("broken_log")
def test_a_log_that_raises_ends_nothing_and_its_lines_go_to_standard_error(
    produce: MakeProducer, target: FakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    target.fail(ValueError("bad"), None)
    producer = produce(linger_ms=0)
    assert error_of(producer.send(b"x")).result.error_code == "ValueError"
    assert producer.send(b"y", callback=bad).result(PATIENCE_SECONDS).successful
    assert_it_goes_on(producer)
    said = capsys.readouterr().err
    assert "1 event for fake failed: ValueError: bad (a logging handler raised" in said
    assert "a callback of a producer raised (a logging handler raised" in said and "ValueError: mine" in said


@pytest.mark.usefixtures("broken_log")
def test_what_is_in_the_dead_letter_channel_is_so_though_the_log_raises(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.fail(ValueError("bad"))
    dead = FakeTarget(name="dead")
    producer = produce(linger_ms=0, dead_letter=dead)
    assert error_of(producer.send(b"x")).result.dead_letter == "dead" and dead.bodies == [b"x"]
    assert_it_goes_on(producer)


@pytest.mark.usefixtures("broken_log")
def test_a_log_that_raises_does_so_without_a_standard_error_too(
    produce: MakeProducer, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", Raising())
    target.fail(ValueError("bad"))
    producer = produce(linger_ms=0)
    assert error_of(producer.send(b"x")).result.error_code == "ValueError"
    assert_it_goes_on(producer)


# ── time and chance ─────────────────────────────────────────────────────────────────────────────


def test_waits_that_are_longer_than_the_system_can_wait_end_nothing(produce: MakeProducer, target: FakeTarget) -> None:
    target.fail(*full(1))
    config = {"linger_ms": HUGE, "max_block_ms": HUGE, "base_retry_backoff_ms": HUGE, "max_retry_backoff_ms": HUGE}
    producer = produce(clock=Clock(), **config)
    future = producer.send(b"x")
    flushing = threading.Thread(target=lambda: producer.flush(1e300))
    flushing.start()
    while not producer.stats().retrying_batches:
        pass
    assert producer.stats().state == "running"
    producer.close(PATIENCE_SECONDS)  # which tries it once more
    flushing.join(PATIENCE_SECONDS)
    assert future.result(1e300).attempt_count == 2 and not flushing.is_alive()


class BrokenClock(Clock):
    def __init__(self, method: str) -> None:
        self._method = method

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name == self._method:
            raise ValueError("no time")
        return super().__getattribute__(name)


@pytest.mark.parametrize("method", ["monotonic", "time", "wait"])
def test_a_clock_that_raises_is_replaced_by_the_machines(
    produce: MakeProducer, target: FakeTarget, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    target.fail(*full(1))
    producer = produce(clock=BrokenClock(method), linger_ms=1, base_retry_backoff_ms=1)
    assert producer.send(b"x").result(PATIENCE_SECONDS).attempt_count == 2
    assert_it_goes_on(producer)
    assert [r.message for r in caplog.records] == ["the clock of a producer raised; the machine's is used instead"]


class Chance:
    def __init__(self, number: Any) -> None:
        self.number = number

    def random(self) -> Any:
        if isinstance(self.number, Exception):
            raise self.number
        return self.number


@pytest.mark.parametrize(
    ("rng", "code"),
    [(Chance(OSError("no luck")), "OSError"), (Chance(float("nan")), "ValueError")],
    ids=["raises", "nan"],
)
def test_a_batch_fails_whose_retry_can_not_be_planned(
    produce: MakeProducer, target: FakeTarget, rng: Any, code: str
) -> None:
    target.fail(*full(1))
    producer = produce(linger_ms=0, rng=rng)
    result = error_of(producer.send(b"x")).result
    assert [a.error_code for a in result.reserved_attempts] == ["ChannelFullError", code]
    assert_it_goes_on(producer)


# ── who is told ─────────────────────────────────────────────────────────────────────────────────


def test_a_watcher_that_raises_harms_nobody(produce: MakeProducer, target: FakeTarget) -> None:
    class Watcher:
        def finish(self, *, forked: bool = False) -> None:
            raise SystemExit

    target.hold()
    producer = produce(linger_ms=0)
    futures = [producer.send(b"x") for _ in range(2)]
    assert futures[0].batch.watch(Watcher())
    done = threading.Event()
    futures[1].add_done_callback(lambda f: done.set())
    target.let_go()
    assert futures[0].result(PATIENCE_SECONDS).successful and done.wait(PATIENCE_SECONDS)
    assert_it_goes_on(producer)


def test_a_batch_that_can_not_be_told_to_all_has_its_result_all_the_same(
    produce: MakeProducer, target: FakeTarget, caplog: pytest.LogCaptureFixture
) -> None:
    target.hold()
    producer = produce(linger_ms=0)
    future = producer.send(b"x", callback=lambda r: None)

    class NoMemory(list[Any]):
        def __iter__(self) -> Any:
            raise MemoryError

    future.batch.callbacks = NoMemory(future.batch.callbacks)
    target.let_go()
    assert future.result(PATIENCE_SECONDS).successful
    assert [r.message for r in caplog.records] == ["a batch for fake could not be told to all"]
    assert_it_goes_on(producer)


def test_a_batch_that_could_not_be_freed_at_once_is_freed_and_was_stored(
    produce: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(batch: Any) -> None:
        monkeypatch.undo()
        raise MemoryError

    producer = produce(linger_ms=0)
    monkeypatch.setattr(producer._pipeline.accumulator, "release", release)
    assert producer.send(b"x").result(PATIENCE_SECONDS).successful
    producer.flush(PATIENCE_SECONDS)
    assert_it_goes_on(producer)


# ── the end of a thread ─────────────────────────────────────────────────────────────────────────


def no_memory(*arguments: object) -> Any:
    raise MemoryError("in our own code")


ENDS: dict[str, Callable[[Producer], None]] = {
    "io": lambda p: setattr(p._pipeline._pool, "_serve", no_memory),
    "success": lambda p: setattr(p._pipeline._success, "_ended", no_memory),
    "mover": lambda p: setattr(p._pipeline._mover, "_move", no_memory),
}


@pytest.mark.parametrize("which", ENDS)
def test_the_end_of_a_thread_fails_what_is_under_way_and_ends_the_producer(
    produce: MakeProducer, target: FakeTarget, which: str
) -> None:
    target.hold()
    told: list[Result] = []
    producer = produce(batch_count_threshold=1, linger_ms=60_000, io_thread_count=2)
    futures = [producer.send(b"%d" % i, callback=told.append) for i in range(2)]
    target.wait_for_attempts(2)
    waiting = [producer.send(b"%d" % i, callback=told.append) for i in range(2, 6)]
    ENDS[which](producer)
    if which == "mover":
        with producer._pipeline._mutex:
            producer._pipeline._mover.wake()
        assert all(future.exception(PATIENCE_SECONDS) for future in waiting)
    target.let_go()
    with pytest.raises(ProducerError, match=r"the producer failed.*MemoryError: .*in our own code"):
        producer.close(PATIENCE_SECONDS)
    for future in [*futures, *waiting]:
        error = future.exception(PATIENCE_SECONDS)  # what was being committed may have been told before
        assert error is None or "a thread of the producer ended: in our own code" in str(error)
    assert which == "success" or any(future.exception(0) for future in waiting)  # else all may be stored, and are told
    assert len(told) == 6 and {r.successful for r in told} <= {True, False}
    assert producer.stats().state == "failed: MemoryError: in our own code"
    with pytest.raises(ProducerClosedError, match="the producer failed and is closed: MemoryError: in our own code"):
        producer.send(b"later")


def test_a_thread_that_ends_leaves_a_send_that_waits_for_room_its_reason(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.hold()
    producer = produce(total_size_in_bytes=1000, max_block_ms=-1, linger_ms=0)
    producer.send(b"x" * 900)
    target.wait_for_attempts(1)
    raised: list[BaseException] = []

    def send() -> None:
        try:
            producer.send(b"y" * 900)
        except ProducerError as e:
            raised.append(e)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    ENDS["mover"](producer)
    with producer._pipeline._mutex:
        producer._pipeline._mover.wake()
    thread.join(PATIENCE_SECONDS)
    assert [str(e).split(":")[0] for e in raised] == ["the producer failed and is closed"]


def test_the_state_tells_how_far_the_end_is(produce: MakeProducer, target: FakeTarget) -> None:
    target.hold()
    producer = produce(linger_ms=0)
    assert producer.stats().state == "running"
    producer.send(b"x")
    target.wait_for_attempts(1)
    with pytest.raises(ProducerError):
        producer.close(0)
    assert producer.stats().state == "closing"
    target.let_go()
    producer.close(PATIENCE_SECONDS)
    assert producer.stats().state == "closed"
