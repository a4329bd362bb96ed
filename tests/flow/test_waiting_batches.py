"""Batches that wait for room in a channel whose capacities are lowered meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.errors import DeliveryError, PutTooLargeError, TransactionCapacityError
from spillable_stream.flow.processor import ChannelProcessor
from spillable_stream.flow.routed_batch import RoutedBatch
from tests.support.events import peek
from tests.support.failing_puts import Faulty, Upper
from tests.support.flow_batches import batch_of

TWO_MIB = {"memory_capacity": 9, "overflow_capacity": 0, "byte_capacity": 2 << 20, "minimum_required_space": 0}


def waiting(processor: ChannelProcessor, *bodies: bytes) -> RoutedBatch:
    """Return a batch that was routed, and that no channel took."""
    routed = processor.route(batch_of(*bodies))
    with pytest.raises(DeliveryError):
        processor.deliver(routed)
    return routed


@pytest.mark.parametrize(
    ("lowered", "error"),
    [({"overflow_capacity": 3}, PutTooLargeError), ({"transaction_capacity": 3}, TransactionCapacityError)],
)
def test_a_batch_that_waits_is_refused_whole_like_a_later_one_so_that_its_source_divides_it(
    channels: dict[str, Channel], lowered: dict[str, Any], error: type[Exception]
) -> None:
    given = {"c1": Faulty(channels["c1"], ["full"])}
    with ChannelProcessor(given, [Upper()]) as processor:  # type: ignore[arg-type]
        routed = waiting(processor, b"1", b"2", b"3", b"4")
        Channel(channels["c1"].path, **lowered).close()
        with pytest.raises(error):
            processor.deliver(routed)
        for half in (batch_of(b"a", b"b"), batch_of(b"c")):
            processor.process(half)
    assert peek(channels["c1"]) == [b"A", b"B", b"C"]


def test_an_event_that_waits_and_never_fits_any_more_goes_to_the_dead_letters(
    tmp_path: Path, channels: dict[str, Channel]
) -> None:
    with Channel(tmp_path / "small", **TWO_MIB) as small:
        plan: list[str] = []
        given = {"small": Faulty(small, plan)}
        with ChannelProcessor(given, dead_letter=channels["c3"]) as processor:  # type: ignore[arg-type]
            routed = processor.route(batch_of(b"s", b"l" * 900_000))
            plan.append("full")
            with pytest.raises(DeliveryError):
                processor.deliver(routed)
            Channel(small.path, byte_capacity=1 << 20).close()
            assert processor.deliver(routed) == (2, 2, 1, {"small": 1, "deadLetter": 1})
        assert (peek(small), peek(channels["c3"])) == ([b"s"], [b"l" * 900_000])


def test_a_numbered_batch_that_waits_gives_its_number_to_a_smaller_one(channels: dict[str, Channel]) -> None:
    given = {"c1": Faulty(channels["c1"], ["full"])}
    with ChannelProcessor(given, producer="p") as processor:  # type: ignore[arg-type]
        with pytest.raises(DeliveryError):
            processor.process(batch_of(b"1", b"2", b"3", b"4"), number=1)
        Channel(channels["c1"].path, overflow_capacity=3).close()
        with pytest.raises(PutTooLargeError):
            processor.process(batch_of(b"1", b"2", b"3", b"4"), number=1)
        processor.process(batch_of(b"1", b"2"), number=1)
    assert peek(channels["c1"]) == [b"1", b"2"]


def test_a_part_that_waits_is_put_whole_where_another_channel_has_its_own(channels: dict[str, Channel]) -> None:
    """It can't be divided any more, and a `transactionCapacity` bounds what is put together from now on."""
    given = {"c1": channels["c1"], "c2": Faulty(channels["c2"], ["full"])}
    with ChannelProcessor(given) as processor:  # type: ignore[arg-type]
        routed = waiting(processor, b"1", b"2", b"3", b"4")
        Channel(channels["c2"].path, transaction_capacity=3).close()
        assert processor.deliver(routed).stored == {"c1": 4, "c2": 4}


@pytest.mark.parametrize("lowered", ["c1", "c2"])
def test_a_part_that_another_channel_has_since_before_a_restart_is_put_whole(
    channels: dict[str, Channel], lowered: str
) -> None:
    """Its source can't divide it any more, and would put it again and again."""
    batch = batch_of(b"1", b"2", b"3", b"4")
    given = {"c1": channels["c1"], "c2": Faulty(channels["c2"], ["full"])}
    with ChannelProcessor(given, producer="p") as processor, pytest.raises(DeliveryError):  # type: ignore[arg-type]
        processor.process(batch, number=1)
    Channel(channels[lowered].path, transaction_capacity=3).close()
    with ChannelProcessor({name: channels[name] for name in given}, producer="p") as processor:
        processor.process(batch, number=1)
        with pytest.raises(TransactionCapacityError):
            processor.process(batch, number=2)
    assert [channels[name].stats().channel_size for name in given] == [4, 4]


@pytest.mark.parametrize("fault", ["after", "full"])
def test_a_batch_that_a_channel_has_or_may_have_is_not_divided_again(channels: dict[str, Channel], fault: str) -> None:
    given = {
        "c1": Faulty(channels["c1"], [fault, fault] if fault == "after" else []),
        "c2": Faulty(channels["c2"], ["full"]),
    }
    with ChannelProcessor(given) as processor:  # type: ignore[arg-type]
        routed = waiting(processor, b"1", b"2", b"3", b"4")
        Channel(channels["c2"].path, overflow_capacity=3).close()
        with pytest.raises(DeliveryError, match=r"not in .*c2"):
            processor.deliver(routed)
        Channel(channels["c2"].path, overflow_capacity=4).close()
        assert processor.deliver(routed).stored == {"c1": 4, "c2": 4}
