"""A spool in front of a channel in an object store: puts go to a channel on this host, and a thread ships them."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from datetime import datetime
from functools import partial

import pyarrow as pa

from spillable_stream.channel.open_channel import OpenChannel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.spool_channel import SpooledChannel, open_spool_channel
from spillable_stream.channel.spool_mover import SpoolMover, spool_group
from spillable_stream.channel.stats import SpoolStats, channel_stats
from spillable_stream.channel.stored_options import options_to_be, store_options
from spillable_stream.channel.stored_schema import store_columns
from spillable_stream.counted import counted
from spillable_stream.engine.active_calls import ActiveCalls
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.groups import create_group
from spillable_stream.engine.options_by_storage import SpoolOptions
from spillable_stream.engine.periodic_thread import PeriodicThread
from spillable_stream.engine.port import ChannelPort
from spillable_stream.errors import (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    CommitOutcomeUnknownError,
    DiskSpaceError,
    GroupOwnedError,
    LockTimeoutError,
    OptionError,
    ProducerBusyError,
    ProducerSequenceError,
    SpillableError,
    StorageError,
    TransactionStateError,
    UnsafeStoreError,
)
from spillable_stream.interruptible import begun_or_made
from spillable_stream.log_records import Seldom, fields, log_of
from spillable_stream.objects.store import is_refusal
from spillable_stream.option_types import ChannelOptions
from spillable_stream.quantities import Duration
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["CLOSE_SECONDS", "Spool", "open_spool"]

_log = log_of(__name__)

CLOSE_SECONDS = 10.0
"""How long a close ships what is in the spool, and waits for a put that is under way; the rest stays there."""

_MEMORY_CAPACITY = 100_000
_LOOK_SECONDS = 1.0  # at whether another handle still ships
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_STALLED_SECONDS = 60.0
_MAY_PASS = (
    ChannelBusyError,
    ChannelClosedError,
    ChannelFullError,
    DiskSpaceError,
    GroupOwnedError,
    LockTimeoutError,
    ProducerBusyError,
    ProducerSequenceError,
    TransactionStateError,
    UnsafeStoreError,  # what is there is continued with
)


class _End:
    """Whether a spool is being closed. It takes no lock: a signal handler may close a spool that is being closed."""

    def __init__(self) -> None:
        self._has_come = False

    def has_come(self) -> bool:
        return self._has_come

    def is_ahead(self) -> bool:
        return not self._has_come

    def come(self) -> None:
        self._has_come = True


class Spool:
    """A channel on this host, and the thread that ships its events to a channel in a store. Thread-safe.

    Args:
        local: the spool's channel, open; it is closed with the spool.
        store: the engine of the channel in the store.
        is_durable: whether a put is acknowledged when it is synced; else when it is in the spool's memory tier.

    Attributes:
        active_calls: the calls to the spool's channel that are under way; a close waits for them.

    Raises:
        StorageError: the disk refused.
    """

    def __init__(self, local: OpenChannel, store: Engine, *, is_durable: bool) -> None:
        self._local = local
        self._is_durable = is_durable
        self._end_of_shipping = _End()
        self._is_closed = False
        self._settle_memory()
        create_group(local.engine(), spool_group(store.channel), "earliest")
        self.begin(store)

    def _settle_memory(self) -> None:
        """Give the spool a memory tier, or none, as the handle's durability says."""
        engine = self._local.engine()
        capacity = engine.follow().options.memory_capacity
        if not self._is_durable and not capacity:
            store_options(engine, {"memory_capacity": _MEMORY_CAPACITY})
        elif self._is_durable and capacity:
            store_options(engine, {"memory_capacity": 0}, then=engine.flush)

    def begin(self, store: Engine) -> None:
        """Begin to ship; again in a forked child, which has no thread.

        Args:
            store: the engine of the channel in the store.
        """
        self.active_calls: ActiveCalls = self._local.engine().active_calls
        self._mutex = threading.Lock()  # of who ships now
        self._closing = threading.Lock()
        self._mover = SpoolMover(self._local.engine(), store)
        self._store_path, self._store_calls = store.path, store.active_calls
        self._places = store.path, self._local.path  # of every record, and
        self._about = fields(store.path, file=self._local.path)
        self._shipper = 0  # the thread that has the mutex, or had it last
        self._has_ended = False  # whether a close has ended the shipping, but for the put of that thread
        self._require_told = store.require_not_closed  # it asks nothing of the store
        self._trouble: Exception | None = None  # why the last attempt failed
        self._failures = 0
        self._pause_seconds = 0.0
        self._warning = Seldom()
        # The thread must not hold this object: one that is forgotten, and not closed, ends with its last reference.
        self._thread = PeriodicThread(self, "spillable spool", self._end_of_shipping.is_ahead)
        self._thread.ensure()

    # ── puts ────────────────────────────────────────────────────────────────────────────────

    def put_transaction(self) -> PutTransaction:
        """Return a new put transaction of the spool.

        Raises:
            OptionError: another process gave the spool a memory tier, and this handle was promised a disk.
            SpillableError: the store refuses for good what is in the spool, by the error that it refused it with.
            UnsafeStoreError: the store has lost slots, as the thread that ships has found. It is raised once.
        """
        self._require_told()
        trouble = self._trouble
        if trouble is not None and _is_lasting(trouble):
            raise self._refusal(trouble) from trouble
        if self._is_durable and self._local.engine().follow().options.memory_capacity:
            raise OptionError(
                f"the spool {self._local.path} has a memory tier: another process opened it with durability=memory, "
                "but this handle has durability=local; use the same one everywhere"
            )
        transaction = self._local.puts("a put").put_transaction()
        transaction.carries_dues = True
        return transaction

    def _refusal(self, trouble: Exception) -> SpillableError:
        said = (
            f"{self._store_path} refuses what is in the spool {self._local.path}, and will refuse it again: {trouble}. "
            "Nothing is lost, and this put stored nothing; once the cause is fixed, the spool is shipped and takes puts"
        )
        if isinstance(trouble, SpillableError) and not isinstance(trouble, CommitOutcomeUnknownError):
            refusal = type(trouble)(said)
        else:
            refusal = StorageError(said)
        if isinstance(refusal, StorageError):
            refusal.stored_nothing = True
        return refusal

    def due_ms(self, deliver_after: Duration | None, deliver_at: datetime | None) -> int:
        """Return when events are due that are put now, as `Channel.due_ms` does; it raises what that raises."""
        return self.put_transaction().due_ms(deliver_after, deliver_at)

    def evolve(self, schema: pa.Schema) -> None:
        """Add columns that the channel in the store has by now; others may have given the spool more of them."""
        store_columns(self._local.engine(), schema)

    def port(self) -> ChannelPort:
        """Return the port of the spool's channel."""
        return self._local.puts().port()

    def options(self) -> ChannelOptions:
        """Return the stored options of the spool's channel."""
        return self._local.puts().options()

    def failure(self) -> str:
        """Return why a storage failure closed the spool's log; "" if none did."""
        return self._local.failure()

    def stats(self) -> SpoolStats:
        """Return what is yet to be shipped; it asks nothing of the store."""
        found = channel_stats(self._local.engine())
        return SpoolStats(
            events=found.channel_size,
            size_bytes=found.memory.payload_bytes + found.disk.payload_bytes,
            oldest_seconds=found.oldest_age_seconds,
            trouble="" if self._trouble is None else str(self._trouble),
        )

    # ── shipping ────────────────────────────────────────────────────────────────────────────

    def period_seconds(self) -> float:
        """Return how long to wait before the next attempt."""
        return self._pause_seconds

    def run_once(self) -> bool:
        """Ship what waits, or wait for it, and tell whether there will be another time; a failure is logged."""
        try:
            with self._mover.unasked():
                is_others = self._mover.wait(self._end_of_shipping.has_come) and not self._ship()
                self._pause_seconds = _LOOK_SECONDS if is_others else 0.0
                return self._end_of_shipping.is_ahead()
            self._pause()  # a loss, which is logged; the next attempt may meet it again
        except ChannelClosedError as e:  # one of the two handles failed, or was closed
            self._trouble = e
            with self._mutex, contextlib.suppress(SpillableError):
                self._mover.close(is_answered=True)
            return False
        except Exception as e:  # also what nobody thought of: the thread must not end
            self._wait_after(e)
        return self._end_of_shipping.is_ahead()

    def _ship(self) -> bool:
        """Ship one put, if this handle is the one that ships, and tell whether it is."""
        try:
            with self._mutex:
                return not self._has_ended and self._ship_alone()
        finally:
            if self._has_ended:  # looked at without the mutex: see `_end_mover`
                with self._mutex, contextlib.suppress(SpillableError):
                    self._mover.close(is_answered=False)

    def _ship_alone(self) -> bool:
        self._shipper = threading.get_ident()
        try:
            if not self._mover.own():
                return False
            self._mover.ship()
        except Exception as e:
            self._trouble = e
            raise
        if self._failures:
            _log.info("%s: the spool %s is shipped again", *self._places, extra=self._about)
        self._trouble, self._failures = None, 0
        return True

    def _pause(self) -> None:
        pause_seconds = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 20))
        self._failures += 1
        self._pause_seconds = pause_seconds * random.uniform(0.5, 1.0)

    def _wait_after(self, error: Exception) -> None:
        self._trouble = error
        self._pause()
        if self._warning.is_due():
            says = "%s: what is in the spool %s waits, and is tried again: %s"
            _log.warning(says, *self._places, error, extra=self._about)

    def flush(self) -> int:
        """Ship everything that is in the spool now, and return how many events that were.

        Raises:
            StorageError: the store refused or failed, or another handle that ships the spool got no further for a
                minute; what is not shipped is still in the spool. It raises what else a put to the store raises.
        """
        count, last_id = self._mover.waiting()
        seen, deadline = -1, 0.0
        while count and (position := self._mover.position()) < last_id:
            if position != seen:
                seen, deadline = position, time.monotonic() + _STALLED_SECONDS
            if self._ship():
                continue
            if time.monotonic() >= deadline:
                raise StorageError(
                    f"another handle ships the spool {self._local.path} to {self._store_path}, but has made no "
                    f"progress for {_STALLED_SECONDS:g} s; its log says why. The events are still in the spool"
                )
            time.sleep(0.01)
        return count

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def close(self, *, ship: bool = True) -> None:
        """Ship the events that wait, for `CLOSE_SECONDS` at most, and leave the rest in the spool. Idempotent.

        A put that the store does not answer by then is left to its own end. Another handle ships behind that, or once
        this process has ended. If the store has the put, it is not shipped again: a handle asks before it ships.

        Raises:
            StorageError: the disk refused; the spool is closed.
            TransactionStateError: this thread is inside of a call to the spool's channel.
        """
        self.active_calls.refuse_within("a close")
        self._end_of_shipping.come()
        with self._closing:
            if not self._is_closed:
                self._end(time.monotonic() + CLOSE_SECONDS, ship=ship)

    def _end(self, deadline: float, *, ship: bool) -> None:
        patience_seconds = 0.0  # after an interrupt
        try:
            with contextlib.suppress(ChannelClosedError):  # its log failed, and it says nothing more
                if self._thread.end(CLOSE_SECONDS) and ship and (left_seconds := deadline - time.monotonic()) > 0:
                    shipping = begun_or_made(partial(self._ship_until, deadline))
                    if shipping.ends_within(left_seconds):
                        shipping.take()
                self._report_left()
            patience_seconds = max(0.0, deadline - time.monotonic())
        finally:
            self._end_mover(patience_seconds)
            self._local.close()
            self._is_closed = True  # not before: after an interrupt, the next close does what is left to do

    def _end_mover(self, patience_seconds: float) -> None:
        """Let another handle ship. A put that is under way is left to its thread, which does the same behind it."""
        has_it = self._mutex.acquire(timeout=patience_seconds)
        self._has_ended = True  # whoever comes to the mutex ships no more; whoever has it looks at this behind it
        if not (has_it or self._mutex.acquire(blocking=False)):
            self._store_calls.leave(self._shipper)
            return
        try:
            self._mover.close(is_answered=self._trouble is None)
        finally:
            self._mutex.release()

    def _ship_until(self, deadline: float) -> None:
        try:
            is_mine, losses = True, 0  # in a row
            while is_mine and losses < 2 and time.monotonic() < deadline and self._mover.waiting()[0]:
                losses += 1
                with self._mover.unasked():  # a loss of earlier events is no reason to leave these here
                    is_mine, losses = self._ship(), 0
        except SpillableError as e:
            if not self._has_ended:  # else the close has said what stays
                _log.warning("%s: the spool %s is not shipped now: %s", *self._places, e, extra=self._about)

    def _report_left(self) -> None:
        if left := self._mover.waiting()[0]:
            says = "%s: %s left in the spool %s; the next handle with this spool ships them"
            store, spool = self._places
            extra = self._about | fields(count=left)
            _log.warning(says, store, counted(left, "event", "are"), spool, extra=extra)

    def after_fork(self) -> None:
        """In a forked child: leave it to the parent to ship. `begin` follows when the child uses the channel."""
        self._mover.leave()


def open_spool(fs: FileSystem, front: SpoolOptions, store: Engine) -> Spool:
    """Open the spool in front of a store, which takes what the channel takes.

    Args:
        fs: the file system.
        front: what spool it is.
        store: the engine of the channel in the store.

    Raises:
        OptionError: it is the spool of another channel, or no spool. It stays as it is.
        SchemaError: it has other columns than the channel. It stays as it is.

    It raises what `Spool` and `OpenChannel` raise, too.
    """
    spooled = SpooledChannel(store.path, spool_group(store.channel), options_to_be(store), store.schemas()[-1])
    local = open_spool_channel(fs, front, spooled)
    try:
        return Spool(local, store, is_durable=front.is_durable)
    except BaseException:
        local.close()
        raise


def _is_lasting(error: Exception) -> bool:
    """Tell whether an attempt would fail again however often it is made, until somebody repairs something."""
    return is_refusal(error) if isinstance(error, StorageError) else not isinstance(error, _MAY_PASS)
