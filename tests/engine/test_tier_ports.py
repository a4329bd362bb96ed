"""What a committer makes of the answers of its tiers: here a channel's own, which are made to answer otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import Channel, ChannelFullError, StorageError
from spillable_stream.engine import committer, tier_ports
from spillable_stream.errors import DiskSpaceError
from tests.support.bare_engine import AsStaged, NoMemory, NoMoving, NoRoom
from tests.support.events import numbered, put, take
from tests.support.one_module import replace_in

Open = Callable[..., Channel]


def replace_parts(channel: Channel, **parts: Any) -> None:
    """Give a channel's committer other parts."""
    committer: Any = channel.engine().committer
    for name, part in parts.items():
        assert hasattr(committer, f"_{name}")
        setattr(committer, f"_{name}", part)
    committer._full._memory = committer._memory


def test_puts_go_to_disk_without_a_memory_tier_and_nothing_else_is_asked_of_one(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100)
    replace_parts(channel, memory=NoMemory(), moving=NoMoving(), room=NoRoom(), staged=AsStaged())
    put(channel, *numbered(0, 5))
    assert channel.stats().drain_order == [-5]
    assert take(channel) == numbered(0, 5)


def test_a_put_whose_memory_refuses_goes_to_disk_once_it_has_waited(open_channel: Open) -> None:
    class Full(NoMemory):
        def open(self) -> bool:
            return True

        def is_ready(self) -> bool:
            return True

        def has_pages_for(self, size_bytes: int) -> bool:
            return False

    channel = open_channel(memory_capacity=100, overflow_timeout=0)
    put(channel, b"0")  # which creates the tier
    replace_parts(channel, memory=Full())
    put(channel, b"1")
    assert channel.stats().drain_order == [1, -1]


def test_a_tier_that_is_wanted_and_not_there_is_the_reason_of_a_refusal(open_channel: Open) -> None:
    class Refused(NoMemory):
        def why_not(self) -> StorageError:
            return StorageError("no space on /dev/shm")

    channel = open_channel(memory_capacity=100, overflow_capacity=0, keep_alive=0)
    replace_parts(channel, memory=Refused())
    with pytest.raises(ChannelFullError, match=r"there is no memory tier \(no space on /dev/shm\)"):
        put(channel, b"0")


def test_a_put_that_finds_no_space_is_tried_again_once_when_room_was_made(open_channel: Open) -> None:
    made: list[str] = []

    class Room(NoRoom):
        def make_within_a_commit(self) -> None:
            made.append("room")

        def after_a_commit(self) -> None:
            made.append("done")

    class Short(AsStaged):
        def prepare(self, *_: Any) -> None:
            if len(made) < 1:
                raise DiskSpaceError("no space")

    channel = open_channel()
    replace_parts(channel, room=Room(), staged=Short())
    put(channel, b"0")
    assert made == ["room", "done"]

    class Never(AsStaged):
        def prepare(self, *_: Any) -> None:
            raise DiskSpaceError("no space at all")

    replace_parts(channel, staged=Never())
    with pytest.raises(DiskSpaceError, match="no space at all"):
        put(channel, b"1")
    assert made == ["room", "done", "room"]


def test_a_put_that_waits_for_room_looks_as_often_as_its_committer_says(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    channel, other = open_channel(overflow_capacity=1, keep_alive=30), open_channel()
    put(channel, b"0")
    channel.engine().committer.poll_seconds = 7.0

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            take(other, 1)

    replace_in(monkeypatch, committer, "time", sleep=sleep)
    put(channel, b"1")
    assert set(slept) == {7.0}


@pytest.mark.parametrize("port", [vars(tier_ports)[name] for name in tier_ports.__all__ if name.endswith("Port")])
def test_every_verb_of_a_part_says_what_it_does(port: type) -> None:
    verbs = {name: value for name, value in vars(port).items() if not name.startswith("_")}
    assert verbs and [name for name, verb in verbs.items() if not verb.__doc__] == []
