from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillable_stream import Channel, Event
from spillable_stream.errors import EventTooLargeError, PutTooLargeError, TransactionCapacityError
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.flow.part_room import PartRoom
from tests.support.object_channels import stores_in_memory
from tests.support.spools import open_spooled, without_threads


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
    with pytest.raises(
        TransactionCapacityError, match="6 events for the channel disk, whose transaction_capacity is 5"
    ):
        room.require({"disk": as_event_batch([SMALL] * 6)})
    for too_large in ([SMALL] * 5, [HALF] * 2, [LARGE]):
        with pytest.raises(PutTooLargeError):
            room.require({"memory": as_event_batch(too_large)})


def test_only_events_that_never_fit_are_taken_out_of_a_part(channels: dict[str, Channel]) -> None:
    parts = {"disk": as_event_batch([LARGE]), "memory": as_event_batch([SMALL, LARGE, HALF, HALF])}
    rejected = PartRoom(channels).reject_too_large(parts, except_for="")
    assert [(r.interceptor, r.error.split(":")[0], r.event.num_rows) for r in rejected] == [
        ("memory", "PutTooLargeError", 1)
    ]
    assert [len(body) for body in parts["memory"].column("body").to_pylist()] == [1, 450_000, 450_000]
    assert parts["disk"].num_rows == 1


def test_a_part_whose_events_all_never_fit_is_removed_but_not_that_of_the_excepted_channel(
    channels: dict[str, Channel],
) -> None:
    room, parts = PartRoom(channels), {"memory": as_event_batch([LARGE] * 2)}
    assert room.reject_too_large(parts, except_for="memory") == [] and list(parts) == ["memory"]
    assert len(room.reject_too_large(parts, except_for="disk")) == 2
    assert parts == {}


def test_capacities_count_as_they_are_now_whoever_lowers_them(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        room, part = PartRoom({"c": channel}), {"c": as_event_batch([SMALL] * 4)}
        room.require(part)
        Channel(tmp_path / "c", overflow_capacity=3).close()
        with pytest.raises(PutTooLargeError):
            room.require(part)
        Channel(tmp_path / "c", overflow_capacity=4, transaction_capacity=3).close()
        with pytest.raises(TransactionCapacityError):
            room.require(part)


def test_of_a_channel_with_a_spool_the_spools_capacities_count_and_the_store_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch)
    with stores_in_memory():
        Channel(tmp_path / "spool", overflow_capacity=3, minimum_required_space=0).close()
        with open_spooled(tmp_path / "spool", overflow_capacity=9) as channel:
            room = PartRoom({"c": channel})

            def ask() -> None:
                pytest.fail("the store is asked")

            monkeypatch.setattr(channel.engine().follower, "look", ask)
            room.require({"c": as_event_batch([SMALL] * 3)})
            with pytest.raises(PutTooLargeError):
                room.require({"c": as_event_batch([SMALL] * 4)})


def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no frame hold more than 100,000 bytes."""
    monkeypatch.setattr("spillable_stream.format.batch.MAX_PAYLOAD_BYTES", 100_000)
    for module in ("flow.part_room", "channel.put_transaction"):
        monkeypatch.setattr(f"spillable_stream.{module}.SURELY_FRAMED_BYTES", 50_000)


def test_an_event_must_fit_a_frame_also_where_the_disk_has_room(
    channels: dict[str, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_frames(monkeypatch)
    room = PartRoom(channels)
    room.require({"disk": as_event_batch([Event(b"e" * 40_000)] * 5)})
    with pytest.raises(EventTooLargeError):
        room.require({"disk": as_event_batch([SMALL, HALF])})
