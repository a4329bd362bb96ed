from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from spillable_stream import Channel, ChannelFullError, ProducerSequenceError, StorageError
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event import Event
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.engine_port import EnginePort
from spillable_stream.engine.put_request import Put
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.integrity.verify import verify
from spillable_stream.names import is_name
from spillable_stream.workers.transfer import Transfer, transfer_name
from tests.support.events import peek, put

LETTER = batch_from_events([Event(b"letter")])


@pytest.fixture
def source(tmp_path: Path) -> Channel:
    channel = Channel(tmp_path / "source", minimum_required_space=0)
    put(channel, b"a", b"b", b"c")
    return channel


@pytest.fixture
def dead(tmp_path: Path) -> Channel:
    return Channel(tmp_path / "dead", minimum_required_space=0)


def owner(source: Channel) -> Consumer:
    return Consumer(source.engine(), "g", resume=True)


def test_the_name_of_a_transfer_is_one_that_a_producer_may_have() -> None:
    names = {transfer_name("worker", "uuid", group) for group in ("g", "ü" * 120, "ü" * 119 + "x")}
    assert len(names) == 3 and all(map(is_name, names))


def test_events_are_moved_and_taken(source: Channel, dead: Channel) -> None:
    consumer = owner(source)
    transfer = Transfer(consumer, dead, "t")
    for _ in range(3):
        put(source, b"of a transaction in between")
        ranges = consumer.claim(1)
        consumer.commit(ranges, transfer.store(ranges, LETTER))
    assert peek(dead) == [b"letter"] * 3 and consumer.position() == 3
    with dead.engine().snapshot() as state:
        (image,) = [s for _, s in state.producers.image()["producers"]["states"].items()]
    assert len(image[0]) == 1, "one range of numbers, however many events"


def test_a_mover_that_died_before_its_put_leaves_the_event_in_the_queue(source: Channel, dead: Channel) -> None:
    first = owner(source)
    Transfer(first, dead, "t")
    first.prepare(first.claim(1))
    first.close()
    second = owner(source)
    Transfer(second, dead, "t")
    assert second.claim(1) == [(1, 1)] and peek(dead) == []


def test_a_mover_that_died_after_its_put_has_moved_the_event(source: Channel, dead: Channel) -> None:
    first = owner(source)
    Transfer(first, dead, "t").store(first.claim(1), LETTER)
    first.close()
    second = owner(source)
    Transfer(second, dead, "t")
    assert second.claim(1) == [(2, 2)] and peek(dead) == [b"letter"]


def test_what_another_kind_of_reader_left_prepared_is_rolled_back(source: Channel, dead: Channel) -> None:
    first = owner(source)
    transfer = Transfer(first, dead, "t")
    ours = first.claim(1)
    first.commit(ours, transfer.store(ours, LETTER))
    first.prepare(first.claim(1))  # as Spark does
    ours = first.claim(1)
    first.commit(ours, transfer.store(ours, LETTER))  # its numbers pass over that of the other take
    first.close()
    second = owner(source)
    Transfer(second, dead, "t")
    assert second.claim(9) == [(2, 2)]


def test_a_mover_that_another_one_has_followed_puts_nothing(source: Channel, dead: Channel) -> None:
    consumer = owner(source)
    former, later = Transfer(consumer, dead, "t"), Transfer(consumer, dead, "t")
    ranges = consumer.claim(1)
    consumer.commit(ranges, later.store(ranges, LETTER))
    with pytest.raises(ProducerSequenceError):
        former.store(consumer.claim(1), LETTER)
    assert peek(dead) == [b"letter"]


def test_a_put_that_finds_no_room_leaves_nothing_and_may_be_repeated(source: Channel, tmp_path: Path) -> None:
    with Channel(tmp_path / "small", overflow_capacity=1, keep_alive=0, minimum_required_space=0) as dead:
        put(dead, b"full")
        consumer = owner(source)
        transfer = Transfer(consumer, dead, "t")
        ranges = consumer.claim(1)
        with pytest.raises(ChannelFullError):
            transfer.store(ranges, LETTER)
        assert consumer.prepared() == {} and consumer.claim(1) == [(2, 2)], "the event is still claimed"
        with dead.take_transaction() as tx:
            tx.take()
        consumer.commit(ranges, transfer.store(ranges, LETTER))
        assert peek(dead) == [b"letter"]


def test_after_a_seek_back_an_event_can_be_moved_again(source: Channel, dead: Channel) -> None:
    peek(source, group="another")  # keeps the events
    consumer = owner(source)
    transfer = Transfer(consumer, dead, "t")
    ranges = consumer.claim(1)
    consumer.commit(ranges, transfer.store(ranges, LETTER))
    consumer.seek(0)
    ranges = consumer.claim(1)
    consumer.commit(ranges, transfer.store(ranges, LETTER))
    assert peek(dead) == [b"letter"] * 2


def test_transaction_ids_that_are_used_again_repeat_no_number(source: Channel, dead: Channel) -> None:
    """A lost memory tier takes them with it, and a copy of a channel begins again where it was created."""
    with dead.put_transaction() as tx:
        tx.put(Event(b"of a later life"))
        tx.producer = NumberedBatch("t", Numbers(1, 1000, BY_PRODUCER))
    consumer = owner(source)
    transfer = Transfer(consumer, dead, "t")
    for number in (1001, 1002):
        ranges = consumer.claim(1)
        assert transfer.store(ranges, LETTER) == number
        consumer.commit(ranges, number)
    assert peek(dead) == [b"of a later life", b"letter", b"letter"]
    consumer.close()
    put(source, b"d")
    assert peek(source, group="g") == [b"c", b"d"]


def test_a_put_that_was_under_way_while_the_owner_changed_is_refused(source: Channel, dead: Channel) -> None:
    first = owner(source)
    former, put_transaction = Transfer(first, dead, "t"), dead.put_transaction

    def put_later() -> PutTransaction:
        first.close()  # as a stop leaves a call behind, or a host sleeps
        later = owner(source)
        Transfer(later, dead, "t")
        assert later.claim(1) == [(1, 1)] and later.prepared() == {}
        return put_transaction()

    with mock.patch.object(dead, "put_transaction", put_later), pytest.raises(ProducerSequenceError):
        former.store(first.claim(1), LETTER)
    assert peek(dead) == []


def test_a_put_that_came_while_the_next_owner_looked_counts(source: Channel, dead: Channel) -> None:
    first = owner(source)
    former, publish = Transfer(first, dead, "t"), EnginePort.publish
    waiting: list[PutTransaction] = []

    def put_first(port: EnginePort[Engine], put_of_next: Put, keep_alive_seconds: float) -> bool:
        if waiting:
            tx = waiting.pop()
            tx.begin()
            tx.put_batch(LETTER)
            tx.commit()
        return publish(port, put_of_next, keep_alive_seconds)

    taken = first.prepare(first.claim(1))
    tx = dead.put_transaction()
    tx.producer, tx.follows = NumberedBatch("t", Numbers(1, taken, BY_PRODUCER)), former._last
    waiting.append(tx)
    first.close()
    later = owner(source)
    with mock.patch.object(EnginePort, "publish", put_first):
        Transfer(later, dead, "t")
    assert later.claim(1) == [(2, 2)] and peek(dead) == [b"letter"]


def test_an_owner_that_dies_once_a_number_is_used_up_leaves_its_event_in_the_queue(
    source: Channel, dead: Channel
) -> None:
    first = owner(source)
    Transfer(first, dead, "t")
    first.prepare(first.claim(1))
    first.close()
    second = owner(source)
    with mock.patch.object(second, "release", side_effect=StorageError("killed")), pytest.raises(StorageError):
        Transfer(second, dead, "t")
    second.close()
    third = owner(source)
    transfer = Transfer(third, dead, "t")
    ranges = third.claim(1)
    assert ranges == [(1, 1)]
    third.commit(ranges, transfer.store(ranges, LETTER))
    dead.close()
    assert verify(dead.path).healthy
