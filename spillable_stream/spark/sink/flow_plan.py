"""A stream that a source's flow divides: what its tasks run, and the channels that its commit writes to.

The configuration is read where Spark asks for a writer: for each micro-batch once for its tasks, and once for its
commit. Tasks get the interceptors and the selector as the configuration describes them, and build them anew.

Each channel remembers a batch with the division of its rows (`flow_division`). Before a batch is stored, all channels
that the agent uses are asked for it, and one that another division has stored in any of them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from pyspark.sql.types import StructType

from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import OptionError
from spillable_stream.flow.configuration.builder import build
from spillable_stream.flow.configuration.model import SourceConfig
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.interceptors.base import InterceptorChain
from spillable_stream.flow.selectors import Selector
from spillable_stream.spark.sink.division import StoredBatches, batch_of, shown_channels, stored_otherwise, what_to_do
from spillable_stream.spark.sink.optional_channel import OptionalChannel
from spillable_stream.spark.sink.sink_plan import SinkPlan

if TYPE_CHECKING:
    from spillable_stream.spark.sink.optional_commit import OptionalCommit

__all__ = ["FlowPlan"]


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """A write through the interceptors and the selector of a source. Picklable.

    Args:
        base: what messages call it.
        source: the source's configuration.
        names: the names of its channels that must have some events, or may have to; that of the dead letters is the
            last, if it is none of the others.
        channels: how each of them is written.
        times: of each of them, for how long its events count, and when they are due.
        optional: the channels that are required for no event, by name.
        schema: the schema of the rows that Spark sends.
        division: a short name of what the configuration says of where events go; another configuration has another one.
        places: where the agent's channels are, by name; empty for tasks.
    """

    base: str
    source: SourceConfig
    names: tuple[str, ...]
    channels: tuple[SinkPlan, ...]
    times: tuple[EventTimes, ...]
    optional: Mapping[str, OptionalChannel]
    schema: StructType
    division: str
    places: Mapping[str, str]
    transaction: SinkBatch | None = None

    def for_tasks(self) -> Self:
        """Return what the tasks of a stream need of the plan: its commit makes another one."""
        channels = tuple([channel.for_tasks() for channel in self.channels])
        optional = {name: channel.for_tasks() for name, channel in self.optional.items()}
        return replace(self, channels=channels, optional=optional, places={})

    @property
    def beside(self) -> dict[str, str]:
        """Where the agent's other channels are, by name: the file may have had them as the source's before."""
        return {n: place for n, place in self.places.items() if n not in self.names and n not in self.optional}

    def chain(self) -> InterceptorChain:
        """Return the source's interceptors."""
        return InterceptorChain([build(interceptor) for interceptor in self.source.interceptors])

    def selector(self) -> Selector:
        """Return the source's selector."""
        selector: Selector = build(self.source.selector)
        selector.bind(self.source.channels)
        return selector

    def times_of(self, name: str) -> EventTimes:
        """Return for how long the events of a channel count, and when they are due."""
        found = self.optional.get(name)
        return self.times[self.names.index(name)] if found is None else found.times

    def inline_bytes(self, partition_id: int) -> int:
        """Return how much a task may send through the driver: for each optional channel, and for the others together.

        Args:
            partition_id: the task's number among those of its write, from 0.
        """
        least = min(channel.inline_bytes(partition_id) for channel in self.channels)
        return least // (1 + len(self.optional))

    def remembered(self, batch: SinkBatch, division: str, beside: Mapping[str, StoredBatches]) -> SinkBatch:
        """Return by what the channels remember a batch.

        Args:
            batch: the query's ID, and the batch's number.
            division: how the tasks divided its rows.
            beside: the last batches of the agent's other channels, by name, as far as these were asked.

        Raises:
            OptionError: a channel has the batch, or a later one, by another division.
        """
        asked = {**{name: plan.stored for name, plan in self._plans().items()}, **beside}
        found = {name: stored_otherwise(batches, batch, division) for name, batches in asked.items()}
        have = {name: one.batch_id for name, one in found.items() if one is not None}
        if have:
            raise OptionError(
                f"{shown_channels('channel', list(have))} {'has' if len(have) == 1 else 'have'}, from {batch.query}, "
                f"the batch {max(have.values())}, stored when the interceptors, the selector or the channels of "
                f"{self.base} were others, or without them. {what_to_do(batch, max(have.values()), 'the file')}"
            )
        return batch_of(batch, division)

    def asked(self) -> set[str]:
        """Return the UUIDs of the source's channels that have said which batches they have."""
        return {plan.stage.channel for plan in self._plans().values()}

    def _plans(self) -> dict[str, SinkPlan]:
        """Return the plan of each of the source's channels that is open, by name."""
        optional = {name: channel.plan for name, channel in self.optional.items() if channel.plan is not None}
        return {**dict(zip(self.names, self.channels, strict=True)), **optional}

    def shown(self, channels: Sequence[int]) -> str:
        """Return what messages call some of the channels, by their numbers."""
        return shown_channels("channel", [self.names[channel] for channel in channels])

    @property
    def optional_commit(self) -> OptionalCommit:
        """How the optional channels get what the tasks stage."""
        from spillable_stream.spark.sink.optional_commit import OptionalCommit  # as in `SinkPlan.commit`

        return OptionalCommit(self.optional)

    def without_waiting(self) -> FlowPlan:
        """Return the plan for channels that get their rows at once or not at all."""
        return replace(self, channels=tuple(replace(plan, keep_alive_seconds=0.0) for plan in self.channels))
