"""How a producer begins: under which name, after which numbers in each target, and where keys lead to."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple, Self

from spillable_stream.producer.config import ProducerConfig
from spillable_stream.producer.dead_letters import DeadLetters
from spillable_stream.producer.destination import Destination
from spillable_stream.producer.routing import Route
from spillable_stream.producer.target import Target
from spillable_stream.producer.targets import Targets
from spillable_stream.state.producer_history import PASSING

__all__ = ["Beginning"]


class Beginning(NamedTuple):
    """What a producer begins with.

    Args:
        producer_id: its name.
        destinations: the queues of its targets, in their order.
        dead_letters: where batches go that can't be committed; None for nowhere.
        route: which destination a key leads to.
    """

    producer_id: str
    destinations: Sequence[Destination]
    dead_letters: DeadLetters | None
    route: Route

    @classmethod
    def of(cls, targets: Targets, given_id: str | None, config: ProducerConfig) -> Self:
        """Find out.

        Args:
            targets: what the producer sends to.
            given_id: the name that it was given, which is claimed; None for one that nobody has had.
            config: its options.

        Raises:
            OptionError: two targets could not be told apart after a restart.
            ProducerBusyError: another live producer has the name.
            SchemaError: the dead-letter channel is a typed one.
            SpillableError: a target does not answer.
        """
        producer_id = given_id or _passing_id()
        if given_id is not None:
            targets.claim(given_id, config)
        dead_letters = None if targets.dead is None else DeadLetters(targets.dead, _passing_id())
        if dead_letters is not None and given_id is not None:
            dead_letters.require_distinct(targets.receiving)
        remembered = dead_letters if given_id is not None else None
        destinations = [_destination(target, producer_id, config, remembered) for target in targets.receiving]
        return cls(producer_id, destinations, dead_letters, targets.route(destinations, config))


def _destination(
    target: Target, producer_id: str, config: ProducerConfig, dead_letters: DeadLetters | None
) -> Destination:
    last_dead = dead_letters.last_sequence(producer_id, target) if dead_letters else 0
    return Destination(target, producer_id, target.last_sequence(producer_id), last_dead, config.ttl_us)


def _passing_id() -> str:
    return PASSING + uuid.uuid4().hex[:16]
