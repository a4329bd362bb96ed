"""No exception of anybody's code ends a thread of a producer; if one ends all the same, everybody is told."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import Producer, Result
from spillable_stream.errors import ProducerClosedError, ProducerError
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeTarget, full
from tests.support.producers import Speechless, assert_it_goes_on, error_of


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


# ── targets ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "answer",
    [None, 7, "xy", (1,), ("a", "b"), (1, 2, 3), (1.0, 2.0), Unshowable(), (5, 3), (-3, -3), (1, 2)],
    ids=lambda a: type(a).__name__ if isinstance(a, Unshowable) else repr(a),
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


# ── chance ──────────────────────────────────────────────────────────────────────────────────────


class Chance(random.Random):
    def __init__(self, number: Any) -> None:
        super().__init__()
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
def test_a_batch_fails_whose_retry_cannot_be_planned(
    produce: MakeProducer, target: FakeTarget, rng: Any, code: str
) -> None:
    target.fail(*full(1))
    producer = produce(linger_ms=0, rng=rng)
    result = error_of(producer.send(b"x")).result
    assert [a.error_code for a in result.reserved_attempts] == ["ChannelFullError", code]
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
