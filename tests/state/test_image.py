"""The images of a state have the keys that they say, and are plain values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel, Event
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.format.packing import pack, unpack
from spillable_stream.format.record import ControlRecord
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Restore
from spillable_stream.state.image import MemoryImage, ObjectsImage, RecoveriesImage, SmallImage, StateImage
from tests.support.events import numbered, put
from tests.support.object_channels import URL, stores_in_memory

Open = Callable[..., Channel]


@pytest.fixture
def plain(open_channel: Open) -> Channel:
    """A channel without a memory tier and without producers."""
    channel = open_channel()
    put(channel, *numbered(0, 3))
    return channel


@pytest.fixture
def full(open_channel: Open) -> Channel:
    """A channel of which there is everything to say: a memory tier, a producer, takes under way, events kept."""
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 20, retention_ms=3_600_000)
    with channel.put_transaction() as tx:
        tx.put(Event(b"0"))
        tx.producer = NumberedBatch("a producer", Numbers(1, 1))
    put(channel, *numbered(1, 3))
    with channel.take_transaction() as tx:
        tx.take()
    change(
        channel, FrameType.RETENTION, {"clock": ("0a" * 16, 5, 1_000_000, 900_000), "jump": (900_000, -3, 1_000_000)}
    )
    change(channel, FrameType.GROUP, {"group": "query", "position": 0, "auto": True, "since": 0})
    change(channel, FrameType.GROUP, {"group": "query", "idle": 7})
    change(channel, FrameType.GROUP, {"group": "back", "position": 1})
    change(channel, FrameType.GROUP, {"group": "back", "seek": 0, "reset": "a token"})
    channel.consumer("default").prepare([(2, 2)])
    with channel.put_transaction() as tx:
        tx.put(Event(b"late"), deliver_after=60)
    channel.engine().state.restores.append(Restore(2, "a restore's token"))
    return channel


def change(channel: Channel, type_: FrameType, value: ControlRecord) -> None:
    channel.engine().commit(Control(type_, value))


def test_what_every_state_has_is_required(plain: Channel) -> None:
    state = plain.engine().state
    written = RecoveriesImage.__optional_keys__  # as soon as anything was
    assert state.image().keys() == StateImage.__required_keys__ | written
    assert state.small().keys() == SmallImage.__required_keys__ | written
    assert StateImage.__required_keys__ - SmallImage.__required_keys__ == {"blocks"}


def test_what_only_some_states_have_is_optional(full: Channel) -> None:
    state = full.engine().state
    of_objects = ObjectsImage.__optional_keys__
    assert state.image().keys() == StateImage.__required_keys__ | StateImage.__optional_keys__ - of_objects
    assert state.small().keys() == SmallImage.__required_keys__ | SmallImage.__optional_keys__ - of_objects


def test_what_only_a_state_of_a_log_of_objects_has_is_optional() -> None:
    with stores_in_memory(), Channel(URL) as channel:
        channel.consumer("default")
        change(channel, FrameType.TRIM, {"through": 1, "births": 1, "deleted": 0})
        image = channel.engine().state.image()
        assert image.keys() == StateImage.__required_keys__ | ObjectsImage.__optional_keys__
        again = ChannelState.from_image(unpack(pack(image)))
        assert (again.owners, again.trimmed) == (channel.engine().state.owners, (1, 1, 0))


def test_a_file_of_memory_begins_with_two_keys_more(full: Channel) -> None:
    engine = full.engine()
    header = engine.log.tiers.memory.read_file_header(engine.positions.memory.file_id)
    assert header is not None
    assert header.state.keys() >= MemoryImage.__required_keys__
    assert MemoryImage.__required_keys__ - StateImage.__required_keys__ == {"disk", "boot"}


@pytest.mark.parametrize("name", ["plain", "full"])
def test_an_image_that_was_written_and_read_is_one_of_the_same_state(request: pytest.FixtureRequest, name: str) -> None:
    image = request.getfixturevalue(name).engine().state.image()
    assert ChannelState.from_image(unpack(pack(image))).image() == ChannelState.from_image(image).image() == image
