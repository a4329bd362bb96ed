"""What a producer sends to, as it was given: opened, each place once, and the route that keys take to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spillable_stream.arguments import text
from spillable_stream.errors import OptionError
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

    Attributes:
        receiving: the targets that events go to, each once.
        dead: the target of dead letters; None without one.

    Raises:
        OptionError: there is no target, or events and dead letters go to the same one.
        SpillableError: a channel can't be opened; all that `Channel` raises.
    """

    def __init__(self, given: Receiver | Receivers, dead_letter: Receiver | None) -> None:
        self._by_place: dict[str | int, Target] = {}
        self.dead: Target | None = None
        try:
            self._keys = self._open_all(given)
            self.receiving: list[Target] = list(self._by_place.values())
            if dead_letter is not None:
                self.dead = self._open(dead_letter)
                if self.dead in self.receiving:
                    raise OptionError(f"{self.dead.name} can't be the dead-letter channel: events are sent there")
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Target]:
        return iter(self._by_place.values())

    def _open_all(self, given: Receiver | Receivers) -> Target | dict[str, Target] | list[Target]:
        """Open all targets and return them as they were given: one, a mapping or a list."""
        if isinstance(given, Mapping):
            found: dict[str, Target] | list[Target] = {
                text("a key", key): self._open(one) for key, one in given.items()
            }
        elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
            found = [self._open(one) for one in given]
        else:
            return self._open(given)
        if not found:
            raise OptionError("a producer needs at least one channel to send to")
        return found

    def _open(self, given: Receiver) -> Target:
        """Open a target, unless one that leads to the same place is open: its batches have one sequence of numbers."""
        opened = as_target(given)
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
