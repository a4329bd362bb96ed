"""The handle that users hold: `Channel`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, Unpack, cast

import pyarrow as pa

from spillable_stream.arguments import flag, text
from spillable_stream.channel.arrow_batches import BATCH_BYTES, ReadEnd, range_to_read, read_batches
from spillable_stream.channel.arrow_schema import SparkSchema
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.event import EventT
from spillable_stream.channel.last_batch import LastBatch
from spillable_stream.channel.live_picture import live_view
from spillable_stream.channel.open_arguments import OpenArguments
from spillable_stream.channel.open_channel import OpenChannel
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.seek_target import SeekTarget
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.open_engine import port_of
from spillable_stream.engine.port import ChannelPort
from spillable_stream.errors import OptionError, SpillableError
from spillable_stream.names import check_group
from spillable_stream.objects.location import channel_path
from spillable_stream.option_types import ChannelKeywords, ChannelOptions, StoredOptions
from spillable_stream.progress import OnProgress
from spillable_stream.quantities import Duration, Size
from spillable_stream.shown_value import shown
from spillable_stream.storage.filesystem import FileSystem, given_file_system

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spillable_stream.channel.event_table import EventTable
    from spillable_stream.channel.stats import ChannelStats
    from spillable_stream.workers.async_worker import AsyncWorker
    from spillable_stream.workers.worker import Worker

__all__ = ["Channel"]

_OWN_USE = {"another", "due_ms", "engine", "failure", "park", "port", "put_options", "put_port", "resume"}
"""What completion and the reference do not show: it is for this package, and may change in any version."""


class Channel(Generic[EventT]):
    """A durable, transactional queue of events in a directory, or in an object store.

        with ss.Channel("orders") as channel:  # created if missing
            with channel.put_transaction() as tx:  # commits on a clean exit, else rolls back
                tx.put(ss.Event(b"an order", {"country": "NL"}))
            with channel.take_transaction("billing") as tx:
                event = tx.take()

    Any number of processes of one host may have it open, and of any hosts if it is in a store. Threads may share a
    handle. After ``fork`` it opens itself again in the child, which a cloud's store refuses.

    Every call raises a `ChannelClosedError` once the handle is closed. One that looks at the log raises a
    `StorageError` if that can't be read, a `CorruptionError` if it is damaged, and an `UnsafeStoreError` if a store has
    lost events.

    Args:
        path: the channel's directory, or its address in a store, as ``s3://bucket/orders``.
        schema: for a new channel, the Arrow (or Spark) schema of a typed channel; None for an event channel. For a
            channel that exists, a schema that must fit it; new nullable columns are added to it.
        create: whether to create the channel if it is missing.
        readonly: whether only to look: nothing is written, created or locked, and what would change it is refused.
        fs: the file system, for tests.
        progress: is told how far an open is that replays much of the log; if it raises, nothing is opened.
        options: the channel's options in snake_case (`spillable_stream.options`), which it stores: another value than
            the stored one changes it for all. A new channel takes those that are not given from the environment, as
            ``SPILLABLE_MEMORY_CAPACITY``. ``durability``, ``spool``, ``cache_dir`` and ``cache_bytes`` are not stored.

    Attributes:
        path: the channel's directory, absolute, or its address; `str` says it.
        readonly: whether the handle only looks.

    Raises:
        NotAChannelError: the path holds something else, or nothing and ``create`` is false or ``readonly`` true.
        UnsupportedFormatError: a newer version wrote it.
        OptionError: an unknown option, a value out of range, or an argument of another type.
        SchemaError: the schema does not fit the channel's.
        CorruptionError: the channel is damaged; names file and offset.
        LockUnsupportedError: the file system has no working locks.
        UnsafeStoreError: the store does not create an object only if there is none.
        ChannelBusyError: others recover or repair it, or have it open where this process can't join them.
        ReadonlyChannelError: an option or a column was given, with ``readonly``, that the channel does not have.
        StorageError: the file system or the store refused.
        ImportError: the channel is in a cloud, and the extra ``object`` is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        schema: pa.Schema | SparkSchema | None = None,
        create: bool = True,
        readonly: bool = False,
        fs: FileSystem | None = None,
        progress: OnProgress | None = None,
        **options: Unpack[ChannelKeywords],
    ) -> None:
        self.path: ChannelPath = channel_path(path)
        create = flag("create", create)
        self.readonly: bool = flag("readonly", readonly)
        given = OpenArguments.of(self.path, options, schema, readonly=self.readonly)
        self._open = OpenChannel(given, given_file_system(fs), create=create, readonly=self.readonly, progress=progress)

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], name: str | None = None) -> Channel:
        """Open the channel that a configuration file describes (``conf/channel.ini`` is an example).

        Args:
            path: an INI file with a section ``[channel]``: ``path``, any options, and Flume's ``type``: FILE, or
                SPILLABLEMEMORY, whose ``memoryCapacity`` is 10,000 by default. Or a Flume agent's properties, whose
                channel has a ``path``, too.
            name: which channel, of an agent that has several.

        Raises:
            ImportError: the file is an agent's properties, and the extra ``flow`` is not installed.
            OptionError: the file has no such section or no path, and what the constructor raises.
        """
        from spillable_stream.channel.config_file import read_config

        values = read_config(path, name)
        if "path" not in values:
            raise OptionError(f"{os.fspath(path)} gives no path for the channel; add path = DIRECTORY")
        return cls(values.pop("path"), **values)

    def another(self) -> Channel[EventT]:
        """Return another handle of the channel, with the spool and the cache of this one, if it has them.

        Raises:
            NotAChannelError: another channel is at the path by now, or none.

        It raises what the constructor raises, too.
        """
        channel: Channel[EventT] = Channel(str(self.path), create=False, **self._open.handle_options())
        try:
            self._open.require_same(channel.uuid)
        except SpillableError:
            channel.close(checkpoint=False, flush=False)
            raise
        return channel

    # ── what it is ──────────────────────────────────────────────────────────────────────────

    @property
    def uuid(self) -> str:
        """The channel's identity."""
        return self.engine().channel

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the events: `headers` and `body`, or a typed channel's own."""
        return self.engine().schemas()[-1]

    @property
    def typed(self) -> bool:
        """Whether this is a typed channel rather than an event channel."""
        return self.engine().is_typed()

    @property
    def options(self) -> StoredOptions:
        """The stored options, by keyword name."""
        return cast(StoredOptions, self.engine().follow().options.values())

    @property
    def fixed_options(self) -> dict[str, object]:
        """The options that were fixed when the channel was created, by keyword name."""
        return self.engine().fixed_options()

    # ── putting and taking ──────────────────────────────────────────────────────────────────

    def put_transaction(self) -> PutTransaction:
        """Return a new put transaction; ``with`` begins it and commits on a clean exit.

        With a spool, it goes there; what it says in ``committed`` are IDs of the spool.

        Raises:
            SchemaError: nothing can be put: an earlier version created the channel with a dictionary as a column.
            ReadonlyChannelError: the handle only looks; so does every other call that writes.
        """
        return self._open.puts("a put").put_transaction()

    def due_ms(self, deliver_after: Duration | None, deliver_at: datetime | None) -> int:
        """Return when events are due that are put now, in milliseconds since 1970; 0 for now. It does not read the log.

        The arguments are those of `PutTransaction.put`, and it raises an `OptionError` where that does.
        """
        return self._open.puts("a put").due_ms(deliver_after, deliver_at)

    def take_transaction(self, group: str = "default") -> TakeTransaction[EventT]:
        """Return a new take transaction of a group; its first take makes this handle the owner.

        The handle stays the owner until it is closed, or until ``channel.consumer(group).close()``.

        One that is forgotten, neither committed nor rolled back, gives its events back with a ResourceWarning.

        Args:
            group: the group's name; the first take creates the group if it is missing.

        Raises:
            OptionError: the group's name is not allowed.
            ReadonlyChannelError: the handle only looks.
        """
        check_group(group)
        engine = self._open.engine("a take")
        return TakeTransaction(engine, partial(self.consumer, group), engine.is_typed())

    def consumer(
        self,
        group: str,
        owner_timeout_seconds: Duration | None = None,
        starting: str = "earliest",
        resume: bool = False,
        note: str = "",
        create: Callable[[], object] | None = None,
    ) -> Consumer:
        """Return this handle's consumer of a group, becoming the group's owner if it is not yet.

        The arguments are `Consumer`'s.

        Raises:
            GroupOwnedError: another live consumer owns the group.
            OptionError: the group's name is not allowed, or another argument is not of its type.
            ReadonlyChannelError: the handle only looks.
        """
        self._open.engine("a consumer")

        def make(engine: Engine) -> Consumer:
            return Consumer(engine, group, owner_timeout_seconds, starting, resume, note, create)

        return self._open.owned.own(self._open.engine, group, make)

    # ── workers ─────────────────────────────────────────────────────────────────────────────

    def worker(
        self,
        group: str,
        function: Callable[[Any], object],
        *,
        batch_size: int | None = None,
        max_attempts: int = 5,
        backoff: Duration = 1.0,
        dead_letter: Channel | str | os.PathLike[str] | None = None,
        threads: int = 1,
        timeout: Duration | None = None,
    ) -> Worker:
        """Return a worker, whose `run` calls a function with the group's events until it is stopped.

        Events count as taken when the function returns. When it raises an error, it is called again: of a batch, each
        half by itself, until the event at fault is alone. That one waits aside for its next attempts, while the group
        moves on, and becomes a dead letter after the last one. `Retry`, `Drop` and `DeadLetter` say what else becomes
        of events. After a kill the function gets its events again, so it should be idempotent.

        Args:
            group: the group, which the worker owns while it runs.
            function: gets one `Event`; with ``batch_size`` a list of events, in a typed channel a ``pyarrow.Table``
                with the column ``write_order_id``.
            batch_size: how many events a batch has at most; None for one event at a time.
            max_attempts: how many calls with one event alone may fail.
            backoff: the longest wait after the first of them, such as 1.0, in seconds, or "500ms". It doubles, up to
                five minutes.
            dead_letter: an event channel for events that keep failing, or its path; it is created if missing. Each
                gets there once. Without one, an event that keeps failing stops the worker.
            threads: how many calls there may be at once.
            timeout: how long a call may take, such as 30, in seconds, or "5m". One that takes longer counts as failed.
                Its thread is left behind; ten such calls at once stop the worker.

        Raises:
            OptionError: a value is out of range, the function is a coroutine function, ``dead_letter`` is this channel,
                or this is a typed channel and there is no ``batch_size``.
            SchemaError: ``dead_letter`` is a typed channel.
            ReadonlyChannelError: the handle only looks.
        """
        from spillable_stream.workers.config import WorkerConfig
        from spillable_stream.workers.making import make_worker

        config = WorkerConfig.of(batch_size, max_attempts, backoff, threads, timeout)
        config.check_function(function, is_async=False)
        return self._open.workers.add(make_worker(self, group, function, config, _letters(dead_letter)))

    def async_worker(
        self,
        group: str,
        function: Callable[[Any], Awaitable[object]],
        *,
        batch_size: int | None = None,
        max_attempts: int = 5,
        backoff: Duration = 1.0,
        dead_letter: Channel | str | os.PathLike[str] | None = None,
        threads: int = 1,
        timeout: Duration | None = None,
    ) -> AsyncWorker:
        """Return a worker for asyncio, whose ``await run()`` calls a coroutine function.

        The arguments are those of `worker`, and so is what it raises. The calls run in the event loop, ``threads`` of
        them at once; one that takes longer than ``timeout`` is cancelled.
        """
        from spillable_stream.workers.async_worker import AsyncWorker, CoroutineCall
        from spillable_stream.workers.config import WorkerConfig
        from spillable_stream.workers.making import make_worker

        config = WorkerConfig.of(batch_size, max_attempts, backoff, threads, timeout)
        config.check_function(function, is_async=True)
        call = CoroutineCall(function, config.timeout)
        worker = make_worker(self, group, call, replace(config, timeout=None), _letters(dead_letter))
        return AsyncWorker(self._open.workers.add(worker), call)

    # ── groups ──────────────────────────────────────────────────────────────────────────────

    def drop_group(self, group: str) -> None:
        """Forget a group, so that it holds back no event.

        Args:
            group: the group's name.

        Raises:
            GroupOwnedError: a live consumer owns it.
            LockTimeoutError: a call of another thread for it has not ended in time; new ones are refused. Repeat it.
            OptionError: the channel has no group of this name; the message names those that it has.
            ReadonlyChannelError: the handle only looks.
        """
        self._open.engine("drop_group")
        self._open.owned.drop(self._open.engine, group)

    def seek(self, group: str, to: SeekTarget) -> int:
        """Move a group back or forward, and return the ID of the next event that it takes.

        It is one durable commit. What the group's consumer had claimed goes back to the queue: an open take transaction
        of this handle can only be rolled back then. Queries of Spark keep positions of their own in their checkpoints.

        Args:
            group: the group's name. Nobody owns it, or this handle does.
            to: "earliest" for the first event that the channel keeps, "latest" for the next one to come, a write-order
                ID, also as text, a datetime with a zone for the first event put then or later, or a time back from now,
                as "15m" or a timedelta.

        Raises:
            DataLossError: the event with this ID has left the channel; the message names the first one that is kept.
            GroupOwnedError: another live consumer owns the group; the message names it.
            OptionError: the channel has no such group or ID, or ``to`` is a time without a zone, or one that is still
                to come, or nothing of these.
            ReadonlyChannelError: the handle only looks.
            StorageError: the file system refused. Whatever it raises, the group is where it was.
        """
        self._open.engine("a seek")
        return self._open.owned.seek(self._open.engine, group, to)

    # ── reading without taking ──────────────────────────────────────────────────────────────

    def read(
        self,
        start: SeekTarget | None = None,
        end: ReadEnd | None = None,
        group: str | None = None,
        *,
        max_bytes: Size = BATCH_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the events that are in the channel now, kept ones and others, in order, and take nothing.

        It holds a few megabytes, however long the channel is, and it holds back nothing: events may leave meanwhile.

        Args:
            start: the first event, said as in `seek`; the first one that the channel keeps by default.
            end: the write-order ID of the last event; or a datetime with a zone, or a time back from now, as "15m": the
                first event put then or later is not read. Up to the last event by default.
            group: a group's name, for only the events that it has yet to take.
            max_bytes: small batches are joined up to this size, in bytes, or "4MiB"; a larger one comes as it is, up to
                about 16 MiB.

        Returns:
            Batches of the channel's newest schema, with the events' IDs in a column ``write_order_id`` at the end.

        Raises:
            CorruptionError: an event can't be read.
            DataLossError: an event to read has left the channel; the message names the first one that is kept.
            OptionError: there is no such event or group, a time has no zone, or the end is before the start.
        """
        return read_batches(self.engine(), start, end, group, max_bytes)

    def last_batch(self, producer_id: str) -> LastBatch:
        """Return the last numbered batch of a producer that was put, also into the spool, and the note with it.

        It is ``(0, b"")`` for an unknown producer. A batch that only a lost memory tier had is gone.

        Args:
            producer_id: the producer's ID.

        Raises:
            OptionError: it is not text.
        """
        text("producer_id", producer_id)
        with self.put_port().snapshot() as state:
            return LastBatch(state.producers.last(producer_id), state.producers.note(producer_id))

    def head(self, n: int = 10, start: SeekTarget = "earliest") -> EventTable:
        """Return the first events that the channel keeps, or those from one on, and take nothing.

        Args:
            n: how many at most.
            start: the first one, said as in `seek`.

        Raises:
            OptionError: ``n`` is less than 1, and what `read` raises.
        """
        from spillable_stream.channel.event_table import events_from

        return events_from(self.engine(), start, n)

    def tail(self, n: int = 10) -> EventTable:
        """Return the last events, in order, and take nothing.

        Args:
            n: how many at most.

        Raises what `head` raises.
        """
        from spillable_stream.channel.event_table import last_events

        return last_events(self.engine(), n)

    def range_of(self, start: SeekTarget | None = None, end: ReadEnd | None = None) -> tuple[int, int]:
        """Return the write-order IDs of the first and the last event that `read` would have now.

        The last is less than the first if there are none. The arguments, and what it raises, are those of `read`.
        """
        return range_to_read(self.engine(), start, end)

    # ── columns, figures and upkeep ─────────────────────────────────────────────────────────

    def evolve(self, schema: pa.Schema | SparkSchema) -> int:
        """Add the new nullable columns of a schema to the channel, and return the number of its newest one, from 0.

        Args:
            schema: the columns that a put may have from now on, as Arrow's or Spark's schema: all that the channel has,
                in any order, and the new ones. One that the channel has had before changes nothing.

        Raises:
            ReadonlyChannelError: the handle only looks, and the channel does not have all of it.
            SchemaError: it leaves out a column or does not fit (the message shows both schemas), or it is not a schema.
        """
        return self._open.evolve(schema, whole=True)

    def stats(self) -> ChannelStats:
        """Return what the channel holds, up to date; with a spool, what the handle knows while no store answers."""
        return self._open.stats()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what the tiers held over time, as far as this handle saw it, and return where; needs matplotlib.

        Args:
            ax: where to draw; None for a figure of its own.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from spillable_stream.channel.display import plot_channel

        return plot_channel(self.engine(), ax)

    def checkpoint(self) -> None:
        """Make the state durable, so that the next open is short, and remove files no longer needed.

        Raises:
            CorruptionError: the log in a store is damaged; a `DataLossError` if slots are missing.
            LockTimeoutError: somebody else took too long creating one.
            NotAChannelError: the channel is no longer there.
            StorageError: it could not be written; the channel continues without it.
            TransactionStateError: this thread is inside another call to the channel.
            UnsafeStoreError: the store has lost acknowledged events, as one that was put back to an earlier version;
                the next call continues with what is there.
        """
        self._open.engine("a checkpoint").checkpointing.create()

    def flush(self) -> int:
        """Move what is in memory to disk, in order, and return how many events that were.

        With a spool: ship to the store what is in the spool now. Events that can't be moved stay where they are.

        Raises:
            StorageError: the disk, or the store, refused.
        """
        return self._open.puts("a flush").flush()

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def close(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        """Close the handle when the commits under way are over: its groups are free, open takes are back in the queue.

        The last handle to be closed, among all processes, moves what is in memory to disk and removes the memory tier.
        With a spool, it ships what is in the spool, for about 10 seconds at most, and leaves the rest there. A loss of
        events that waits to be told (`UnsafeStoreError`) stays in the log of this process: a close does not raise it.
        An interrupt (Ctrl-C) is raised when the handle is closed; a second one leaves the rest to the next call.

        Args:
            checkpoint: whether to create a checkpoint; ``checkpointOnClose`` decides by default.
            flush: whether what is in memory, or in the spool, is moved; ``flushOnClose`` decides by default.

        Raises:
            LockTimeoutError: a call of another thread has not ended in time. New ones are refused; close it again.
            StorageError: the disk refused; the handle is closed, and what was in memory still is.
            TransactionStateError: this thread is inside of a call, as a signal handler or a finalizer may be.
        """
        self._open.close(checkpoint=checkpoint, flush=flush)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a Channel can't be pickled, for another process or a Spark task: send its path, {str(self.path)!r}, and "
            "open it there with Channel(path)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SpillableError as e:
            if error is None:
                raise
            error.add_note(f"Nor could the channel {self.path} be closed cleanly: {e}")
        except BaseException:  # of a signal handler
            if not self._open.has_ended:  # nobody else would do the rest
                self.close()
            raise

    def __del__(self, warn: Callable[..., object] = warnings.warn) -> None:
        opened = getattr(self, "_open", None)  # none where the open failed
        if opened is not None and opened.is_mine_and_open():
            warn(
                f"the channel {self.path} was forgotten, but not closed. Close it, or use it in a with block",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    # ── what is shown of it ─────────────────────────────────────────────────────────────────

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _OWN_USE]

    def __repr__(self) -> str:
        return f"Channel({str(self.path)!r}{', closed' if self._open.is_closed else ''})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows; of a channel that can't be looked at, why."""
        from spillable_stream.channel.display import notice_html, stats_html

        try:
            return stats_html(self.path, self.typed, self.stats())
        except SpillableError as e:
            return notice_html(self.path, "closed" if self._open.is_closed else str(e))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return what a notebook's front end with widgets shows: the same, live; others show `_repr_html_`."""
        return live_view(self)

    # ── for this package's own use ──────────────────────────────────────────────────────────

    def port(self) -> ChannelPort:
        """Return what Spark and producers ask through, for this package's own use; raises what `engine` raises."""
        return port_of(self.engine())

    def put_port(self) -> ChannelPort:
        """Return the port of the channel that puts go to, which may be a spool, for this package's own use."""
        return self._open.puts().port()

    def put_options(self) -> ChannelOptions:
        """Return the options of the channel that puts go to, and ask no store, for this package's own use."""
        return self._open.puts().options()

    def failure(self) -> str:
        """Return why a storage failure closed the log of this handle; "" if none did. It asks nobody."""
        return self._open.failure()

    def engine(self) -> Engine:
        """Return the open engine, in this process; for this package's own tools and tests.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        return self._open.engine()

    def park(self) -> None:
        """Leave the handle as if it were closed, without a checkpoint, until `resume`. For this package's own use.

        Only for a handle that owns no group and has no open transaction. It raises what `close` raises.
        """
        self._open.park()

    def resume(self, *, schema: pa.Schema | SparkSchema | None = None, **options: Unpack[ChannelKeywords]) -> bool:
        """Resume after `park`, with what was committed meanwhile, or tell that this handle can only be closed.

        Arguments and errors are those of the constructor.
        """
        return self._open.resume(options, schema)


def _letters(dead_letter: Channel | str | os.PathLike[str] | None) -> Callable[[], tuple[Channel, bool]] | None:
    """Return what opens a worker's dead-letter channel, and tells whether it had to be opened; None without one."""
    if dead_letter is None:
        return None
    if isinstance(dead_letter, Channel):
        return lambda: (dead_letter, False)
    if not isinstance(dead_letter, (str, os.PathLike)):
        raise OptionError(f"dead_letter must be a Channel, or the path of one, not {shown(dead_letter)}")
    return lambda: (Channel(dead_letter), True)
