"""The handle that users hold: `Channel`."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast

import pyarrow as pa

from spillable_stream.channel.arrow_batches import BATCH_BYTES, ReadEnd, range_to_read, read_batches
from spillable_stream.channel.arrow_schema import SparkSchema, as_arrow_schema
from spillable_stream.channel.config_file import read_config
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.display import notice_html, plot_samples, stats_html
from spillable_stream.channel.due_time import due_ms, require_orderable, without_disk
from spillable_stream.channel.event_table import EventTable, events_from, last_events
from spillable_stream.channel.known_workers import KnownWorkers
from spillable_stream.channel.last_batch import LastBatch
from spillable_stream.channel.live_picture import live_picture
from spillable_stream.channel.open_arguments import FoundChannel, OpenArguments
from spillable_stream.channel.owned_groups import OwnedGroups
from spillable_stream.channel.put_transaction import PutTransaction
from spillable_stream.channel.seek_target import SeekTarget, chosen_position
from spillable_stream.channel.stats import ChannelStats, channel_stats
from spillable_stream.channel.stored_options import store_options
from spillable_stream.channel.stored_schema import has_columns, store_columns
from spillable_stream.channel.take_transaction import TakeTransaction
from spillable_stream.channel.worker_status import seen_workers
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.open_engine import open_engine, port_of, remember
from spillable_stream.engine.options_by_place import SpoolOptions
from spillable_stream.engine.port import ChannelPort
from spillable_stream.errors import ChannelClosedError, OptionError, SpillableError, StorageError
from spillable_stream.format.batch import check_written_schema
from spillable_stream.log_records import fields
from spillable_stream.names import check_group
from spillable_stream.objects.location import channel_path
from spillable_stream.option_types import ChannelKeywords, ChannelOptions, StoredOptions
from spillable_stream.options import CHANNEL, CREATION, parse_options
from spillable_stream.progress import OnProgress, told_of_opens
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spillable_stream.channel.spool import Spool
    from spillable_stream.workers.async_worker import AsyncWorker
    from spillable_stream.workers.worker import Worker

__all__ = ["Channel"]

_log = logging.getLogger(__name__)


class Channel:
    """A durable, transactional queue of events in a directory, or in an object store.

    Any number of processes may have it open: of one host if it is in a directory, of any hosts if it is in a store. Any
    number of threads may share a handle. A handle used after ``fork`` opens itself again in the child; in a cloud's
    store the child is refused.

    Args:
        path: the channel's directory, or its address in a store, as ``s3://bucket/orders``.
        schema: for a new channel, the Arrow (or Spark) schema of a typed channel; None for an event
            channel. For a channel that exists, a schema that must fit it; new nullable columns
            are added to it.
        create: whether to make the channel if it is missing.
        readonly: whether only to look: nothing is written, made or locked, so it works on a read-only mount too. The
            handle shows what the channel holds and refuses whatever would change it.
        fs: the file system, for tests.
        progress: is told how far an open is that replays much of the log; if it raises, nothing is opened.
        options: the channel's options in snake_case (`spillable_stream.options`); they are stored
            in the channel, and a value that differs from the stored one changes it for all. A new channel takes those
            that are not given from the environment, as ``SPILLABLE_MEMORY_CAPACITY``; one that is there does not.
            ``durability``, ``spool``, ``cache_dir`` and ``cache_bytes`` are this handle's.

    Attributes:
        path: the channel's directory, absolute, or its address; `str` says it.
        readonly: whether the handle only looks.

    Raises:
        NotAChannelError: the path holds something else, or nothing and ``create`` is false or ``readonly`` true.
        UnsupportedFormatError: a newer version wrote it.
        OptionError: an unknown option, or a value out of range.
        SchemaError: the schema does not fit the channel's.
        CorruptionError: the channel is damaged; names file and offset.
        LockUnsupportedError: the file system has no working locks.
        UnsafeStoreError: the store does not create an object only if there is none.
        ChannelBusyError: another live host has it open.
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
        self.readonly = readonly
        self._fs = fs or FileSystem()
        given = OpenArguments.of(self.path, options, schema, readonly=readonly)
        found = given.find_channel(self._fs, create=create and not readonly)
        # The channel's own is known when it is open.
        self._open_timeout_seconds = given.options.get("lock_timeout", ChannelOptions().lock_timeout)
        self._closed = self._left = False
        self._mutex = threading.RLock()
        self._owned = OwnedGroups(self.path, self._mutex)
        self._writable_schemas = 0
        self._workers = KnownWorkers()
        self._front, self._cache = given.front, given.cache
        self._spool: Spool | None = None
        with told_of_opens(progress):
            self._open(found)
        try:
            self._settle(given.options, given.schema, is_known=found.known is not None)
            if given.front is not None:
                self._spool = self._open_spool(given.front)
                if found.known is None:
                    remember(self._fs, Path(given.front.path), self._engine)
        except BaseException:
            self._engine.close()
            raise
        _handles.add(self)
        _log.debug("opened %s%s", self.path, " to look at" if readonly else "", extra=fields(self.path))

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], name: str | None = None) -> Channel:
        """Open the channel that a configuration file describes (``conf/channel.ini`` is an example).

        Args:
            path: an INI file with a section ``[channel]``: ``path``, any channel options, and, as in Flume's
                configurations, a ``type``: FILE, or SPILLABLEMEMORY, with which ``memoryCapacity`` is 10,000
                unless it is given. Or the properties of a Flume agent, whose channel has a ``path``, too.
            name: which channel, of an agent that has several.

        Raises:
            ImportError: the file is an agent's properties, and the extra ``flow`` is not installed.
            OptionError: the file has no such section or no path, and what the constructor raises.
        """
        values = read_config(path, name)
        if "path" not in values:
            raise OptionError(f"{os.fspath(path)} says no path for the channel: add path = DIRECTORY")
        return cls(values.pop("path"), **values)

    def _open(self, found: FoundChannel) -> None:
        self._engine = open_engine(
            self._fs,
            self.path,
            self._open_timeout_seconds,
            readonly=self.readonly,
            channel=found.channel,
            cache=self._cache,
            known=found.known,
        )
        self._engine.lock_timeout_seconds = self._engine.state.options.lock_timeout
        self._pid = os.getpid()

    def _settle(self, given: dict[str, Any], schema: pa.Schema | None, *, is_known: bool = False) -> None:
        """Store the options and the schema of this open that differ from the channel's.

        Args:
            given: the options.
            schema: the schema.
            is_known: whether the channel is known from before only, and can't be asked: what differs is an error.
        """
        store_options(self._engine, given)
        if schema is not None and not (is_known and has_columns(self._engine, schema)):
            self.evolve(schema)
        self._engine.upkeep.ensure()

    def _open_spool(self, front: SpoolOptions) -> Spool:
        """Open the spool in front of the store, which takes what the channel takes."""
        from spillable_stream.channel.spool import open_spool

        return open_spool(self._fs, front, self._engine, self.schema if self.typed else None)

    def another(self) -> Channel:
        """Return another handle of the channel, with the spool and the cache of this one, if it has them."""
        front = self._front
        options: dict[str, Any] = {} if front is None else {"durability": front.durability, "spool": front.path}
        if self._cache is not None:
            options |= {"cache_dir": self._cache.directory, "cache_bytes": self._cache.most_bytes}
        return Channel(str(self.path), create=False, **options)

    # ── use ─────────────────────────────────────────────────────────────────────────────────

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

    def port(self) -> ChannelPort:
        """Return what the Spark connector and the producers ask the channel's engine through.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        return port_of(self.engine())

    def put_port(self) -> ChannelPort:
        """Return the port of the channel that puts go to: the spool's, where there is one.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        return self.port() if self._spool is None else self._spool.port()

    def put_options(self) -> ChannelOptions:
        """Return the stored options that bound a put: the spool's, where there is one. It asks no store.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        follower = self.engine().follower
        if self._spool is not None:
            return self._spool.options()
        return (follower.state if follower.is_far else follower.follow()).options

    def engine(self) -> Engine:
        """Return the open engine, in this process; for this package's own tools and tests.

        Raises:
            ChannelClosedError: the channel was closed.
        """
        if self._closed:
            raise ChannelClosedError(f"the channel {self.path} is closed; open it again")
        if self._pid != os.getpid():
            with self._mutex:
                if self._pid != os.getpid():
                    self._owned.consumers = {}
                    self._open(FoundChannel())
                    if self._spool is not None:
                        self._spool.begin(self._engine)
                    self._engine.upkeep.ensure()
        return self._engine

    def _require_writable(self, what: str) -> None:
        if self.readonly:
            self._engine.refuse_to_write(what)

    def put_transaction(self) -> PutTransaction:
        """Return a new put transaction; ``with`` begins it and commits on a clean exit.

        With a spool, it goes there; what it says in ``committed`` are IDs of the spool.

        Raises:
            SchemaError: nothing can be put: an earlier version made the channel with a dictionary as a column.
            ReadonlyChannelError: the handle only looks; so does every other call that writes.
        """
        engine = self.engine()
        if self.readonly:
            engine.refuse_to_write("a put")
        if self._spool is not None:
            return self._spool.put_transaction()
        engine.prepare_put()
        schemas = engine.schemas()
        if len(schemas) != self._writable_schemas:
            check_written_schema(schemas[-1])
            self._writable_schemas = len(schemas)
        return PutTransaction(engine, schemas[-1], len(schemas) - 1, engine.is_typed())

    def due_ms(self, deliver_after: float | timedelta | None, deliver_at: datetime | None) -> int:
        """Return when events are due that are put now, in milliseconds since 1970; 0 for now. It does not read the log.

        Args:
            deliver_after: as `PutTransaction.put` has it.
            deliver_at: likewise.

        Raises:
            OptionError: the delay is none that can be, or the channel can't delay events.
        """
        engine = self.engine()
        self._require_writable("a put")
        if self._spool is not None:
            return self._spool.put_transaction().due_ms(deliver_after, deliver_at)
        found_ms = due_ms(deliver_after, deliver_at, engine.deliveries.clock_ms())
        if found_ms and not engine.follower.state.options.overflow_capacity:
            raise without_disk(self.path)
        if found_ms and self.typed:
            require_orderable(self.schema, self.path)
        return found_ms

    def take_transaction(self, group: str = "default") -> TakeTransaction:
        """Return a new take transaction of a group; its first take makes this handle the owner.

        Args:
            group: the group's name; the first take makes the group if it is missing.

        Raises:
            OptionError: the group's name is not allowed.
            ReadonlyChannelError: this handle only reads.
            ChannelClosedError: it is closed.
        """
        check_group(group)
        engine = self.engine()
        if self.readonly:
            engine.refuse_to_write("a take")
        return TakeTransaction(engine, lambda: self.consumer(group), engine.is_typed())

    def consumer(
        self,
        group: str,
        owner_timeout_seconds: float = 10.0,
        starting: str = "earliest",
        resume: bool = False,
        note: str = "",
        create: Callable[[], object] | None = None,
    ) -> Consumer:
        """Return this handle's consumer of a group, becoming the group's owner if it is not yet.

        The arguments are `Consumer`'s.

        Raises:
            GroupOwnedError: another live consumer owns the group.
            OptionError: the group's name is not allowed.
        """
        engine = self.engine()
        if isinstance(group, str) and (found := self._owned.consumers.get(group)) is not None:
            return found
        check_group(group)
        self._require_writable("a consumer")
        engine.active_calls.refuse_within("a first take")

        def make(engine: Engine) -> Consumer:
            return Consumer(engine, group, owner_timeout_seconds, starting, resume, note, create)

        return self._owned.own(self.engine, group, make)

    def worker(
        self,
        group: str,
        function: Callable[[Any], object],
        *,
        batch_size: int | None = None,
        max_attempts: int = 5,
        backoff: float = 1.0,
        dead_letter: Channel | str | os.PathLike[str] | None = None,
        threads: int = 1,
        timeout: float | None = None,
    ) -> Worker:
        """Return a worker, whose `run` calls a function with the group's events until it is stopped.

        Events count as taken when the function returns. When it raises an error, it is called again: of a batch, each
        half is tried by itself, until the event at fault is alone. That one waits aside for its next attempts, while
        the group moves on, and becomes a dead letter after the last one. The function may raise `Retry`, `Drop` or
        `DeadLetter` to say what becomes of its events. A process that is killed has its events called again, so what
        the function does should be idempotent.

        Args:
            group: the group, which the worker owns while it runs.
            function: gets one `Event`; with ``batch_size`` a list of events, in a typed channel a ``pyarrow.Table``
                with the column ``write_order_id``.
            batch_size: how many events a batch has at most; None for one event at a time.
            max_attempts: how many calls with one event alone may fail.
            backoff: the longest wait after the first of them, in seconds. It doubles, up to five minutes, less up to a
                half by chance.
            dead_letter: an event channel for events that keep failing, or its path; it is made if it is missing. Each
                gets there once, with the error, the attempts and its origin as headers. Without one, an event that
                keeps failing stops the worker.
            threads: how many calls there may be at once.
            timeout: how long a call may take, in seconds. A call that takes longer counts as failed. Its thread can't
                be ended, so it is left behind, and its result is ignored; ten such calls at once stop the worker.

        Returns:
            The worker, which has yet to run.

        Raises:
            OptionError: a value is out of range, the function is a coroutine function, ``dead_letter`` is this channel,
                or this is a typed channel and there is no ``batch_size``.
            SchemaError: ``dead_letter`` is a typed channel.
            ReadonlyChannelError: the handle only looks.
        """
        from spillable_stream.workers.config import WorkerConfig
        from spillable_stream.workers.making import make_worker

        config = WorkerConfig(batch_size, max_attempts, backoff, threads, timeout)
        config.check_function(function, is_async=False)
        return self._workers.add(make_worker(self, group, function, config, dead_letter))

    def async_worker(
        self,
        group: str,
        function: Callable[[Any], Awaitable[object]],
        *,
        batch_size: int | None = None,
        max_attempts: int = 5,
        backoff: float = 1.0,
        dead_letter: Channel | str | os.PathLike[str] | None = None,
        threads: int = 1,
        timeout: float | None = None,
    ) -> AsyncWorker:
        """Return a worker for asyncio, whose ``await run()`` calls a coroutine function.

        The arguments are those of `worker`, and so is what it raises. The calls run in the event loop, ``threads`` of
        them at once; one that takes longer than ``timeout`` is cancelled.
        """
        from spillable_stream.workers.async_worker import AsyncWorker, CoroutineCall
        from spillable_stream.workers.config import WorkerConfig
        from spillable_stream.workers.making import make_worker

        config = WorkerConfig(batch_size, max_attempts, backoff, threads, timeout)
        config.check_function(function, is_async=True)
        call = CoroutineCall(function, timeout)
        worker = make_worker(self, group, call, replace(config, timeout=None), dead_letter)
        return AsyncWorker(self._workers.add(worker), call)

    def drop_group(self, group: str) -> None:
        """Forget a group, so that it holds back no event.

        Args:
            group: the group's name.

        Raises:
            GroupOwnedError: a live consumer owns it.
            OptionError: the channel has no group of this name; the message names those that it has.
        """
        self.engine().active_calls.refuse_within("drop_group")
        self._require_writable("drop_group")
        self._owned.drop(self.engine, group)

    def seek(self, group: str, to: SeekTarget) -> int:
        """Move a group back or forward: it takes every event from there on, those too that it has taken before.

        It is one durable commit. What the group's consumer had claimed goes back to the queue: an open take transaction
        of this handle can only be rolled back then. Queries of Spark keep positions of their own in their checkpoints;
        a new checkpoint begins where the group is.

        Args:
            group: the group's name. Nobody owns it, or this handle does.
            to: "earliest" for the first event that the channel keeps, "latest" for the next one to come, a write-order
                ID, a datetime with a zone for the first event put then or later, or a timedelta back from now. Where
                nothing is kept that long, a time leads to the first event that is.

        Returns:
            The ID of the next event that the group takes.

        Raises:
            DataLossError: the event with this ID has left the channel; the message names the first one that is kept.
            GroupOwnedError: another live consumer owns the group; the message names it.
            OptionError: the channel has no group of this name, or ``to`` is a time without a zone, an ID beyond the
                next event's, or nothing of the above.
            ReadonlyChannelError: the handle only looks.
            StorageError: the file system refused. Whatever it raises, the group is where it was.
        """
        self.engine().active_calls.refuse_within("a seek")
        self._require_writable("a seek")
        check_group(group)
        return self._owned.seek(self.engine, group, chosen_position(self.engine(), to))

    def read(
        self,
        start: SeekTarget | None = None,
        end: ReadEnd | None = None,
        group: str | None = None,
        *,
        max_bytes: int = BATCH_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the events that are in the channel now, kept ones and others, in order, and take nothing.

        It works on a handle that only looks, too. It holds a few megabytes, however long the channel is, and it holds
        back nothing: events may leave while it iterates.

        Args:
            start: the first event, said as in `seek`; the first one that the channel keeps by default.
            end: the write-order ID of the last event; or a datetime with a zone, or a timedelta back from now: the
                first event put then or later is not read. Up to the last event by default.
            group: a group's name, for only the events that it has yet to take.
            max_bytes: small batches are joined up to this size. Events that were put in one larger batch come in one,
                of about 16 MiB at most.

        Returns:
            Batches of the channel's newest schema, with the events' IDs in a column ``write_order_id`` at the end.

        Raises:
            CorruptionError: an event can't be read.
            DataLossError: the first or the last event has left the channel, or one that is not yet read leaves
                meanwhile; the message names the first event that the channel keeps.
            OptionError: there is no such event or group, or a time has no zone.
        """
        return read_batches(self.engine(), start, end, group, max_bytes)

    def last_batch(self, producer_id: str) -> LastBatch:
        """Return the last numbered batch that a producer has in the channel, and the note that came with it.

        With a spool, that is the last one in the spool, which may not be in the store yet. A note that only the memory
        tier had is gone with it, as the batch is: then this says what the disk knew last.

        Args:
            producer_id: the producer's ID.

        Returns:
            Number and note; ``(0, b"")`` for a producer that the channel does not know.
        """
        with self.put_port().snapshot() as state:
            return LastBatch(state.producers.last(producer_id), state.producers.note(producer_id))

    def head(self, n: int = 10, start: SeekTarget = "earliest") -> EventTable:
        """Return the first events that the channel keeps, or those from one on, and take nothing.

        Args:
            n: how many at most.
            start: the first one, said as in `seek`.

        Raises:
            CorruptionError: an event can't be read.
            DataLossError: the event ``start`` has left the channel.
            OptionError: ``n`` is less than 1, or ``start`` can't be used.
        """
        return events_from(self.engine(), str(self.path), start, n)

    def tail(self, n: int = 10) -> EventTable:
        """Return the last events, in order, and take nothing.

        Args:
            n: how many at most.

        Raises:
            CorruptionError: an event can't be read.
            DataLossError: events have left the channel meanwhile.
            OptionError: ``n`` is less than 1.
        """
        return last_events(self.engine(), str(self.path), n)

    def range_of(self, start: SeekTarget | None = None, end: ReadEnd | None = None) -> tuple[int, int]:
        """Return the write-order IDs of the first and the last event that `read` would have now.

        The last is less than the first if there are none. The arguments, and what it raises, are those of `read`.
        """
        return range_to_read(self.engine(), start, end)

    def evolve(self, schema: pa.Schema | SparkSchema) -> int:
        """Add the new nullable columns of a schema to the channel.

        Args:
            schema: the columns that a put may have from now on, as Arrow's or Spark's schema.

        Returns:
            The number that the schema has in the channel, from 0.

        Raises:
            SchemaError: it does not fit the channel's columns (the message shows both), or it is not a schema.
        """
        engine = self.engine()
        number = store_columns(engine, as_arrow_schema(schema))
        if self._spool is not None:
            self._spool.evolve(engine.schemas()[number])
        return number

    def stats(self) -> ChannelStats:
        """Return what the channel holds, up to date with every process's commits.

        With a spool, also while the store does not answer: then it is what this handle knows of the store.
        """
        engine, spool = self.engine(), self._spool
        try:
            found = channel_stats(engine)
        except StorageError:
            if spool is None:
                raise
            found = channel_stats(engine, as_known=True)
        if spool is not None:
            found = replace(found, spool=spool.stats())
        workers = seen_workers(engine.worker_notes.read(), found.groups) if self.readonly else self._workers.stats()
        return replace(found, workers=workers) if workers else found

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what the tiers held over time, as far as this handle saw it; needs matplotlib.

        Args:
            ax: where to draw; None for a figure of its own.

        Returns:
            Where it was drawn.

        Raises:
            ImportError: matplotlib is not installed.
        """
        engine = self.engine()
        with engine.snapshot() as state:
            engine.samples.settle(state)
            engine.samples.record(state, now=True)
            samples = engine.samples.all()
        return plot_samples(samples, self.path.name, ax)

    def checkpoint(self) -> None:
        """Make the state durable, so that the next open is short, and remove files no longer needed.

        Raises:
            StorageError: it could not be written; the channel continues without it.
        """
        engine = self.engine()
        self._require_writable("a checkpoint")
        engine.checkpointing.make()

    def flush(self) -> int:
        """Move what is in memory to disk, in order, and return how many events that were.

        With a spool: ship to the store what is in the spool now.

        Raises:
            StorageError: the disk, or the store, refused; what was not moved is still in memory, or in the spool.
        """
        engine = self.engine()
        self._require_writable("a flush")
        return engine.flush() if self._spool is None else self._spool.flush()

    def close(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        """Close the handle when the commits under way are over; its groups are free, open takes are back in the queue.

        The last handle to be closed, among all processes, moves what is in memory to disk and
        removes the memory tier. With a spool, it ships what is in the spool, for 10 seconds at most and the request
        under way, and leaves the rest there.

        Args:
            checkpoint: whether to make a checkpoint; ``checkpointOnClose`` decides by default.
            flush: whether to do that if this is the last handle; ``flushOnClose`` decides by default. Of a spool,
                whether to ship it.

        Raises:
            StorageError: the disk refused; the handle is closed, and what was in memory still is.
            TransactionStateError: this thread is inside of a call to the channel: a signal handler or a finalizer came
                in between.
        """
        if self._pid != os.getpid():
            self._closed = self._left = True
            return
        consumers = self._owned.consumers.values()
        all_calls = [self._owned.active_calls, self._engine.active_calls, *(c.active_calls for c in consumers)]
        if self._spool is not None:
            all_calls.append(self._spool.active_calls)
        for calls in all_calls:
            calls.refuse_within("a close")
        try:
            if self._spool is not None:
                self._spool.close(ship=flush is not False)
        finally:
            self._end(checkpoint, flush)

    def _end(self, checkpoint: bool | None, flush: bool | None) -> None:
        self._closed = True
        self._engine.active_calls.end("a close")
        with self._mutex:
            if self._left:
                return
            self._left = True
            _handles.discard(self)
            self._owned.close()
            try:
                self._engine.leave(checkpoint=checkpoint, flush=flush)
            finally:
                self._engine.close()
                _log.debug("closed %s", self.path, extra=fields(self.path))

    def park(self) -> None:
        """Leave the handle as if it were closed, without a checkpoint, until `resume`.

        The state and the files stay at hand. Only for a handle that owns no group and has no open transaction.

        Raises:
            StorageError: this was the last handle, and the disk refused: what is in memory still is.
        """
        self._engine.park()

    def resume(self, *, schema: pa.Schema | SparkSchema | None = None, **options: Unpack[ChannelKeywords]) -> bool:
        """Resume after `park`, with what was committed meanwhile, or tell that this handle can only be closed.

        Args:
            schema: as in the constructor.
            options: as in the constructor.

        Raises what the constructor raises.
        """
        if self._closed or self._pid != os.getpid() or not self._engine.resume():
            return False
        state = self._engine.follow()
        self._engine.lock_timeout_seconds = state.options.lock_timeout
        given = parse_options(options, (CHANNEL, CREATION), where="a channel")
        self._settle(given, None if schema is None else as_arrow_schema(schema))
        return True

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
        self.close()

    def __repr__(self) -> str:
        return f"Channel({str(self.path)!r}{', closed' if self._closed else ''})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows; of a channel that can't be looked at, why."""
        try:
            return stats_html(self.path, self.typed, self.stats())
        except SpillableError as e:
            return notice_html(self.path, "closed" if self._closed else str(e))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return what a notebook's front end with widgets shows: the same, live; others show `_repr_html_`."""
        picture = live_picture(self)
        return {} if picture is None else picture.view()

    def _forget_after_fork(self) -> None:
        """In a forked child: drop the parent's files and locks without touching what they lock."""
        self._owned.leave()
        self._mutex = threading.RLock()
        self._owned = OwnedGroups(self.path, self._mutex)
        self._workers.leave()
        if self._spool is not None:
            self._spool.after_fork()
        self._engine.close(forked=True)


_handles: weakref.WeakSet[Channel] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for channel in list(_handles):
        channel._forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
