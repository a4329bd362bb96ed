"""The driver's commit of what tasks staged for one channel: one put transaction, which the channel remembers.

Only rows that the commit names count, so retried, speculative and zombie tasks leave no trace. The channel remembers a
batch by a name and a number (`SinkBatch`), so committing it again does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from spillable_stream.channel.channel import Channel
from spillable_stream.engine.port import ChannelPort, Delayed, DelayedChunk, KnownState, Put, SinkBatch, StagePlan
from spillable_stream.errors import ChannelFullError, NotAChannelError, PutTooLargeError, SpillableError
from spillable_stream.format.commit_record import DelayedRun, SegmentRef
from spillable_stream.format.frame import Frame
from spillable_stream.log_records import fields, log_of
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.sink.task_guards import refuse_self_read
from spillable_stream.spark.sink.task_stage import Staged

__all__ = ["ChannelCommit", "OpenCommit"]

_log = log_of(__name__)

_WARN_AFTER_SECONDS = 10.0
_SKIPPED = (
    "%s already has, from %s, the batch %d or a later one: this write is skipped, as it should be when a batch is "
    "tried again. If these are other rows, from an old copy of a checkpoint, use a new checkpointLocation, or another "
    "txnAppId"
)
_LEFT = (
    "a write to %s failed, and the files that its tasks staged (%d) could not be removed: %s. They count for nothing, "
    "and a checkpoint of the channel removes them"
)
_LEFT_BEHIND = (
    "%s has the rows of a write, and what its tasks staged besides could not be removed: %s. That counts for nothing, "
    "and a checkpoint of the channel removes it"
)


@dataclass(frozen=True, slots=True)
class ChannelCommit:
    """How a channel gets what tasks staged for it. Picklable.

    Args:
        path: the channel's directory, or its address in a store.
        stage: how the tasks stage their rows.
        keep_alive_seconds: how long the commit waits for room.
        known: what the plan's process knew of the channel; None if the commit's is to ask.
    """

    path: str
    stage: StagePlan
    keep_alive_seconds: float
    known: KnownState | None = None

    @contextmanager
    def opened(self, staged: Sequence[Staged], batch_id: int) -> Iterator[OpenCommit]:
        """Open the channel to publish rows, unless they do not belong there.

        Args:
            staged: the messages of the tasks that have rows.
            batch_id: the batch that they staged for.

        Raises:
            NotAChannelError: the channel was removed and created again.
            OptionError: the rows' query reads this channel.
        """
        made: list[str] = []
        try:
            known = self.known if staged[0].query is None else None  # what a query reads is seen in the newest state
            with visit(self.path, create=False, known=known) as channel:
                _require_same(channel, staged[0])
                refuse_self_read(channel, staged[0].query)
                yield OpenCommit(self, channel.port(), staged, batch_id, made)
        except BaseException:  # Spark's abort knows only the tasks' staged files
            with contextlib.suppress(SpillableError):
                self._discard(made)
            raise

    def discard(self, staged: Iterable[Staged]) -> None:
        """Remove the staged files of a failed write's tasks, or warn that they are left.

        An error would take the place of the commit's, and Spark would say no more than "Writing job failed".
        """
        names = [name for m in staged for name in m.staged_names()]
        try:
            self._discard(names)
        except SpillableError as e:
            _log.warning(_LEFT, self.path, len(names), e, extra=fields(self.path))

    def _discard(self, names: list[str]) -> None:
        """Remove staged files that the channel has not adopted, even if it is unknown how the commit ended."""
        if names:
            with visit(self.path, create=False) as channel:
                channel.port().discard(names)


class OpenCommit:
    """A commit whose channel is open.

    Args:
        commit: how the channel gets the rows.
        port: the channel's.
        staged: the messages of the tasks that have rows.
        batch_id: the batch that they staged for.
        made: receives the names of the staged files that are created here.
    """

    def __init__(
        self, commit: ChannelCommit, port: ChannelPort, staged: Sequence[Staged], batch_id: int, made: list[str]
    ) -> None:
        self._commit = commit
        self._port = port
        self._staged = staged
        self._owner = staged[0].owner
        self._batch_id = batch_id
        self._made = made

    def publish(self, sink: SinkBatch | None) -> None:
        """Commit the rows as one put transaction.

        Args:
            sink: the key by which the channel remembers the batch, so that it is not committed twice; None to allow
                that.

        Raises:
            ChannelFullError: there was no room in time; nothing was published.
        """
        frames, segments = self._in_order()
        delayed = self._delayed()
        is_skipped = not self._publish(Put(frames, segments, sink, delayed=delayed))
        if is_skipped:
            _log.warning(_SKIPPED, self._commit.path, *(sink or ("", 0)), extra=fields(self._commit.path))
        self._tidy(is_skipped=is_skipped)
        self._port.checkpoint_if_due()

    def _tidy(self, *, is_skipped: bool) -> None:
        """Remove what nobody will adopt. A failure is only logged: an error says that no rows are stored, and they are.

        Args:
            is_skipped: whether the batch was committed before, so that all that was staged is left.
        """
        try:
            if is_skipped:
                self._port.discard([*(name for m in self._staged for name in m.staged_names()), *self._made])
            self._port.end_staging(self._owner, self._batch_id)
        except SpillableError as e:
            _log.warning(_LEFT_BEHIND, self._commit.path, e, extra=fields(self._commit.path))

    def _publish(self, put: Put) -> bool:
        """Commit, waiting for room if necessary; False if the batch was committed before."""
        keep_alive_seconds = self._commit.keep_alive_seconds
        try:
            return self._port.publish(put, min(keep_alive_seconds, _WARN_AFTER_SECONDS))
        except PutTooLargeError:
            raise
        except ChannelFullError as e:
            left = keep_alive_seconds - _WARN_AFTER_SECONDS
            if left <= 0:
                raise
            _log.warning(
                "%s: the sink waits up to %g s more for room: %s",
                self._commit.path,
                left,
                e,
                extra=fields(self._commit.path, seconds=left),
            )
            return self._port.publish(put, left)

    def _in_order(self) -> tuple[list[Frame], list[SegmentRef]]:
        """Return all output as frames; or only as staged files if any task has one, to keep the tasks' order.

        The small outputs between two large ones share a file: each file is a sync, or a request to a store.
        """
        if not any(m.segment for m in self._staged):
            return [frame for m in self._staged for frame in m.frames], []
        segments: list[SegmentRef] = []
        for is_large, tasks in groupby(self._staged, lambda m: m.segment is not None):
            of_tasks = list(tasks)
            if is_large:
                segments += [m.segment for m in of_tasks if m.segment is not None and m.segment.count]
            elif frames := [frame for m in of_tasks for frame in m.frames]:
                segments.append(self._segment_of(frames))
        return [], segments

    def _delayed(self) -> Delayed | None:
        """Return all delayed rows; or only as staged side files if any task has some, to keep the tasks' order."""
        if not any(m.runs for m in self._staged):
            return self._port.delay([chunk for m in self._staged for chunk in m.delayed])
        runs: list[DelayedRun] = []
        for is_large, tasks in groupby(self._staged, lambda m: bool(m.runs)):
            of_tasks = list(tasks)
            if is_large:
                runs += [run for m in of_tasks for run in m.runs]
            elif chunks := [chunk for m in of_tasks for chunk in m.delayed]:
                runs += self._side_files_of(chunks)
        return self._port.adopt(runs)

    def _side_files_of(self, chunks: list[DelayedChunk]) -> list[DelayedRun]:
        """Write delayed rows into staged side files."""
        staging = self._commit.stage.begin_delayed(self._owner, self._batch_id)
        try:
            staging.write(chunks)
            runs = list(staging.finish().runs)
        except BaseException:
            staging.discard()
            raise
        staging.close()
        self._made += [run.name for run in runs]
        return runs

    def _segment_of(self, frames: list[Frame]) -> SegmentRef:
        """Write frames into a staged file."""
        writer = self._commit.stage.begin(self._owner, self._batch_id)
        try:
            writer.write(frames)
            reference = writer.finish()
        except BaseException:
            writer.discard()
            raise
        writer.close()
        self._made.append(reference.name)
        return reference


def _require_same(channel: Channel, staged: Staged) -> None:
    """Refuse rows that were staged for another channel, whose columns may have another order or other types."""
    if channel.uuid != staged.channel:
        raise NotAChannelError(
            f"the rows were staged for the channel {staged.channel}, and {channel.path} is the channel {channel.uuid} "
            "now: it was removed and created again. None of them was stored; write them again"
        )
