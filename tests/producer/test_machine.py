"""Sends, failures, retries, flushes and the end in any order: every future completes once, and nothing is held then."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillable_stream import Producer, Result
from spillable_stream.errors import ChannelFullError, ProducerTimeoutError, SendFailedError
from tests.producer.conftest import assert_nothing_left
from tests.support.examples import examples
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget

FAILURES = st.sampled_from([ChannelFullError("full"), ValueError("bad"), ConnectionError("gone"), None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 400)),
        st.tuples(st.just("send_many"), st.integers(1, 5)),
        st.tuples(st.just("fail"), FAILURES),
        st.tuples(st.just("lose the answer"), st.booleans()),
        st.tuples(st.just("advance"), st.sampled_from([0.001, 0.1, 1.0])),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=30,
)


class Run:
    """A producer, what was sent through it, and what it told."""

    def __init__(self, retries: int, dead: bool) -> None:
        self.clock, self.target = FakeClock(), FakeTarget()
        self.dead = FakeTarget(name="dead") if dead else None
        self.producer = Producer(
            self.target,
            dead_letter=self.dead,
            clock=self.clock,
            rng=random.Random(1),
            retries=retries,
            total_size_in_bytes=2000,
            batch_size_threshold_in_bytes=500,
            batch_count_threshold=4,
            max_block_ms=0,
            io_thread_count=2,
            context_headers=False,
        )
        self.sent: list[tuple[Any, list[bytes]]] = []
        self.told: Counter[int] = Counter()

    def step(self, what: str, value: Any) -> None:
        if what == "send":
            self._send([b"%d " % len(self.sent) + b"x" * value])
        elif what == "send_many":
            self._send([b"%d %d" % (len(self.sent), i) for i in range(value)])
        elif what == "fail":
            self.target.fail(value)
        elif what == "lose the answer":
            self.target.answer = not value
        elif what == "advance":
            self.clock.advance(value)
        elif what == "hold":
            self.target.hold() if value else self.target.let_go()
        else:
            with suppress(ProducerTimeoutError):
                self.producer.flush(0)

    def _send(self, bodies: list[bytes]) -> None:
        number = len(self.sent)

        def callback(result: Result) -> None:
            self.told[number] += 1

        with suppress(ProducerTimeoutError):  # full
            if len(bodies) == 1:
                future = self.producer.send(bodies[0], callback=callback)
            else:
                future = self.producer.send_many(bodies, callback=callback)
            self.sent.append((future, bodies))

    def close(self, at_once: bool) -> None:
        if at_once:
            with suppress(ProducerTimeoutError):
                self.producer.close(0)
        self.target.answer = True
        self.target.let_go()
        self.producer.close(None)

    def check(self) -> None:
        dead = self.dead.bodies if self.dead else []
        places = Counter(self.target.bodies) + Counter(dead)
        for number, (future, bodies) in enumerate(self.sent):
            assert future.done() and self.told[number] == 1
            error = future.exception(0)
            if error is None:
                assert future.result(0).successful
                assert all(body in self.target.bodies and body not in dead for body in bodies)
            else:
                assert isinstance(error, SendFailedError)
                if not error.result.dead_letter:
                    assert [event.body for event in error.events] == bodies
                assert all(places[body] >= bool(error.result.dead_letter) for body in bodies)
        assert max(Counter(self.target.bodies).values(), default=1) == 1
        assert max(Counter(dead).values(), default=1) == 1
        assert set(places) <= {body for _, bodies in self.sent for body in bodies}
        stored = [f.result() for f, _ in self.sent if f.exception() is None]
        ids = [i for result in stored for i in range(result.first_id, result.last_id + 1)]
        assert len(ids) == len(set(ids)) == sum(len(b) for f, b in self.sent if f.exception() is None)
        assert_nothing_left(self.producer)


@pytest.mark.timeout(300)
@settings(max_examples=examples(150))
@given(STEPS, st.integers(0, 2), st.booleans(), st.booleans())
def test_every_future_completes_once_and_nothing_is_held_at_the_end(
    steps: list[tuple[str, Any]], retries: int, dead: bool, at_once: bool
) -> None:
    run = Run(retries, dead)
    try:
        for what, value in steps:
            run.step(what, value)
    finally:
        run.close(at_once)
    run.check()
    assert run.producer.stats().queued_bytes == 0
    with pytest.raises(Exception, match="closed"):
        run.producer.send(b"x")
    run.producer.flush(PATIENCE_SECONDS)
