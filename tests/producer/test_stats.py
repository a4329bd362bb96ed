"""What a producer says of itself."""

from __future__ import annotations

from spillable_stream import Result
from spillable_stream.producer.stats import Percentiles
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import PATIENCE_SECONDS, FakeClock, FakeTarget
from tests.support.producers import error_of


def test_percentiles_are_of_what_there_is() -> None:
    assert Percentiles.of([]) == Percentiles(0, 0, 0, 0)
    assert Percentiles.of([7.0]) == Percentiles(7, 7, 7, 7)
    assert Percentiles.of([float(i) for i in range(1000, 0, -1)]) == Percentiles(501, 901, 991, 1000)


def test_an_error_may_say_what_the_producer_counts(produce: MakeProducer, target: FakeTarget) -> None:
    class Talkative(ValueError):
        def __str__(self) -> str:
            return f"it failed after {producer.stats().sent_events} event"

    target.fail(Talkative())
    producer = produce(linger_ms=0)
    assert error_of(producer.send(b"x")).result.error_message == "it failed after 1 event"
    assert producer.stats().last_error == "Talkative: it failed after 1 event"


def test_the_time_until_a_batch_is_stored_has_none_of_its_callbacks(produce: MakeProducer, clock: FakeClock) -> None:
    def tell(result: Result) -> None:
        clock.advance(60)

    producer = produce(linger_ms=0)
    producer.send(b"x", callback=tell).result(PATIENCE_SECONDS)
    producer.close(PATIENCE_SECONDS)
    assert producer.stats().latency_seconds.most == 0
