"""Several channels: by name, or by the hash of a key."""

from __future__ import annotations

from collections import Counter

import pytest

from spillable_stream.errors import OptionError
from tests.producer.conftest import MakeProducer
from tests.support.fake_targets import FakeTarget


def test_a_key_names_a_channel(produce: MakeProducer) -> None:
    targets = {"orders": FakeTarget(name="orders"), "clicks": FakeTarget(name="clicks")}
    producer = produce(targets)
    producer.send(b"order", key="orders")
    producer.send_many([b"click", b"click"], key="clicks")
    producer.close()
    assert (targets["orders"].bodies, targets["clicks"].bodies) == ([b"order"], [b"click"] * 2)
    assert [t.closed for t in targets.values()] == [1, 1]


@pytest.mark.parametrize("key", [None, "prices"])
def test_a_key_that_names_none_is_refused(produce: MakeProducer, key: str | None) -> None:
    producer = produce({"orders": FakeTarget(), "clicks": FakeTarget()})
    with pytest.raises(OptionError, match="must name a channel: 'orders', 'clicks'; not"):
        producer.send(b"x", key=key)


def test_a_key_of_the_only_channel_is_refused(produce: MakeProducer) -> None:
    with pytest.raises(OptionError, match="this producer has only fake"):
        produce().send(b"x", key="orders")


def test_channels_share_keys_evenly_and_each_key_stays_in_one(produce: MakeProducer) -> None:
    targets = [FakeTarget(name=f"{i}") for i in range(3)]
    producer = produce(targets)
    for i in range(3000):
        producer.send(b"%d" % (i % 300), key=f"key {i % 300}")
    producer.close()
    found = [Counter(target.bodies) for target in targets]
    assert all(set(counts.values()) == {10} for counts in found)
    assert sum(len(counts) for counts in found) == 300 and min(map(len, found)) > 60


def test_what_has_no_key_goes_to_each_in_turn(produce: MakeProducer) -> None:
    targets = [FakeTarget(), FakeTarget()]
    producer = produce(targets)
    for i in range(4):
        producer.send(b"%d" % i)
    producer.close()
    assert [t.bodies for t in targets] == [[b"0", b"2"], [b"1", b"3"]]


def test_without_adjusting_a_key_is_the_hash(produce: MakeProducer) -> None:
    targets = [FakeTarget(), FakeTarget()]
    producer = produce(targets, adjust_shard_hash=False)
    producer.send(b"low", key="7f" + "f" * 30)
    producer.send(b"high", key="80" + "0" * 30)
    for bad in ("0", "127.0.0.1", "g" * 32, "-" + "0" * 31):
        with pytest.raises(OptionError, match="a hash of 32 hexadecimal digits"):
            producer.send(b"x", key=bad)
    producer.close()
    assert [t.bodies for t in targets] == [[b"low"], [b"high"]]


def test_keys_without_end_leave_nothing_behind(produce: MakeProducer) -> None:
    producer = produce([FakeTarget(), FakeTarget()])
    for i in range(5000):
        producer.send(b"x", key=f"{i}")
    producer.flush()
    assert len(producer._pipeline.accumulator._open) == 0
    assert len(producer._pipeline.buffer.batches) == 0


def test_more_channels_than_buckets_are_refused(produce: MakeProducer) -> None:
    with pytest.raises(OptionError, match="buckets is 2, but there are 3 channels"):
        produce([FakeTarget() for _ in range(3)], buckets=2)
