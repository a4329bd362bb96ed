"""What a producer sends to, as it was given: opened, each place once, and the route that keys take to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from spillable_stream.arguments import text
from spillable_stream.channel.several_channels import WantedChannel, open_channels
from spillable_stream.errors import OptionError
from spillable_stream.objects.location import Location, channel_path
from spillable_stream.option_types import ProducerKeywords
from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.routing import ByName, Only, Route, Sharded
from spillable_stream.producer.target import ChannelTarget, Receiver, Receivers, Target, as_target

__all__ = ["Targets"]


class Targets:
    """The open targets of a producer, and its dead letters'.

    Args:
        given: one target, a mapping of keys to some, or a sequence of some.
        dead_letter: where dead letters go; None for nowhere.
        options: the producer's options: a wrong one is refused before a channel is made.

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
            receivers = _receivers(given)
            _require_elsewhere(dead_letter, receivers)
            shards = len(receivers) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else 1
            targets = self._open([*receivers, *([] if dead_letter is None else [dead_letter])], options or {}, shards)
            self._keys = _as_given(given, targets[: len(receivers)])
            self.receiving: list[Target] = list({id(target): target for target in targets[: len(receivers)]}.values())
            if dead_letter is not None:
                self.dead = targets[-1]
                if self.dead in self.receiving:
                    raise _same_place(self.dead.name)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Target]:
        return iter(self._by_place.values())

    def _open(self, receivers: Sequence[Receiver], options: ProducerKeywords, shards: int) -> list[Target]:
        """Return targets, in order; channels that are given by their paths are opened together."""
        found: dict[int, Target] = {}
        paths: dict[int, WantedChannel] = {}
        for number, one in enumerate(receivers):
            if isinstance(one, (str, os.PathLike)):
                paths[number] = WantedChannel(one)
            else:
                found[number] = self._keep(as_target(one))
        ProducerConfig.of(options, local=False, max_events=sys.maxsize, channels=shards)
        for number, channel in zip(paths, open_channels(list(paths.values())), strict=True):
            found[number] = self._keep(ChannelTarget(channel, is_owned=True))
        return [found[number] for number in range(len(receivers))]

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
        if self.dead is not None and self.dead.max_events < max(t.max_events for t in self.receiving):
            raise OptionError(
                f"the dead-letter channel {self.dead.name} takes {self.dead.max_events:,} events at once, fewer than "
                "a batch may have; raise its transactionCapacity"
            )
        most = min(t.max_events for t in self.receiving)
        local = all(isinstance(t, ChannelTarget) for t in self.receiving)
        channels = len(self._keys) if isinstance(self._keys, list) else 1
        return ProducerConfig.of(given, local=local, max_events=most, channels=channels)

    def route(self, destinations: Sequence[Destination], config: ProducerConfig) -> Route:
        """Return the route that keys take to the destinations of `receiving`, which are in its order."""
        found = {id(target): destination for target, destination in zip(self.receiving, destinations, strict=True)}
        if isinstance(self._keys, Mapping):
            return ByName({key: found[id(target)] for key, target in self._keys.items()})
        if isinstance(self._keys, list):
            return Sharded([found[id(target)] for target in self._keys], config.buckets, config.adjust_shard_hash)
        return Only(destinations[0])

    def leave_claims(self) -> None:
        """In a forked child: leave what keeps out other producers of the name to the parent."""
        for target in self:
            if isinstance(target, ChannelTarget):
                target.leave_claims()

    def close(self) -> None:
        """Close the targets that were opened."""
        for target in self:
            target.close()


def _receivers(given: Receiver | Receivers) -> list[Receiver]:
    """Return the receivers that were given, whether by key, as a list or alone."""
    if isinstance(given, Mapping):
        for key in given:
            text("a key", key)
        found = list(given.values())
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        found = list(given)
    else:
        return [given]
    if not found:
        raise OptionError("a producer needs at least one channel to send to")
    return found


def _require_elsewhere(dead_letter: Receiver | None, receivers: Sequence[Receiver]) -> None:
    """Refuse a path for the dead letters that is one for the events, before a channel is made there."""
    paths = {_address(one) for one in receivers if isinstance(one, (str, os.PathLike))}
    if isinstance(dead_letter, (str, os.PathLike)) and _address(dead_letter) in paths:
        raise _same_place(os.fspath(dead_letter))


def _address(path: str | os.PathLike[str]) -> str:
    place = channel_path(path)
    return str(place) if isinstance(place, Location) else os.path.realpath(place)


def _same_place(name: str) -> OptionError:
    return OptionError(f"{name} can't be the dead-letter channel: events are sent there")


def _as_given(given: Receiver | Receivers, targets: Sequence[Target]) -> Target | dict[str, Target] | list[Target]:
    """Return the targets of `_receivers` as these were given: one, a mapping or a list."""
    if isinstance(given, Mapping):
        return dict(zip(given, targets, strict=True))
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        return list(targets)
    return targets[0]
