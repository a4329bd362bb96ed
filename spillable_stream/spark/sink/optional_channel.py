"""What a stream through a flow does in its optional channels: it waits for each step there for a second, and no longer.

A channel that is required for no event (`Selector.never_required`) has no part in the rest of the write. It is opened,
its rows are staged, and they are committed, each in a thread of its own (`spillable_stream.flow.bulkhead`). Where
one of these fails, or takes longer than a second, the channel misses the micro-batch as a whole::

    plan ── opened? ──▶ tasks ── all of its rows staged? ──▶ the others have the batch ──▶ commit

Rows are staged while the task works (`optional_stages`), so that second begins when the task has staged the others'.

The staged files of a micro-batch that it misses are removed, as soon as what is under way there has ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Self

from spillable_stream.flow.bulkhead import Bulkhead
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.spark.sink.sink_plan import SinkPlan
from spillable_stream.spark.sink.task_stage import Staged

__all__ = ["OptionalChannel", "OptionalPart", "bulkhead_of"]

_bulkheads: dict[tuple[str, str], Bulkhead] = {}  # of this process: Spark makes each call with other objects


@dataclass(frozen=True, slots=True)
class OptionalChannel:
    """A channel that is required for no event. Picklable.

    Args:
        flow: what messages call the flow.
        name: the channel's name.
        times: for how long its events count, and when they are due.
        plan: how it is written; None if it can't be opened now.
        why_not: why it can't; "" if it can.
    """

    flow: str
    name: str
    times: EventTimes
    plan: SinkPlan | None
    why_not: str = ""

    def for_tasks(self) -> Self:
        """Return what the tasks of a stream need of it."""
        return self if self.plan is None else replace(self, plan=self.plan.for_tasks())

    @property
    def bulkhead(self) -> Bulkhead:
        """Its bulkhead in this process."""
        return bulkhead_of(self.flow, self.name)


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """A task's rows for an optional channel.

    Args:
        staged: what was staged; None if the channel misses them.
        rows: how many rows it has for the channel.
        why_not: why the channel misses them; "" if it does not.
    """

    staged: Staged | None
    rows: int
    why_not: str = ""


def bulkhead_of(flow: str, name: str) -> Bulkhead:
    """Return the bulkhead of a channel in this process.

    Args:
        flow: what messages call the flow.
        name: the channel's name.
    """
    return _bulkheads.setdefault((flow, name), Bulkhead(name, counts_late=False))


os.register_at_fork(after_in_child=_bulkheads.clear)  # the threads are the parent's
