"""What a handle has open, from its first open to its close, and again in a forked child."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillable_stream.arguments import flag
from spillable_stream.channel.arrow_schema import SparkSchema, as_arrow_schema
from spillable_stream.channel.direct_puts import DirectPuts
from spillable_stream.channel.known_workers import KnownWorkers
from spillable_stream.channel.open_arguments import FoundChannel, OpenArguments
from spillable_stream.channel.owned_groups import OwnedGroups
from spillable_stream.channel.stored_options import store_options
from spillable_stream.channel.stored_schema import has_columns, store_columns
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.engine.open_engine import open_engine, remember
from spillable_stream.errors import ChannelClosedError, NotAChannelError, SpillableError, StorageError
from spillable_stream.format.batch import decode_schema
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_types import ChannelOptions
from spillable_stream.options import CHANNEL, CREATION, parse_options
from spillable_stream.progress import OnProgress, told_of_opens
from spillable_stream.storage.filesystem import FileSystem

if TYPE_CHECKING:
    from spillable_stream.channel.spool import Spool
    from spillable_stream.channel.stats import ChannelStats

__all__ = ["OpenChannel"]

_log = log_of(__name__)


class OpenChannel:
    """The engine of a handle, the spool in front of it, the groups that the handle owns, and the workers it created.

    A spool is the handle of a channel on this host, opened likewise: here the modules of a spool meet in a circle.

    Args:
        given: what the handle is opened with.
        fs: the file system.
        create: whether to create the channel if it is missing.
        readonly: whether only to look.
        progress: is told how far a long open is.

    Attributes:
        path: where the channel is.
        uuid: the channel's identity, also once it is closed.
        spool: the spool, if there is one.
        owned: the groups that the handle owns.
        workers: the workers that it created.
        is_closed: whether it was closed.

    Raises what `Channel` raises.
    """

    def __init__(
        self, given: OpenArguments, fs: FileSystem, *, create: bool, readonly: bool, progress: OnProgress | None
    ) -> None:
        prepare = partial(_prepare_spool, fs, given)
        found = given.find_channel(fs, create=create and not readonly, prepare=prepare)
        self.path: ChannelPath = given.path
        self.uuid: str = ""
        self._fs, self._readonly = fs, readonly
        self._front, self._cache = given.front, given.cache
        # The channel's own is known when it is open.
        self._open_timeout_seconds = given.options.get("lock_timeout", ChannelOptions().lock_timeout)
        self.is_closed: bool = False
        self._is_parked = False
        self._has_ended = False
        self._mutex = threading.RLock()
        self.owned: OwnedGroups = OwnedGroups(self.path, self._mutex)
        self.workers: KnownWorkers = KnownWorkers()
        self.spool: Spool | None = None
        self._puts: DirectPuts | Spool  # set with each engine
        with told_of_opens(progress):
            self._open_engine(found)
        self._pid = os.getpid()
        try:
            self._settle(given.options, given.schema, is_known=found.known is not None)
            if given.front is not None:
                from spillable_stream.channel.spool import open_spool

                self.spool = self._puts = open_spool(fs, given.front, self._engine)
                if found.known is None:
                    self._remember()
        except BaseException:
            self._engine.close()
            raise
        _open_channels.add(self)
        _log.debug("opened %s%s", self.path, " to look at" if readonly else "", extra=fields(self.path))

    def _open_engine(self, found: FoundChannel) -> None:
        engine = open_engine(
            self._fs,
            self.path,
            self._open_timeout_seconds,
            readonly=self._readonly,
            channel=found.channel,
            cache=self._cache,
            known=found.known,
        )
        if self.uuid not in ("", engine.channel):  # in a forked child
            engine.close()
            self.require_same(engine.channel)
        self.uuid, self._engine = engine.channel, engine
        self._engine.lock_timeout_seconds = self._engine.state.options.lock_timeout
        self._puts = DirectPuts(self._engine) if self.spool is None else self.spool

    def _settle(
        self, options: dict[str, Any], schema: pa.Schema | SparkSchema | None, *, is_known: bool = False
    ) -> None:
        """Store the options and the schema of this open that differ from the channel's.

        Args:
            options: the options.
            schema: the schema.
            is_known: whether the channel is known from before only, and can't be asked: what differs is an error.
        """
        store_options(self._engine, options, then=self._remember)
        if schema is not None and not (is_known and has_columns(self._engine, schema)):
            self.evolve(schema)
        self._engine.upkeep.ensure()

    def _remember(self) -> None:
        """Write down beside the spool, if there is one, what the channel is like: the next open may lack the store."""
        if self.spool is not None and self._front is not None:
            remember(self._fs, Path(self._front.path), self._engine)

    def _open_in_child(self) -> None:
        with self._mutex:
            if self._pid != os.getpid():
                self.owned.consumers = {}
                self._open_engine(FoundChannel())
                try:
                    if self.spool is not None:
                        self.spool.begin(self._engine)
                    self._engine.upkeep.ensure()
                except BaseException:
                    self._engine.close()
                    raise
                self._pid = os.getpid()  # not before: after a failure the next call opens it anew

    def engine(self, to_write: str = "") -> Engine:
        """Return the engine, in this process.

        Args:
            to_write: the call that needs it to change the channel, with its article, as "a put".

        Raises:
            ChannelClosedError: the channel was closed.
            ReadonlyChannelError: the call changes the channel, and the handle only looks.
        """
        if self.is_closed:
            raise ChannelClosedError(f"the channel {self.path} is closed; open it again")
        if self._pid != os.getpid():
            self._open_in_child()
        if to_write and self._readonly:
            self._engine.refuse_to_write(to_write)
        return self._engine

    def puts(self, to_write: str = "") -> DirectPuts | Spool:
        """Return where puts go: to the spool, if there is one. Arguments and errors are those of `engine`."""
        self.engine(to_write)
        return self._puts

    def evolve(self, schema: pa.Schema | SparkSchema, *, whole: bool = False) -> int:
        """Add the new nullable columns of a schema, and return the number of the newest schema.

        Args:
            schema: the schema.
            whole: whether it must have all of the channel's columns, unless the channel has had it before.

        Raises what `store_columns` raises.
        """
        engine = self.engine()
        known = len(engine.schemas())
        number = store_columns(engine, as_arrow_schema(schema), whole=whole)
        if self.spool is not None:
            self.spool.evolve(engine.schemas()[number])
            if len(engine.schemas()) != known:
                self._remember()
        return number

    def stats(self) -> ChannelStats:
        """Return what the channel holds; with a spool, what is known of it while the store does not answer."""
        from spillable_stream.channel.stats import channel_stats
        from spillable_stream.channel.worker_status import seen_workers

        engine, spool = self.engine(), self.spool
        unshipped = None if spool is None else spool.stats()  # first: what is shipped meanwhile must not be missing
        try:
            found = channel_stats(engine)
        except StorageError:
            if spool is None:
                raise
            found = channel_stats(engine, as_known=True)
        if unshipped is not None:
            found = replace(found, spool=unshipped)
        workers = seen_workers(engine.worker_statuses.read(), found.groups) if self._readonly else self.workers.stats()
        return replace(found, workers=workers) if workers else found

    def failure(self) -> str:
        """Return why a storage failure closed the log of the channel, or of its spool; "" if none did."""
        return self._engine.log.failed or ("" if self.spool is None else self.spool.failure())

    def require_same(self, found: str) -> None:
        """Refuse another channel where this handle's was.

        Args:
            found: the UUID of the one that is there.

        Raises:
            NotAChannelError: it is another one.
        """
        if found != self.uuid:
            raise NotAChannelError(
                f"the channel {self.uuid} was at {self.path}, and the channel {found} is there now; nothing was stored "
                "in that one. Mount the disk of the first one, or put it back; or open the other one with a new handle"
            )

    def handle_options(self) -> Mapping[str, Any]:
        """Return the options of another handle with the same spool and cache."""
        options: dict[str, Any] = {}
        if self._front is not None:
            options |= {"durability": self._front.durability, "spool": self._front.path}
        if self._cache is not None:
            options |= {"cache_dir": self._cache.directory, "cache_bytes": self._cache.most_bytes}
        return options

    def is_mine_and_open(self) -> bool:
        """Tell whether it is open in this process: neither parked, nor only open in the parent of it."""
        return not (self.is_closed or self._is_parked) and self._pid == os.getpid()

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def close(self, *, checkpoint: bool | None = None, flush: bool | None = None) -> None:
        """Close it as `Channel.close` does, with its arguments; raises what that raises."""
        for name, value in (("checkpoint", checkpoint), ("flush", flush)):
            if value is not None:
                flag(name, value)
        try:
            self._close(checkpoint, flush)
        except SpillableError:
            raise
        except BaseException as e:  # of a signal handler: a handle that is closed by half would keep all others out
            if self._has_ended:  # but for a spool, which ships no more
                flush = False
            try:
                self._close(checkpoint, flush)
            except SpillableError as failed:  # the interrupt is what a program waits for
                e.add_note(f"{self.path} could not be closed as it should: {failed}")
            raise

    def _close(self, checkpoint: bool | None, flush: bool | None) -> None:
        if self._pid != os.getpid():
            self.is_closed = self._has_ended = True
            return
        consumers = list(self.owned.consumers.values())  # another thread may drop a group, or close the handle, too
        all_calls = [self.owned.active_calls, self._engine.active_calls, *(c.active_calls for c in consumers)]
        if self.spool is not None:
            all_calls.append(self.spool.active_calls)
        for calls in all_calls:
            calls.refuse_within("a close")
        try:
            if self.spool is not None:
                self.spool.close(ship=flush is not False)
        finally:
            self._end(checkpoint, flush)

    def _end(self, checkpoint: bool | None, flush: bool | None) -> None:
        self.is_closed = True
        self._engine.active_calls.end("a close", self._engine.lock_timeout_seconds)
        with self._mutex:
            if self._has_ended:
                self.owned.close()  # those that the last close could not
                return
            try:
                self.owned.close()
                self._engine.leave(checkpoint=checkpoint, flush=flush)
            except SpillableError:
                raise
            except BaseException:  # of a signal handler
                self._engine.active_calls.let_go()  # the commit lock, or the rest is refused to this thread
                self.owned.close()  # in a store, whoever wants a group that was not given up waits for 10 s
                raise
            finally:
                self._engine.close()
                _open_channels.discard(self)
                self._has_ended = True  # not before: after an interrupt, the next close does what is left to do
                _log.debug("closed %s", self.path, extra=fields(self.path))

    @property
    def has_ended(self) -> bool:
        """Whether a close has come to its end."""
        return self._has_ended

    def park(self) -> None:
        """Leave the channel as `Channel.park` does; raises what that raises."""
        self._engine.park()
        self._is_parked = True

    def resume(self, options: Mapping[str, Any], schema: pa.Schema | SparkSchema | None) -> bool:
        """Resume after `park` as `Channel.resume` does, with its arguments; raises what that raises."""
        given = parse_options(options, (CHANNEL, CREATION), where="a channel")
        if self.is_closed or self._pid != os.getpid() or not self._engine.resume():
            return False
        self._is_parked = False
        self._engine.lock_timeout_seconds = self._engine.follow().options.lock_timeout
        self._settle(given, schema)
        return True

    def forget_after_fork(self) -> None:
        """In a forked child: drop the parent's files and locks without touching what they lock."""
        self.owned.leave()
        self._mutex = threading.RLock()
        self.owned = OwnedGroups(self.path, self._mutex)
        self.workers.leave()
        if self.spool is not None:
            self.spool.after_fork()
        self._engine.close(forked=True)


def _prepare_spool(fs: FileSystem, given: OpenArguments) -> None:
    """Create the spool first: where it is refused, no channel that nobody wants is left in the store."""
    if given.front is not None:
        from spillable_stream.channel.spool_channel import prepare_spool

        new = given.new_channel()
        prepare_spool(fs, given.front, given.path, new.options, decode_schema(new.schemas[-1]))


_open_channels: weakref.WeakSet[OpenChannel] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for channel in list(_open_channels):
        channel.forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
