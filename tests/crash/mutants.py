"""The package, broken on purpose: a laboratory that does not notice these proves nothing.

Each mutant is one mistake that storage software has really shipped with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from spillable_stream.channel.checkpointing import Checkpointing
from spillable_stream.channel.engine import Engine
from spillable_stream.channel.requests import Put, Take
from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import StorageError
from spillable_stream.log import checkpoints, reader, recovery, scan
from spillable_stream.log.appends import Appends
from spillable_stream.log.head import Head, TierEnd
from spillable_stream.log.layout import Tier
from spillable_stream.log.wal import Position, WriteAheadLog
from spillable_stream.storage.filesystem import File, FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["MUTANTS", "apply", "broken"]

_Patch = Any


def apply(name: str) -> None:
    """Break this process for good."""
    for patch in MUTANTS[name]():
        patch.start()


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    """Break this process for a while; an empty name leaves it whole."""
    with contextlib.ExitStack() as stack:
        for patch in MUTANTS[name]() if name else []:
            stack.enter_context(patch)
        yield


def _patch(owner: Any, name: str, make: Callable[[Any], Any]) -> _Patch:
    """Return a patch that puts what ``make`` makes of a function in its place."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def skip_the_sync() -> list[_Patch]:
    """No file is ever synced."""
    return [_patch(File, "sync", lambda real: lambda self: None)]


def skip_the_directory_sync() -> list[_Patch]:
    """No directory is ever synced."""
    return [_patch(FileSystem, "sync_directory", lambda real: lambda self, path: None)]


def rename_before_the_sync() -> list[_Patch]:
    """A small file gets its name before its data is durable."""

    def make(real: Any) -> Any:
        def write_atomically(self: FileSystem, path: Any, data: bytes) -> None:
            with mock.patch.object(File, "sync", lambda self: None):
                real(self, path, data)

        return write_atomically

    return [_patch(FileSystem, "write_atomically", make)]


def skip_the_checksum() -> list[_Patch]:
    """Payloads are believed."""
    return [_patch(m, "payload_matches", lambda real: lambda *_: True) for m in (checkpoints, reader, scan)]


def believe_misplaced_frames() -> list[_Patch]:
    """A frame that is whole is taken for one that is in its place."""
    return [_patch(Appends, "wrong", lambda real: lambda self, found: None)]


def believe_half_a_head() -> list[_Patch]:
    """Where one slot of the head is damaged, the other one counts, though it may be older."""
    return [_patch(Head, "is_whole", lambda real: lambda self: True)]


def publish_before_the_write() -> list[_Patch]:
    """Readers see an append that is not there yet."""

    def make(real: Any) -> Any:
        def append(self: WriteAheadLog, at: Position, entries: Any, last_id: int, snapshot: Any) -> Position:
            published = self.lock.current()
            size = self._encode(at.file_id, entries)[1]
            self.publish(TierEnd(at.file_id, at.offset + size), last_id)
            self.lock._held = published
            return real(self, at, entries, last_id, snapshot)  # type: ignore[no-any-return]

        return append

    return [_patch(WriteAheadLog, "append", make)]


def acknowledge_before_the_sync() -> list[_Patch]:
    """A commit returns, and the next one syncs both."""

    def make(real: Any) -> Any:
        late: dict[int, Any] = {}

        def _sync(self: WriteAheadLog, file: File, head: TierEnd, snapshot: Any) -> None:
            before = late.pop(id(self), None)
            if before is not None and before[0] is file:
                real(self, *before)
            late[id(self)] = file, head, snapshot

        return _sync

    return [_patch(WriteAheadLog, "_sync", make)]


def unlink_early() -> list[_Patch]:
    """Data files are removed before the checkpoint that makes them unneeded is durable."""

    def make(real: Any) -> Any:
        def _make(self: Checkpointing) -> None:
            replica = self._replica
            with replica.committing(), replica.looking() as state:
                needed = state.blocks.oldest_data_file() or replica.positions.disk.file_id
                needed = min(needed, replica.positions.disk.file_id)
                for file_id in replica.layout.log_files(self._fs, Tier.DISK):
                    if file_id < needed:
                        self._fs.remove(replica.layout.log_file(file_id))
            real(self)

        return _make

    return [_patch(Checkpointing, "_make", make)]


def reuse_an_id() -> list[_Patch]:
    """The next ID follows the last event that is still there."""

    def make(real: Any) -> Any:
        def from_image(image: dict[str, Any]) -> ChannelState:
            state: ChannelState = real({**image})
            state.next_id = state.floor
            for block in state.blocks:
                state.next_id = block.last_id + 1
            if not len(state.blocks.disk) and not len(state.blocks.memory):
                state.next_id = 1
                state.floor = 1
                for group in state.groups.values():
                    group.position = 0
            return state

        return staticmethod(from_image)

    return [_patch(ChannelState, "from_image", make)]


def forget_takes_in_flight() -> list[_Patch]:
    """A file's header and a checkpoint say nothing of takes that are prepared."""

    def make(real: Any) -> Any:
        def small(self: ChannelState) -> dict[str, Any]:
            return {**real(self), "taking": {}}

        return small

    return [_patch(ChannelState, "small", make)]


def commit_twice() -> list[_Patch]:
    """A put whose answer was slow is committed again."""

    def make(real: Any) -> Any:
        count = [0]

        def commit(self: Engine, request: Any, keep_alive_seconds: float = 0.0) -> Any:
            done = real(self, request, keep_alive_seconds)
            count[0] += isinstance(request, Put)
            if isinstance(request, Put) and not request.segments and count[0] % 2 == 0:
                real(self, Put(request.frames), keep_alive_seconds)
            return done

        return commit

    return [_patch(Engine, "commit", make)]


def forget_a_take() -> list[_Patch]:
    """A take is acknowledged and never written."""

    def make(real: Any) -> Any:
        count = [0]

        def commit(self: Engine, request: Any, keep_alive_seconds: float = 0.0) -> Any:
            count[0] += isinstance(request, Take)
            if isinstance(request, Take) and count[0] % 2 == 0:
                return real(self, Take(request.group, []), keep_alive_seconds)
            return real(self, request, keep_alive_seconds)

        return commit

    return [_patch(Engine, "commit", make)]


def leave_a_torn_tail() -> list[_Patch]:
    """A recovery goes on behind what it should have cut."""

    def make(real: Any) -> Any:
        def recover_last(file: File, *arguments: Any) -> Any:
            end, torn = real(file, *arguments)
            return end + (torn + 7 & ~7), torn

        return recover_last

    return [_patch(recovery, "_recover_last", make)]


def retry_a_failed_sync() -> list[_Patch]:
    """A sync that failed is tried again, and then believed."""

    def make(real: Any) -> Any:
        def sync(self: File) -> None:
            try:
                real(self)
            except StorageError:
                with contextlib.suppress(StorageError):
                    real(self)

        return sync

    return [_patch(File, "sync", make)]


def heal_nothing() -> list[_Patch]:
    """What a killed committer left behind the published end stays there."""

    def make(real: Any) -> Any:
        def heal(self: WriteAheadLog, snapshot: Any) -> None:
            return

        return heal

    return [_patch(WriteAheadLog, "heal", make)]


def swallow_a_failed_write() -> list[_Patch]:
    """A write that failed is taken for done."""

    def make(real: Any) -> Any:
        def write(self: File, offset: int, buffers: Any) -> int:
            with contextlib.suppress(StorageError):
                return int(real(self, offset, buffers))
            return sum(len(b) for b in buffers)

        return write

    return [_patch(File, "write", make)]


def skip_the_lock() -> list[_Patch]:
    """Every process believes that it has the channel's lock."""
    return [_patch(FileLock, "try_acquire", lambda real: lambda self, *, shared=False: True)]


MUTANTS: dict[str, Callable[[], list[_Patch]]] = {
    f.__name__.replace("_", " "): f
    for f in (
        skip_the_sync,
        skip_the_directory_sync,
        rename_before_the_sync,
        skip_the_checksum,
        believe_misplaced_frames,
        believe_half_a_head,
        publish_before_the_write,
        acknowledge_before_the_sync,
        unlink_early,
        reuse_an_id,
        forget_takes_in_flight,
        commit_twice,
        forget_a_take,
        leave_a_torn_tail,
        retry_a_failed_sync,
        heal_nothing,
        swallow_a_failed_write,
        skip_the_lock,
    )
}
