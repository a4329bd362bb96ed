"""What a task stages for optional channels, while it stages for the others.

Each channel has a call of its own, which takes the task's rows one after the other. The task waits for it where too
many of them are held, and at its end, for a second in all. So a slow channel gets what it can stage in the time that
the task takes anyway, and in a second more::

    task      rows ─ rows ─ rows ─ the others' rows are durable ─ a second at most ─▶ what the task says to the driver
               ▼      ▼      ▼                                   ▲
    its call   stage ─ stage ─── stage ─── make them durable ────┘

After a call that fails or is late the channel gets nothing of the micro-batch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pyarrow as pa

from spillable_stream.channel.row_times import RowTimes
from spillable_stream.error_text import text_of
from spillable_stream.errors import SpillableError
from spillable_stream.flow.bulkhead import BegunCall, Bulkhead, BulkheadCall, call_in_time
from spillable_stream.spark.sink.optional_channel import OptionalChannel, OptionalPart
from spillable_stream.spark.sink.task_stage import Staged, TaskStage

__all__ = ["OptionalStages"]

_MOST_BYTES = 32 << 20  # of rows that wait to be staged for one channel


class OptionalStages:
    """What a task stages for optional channels.

    Args:
        channels: the channels, by name.
        inline_bytes: how much it may send through the driver, for each of them.
        owner: the streaming query's ID.
        batch_id: the batch that the rows belong to.
    """

    def __init__(self, channels: Mapping[str, OptionalChannel], inline_bytes: int, owner: str, batch_id: int) -> None:
        self._stages = {
            name: _OptionalStage(channel, partial(_stage, channel, inline_bytes, owner, batch_id))
            for name, channel in channels.items()
        }

    def add(self, name: str, batch: pa.RecordBatch, times: RowTimes) -> None:
        """Let the rows of a channel be staged, as far as it takes them in time."""
        self._stages[name].add(batch, times)

    def finish(self, meanwhile: Callable[[], object]) -> dict[str, OptionalPart]:
        """Let what was staged be durable, and return it for each channel that has rows.

        Args:
            meanwhile: what this thread does before it waits for that.
        """
        stages = {name: stage for name, stage in self._stages.items() if stage.rows}
        for stage in stages.values():
            stage.end()
        meanwhile()
        began = time.monotonic()
        parts = {name: stage.part(began) for name, stage in stages.items()}
        _discard(stage for stage in stages.values() if stage.why_not)
        return parts

    def discard(self) -> None:
        """Remove what was staged, as soon as the channels answer."""
        _discard(self._stages.values())


def _stage(channel: OptionalChannel, inline_bytes: int, owner: str, batch_id: int) -> TaskStage:
    assert channel.plan is not None, "rows are staged where the channel can be opened"
    return TaskStage([channel.plan.stage], inline_bytes, owner, batch_id)


class _OptionalStage:
    """What a task stages for one channel.

    Args:
        channel: the channel.
        begin: begins to stage, which may ask the channel's store.

    Attributes:
        rows: how many rows there are for it.
        why_not: why it misses them; "" while it does not.
    """

    def __init__(self, channel: OptionalChannel, begin: Callable[[], TaskStage]) -> None:
        self.channel = channel
        self.rows = 0
        self.why_not = channel.why_not
        self._begin = begin
        self._task: TaskStage | None = None
        self._call: BegunCall[Staged | None] = BegunCall()
        self._waiting: deque[tuple[pa.RecordBatch, RowTimes]] = deque()
        self._waiting_bytes = 0
        self._has_begun = self._is_whole = self._is_left = self._has_ended = False
        self._changed = threading.Condition()
        self._patience_seconds = Bulkhead.limit_seconds()

    def add(self, batch: pa.RecordBatch, times: RowTimes) -> None:
        """Hand rows over to the call, which is begun with the first; waits where too many of them are held."""
        self.rows += batch.num_rows
        if self.why_not or not batch.num_rows:
            return
        if not self._has_begun:
            self._has_begun = True
            try:
                self.channel.bulkhead.begin(self._call, self._stage_all)
            except SpillableError as e:
                self._miss(e)
                self._is_left = True  # nothing is staged, and so there is nothing to remove
                return
        if not self._hand_over(batch, times):
            self._await(Bulkhead.limit_seconds() if self._has_ended else 0.0)  # its reason is there at once
            _discard([self])

    def _hand_over(self, batch: pa.RecordBatch, times: RowTimes) -> bool:
        def has_room() -> bool:
            return not self._waiting or self._waiting_bytes + batch.nbytes <= _MOST_BYTES

        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: has_room() or self._has_ended, max(0.0, self._patience_seconds))
            self._patience_seconds -= time.monotonic() - began
            if self._has_ended or not has_room():
                return False
            self._waiting.append((batch, times))
            self._waiting_bytes += batch.nbytes
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Say that there are no more rows."""
        with self._changed:
            self._is_whole = True
            self._changed.notify_all()

    def part(self, began: float) -> OptionalPart:
        """Wait for the call, and return what became of the rows.

        Args:
            began: when the task began to wait for its optional channels, in monotonic seconds.
        """
        staged = None if self.why_not else self._await(began + self._patience_seconds - time.monotonic())
        return OptionalPart(staged, self.rows, self.why_not)

    def _await(self, seconds: float) -> Staged | None:
        found = self.channel.bulkhead.outcome(self._call, max(0.0, seconds))
        if isinstance(found, Exception):
            self._miss(found)
            return None
        return found

    def _miss(self, error: Exception) -> None:
        self.why_not = f"its rows can't be staged: {text_of(error)}"

    def leave(self) -> bool:
        """Let the call end without the rows that wait, and tell whether it may have staged some; once."""
        with self._changed:
            if not self._has_begun or self._is_left:
                return False
            self._is_left = True
            self._waiting.clear()
            self._changed.notify_all()
        self.channel.bulkhead.drop(self._call)
        return True

    def discard(self) -> None:
        """Remove what was staged."""
        if self._task is not None:
            self._task.discard()

    # ── in the call's thread ────────────────────────────────────────────────────────────────

    def _stage_all(self) -> Staged | None:
        """Stage the rows as they come, and make them durable; None if they are given up."""
        try:
            while (rows := self._next()) is not None:
                self._task = self._task or self._begin()
                self._task.add(0, *rows)
            if self._is_left or self._task is None:
                return None
            (staged,) = self._task.finish()
            return staged
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _next(self) -> tuple[pa.RecordBatch, RowTimes] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_whole or self._is_left)
            if not self._waiting:
                return None
            rows = self._waiting.popleft()
            self._waiting_bytes -= rows[0].nbytes
            self._changed.notify_all()
            return rows


def _discard(stages: Iterable[_OptionalStage]) -> None:
    """Remove what was staged; where a call is late, when that has ended: it may have staged something yet."""
    left = [stage for stage in stages if stage.leave()]
    call_in_time([BulkheadCall(stage.channel.bulkhead, stage.discard, may_be_put_off=True) for stage in left])
