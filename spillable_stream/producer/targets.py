"""What a producer sends to, as it was given: opened, each place once, and the route that keys take to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from spillable_stream.arguments import text
from spillable_stream.channel.several_channels import WantedChannel, open_channels
from spillable_stream.counted import counted
from spillable_stream.errors import OptionError
from spillable_stream.objects.location import Location, channel_path
from spillable_stream.option_names import named
from spillable_stream.option_types import ProducerKeywords
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.key_share import KeyShare
from spillable_stream.producer.routing import ByName, Only, Route, Sharded
from spillable_stream.producer.target import ChannelTarget, Receiver, Receivers, Target, as_target, lasting_name

__all__ = ["Targets"]


class _Given(NamedTuple):
    """What a producer was given to send to.

    Args:
        receivers: the receivers.
        keys: the key of each, if they were given by key.
        is_shared: whether they divide the keys among them.
    """

    receivers: Sequence[Receiver]
    keys: Sequence[str] | None = None
    is_shared: bool = False

    @classmethod
    def of(cls, given: Receiver | Receivers) -> Self:
        """Return what was given: one receiver, several by key, or several that divide the keys; at least one."""
        if isinstance(given, Mapping):
            for key in given:
                text("a key", key)
            found = cls(list(given.values()), list(given))
        elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
            found = cls(list(given), is_shared=True)
        else:
            found = cls([given])
        if not found.receivers:
            raise OptionError("a producer needs at least one channel to send to")
        return found

    @property
    def shards(self) -> int:
        """How many receivers divide the keys among them."""
        return len(self.receivers) if self.is_shared else 1


class Targets:
    """The open targets of a producer, and its dead letters'.

    Args:
        given: one target, a mapping of keys to some, or a sequence of some.
        dead_letter: where dead letters go; None for nowhere.
        options: the producer's options: a wrong one is refused before a channel is created.

    Attributes:
        receiving: the targets that events go to, each once.
        dead: the target of dead letters; None without one.

    Raises:
        OptionError: there is no target, or events and dead letters go to the same one.
        SpillableError: a channel can't be opened; all that `Channel` raises.
    """

    def __init__(
        self, given: Receiver | Receivers, dead_letter: Receiver | None, options: ProducerKeywords | None = None
    ) -> None:
        self._by_place: dict[str | int, Target] = {}
        self.dead: Target | None = None
        try:
            self._given = _Given.of(given)
            receivers = self._given.receivers
            _require_elsewhere(dead_letter, receivers)
            targets = self._open(receivers, [] if dead_letter is None else [dead_letter], options or {})
            self._of_receivers = targets[: len(receivers)]
            self.receiving: list[Target] = list({id(target): target for target in self._of_receivers}.values())
            if dead_letter is not None:
                self.dead = targets[-1]
                if self.dead in self.receiving:
                    raise _same_place(self.dead.name)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Target]:
        return iter(self._by_place.values())

    def _open(self, receivers: Sequence[Receiver], dead: Sequence[Receiver], options: ProducerKeywords) -> list[Target]:
        """Return targets, in order; channels that are given by their paths are opened together.

        None of these is created before it is known that the options fit all of them.
        """
        found: dict[int, Target] = {}
        paths: dict[int, WantedChannel] = {}
        for number, one in enumerate((*receivers, *dead)):
            if isinstance(one, (str, os.PathLike)):
                paths[number] = WantedChannel(one)
            else:
                found[number] = self._keep(as_target(one))
        ProducerConfig.of(options, local=False, max_events=sys.maxsize, channels=self._given.shards)

        def agree(of_paths: list[int]) -> None:
            most = {n: t.max_events for n, t in found.items()} | dict(zip(paths, of_paths, strict=True))
            of_receivers = [most[n] for n in range(len(receivers))]
            for number, one in enumerate(dead, len(receivers)):
                _require_room_for(of_receivers, most[number], found[number].name if number in found else str(one))
            ProducerConfig.of(options, local=False, max_events=min(of_receivers), channels=self._given.shards)

        opened = open_channels(list(paths.values()), agree)
        for number, channel in zip(paths, opened, strict=True):
            found[number] = self._keep(ChannelTarget(channel, is_owned=True))
        return [found[number] for number in sorted(found)]

    def _keep(self, opened: Target) -> Target:
        """Return a target, or the one that leads to the same place: its batches have one sequence of numbers."""
        place = opened.place if isinstance(opened, ChannelTarget) else id(opened)
        found = self._by_place.setdefault(place, opened)
        if found is not opened:
            opened.close()
        return found

    def config(self, given: ProducerKeywords) -> ProducerConfig:
        """Return a producer's options, with the defaults and bounds that the targets ask for.

        Raises:
            OptionError: an option is wrong, or the dead letters' target takes smaller batches than another.
        """
        of_receivers = [target.max_events for target in self.receiving]
        if self.dead is not None:
            _require_room_for(of_receivers, self.dead.max_events, self.dead.name)
        most = min(of_receivers)
        local = all(isinstance(t, ChannelTarget) for t in self.receiving)
        return ProducerConfig.of(given, local=local, max_events=most, channels=self._given.shards)

    def claim(self, producer_id: str, config: ProducerConfig) -> None:
        """Claim a producer's ID everywhere that events go to.

        Raises:
            ProducerBusyError: there is a live producer of this ID.
            ProducerSequenceError: its application numbered batches, and the keys were divided otherwise then.
        """
        for target in self.receiving:
            target.claim(producer_id)
            if self._given.keys is None and isinstance(target, ChannelTarget):
                target.keep_to(producer_id, self._share_of(target, config))

    def _share_of(self, target: Target, config: ProducerConfig) -> KeyShare:
        """Return which keys come to a target; all of them, whatever the buckets, if it is the only one."""
        places = tuple(n for n, other in enumerate(self._of_receivers, 1) if other is target)
        shards, names = len(self._of_receivers), tuple(lasting_name(other) for other in self._of_receivers)
        if shards == 1:
            return KeyShare(places, shards, 1, True, names)
        return KeyShare(places, shards, config.buckets, config.adjust_shard_hash, names)

    def route(self, destinations: Sequence[Destination], config: ProducerConfig) -> Route:
        """Return the route that keys take to the destinations of `receiving`, which are in its order."""
        found = {id(target): destination for target, destination in zip(self.receiving, destinations, strict=True)}
        theirs = [found[id(target)] for target in self._of_receivers]
        if self._given.keys is not None:
            return ByName(dict(zip(self._given.keys, theirs, strict=True)))
        if self._given.is_shared:
            return Sharded(theirs, config.buckets, config.adjust_shard_hash)
        return Only(theirs[0])

    def close(self) -> None:
        """Close the targets that were opened."""
        for target in self:
            target.close()


def _require_room_for(of_receivers: Sequence[int], most: int, dead: str) -> None:
    """Refuse dead letters whose target takes fewer events at once than another, whose batches may all go there."""
    if most < max(of_receivers):
        raise OptionError(
            f"the dead-letter channel {dead} takes {counted(most, 'event')} at once, fewer than a batch may have; "
            f"raise its {named('transactionCapacity')}"
        )


def _require_elsewhere(dead_letter: Receiver | None, receivers: Sequence[Receiver]) -> None:
    """Refuse a path for the dead letters that is one for the events, before a channel is created there."""
    paths = {_address(one) for one in receivers if isinstance(one, (str, os.PathLike))}
    if isinstance(dead_letter, (str, os.PathLike)) and _address(dead_letter) in paths:
        raise _same_place(os.fspath(dead_letter))


def _address(path: str | os.PathLike[str]) -> str:
    place = channel_path(path)
    return str(place) if isinstance(place, Location) else os.path.realpath(place)


def _same_place(name: str) -> OptionError:
    return OptionError(f"{name} can't be the dead-letter channel: events are sent there")
