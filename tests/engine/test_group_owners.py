"""What a channel asks of its groups' owners, in which order, and what it makes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillable_stream import Channel, GroupOwnedError, StorageError
from spillable_stream.engine import group_owners
from spillable_stream.engine.commit_on_behalf import finish_takes
from spillable_stream.engine.group_owners import GroupHold, GroupOwners, KeptPosition, Ownership
from spillable_stream.state.channel_state import ChannelState
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


class Watched:
    """A channel's owners, which note what they are asked, and "locked" if the commit lock is held meanwhile."""

    def __init__(self, channel: Channel) -> None:
        engine: Any = channel.engine()
        self.asked: list[str] = []
        self.refused: set[str] = set()
        self._lock = engine.log.lock
        self._real = engine.owners
        engine.owners = self

    def note(self, verb: str) -> None:
        """Note a verb, and refuse it if that is wanted."""
        self.asked.append(f"{verb} locked" if self._lock._holding is not None else verb)
        if verb in self.refused:
            raise GroupOwnedError(f"{verb}: somebody else owns it")

    def told(self) -> list[str]:
        """Return what was asked since the last call."""
        told, self.asked = self.asked, []
        return told

    def own(self, group: str, timeout_seconds: float, note: str) -> WatchedOwnership:
        self.note("own")
        return WatchedOwnership(self, self._real.own(group, timeout_seconds, note))

    def position_of(self, group: str) -> WatchedPosition:
        self.note("position of")
        return WatchedPosition(self)

    def __getattr__(self, name: str) -> Any:
        self.note(name)
        return getattr(self._real, name)


class WatchedOwnership:
    def __init__(self, owners: Watched, real: Ownership) -> None:
        self._owners = owners
        self._real = real
        self.position = WatchedPosition(owners)
        self.note, self.former, self.lost = real.note, real.former, None

    def require(self) -> None:
        self._owners.note("require")

    def forget_note(self) -> None:
        self._owners.note("forget note")

    def close(self) -> None:
        self._owners.note("close")
        self._real.close()


class WatchedPosition:
    def __init__(self, owners: Watched) -> None:
        self._owners = owners

    def keep(self, state: ChannelState) -> None:
        self._owners.note(f"keep {state.groups['g'].position}")

    def forget(self) -> None:
        self._owners.note("forget")

    def close(self) -> None:
        self._owners.note("close the position")


def test_a_new_owner_passes_through_the_commit_lock_before_its_group_is_created(open_channel: Open) -> None:
    channel = open_channel()
    owners = Watched(channel)
    channel.consumer("g")
    assert owners.told() == ["owner_of", "own", "require locked", "forget_former"]


def test_each_commit_of_an_owner_proves_that_it_is_one_and_keeps_the_position_under_the_lock(
    open_channel: Open,
) -> None:
    channel = open_channel(memory_capacity=10)  # else there is no log that could be lost
    put(channel, *numbered(0, 10))
    owners = Watched(channel)
    consumer = channel.consumer("g")
    owners.told()
    consumer.commit(consumer.claim(3))
    assert owners.told() == ["require locked", "keep 3 locked"]
    prepared = consumer.prepare(consumer.claim(2))
    assert owners.told() == ["require locked"]
    consumer.commit([(4, 5)], prepared)
    assert owners.told() == ["require locked", "keep 5 locked"]
    consumer.seek(5)
    assert owners.told() == ["require locked", "forget note locked", "forget locked"]
    consumer.close()
    assert owners.told() == ["close"]


def test_takes_on_behalf_of_an_owner_ask_who_that_is_under_the_lock(open_channel: Open) -> None:
    channel, other = open_channel(memory_capacity=10), open_channel()
    put(channel, *numbered(0, 4))
    owner = channel.consumer("g").owner
    channel.consumer("g").prepare([(1, 2)])
    owners = Watched(other)
    assert finish_takes(other.engine(), "g", 2, owner) == 1
    assert owners.told() == ["position of", "owner_of locked", "keep 2 locked", "close the position"]


def test_a_group_is_seen_dropped_and_moved_without_an_owner_by_one_verb(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 4))
    take(channel, 2, "g")
    channel._open.owned.consumers.pop("g").close()
    owners = Watched(channel)
    assert channel.seek("g", "earliest") == 3
    assert owners.told() == ["without_owner"]
    channel.drop_group("g")
    assert owners.told() == ["without_owner"]


def test_whoever_lost_the_group_before_it_had_the_lock_gives_it_up(open_channel: Open) -> None:
    channel = open_channel()
    owners = Watched(channel)
    owners.refused = {"require"}
    with pytest.raises(GroupOwnedError, match="somebody else owns it"):
        channel.consumer("g")
    assert owners.told() == ["owner_of", "own", "require locked", "close"]
    owners.refused = set()
    channel.consumer("g")


def test_a_take_of_whoever_lost_the_group_is_not_written(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 4))
    owners = Watched(channel)
    consumer = channel.consumer("g")
    before = channel.engine().positions
    owners.refused = {"require"}
    commit, prepare = lambda: consumer.commit(consumer.claim(1)), lambda: consumer.prepare([(2, 2)])
    for use in (commit, prepare, lambda: consumer.seek(0)):
        with pytest.raises(GroupOwnedError, match="somebody else owns it"):
            use()
    assert channel.engine().positions == before


def test_a_group_that_is_not_taken_over_is_free_again(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, other = open_channel(), open_channel()

    def refuse() -> None:
        raise StorageError("no space")

    with pytest.raises(StorageError, match="no space"):
        channel.consumer("g", create=refuse)
    other.consumer("g", owner_timeout_seconds=0)


@pytest.mark.parametrize("port", [GroupOwners, GroupHold, Ownership, KeptPosition])
def test_every_verb_says_what_it_does(port: type) -> None:
    assert port.__name__ in group_owners.__all__
    verbs = {name: value for name, value in vars(port).items() if not name.startswith("_")}
    assert verbs and [name for name, verb in verbs.items() if not verb.__doc__] == []
