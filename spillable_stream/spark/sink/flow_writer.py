"""The sink that writes through a flow: tasks run the interceptors and the selector, the commit publishes.

Every channel remembers the batch by its query, its number, and the division by which the tasks staged its rows. So each
has its rows once, though the driver died between two of them: Spark's repetition of the batch completes it, unless the
file divides it otherwise by then. Then it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.flow.dead_letters import as_dead_letters
from spillable_stream.flow.event_batch import select_rows
from spillable_stream.flow.interceptors.base import Rejected
from spillable_stream.flow.surroundings import REAL
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.query_task import partition_id
from spillable_stream.spark.sink.flow_plan import FlowPlan
from spillable_stream.spark.sink.optional_channel import OptionalPart
from spillable_stream.spark.sink.optional_stages import OptionalStages
from spillable_stream.spark.sink.sharded_writer import ShardedStaged, ShardedStreamWriter
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.spark_checkpoint import NOWHERE, SparkCheckpoint
from spillable_stream.spark.sink.task_stage import Staged, TaskStage, staging
from spillable_stream.spark.spark_errors import short_traces

__all__ = ["FlowStaged", "FlowStreamWriter"]

_log = log_of(__name__)


@dataclass
class FlowStaged(ShardedStaged):
    """A task's staged output.

    Args:
        required: the numbers of the channels that must have their rows.
        optional: the rows of channels that are required for none.
        names: the names of all channels that must have some rows, or may have to.
        division: how its rows were divided.
    """

    required: set[int] = field(default_factory=set)
    optional: dict[str, OptionalPart] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    division: str = ""

    def _with_rows(self) -> Iterable[Staged]:
        return [*super()._with_rows(), *(part.staged for part in self.optional.values() if part.staged is not None)]


@short_traces
class FlowStreamWriter(ShardedStreamWriter):
    """Appends a query's micro-batches through a source's flow to its channels, each batch once in each.

    Args:
        plan: the plan of the write.
        checkpoint: the query's checkpoint.
    """

    def __init__(self, plan: FlowPlan, checkpoint: SparkCheckpoint = NOWHERE) -> None:
        super().__init__(plan, checkpoint)

    @property
    def _flow(self) -> FlowPlan:
        assert isinstance(self._plan, FlowPlan)
        return self._plan

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> FlowStaged:
        plan = self._flow
        with staging([c.stage for c in plan.channels], plan.inline_bytes, owner, batch_id) as task:
            aside = OptionalStages(plan.optional, plan.inline_bytes(partition_id()), owner, batch_id)
            try:
                flow = _TaskFlow(plan, task, aside, owner, batch_id)
                flow.run(batches)
                staged: list[Staged] = []
                optional = aside.finish(lambda: staged.extend(task.finish()))
            except BaseException:
                aside.discard()
                raise
        of_channels = {i: found for i, found in enumerate(staged) if found.has_rows}
        return FlowStaged(owner, of_channels, flow.required, optional, plan.names, plan.division)

    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        """Commit to the channels that must have their rows, and then to the others, as far as these take them."""
        staged = [m for m in messages if isinstance(m, FlowStaged)]
        required = {number for message in staged for number in message.required}
        query = next((found.query for m in staged for found in m.of_shards.values()), None)
        optional = self._flow.optional_commit
        optional.refuse_reading(query)
        super()._publish(_only(staged, required), batch_id, sink)
        without_waiting = ShardedStreamWriter(self._flow.without_waiting())
        for number in sorted({n for message in staged for n in message.of_shards} - required):
            try:
                without_waiting._publish(_only(staged, {number}), batch_id, sink)
            except SpillableError as e:
                _log.warning(
                    "the optional channel %s does not get the batch %d: %s",
                    self._flow.names[number],
                    batch_id,
                    e,
                    extra=fields(component=self._flow.names[number]),
                )
        optional.publish(_optional_parts(staged), batch_id, sink)

    def _beside(self, messages: list[WriterCommitMessage | None]) -> dict[str, str]:
        parts = _optional_parts(m for m in messages if isinstance(m, FlowStaged))
        plans = [self._flow.optional[name].plan for name in parts]
        return {plan.path: plan.stage.channel for plan in plans if plan is not None}

    def _remembered(
        self, batch: SinkBatch, messages: list[WriterCommitMessage | None], *, is_first: bool
    ) -> tuple[SinkBatch, set[str]]:
        """Return by what the channels remember the batch; refuse one that any of the agent's has by another division.

        Channels that are not the source's are asked once.
        """
        from spillable_stream.spark.sink.optional_channels import batches_beside  # it opens channels, and no task does

        division = next(message.division for message in messages if isinstance(message, FlowStaged))
        beside = batches_beside(self._flow.base, self._flow.beside) if is_first else {}
        own = {*self._flow.asked(), *(answer.channel for answer in beside.values())}
        return self._flow.remembered(batch, division, {name: answer.batches for name, answer in beside.items()}), own

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch where it was not published before.

        Raises:
            OptionError: the configuration was changed, after the batch was planned, so that it has other channels; or
                after some of the channels had the batch.
        """
        staged = [m for m in messages if isinstance(m, FlowStaged)]
        required, optional = self._flow.names, self._flow.optional
        planned, parts = (staged[0].names if staged else required), _optional_parts(staged)
        if planned != required or not parts.keys() <= optional.keys():
            raise OptionError(
                f"{self._flow.base} had the channels {', '.join([*planned, *parts])} when the batch {batchId} was "
                f"planned, and has {', '.join([*required, *optional])} now, in this order. This commit stored nothing: "
                "start the query again, which continues with the file as it is then, unless channels have a part of "
                "the batch: these need the file that they had"
            )
        super().commit(messages, batchId)

    def _discard(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files, where the configuration still has their channels."""
        staged, names = [m for m in messages if isinstance(m, FlowStaged)], self._flow.names
        here: list[WriterCommitMessage | None] = []
        for message in staged:
            by_name = {message.names[number]: found for number, found in message.of_shards.items()}
            of_channels = {names.index(name): found for name, found in by_name.items() if name in names}
            here.append(ShardedStaged(message.owner, of_channels))
        super()._discard(here)
        parts = _optional_parts(staged)
        self._flow.optional_commit.discard({n: part for n, part in parts.items() if n in self._flow.optional})


class _TaskFlow:
    """The interceptors and the selector, as one task runs them.

    Args:
        plan: the plan of the write.
        task: what the task stages for channels that must have their rows, or may have to.
        aside: what it stages for the others.
        owner: the streaming query's ID.
        batch_id: the batch that the rows belong to.

    Attributes:
        required: the numbers of the channels that must have their rows.
    """

    def __init__(self, plan: FlowPlan, task: TaskStage, aside: OptionalStages, owner: str, batch_id: int) -> None:
        self.required = set[int]()
        self._plan, self._task, self._aside, self._batch_id = plan, task, aside, batch_id
        self._numbers = {name: i for i, name in enumerate(plan.names)}
        self._chain, self._selector = plan.chain(), plan.selector()
        task_name = f"{plan.source.name}:{owner}-{batch_id}:{partition_id()}"  # of another query with this source, too
        self._letter_ids = (f"{task_name}:{i}" for i in count())

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Run them on the task's rows, and stage what they give."""
        self._chain.initialize()
        try:
            for batch in batches:
                rejected: list[Rejected] = []
                if self._plan.source.dead_letter:
                    passed, rejected = self._chain.screen(batch)
                else:
                    passed = self._chain.intercept(batch)
                if passed.num_rows:
                    rejected += self._route(passed)
                self._bury(rejected)
        finally:
            self._chain.close()

    def _route(self, passed: pa.RecordBatch) -> list[Rejected]:
        """Stage rows for the channels that the selector says, and return those whose times are wrong."""
        routes = self._selector.select(passed, self._batch_id).one_part_each()
        self.required.update(self._numbers[name] for name in routes.required)
        rejected: list[Rejected] = []
        for name, rows in {**routes.required, **routes.optional}.items():
            part, times, wrong = self._plan.times_of(name).divide(select_rows(passed, rows), wall_clock_ms())
            if wrong and not self._plan.source.dead_letter:
                raise OptionError(f"{wrong[0].error.removeprefix('OptionError: ')}. Nothing was stored")
            rejected += wrong
            if name in self._numbers:
                self._task.add(self._numbers[name], part, times)
            else:
                self._aside.add(name, part, times)
        return rejected

    def _bury(self, rejected: Iterable[Rejected]) -> None:
        """Stage dead letters."""
        for event in rejected:
            number = self._numbers[self._plan.source.dead_letter]
            self.required.add(number)
            component = f"{self._plan.source.name}/{event.interceptor}"
            ids = [next(self._letter_ids)]
            self._task.add(number, as_dead_letters(event.event, component, [event.error], ids, REAL.now_ms()))


def _optional_parts(messages: Iterable[FlowStaged]) -> dict[str, list[OptionalPart]]:
    """Return the tasks' rows of each optional channel that has some, in the tasks' order."""
    found: dict[str, list[OptionalPart]] = {}
    for message in messages:
        for name, part in message.optional.items():
            found.setdefault(name, []).append(part)
    return found


def _only(messages: list[FlowStaged], channels: set[int]) -> list[WriterCommitMessage | None]:
    """Return the messages with what they say of some channels."""
    return [ShardedStaged(m.owner, {i: s for i, s in m.of_shards.items() if i in channels}) for m in messages]
