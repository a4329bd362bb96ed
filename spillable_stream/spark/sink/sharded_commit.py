"""The driver's commit of what tasks staged for several channels: all are opened first, then each has its transaction.

A micro-batch is visible channel by channel. If the driver dies between two of them, Spark's repetition of the batch
completes it: the channels that have it skip it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import IncompleteWriteError
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.side_by_side import settled, side_by_side
from spillable_stream.spark.sink.channel_commit import ChannelCommit, OpenCommit
from spillable_stream.spark.sink.sharded_plan import DividedPlan
from spillable_stream.spark.sink.task_guards import refuse_self_read
from spillable_stream.spark.sink.task_stage import Staged

__all__ = ["publish"]

_OfShards = Mapping[int, Sequence[Staged]]


def publish(plan: DividedPlan, staged: _OfShards, batch_id: int, sink: SinkBatch | None) -> None:
    """Commit what the tasks staged, to each channel as one put transaction.

    Args:
        plan: the plan of the write.
        staged: the tasks' messages of each channel that has rows, by its number, in the tasks' order.
        batch_id: the batch that they staged for.
        sink: by what a channel remembers the batch, so that it is not committed twice; None to allow that.

    Raises:
        IncompleteWriteError: some channels have their rows, and others failed.
        NotAChannelError: a channel was removed and created again; nothing was published.
        OptionError: the rows' query reads one of the channels; nothing was published.

    Where no channel has its rows, it raises what the commit to the first one did.
    """
    _refuse_self_read(plan, staged)
    commits = [_ShardCommit(plan.channels[shard].commit, staged[shard], batch_id) for shard in staged]
    try:
        side_by_side([commit.open for commit in commits])  # what must be refused is refused before a commit
    except BaseException:
        side_by_side([commit.leave for commit in commits])
        raise
    done = settled([partial(commit.publish, sink) for commit in commits])
    failures = {shard: e for shard, future in zip(staged, done, strict=True) if (e := future.exception())}
    if failures:
        raise _failure(plan, failures, [shard for shard in staged if shard not in failures], sink)


def _refuse_self_read(plan: DividedPlan, staged: _OfShards) -> None:
    """Refuse rows of a query that reads one of the shards that get none; the commits of the others refuse it."""
    query = next((found.query for of_shard in staged.values() for found in of_shard), None)
    if query is None:
        return

    def refuse(path: str) -> None:
        with visit(path, create=False) as channel:
            refuse_self_read(channel, query)

    side_by_side([partial(refuse, c.commit.path) for i, c in enumerate(plan.channels) if i not in staged])


def _failure(
    plan: DividedPlan, failures: Mapping[int, BaseException], stored: Sequence[int], sink: SinkBatch | None
) -> BaseException:
    """Return what to raise of a write that failed in some shards."""
    first = next(iter(failures.values()))
    if not stored or not isinstance(first, Exception):
        return first
    if sink is not None:
        advice = f"A repetition of the batch {sink.batch_id} with the same rows completes it, and stores nothing twice"
    else:
        advice = (
            "To write all rows again would store those twice. Give such writes a txnAppId and a txnVersion, with "
            "which a repetition is safe"
        )
    return IncompleteWriteError(
        f"the write to {plan.base} is incomplete: {plan.shown(stored)} "
        f"{'has' if len(stored) == 1 else 'have'} its rows, and it failed in {plan.shown(list(failures))}: "
        f"{first}. {advice}"
    )


class _ShardCommit:
    """The commit of one shard, in two steps that may run in different threads.

    Args:
        commit: how the shard's channel gets rows.
        staged: the tasks' messages of this shard.
        batch_id: the batch that they staged for.
    """

    def __init__(self, commit: ChannelCommit, staged: Sequence[Staged], batch_id: int) -> None:
        self._opened = commit.opened(staged, batch_id)
        self._commit: OpenCommit | None = None
        self._stack = ExitStack()

    def open(self) -> None:
        """Open the channel, unless the rows do not belong there."""
        self._commit = self._stack.enter_context(self._opened)

    def publish(self, sink: SinkBatch | None) -> None:
        """Commit the rows, and leave the channel."""
        with self._stack:
            assert self._commit is not None, "open() was first"
            self._commit.publish(sink)

    def leave(self) -> None:
        """Leave the channel without a commit."""
        self._stack.close()
