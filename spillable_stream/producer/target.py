"""Where batches go: anything that commits them, and what does so by default, a channel of this host."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.due_time import due_ms
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.engine.port import ProducerClaim
from spillable_stream.errors import ChannelClosedError, OptionError, ProducerSequenceError, SpillableError
from spillable_stream.format.numbered_batch import NumberedBatch, Numbers
from spillable_stream.producer.key_share import KeyShare
from spillable_stream.quantities import Duration
from spillable_stream.state.ranges import Range

__all__ = ["ChannelTarget", "Receiver", "Receivers", "Target", "as_target", "commit_to", "lasting_name"]


@runtime_checkable
class Target(Protocol):
    """What a producer sends to. Several threads call `commit` at once.

    A call that raises an error of the system (`OSError`, and so `ConnectionError` and `TimeoutError`), or one
    of this package's that may pass (`spillable_stream.producer.retry`), is repeated with the same number; any
    other error ends the batch. A `ChannelBusyError`, `ChannelFullError`, `DiskSpaceError` or `LockTimeoutError` says
    that nothing was stored: a batch whose every attempt so far ended with one of these is repeated with another number.
    So does an `EventTooLargeError`, `PutTooLargeError` or `TransactionCapacityError`, and that a smaller batch may be
    stored: such a batch is divided by its sends.

    Attributes:
        name: for messages.
        schema: the schema of the batches that it takes; `EVENT_SCHEMA` for events.
        max_events: the most events of one batch.
    """

    name: str

    @property
    def schema(self) -> pa.Schema: ...  # noqa: D102 - above

    @property
    def max_events(self) -> int: ...  # noqa: D102 - above

    def claim(self, producer_id: str) -> None:
        """Keep out other producers of this ID until `close`.

        Raises:
            ProducerBusyError: there is a live one.
        """

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest number that a producer committed here, 0 if it never did.

        Args:
            producer_id: the producer's ID.
        """

    def commit(self, batch: pa.RecordBatch, producer_id: str, numbers: Numbers) -> Range:
        """Store a batch, durably, unless the producer's batch of this number is stored already.

        Args:
            batch: the events.
            producer_id: the producer.
            numbers: those that the batch takes; the last one is its own. No batch with another one of them will come
                any more: what had it was refused, or given up, or never was. Where the application chose the number,
                the fingerprint tells whether a batch that is stored under it is this one.

        Returns:
            The write-order IDs of the first and the last event; ``(0, -1)`` if they are not known.

        Raises:
            ProducerSequenceError: another batch is stored under the number, or the application's number is not after
                all that are stored, and it is not known to be one of them.
        """

    def close(self) -> None:
        """End the use of it; no other call is under way or follows."""


Receiver: TypeAlias = "str | os.PathLike[str] | Channel | Target"
"""Where a producer sends to, as it may be given: a path, a `Channel` or a `Target`."""

Receivers: TypeAlias = Mapping[str, Receiver] | Sequence[Receiver]
"""Several of them: by key, or sharing the keys."""


class ChannelTarget:
    """A channel of this host.

    A handle that fails is replaced: after a failure of the storage nothing more is acknowledged on it.

    Args:
        channel: its path, which is opened, and created if it is missing; or a handle.
        is_owned: whether the handle is closed at the end, as one is that was opened here.
    """

    def __init__(self, channel: str | os.PathLike[str] | Channel, *, is_owned: bool = False) -> None:
        self._owned = is_owned or not isinstance(channel, Channel)
        self._channel = channel if isinstance(channel, Channel) else Channel(channel)
        self.name: str = str(self._channel.path)
        self._schemas = self._channel.port().schemas()
        self._claims: dict[str, ProducerClaim] = {}
        self._is_closed = False
        self._failed: Channel | None = None
        self._share = b""  # of the keys; noted with each batch that the application numbers
        self._mutex = threading.RLock()  # of what is in use; a signal's handler may close it
        self._opening = threading.Lock()  # of who opens again

    @property
    def uuid(self) -> str:
        """The channel's UUID, by whatever path it was opened."""
        return self._channel.uuid

    @property
    def place(self) -> str:
        """Which channel it is, by whatever path it was opened; a copy, which has its UUID, is another one."""
        return self._channel.put_port().place()

    @property
    def schema(self) -> pa.Schema:
        """The channel's schema."""
        return self.schemas()[-1]

    def schemas(self) -> list[pa.Schema]:
        """Return the schemas that the channel has had, oldest first; of a handle that was closed, those it knew."""
        with contextlib.suppress(ChannelClosedError):  # the commit opens it again
            self._schemas = self._channel.port().schemas()
        return self._schemas

    @property
    def max_events(self) -> int:
        """The channel's ``transactionCapacity``, or what the larger of its tiers holds, if that is less."""
        options = self._channel.options
        tiers = options["memory_capacity"], options["overflow_capacity"]
        return int(min(options["transaction_capacity"], max(tiers)))

    def claim(self, producer_id: str) -> None:
        """Claim a producer's ID, which is free again when this process dies.

        Raises:
            ProducerBusyError: another live producer has it.
        """
        with self._mutex:
            self._claims[producer_id] = self._channel.put_port().claim_producer(producer_id)

    def keep_to(self, producer_id: str, share: KeyShare) -> None:
        """Refuse a producer whose application numbered batches here with another share of the keys.

        Args:
            producer_id: the producer's ID.
            share: which keys come here.

        Raises:
            ProducerSequenceError: the keys were divided otherwise.
        """
        with self._channel.put_port().snapshot() as state:
            before = KeyShare.of_note(state.producers.note(producer_id))
        self._share = share.note()
        if before is not None and before != share:
            raise ProducerSequenceError(
                f"the producer {producer_id!r} numbered batches for {self.name} as {before.unlike(share)}, and it is "
                f"{share.unlike(before)} now: keys would go to other channels, and what is sent again would be stored "
                "twice. Give the channels and buckets as before, or another producer_id"
            )

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest number that a producer committed in the channel; opens a handle that failed again."""
        channel = self._channel
        try:
            with channel.put_port().snapshot() as state:
                return state.producers.last(producer_id)
        except ChannelClosedError:
            self._reopen(channel)
            with self._channel.put_port().snapshot() as state:
                return state.producers.last(producer_id)

    def due_ms(self, deliver_after: Duration | None, deliver_at: datetime | None) -> int:
        """Return when events are due that are sent now, in milliseconds since 1970; 0 for now.

        Args:
            deliver_after: as a put has it.
            deliver_at: likewise.

        Raises:
            OptionError: the delay is not a valid time, or the channel can't delay events.
        """
        try:
            return self._channel.due_ms(deliver_after, deliver_at)
        except ChannelClosedError:  # the commit opens it again
            return due_ms(deliver_after, deliver_at, time.time_ns() // 1_000_000)

    def commit(
        self,
        batch: pa.RecordBatch,
        producer_id: str,
        numbers: Numbers,
        waited_seconds: float | None = None,
        times: RowTimes | None = None,
    ) -> Range:
        """Put a batch as one transaction, after a failure of the handle on another one.

        It raises what the transaction raises, and what `Channel.another` raises; that says that nothing was stored.

        Args:
            batch: the events.
            producer_id: the producer.
            numbers: those that the batch takes.
            waited_seconds: how long the batch has waited for room elsewhere; None to wait here.
            times: for how long the events count, and when they are due; None for forever, from now on.
        """
        if self._channel is self._failed:
            try:
                self._reopen(self._failed)
            except SpillableError as e:
                e.stored_nothing = True
                raise
        channel = self._channel
        try:
            tx = channel.put_transaction()
            tx.producer = NumberedBatch(producer_id, numbers, self._share if numbers.fingerprint else b"")
            tx.claim = self._claims.get(producer_id)
            tx.waited_seconds = waited_seconds
            with tx:
                if times is None:
                    tx.put_batch(batch)
                else:
                    tx.put_timed(batch, times)
        except ChannelClosedError:
            self._failed = channel  # the next attempt opens it again: what fails then says nothing of this one
            raise
        return tx.committed.first_id, tx.committed.last_id

    def _reopen(self, failed: Channel) -> None:
        """Continue with a new handle, unless another thread has it already.

        Raises:
            ChannelClosedError: the target was closed.

        It raises what `Channel.another` raises, too.
        """
        with self._opening:
            if self._channel is not failed:
                return
            if self._is_closed:
                raise self._closed()
            again = failed.another()
            with self._mutex:
                unused = again if self._is_closed else failed if self._owned else None
                if unused is not again:
                    self._channel, self._owned = again, True
            if unused is not None:
                unused.close(checkpoint=False, flush=False)
            if unused is again:
                raise self._closed()

    def _closed(self) -> ChannelClosedError:
        return ChannelClosedError(f"the producer of {self.name} is closed; create a new one")

    def leave_claims(self) -> None:
        """In a forked child: leave the parent's claims to the parent."""
        self._mutex, self._opening = threading.RLock(), threading.Lock()
        for claim in self._claims.values():
            claim.leave()
        self._claims = {}

    def close(self) -> None:
        """Give up what was claimed, and the channel if it was opened here."""
        with self._mutex:
            self._is_closed = True
        for claim in self._claims.values():
            claim.release()
        self._claims = {}
        if self._owned:
            self._channel.close()


def lasting_name(target: Target) -> str:
    """Return what a target is known by after a restart: a channel's UUID, whatever its path is then, or the name."""
    return target.uuid if isinstance(target, ChannelTarget) else target.name


def as_first_sent(target: Target, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without columns that its channel got later, as far as they have no values in it.

    So a batch that is sent again is what it was, whatever columns were added meanwhile.

    Args:
        target: where it goes.
        batch: the events, with the target's columns.
    """
    if isinstance(target, ChannelTarget):
        for schema in target.schemas()[:-1]:  # each has the columns of the one before, and then its own
            if not any(_has_values(column) for column in batch.columns[len(schema) :]):
                return batch.select(schema.names)
    return batch


def _has_values(column: pa.Array) -> bool:
    return bool(pc.any(column.is_valid()).as_py())


def commit_to(
    target: Target,
    batch: pa.RecordBatch,
    producer_id: str,
    numbers: Numbers,
    waited_seconds: float,
    times: RowTimes | None = None,
) -> Range:
    """Commit a batch; a target that can do so does not wait for room but raises `NoRoomYetError`.

    Args:
        target: where to; one whose ``commit`` takes ``waited_seconds`` can.
        batch: the events.
        producer_id: the producer.
        numbers: those that the batch takes.
        waited_seconds: how long the batch has waited for room until now.
        times: the events' times, for a channel; None for none.
    """
    if times is not None:
        assert isinstance(target, ChannelTarget), "a destination refuses times for others"
        return target.commit(batch, producer_id, numbers, waited_seconds, times)
    if _leaves_waiting(target):
        return target.commit(batch, producer_id, numbers, waited_seconds=waited_seconds)  # type: ignore[call-arg]
    return target.commit(batch, producer_id, numbers)


def _leaves_waiting(target: Target) -> bool:
    """Tell whether a target's ``commit`` takes ``waited_seconds``."""
    if "commit" in getattr(target, "__dict__", ()) or not hasattr(type(target), "commit"):
        return _takes_waited_seconds(target.commit)
    return _kind_leaves_waiting(type(target))


@cache
def _kind_leaves_waiting(kind: type[Target]) -> bool:
    return _takes_waited_seconds(kind.commit)


def _takes_waited_seconds(commit: Callable[..., Range]) -> bool:
    try:
        return "waited_seconds" in inspect.signature(commit).parameters
    except (TypeError, ValueError):  # it has no signature
        return False


def as_target(target: Channel | Target) -> Target:
    """Return what a user gave as a target, other than a path: a channel, or a target.

    Raises:
        OptionError: it is none of these.
        ReadonlyChannelError: it is a channel that is only looked at.
    """
    if isinstance(target, Channel):
        if target.readonly:
            target.put_port().refuse_to_write("a producer")
        return ChannelTarget(target)
    if isinstance(target, Target):
        return target
    raise OptionError(f"a producer sends to a path, a Channel or a Target, not to {type(target).__name__}")
