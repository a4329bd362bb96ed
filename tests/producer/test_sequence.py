"""Numbers of batches that the application chooses, so that it can send its input again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import Channel, Producer
from spillable_stream.errors import OptionError, ProducerSequenceError, SendFailedError
from tests.events import peek
from tests.producer.conftest import MakeProducer
from tests.producer.fakes import PATIENCE_SECONDS, FakeTarget


def test_a_batch_is_committed_under_its_number_by_itself(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(producer_id="tail")
    producer.send_many([b"a", b"b"], sequence=100)
    headers = pa.array([[]], target.schema.field("headers").type)
    producer.send_batch(pa.record_batch([headers, pa.array([b"c"])], schema=target.schema), sequence=250)
    producer.flush(PATIENCE_SECONDS)
    assert target.attempts == [(100, [b"a", b"b"]), (250, [b"c"])]
    assert producer.last_sequence() == 250


def test_input_that_is_sent_again_is_stored_once(path: Path) -> None:
    with Channel(path) as channel:
        for _ in range(3):
            with Producer(channel, producer_id="tail") as producer:
                found = [producer.send_many([b"%d" % i], sequence=10 * i) for i in range(1, 4)]
                assert producer.last_sequence() in (0, 30)
            assert [f.result().write_order_id for f in found] == [1, 2, 3]
        assert peek(channel) == [b"1", b"2", b"3"]
        assert channel.stats().producers == {"tail": 30}


def test_batches_are_committed_one_after_the_other_in_their_order(produce: MakeProducer, target: FakeTarget) -> None:
    producer = produce(producer_id="tail", io_thread_count=4)
    target.hold()
    for i in range(1, 20):
        producer.send_many([b"%d" % i], sequence=i)
    target.wait_for_attempts(1)
    assert [s for s, _ in target.attempts] == [1]
    target.let_go()
    producer.flush(PATIENCE_SECONDS)
    assert [s for s, _ in target.attempts] == list(range(1, 20))


def test_nothing_is_committed_after_a_batch_that_failed_until_that_is_sent_again(
    produce: MakeProducer, target: FakeTarget
) -> None:
    target.fail(None, ValueError("bad"))
    target.hold()
    producer = produce(producer_id="tail")
    futures = [producer.send_many([b"%d" % i], sequence=i) for i in (1, 2, 3, 4)]
    target.let_go()
    assert futures[0].result(PATIENCE_SECONDS).successful
    for future in futures[1:]:
        error = future.exception(PATIENCE_SECONDS)
        assert isinstance(error, SendFailedError) and "bad" in str(error)
    assert producer.last_sequence() == 1
    with pytest.raises(ProducerSequenceError, match="must not be committed before batch 2, which failed; send that"):
        producer.send_many([b"5"], sequence=5)
    for i in (2, 3, 4, 5):
        producer.send_many([b"%d" % i], sequence=i)
    producer.flush(PATIENCE_SECONDS)
    assert target.bodies == [b"1", b"2", b"3", b"4", b"5"]


def test_numbers_are_chosen_by_one(produce: MakeProducer) -> None:
    mine = produce(FakeTarget(), producer_id="tail")
    mine.send_many([b"x"], sequence=1)
    for send in (lambda: mine.send(b"y"), lambda: mine.send_many([b"y"])):
        with pytest.raises(OptionError, match="numbered by the application"):
            send()
    its = produce(FakeTarget(), producer_id="tail")
    its.send(b"x")
    with pytest.raises(OptionError, match="numbered by the producer"):
        its.send_many([b"y"], sequence=2)


@pytest.mark.parametrize("sequence", [0, -1, 1.5, "7", True, 2**63])
def test_a_number_is_an_integer_of_at_least_1(produce: MakeProducer, sequence: object) -> None:
    with pytest.raises(OptionError, match="an integer of at least 1"):
        produce(producer_id="tail").send_many([b"x"], sequence=sequence)  # type: ignore[arg-type]


def test_a_number_needs_a_name_that_lasts(produce: MakeProducer) -> None:
    with pytest.raises(OptionError, match="without a producer_id that outlives this producer"):
        produce().send_many([b"x"], sequence=1)


def test_a_producer_that_comes_back_goes_on_after_its_last_number(path: Path) -> None:
    for i in range(3):
        with Producer(path, producer_id="me", batch_count_threshold=1) as producer:
            producer.send(b"%d a" % i)
            producer.send(b"%d b" % i)
    with Channel(path) as channel:
        assert len(peek(channel)) == 6
        assert channel.stats().producers == {"me": 6}


def test_a_batch_takes_the_numbers_since_the_last_that_was_stored(produce: MakeProducer, target: FakeTarget) -> None:
    """So however the application counts, bytes or lines, there are no gaps to remember."""
    target.fail(None, ValueError("bad"))
    producer = produce(producer_id="tail", dead_letter=FakeTarget(name="dead"))
    for number in (100, 250, 300, 200):
        producer.send_many([b"%d" % number], sequence=number)
    producer.flush(PATIENCE_SECONDS)
    assert target.taken == [(1, 100), (101, 250), (101, 300), (200, 200)]


def test_input_of_long_ago_is_known(path: Path) -> None:
    with Channel(path) as channel:
        for _ in range(2):
            with Producer(channel, producer_id="tail") as producer:
                found = [producer.send_many([b"x"], sequence=1000 * i) for i in range(1, 200)]
        assert channel.stats().channel_size == 199
        assert (found[0].result().first_id, found[-1].result().first_id) == (0, 199)
