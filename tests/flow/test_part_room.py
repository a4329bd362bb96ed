from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import PutTooLargeError, TransactionCapacityError
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.flow.part_room import PartRoom


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[str, Channel]]:
    found = {
        "disk": Channel(tmp_path / "disk", minimum_required_space=0, transaction_capacity=5),
        "memory": Channel(tmp_path / "memory", memory_capacity=4, overflow_capacity=0, byte_capacity=1 << 20),
    }
    yield found
    for channel in found.values():
        channel.close()


SMALL, HALF, LARGE = Event(b"x"), Event(b"h" * 450_000), Event(b"l" * 900_000)


def test_a_part_must_fit_its_channel_by_events_and_by_bytes(channels: dict[str, Channel]) -> None:
    room = PartRoom(channels)
    room.require({"disk": as_event_batch([LARGE] * 5), "memory": as_event_batch([SMALL] * 4)})
    with pytest.raises(TransactionCapacityError, match="6 events for the channel disk, whose transactionCapacity is 5"):
        room.require({"disk": as_event_batch([SMALL] * 6)})
    for too_large in ([SMALL] * 5, [HALF] * 2, [LARGE]):
        with pytest.raises(PutTooLargeError):
            room.require({"memory": as_event_batch(too_large)})


def test_only_events_that_never_fit_are_taken_out_of_a_part(channels: dict[str, Channel]) -> None:
    parts = {"disk": as_event_batch([LARGE]), "memory": as_event_batch([SMALL, LARGE, HALF, HALF])}
    rejected = PartRoom(channels).divide(parts, except_for="")
    assert [(r.interceptor, r.error.split(":")[0], r.event.num_rows) for r in rejected] == [
        ("memory", "PutTooLargeError", 1)
    ]
    assert [len(body) for body in parts["memory"].column("body").to_pylist()] == [1, 450_000, 450_000]
    assert parts["disk"].num_rows == 1


def test_a_part_whose_events_all_never_fit_is_removed_but_not_that_of_the_excepted_channel(
    channels: dict[str, Channel],
) -> None:
    room, parts = PartRoom(channels), {"memory": as_event_batch([LARGE] * 2)}
    assert room.divide(parts, except_for="memory") == [] and list(parts) == ["memory"]
    assert len(room.divide(parts, except_for="disk")) == 2
    assert parts == {}
