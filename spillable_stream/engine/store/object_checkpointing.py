"""Checkpoints of a channel in an object store, and the end of objects that nobody needs any more.

::

    checkpoint of slot n          the state after it; the two newest are kept
    COMMIT "merge"                what small slots hold is in one object now (`object_merging.py`)
    COMMIT "merge"                likewise what waits (`object_delay_merging.py`)
    TRIM {through, …}             before the older checkpoint, and no slot holds an event that a group has yet to take
    gcDelay later                 slots up to ``through`` go, from the first on, one by one; then what nothing names

The order is what everybody's proof stands on (`spillable_stream.objects.appending`): slot n is there, so none after it
was ever deleted. Any handle may do any of it, at once and again: numbers are never used twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.requests import Control, Request
from spillable_stream.engine.store.object_delay_merging import DelayMerging
from spillable_stream.engine.store.object_log import ObjectLog
from spillable_stream.engine.store.object_merging import ObjectMerging
from spillable_stream.engine.telemetry import Counters
from spillable_stream.errors import LockTimeoutError, NotAChannelError, SpillableError, StorageError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import TrimRecord
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.checkpoints import Hint
from spillable_stream.objects.collector import Collector
from spillable_stream.objects.store import StoreError, is_refusal
from spillable_stream.state.channel_state import ChannelState

__all__ = ["ObjectCheckpointing", "Trim"]

_log = log_of(__name__)

_MOST_SLOTS = 1_000  # between two checkpoints: what an open reads at most
_WORTH_A_TRIM = 100  # slots that nobody needs are worth a record
_MOST_COPIES = 9  # of small slots, of 7 MiB each: they keep up with 2 MB a second
_KEPT = 2
_SAMPLES = 500  # of the newest slot, in the time that staged segments are kept
_WORTH_A_CHECKPOINT = 16  # slots that are read at once


@dataclass(slots=True)
class Trim(Request):
    """Say which slots nobody needs.

    Args:
        record: what it says.
    """

    record: TrimRecord

    def may_repeat(self) -> bool:
        """Tell that it may: the plan looks what is needed."""
        return True

    def size_bytes(self) -> int:
        """Return its size in the log, in bytes."""
        return self._control(self.record).size_bytes()

    def plan(self, plan: AppendPlan) -> CommitResult:
        """Say it of no slot that is needed by now: a repair may have found events that were taken before."""
        through = min(self.record["through"], _first_needed(plan.state, self.record["through"] + 1) - 1)
        return self._control({**self.record, "through": through}).plan(plan)

    def _control(self, record: TrimRecord) -> Control:
        return Control(FrameType.TRIM, record)


def _first_needed(state: ChannelState, number: int) -> int:
    """Return the first slot that holds an event that is kept; else the one of this number.

    A slot that adopted a segment is not needed for it: the checkpoints say where its events are.
    """
    return min((file for file in state.blocks.disk.files if isinstance(file, int)), default=number)


class ObjectCheckpointing:
    """Creates checkpoints, trims and collects. It implements `CheckpointingPort`.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        active_calls: the calls that are under way in this process.
        counters: what the handle counts.

    Attributes:
        monotonic: tells the time in seconds.
        merging: copies small slots together.
        delay_merging: copies small objects of delayed events together.
        collector: deletes what nobody needs.
    """

    def __init__(
        self,
        log: ObjectLog,
        follower: Follower,
        appender: Appender,
        active_calls: ActiveCalls,
        counters: Counters,
    ) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._active_calls = active_calls
        self._counters = counters
        self.monotonic: Callable[[], float] = time.monotonic
        self._alone = threading.Lock()
        self._created_at = self.monotonic()
        self._own: list[int] = []  # the slots of the checkpoints that this handle created, and has not deleted
        self._newest = log.checkpoint_number  # the slot of the newest checkpoint, as far as this handle knows
        # Whether the attempt that is under way, or was the last one, has created its checkpoint.
        self._is_created = False
        self._is_refused = False  # the store has refused to let objects go that nobody needs, and that was told
        self._older = 0  # the slot of the checkpoint before the newest; 0 if none is known
        self._chain = log.chain  # of the state that the collector has seen
        self.merging: ObjectMerging = ObjectMerging(log, follower, appender)
        self.delay_merging: DelayMerging = DelayMerging(log, follower, appender)
        self.collector: Collector = Collector(
            log.store, log.slots, log.checkpoints, log.cache, log.require_there, lambda: self.monotonic()
        )

    def create_if_due(self) -> None:
        """Create a checkpoint if the last one is old, or many slots ago. A failure is logged."""
        slots = self._follower.positions.disk.file_id - self._newest
        interval_seconds = self._follower.state.options.checkpoint_interval / 1000
        if not slots or (slots < _MOST_SLOTS and self.monotonic() - self._created_at < interval_seconds):
            return
        if not self._alone.acquire(blocking=False):
            return
        try:
            with self._log.unasked():
                self._active_calls.run("a checkpoint", self._create)
        except Exception as e:  # the commit that led here has succeeded, so it must not fail
            if not self._log.closed:
                self._report(e)
        finally:
            self._alone.release()

    def _report(self, error: Exception) -> None:
        """Log why there is no checkpoint; or, if there is one, why something that it makes needless is not deleted."""
        if self._is_created and is_refusal(error):
            self._report_refusal(error)
            return
        if self._is_created:
            said = "objects that nobody needs stay for now, which costs storage only"
        else:
            self._counters.checkpoint_write_error_count += 1
            self._created_at = self.monotonic()
            said = "no checkpoint was created; the next open takes longer"
        _log.warning("%s: %s: %s", self._log.path, said, error, extra=fields(self._log.path))

    def _report_refusal(self, error: Exception) -> None:
        """Warn that objects stay that nobody needs, once, until the store lets them go again."""
        if not self._is_refused:
            self._is_refused = True
            said = "objects that nobody needs stay until the store lets them go, which costs storage only"
            _log.warning("%s: %s: %s", self._log.path, said, error, extra=fields(self._log.path))

    def create(self) -> None:
        """Create a checkpoint, and delete what is no longer needed.

        Raises:
            CorruptionError: a slot is damaged; a `DataLossError` if slots are missing.
            NotAChannelError: the channel is no longer there.
            StorageError: it could not be written.
            UnsafeStoreError: slots are lost that were known, or a loss waits to be told. The next call continues with
                what is there.
            LockTimeoutError: another thread took too long creating one.
            TransactionStateError: this thread is inside another call to the channel.
        """
        self._log.require_not_closed()
        if self._follower.snapshot.is_mine():
            self._active_calls.refuse("a checkpoint")
        timeout_seconds = self._log.lock_timeout_seconds
        if not self._alone.acquire(timeout=timeout_seconds):
            raise LockTimeoutError(f"another thread has been creating a checkpoint for more than {timeout_seconds:g} s")
        try:
            self._active_calls.run("a checkpoint", self._create)
        finally:
            self._alone.release()

    def create_soon(self) -> None:
        """Let the next transaction create a checkpoint: events have left, and their objects may go."""
        self._created_at = float("-inf")

    def create_if_worth_it(self) -> None:
        """Create one before a close if an open would read more than a few slots. A failure is logged.

        A store that does not answer soon gets none: the close would wait for each of its requests.
        """
        if self._follower.positions.disk.file_id - self._newest < _WORTH_A_CHECKPOINT:
            return
        try:
            is_there = self._log.last_requests.are_answered(self._log.position)
        except SpillableError as e:
            self._report(e)
            return
        if not is_there:
            self._report(StorageError("the store does not answer"))
            return
        self.create_soon()
        self.create_if_due()

    def give_back_when_idle(self) -> None:
        """Do nothing: objects go some time after their events were taken, whoever is idle."""

    def _create(self) -> None:
        log, follower, self._is_created = self._log, self._follower, False
        log.look_if_idle()
        with self._appender.committing():
            tail, taken = log.tail.counting, follower.state.copy()
        self._renew()
        is_created = log.checkpoints.write(tail, taken)
        self._require_there(tail.number, is_created=is_created)
        self._created_at, self._newest, self._is_created = self.monotonic(), tail.number, True
        if tail.number > log.checkpoint_number:  # else it is the same one, or the state was loaded from a later one
            self._own.append(tail.number)
            self._older, log.checkpoint_number = log.checkpoint_number, tail.number
        try:
            log.checkpoints.write_hint(Hint(tail.number, tail.number))
        except StoreError as e:
            _log.info("%s: the hint could not be written: %s", log.path, e, extra=fields(log.path, slot=tail.number))
        went = self._delete_own()
        self.collector.gc_delay_seconds = follower.state.options.gc_delay
        for _ in range(_MOST_COPIES):
            if not self.merging.merge():
                break
        self.delay_merging.merge()
        self._renew()
        self._trim()
        if self.collector.is_due(follower.state.trimmed):  # what a repair needs again must not go
            follower.follow()
        with follower.as_known as state:
            trimmed, named = state.trimmed, state.segments()
            state.blocks.disk.emptied.clear()  # nobody else asks
        self._renew()
        self.collector.add_left(log.delayed.left)
        self.collector.collect(trimmed, named, self._older, log.checkpoint_number)
        if went:
            self._is_refused = False

    def _renew(self) -> None:
        """Forget checkpoints and trims if the state was loaded anew.

        Perhaps a repair has found that more is needed, or somebody has put the bucket back to an earlier version.
        """
        if self._log.chain is not self._chain:
            self._chain, self._older, self._newest = self._log.chain, 0, self._log.checkpoint_number
            self._own.clear()
            self.collector.begin_anew()

    def _require_there(self, number: int, *, is_created: bool) -> None:
        """Take a checkpoint back that was created where the channel was removed: it would be damage in the next one.

        Raises what `ChannelPresence.require` does.
        """
        try:
            self._log.require_there()
        except NotAChannelError:
            if is_created:
                with suppress(StoreError):
                    self._log.checkpoints.take_back(number)
            raise

    def _delete_own(self) -> bool:
        """Delete the checkpoints of this handle but the two newest; those of others go with what was trimmed.

        Returns:
            Whether the store did it, or had nothing to do. A failure is logged.
        """
        if len(self._own) <= _KEPT:
            return True
        try:
            all_went = self.collector.delete_checkpoints(self._own[:-_KEPT])
        except StoreError as e:
            if is_refusal(e):
                self._report_refusal(e)
                return False
            where = self._log.path
            _log.info("%s: old checkpoints stay for now: %s", where, e, extra=fields(where, slot=self._own[0]))
            return False
        if all_went:
            del self._own[:-_KEPT]
        return True

    def _trim(self) -> None:
        """Say which slots nobody needs, if that is worth a slot."""
        self.collector.sample_seconds = self._staging_seconds() / _SAMPLES
        self.collector.sample_tail(self._follower.positions.disk.file_id)
        with self._follower.as_known as state:
            through = min(self._older, _first_needed(state, self._follower.positions.disk.file_id)) - 1
        if through - self._follower.state.trimmed.through < _WORTH_A_TRIM:
            return
        births = self.collector.births(self._staging_seconds())
        self._appender.commit_alone(
            Trim(TrimRecord(through=through, births=births, deleted=self.collector.deleted_through))
        )

    def _staging_seconds(self) -> float:
        return self._follower.state.options.staging_ttl

    def close(self) -> None:
        """Do nothing: nothing is open."""
