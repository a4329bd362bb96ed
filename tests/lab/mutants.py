"""The package, broken on purpose: a laboratory that does not notice these proves nothing.

Each mutant is one mistake that storage software has really shipped with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from spillable_stream.engine.committer import Committer
from spillable_stream.engine.local import creation, held_channel, memory_directory, memory_origin, opening
from spillable_stream.engine.local.checkpointing import Checkpointing
from spillable_stream.engine.local.held_channel import HeldChannel
from spillable_stream.engine.put_request import Put
from spillable_stream.engine.take_requests import Take
from spillable_stream.errors import StorageError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import encode_all
from spillable_stream.format.head_page import TierEnd
from spillable_stream.log import (
    checkpoints,
    claim,
    directories,
    directory_ownership,
    event_reader,
    frames,
    log_files,
    recovery,
)
from spillable_stream.log.append_check import AppendChecker
from spillable_stream.log.head import Head
from spillable_stream.log.healing import Healing
from spillable_stream.log.layout import Layout
from spillable_stream.log.spares import Spares
from spillable_stream.log.wal import Position, WriteAheadLog
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage import access
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock
from tests.lab.delaying_mutants import DELAYING_MUTANTS
from tests.lab.flow_mutants import FLOW_MUTANTS
from tests.lab.keeping_mutants import KEEPING_MUTANTS
from tests.lab.object_mutants import OBJECT_MUTANTS
from tests.lab.patching import Patch, patch

__all__ = ["MUTANTS", "apply", "broken"]


def apply(name: str) -> None:
    """Break this process for good."""
    for found in MUTANTS[name]():
        found.start()


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    """Break this process for a while; an empty name leaves it whole."""
    with contextlib.ExitStack() as stack:
        for found in MUTANTS[name]() if name else []:
            stack.enter_context(found)
        yield


def skip_the_sync() -> list[Patch]:
    """No file is ever synced."""
    return [patch(File, "sync", lambda real: lambda self: None)]


def skip_the_directory_sync() -> list[Patch]:
    """No directory is ever synced."""
    return [patch(FileSystem, "sync_directory", lambda real: lambda self, path: None)]


def sync_one_data_directory() -> list[Patch]:
    """Of several data directories, the names in the first one alone are ever synced."""

    def make(real: Any) -> Any:
        def sync_directory(self: FileSystem, path: Path) -> None:
            real(self, path.with_name("data") if path.name == "more" else path)

        return sync_directory

    return [patch(FileSystem, "sync_directory", make)]


def rename_before_the_sync() -> list[Patch]:
    """A small file gets its name before its data is durable."""

    def make(real: Any) -> Any:
        def write_atomically(self: FileSystem, path: Any, data: bytes) -> None:
            with mock.patch.object(File, "sync", lambda self: None):
                real(self, path, data)

        return write_atomically

    return [patch(FileSystem, "write_atomically", make)]


def skip_the_checksum() -> list[Patch]:
    """Payloads are believed."""
    return [patch(m, "payload_matches", lambda real: lambda *_: True) for m in (checkpoints, event_reader, frames)]


def believe_misplaced_frames() -> list[Patch]:
    """A frame that is whole is taken for one that is in its place."""
    return [patch(AppendChecker, "fault", lambda real: lambda self, found: None)]


def believe_half_a_head() -> list[Patch]:
    """Where one slot of a head that counts is damaged, the other one is believed, though it may be older."""
    return [patch(Head, "is_whole", lambda real: lambda self: True)]


def publish_before_the_write() -> list[Patch]:
    """Readers see an append that is not there yet."""

    def make(real: Any) -> Any:
        def append(self: WriteAheadLog, at: Position, entries: Any, last_id: int, snapshot: Any) -> Position:
            published = self.lock.current()
            size = sum(map(len, encode_all(entries, self.seed(at.file_id))))
            self.publish(TierEnd(at.file_id, at.offset + size), last_id)
            self.lock._held = published
            return real(self, at, entries, last_id, snapshot)  # type: ignore[no-any-return]

        return append

    return [patch(WriteAheadLog, "append", make)]


def acknowledge_before_the_sync() -> list[Patch]:
    """A commit returns, and the next one syncs both."""

    def make(real: Any) -> Any:
        late: dict[int, Any] = {}

        def _sync(self: WriteAheadLog, file: File, head: TierEnd, snapshot: Any) -> None:
            before = late.pop(id(self), None)
            if before is not None and before[0] is file:
                real(self, *before)
            late[id(self)] = file, head, snapshot

        return _sync

    return [patch(WriteAheadLog, "_sync", make)]


def unlink_early() -> list[Patch]:
    """Data files are removed before the checkpoints that need them are."""

    def make(real: Any) -> Any:
        def _create(self: Checkpointing, spares: bool) -> None:
            layout, current = self._log.layout, self._follower.positions.disk.file_id
            with self._appender.committing(), self._follower.snapshot as state:
                needed = min(state.blocks.oldest_data_file() or current, current)
                for file_id in layout.log_files(self._log.fs, Tier.DISK):
                    if file_id < needed:
                        self._log.fs.remove(layout.log_file(file_id))
            real(self, spares)

        return _create

    return [patch(Checkpointing, "_create", make)]


def keep_the_old_seed() -> list[Patch]:
    """The checksums of every data file start from the same seed, so that what a file held before counts in the next."""

    def make(real: Any) -> Any:
        def file_seed(channel: str, name: str) -> int:
            return int(real(channel, "log" if name.startswith("log-") else name))

        return file_seed

    return [patch(m, "file_seed", make) for m in (log_files, event_reader, checkpoints)]


def write_over_a_file_that_may_come_back() -> list[Patch]:
    """A data file is used again before a directory says durably that it has another name."""

    def make(real: Any) -> Any:
        def without_sync(self: Spares, *arguments: Any) -> Any:
            with mock.patch.object(FileSystem, "sync_directory", lambda self, path: None):
                return real(self, *arguments)

        return without_sync

    return [patch(Spares, name, make) for name in ("retire", "use")]


def read_on_under_another_name() -> list[Patch]:
    """A reader that finds a damaged frame does not look whether the file's name is still there."""
    return [patch(FileSystem, "exists", lambda real: lambda self, path: real(self, path) or "log-" in path.name)]


def reuse_an_id() -> list[Patch]:
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

    return [patch(ChannelState, "from_image", make)]


def forget_takes_in_flight() -> list[Patch]:
    """A file's header and a checkpoint say nothing of takes that are prepared."""

    def make(real: Any) -> Any:
        def small(self: ChannelState) -> dict[str, Any]:
            return {**real(self), "taking": {}}

        return small

    return [patch(ChannelState, "small", make)]


def commit_twice() -> list[Patch]:
    """A put whose answer was slow is committed again."""

    def make(real: Any) -> Any:
        count = [0]

        def _commit(self: Committer, request: Any, *waits: Any) -> Any:
            done = real(self, request, *waits)
            count[0] += isinstance(request, Put)
            if isinstance(request, Put) and not request.segments and count[0] % 2 == 0:
                real(self, Put(request.frames), *waits)
            return done

        return _commit

    return [patch(Committer, "_commit", make)]


def forget_a_take() -> list[Patch]:
    """A take is acknowledged and never written."""

    def make(real: Any) -> Any:
        count = [0]

        def _commit(self: Committer, request: Any, *waits: Any) -> Any:
            count[0] += isinstance(request, Take)
            if isinstance(request, Take) and count[0] % 2 == 0:
                return real(self, Take(request.group, []), *waits)
            return real(self, request, *waits)

        return _commit

    return [patch(Committer, "_commit", make)]


def leave_a_torn_tail() -> list[Patch]:
    """A recovery goes on behind what it should have cut."""

    def make(real: Any) -> Any:
        def find_tail(*arguments: Any) -> Any:
            tail = real(*arguments)
            return tail._replace(end=tail.end + (tail.torn_bytes + 7 & ~7))

        return find_tail

    return [patch(recovery, "find_tail", make)]


def retry_a_failed_sync() -> list[Patch]:
    """A sync that failed is tried again, and then believed."""

    def make(real: Any) -> Any:
        def sync(self: File) -> None:
            try:
                real(self)
            except StorageError:
                with contextlib.suppress(StorageError):
                    real(self)

        return sync

    return [patch(File, "sync", make)]


def heal_nothing() -> list[Patch]:
    """What a killed committer left behind the published end stays there."""

    def make(real: Any) -> Any:
        def heal(self: Healing, image: Any) -> None:
            return

        return heal

    return [patch(Healing, "heal", make)]


def swallow_a_failed_write() -> list[Patch]:
    """A write that failed is taken for done."""

    def make(real: Any) -> Any:
        def write(self: File, offset: int, buffers: Any) -> int:
            with contextlib.suppress(StorageError):
                return int(real(self, offset, buffers))
            return sum(len(b) for b in buffers)

        return write

    return [patch(File, "write", make)]


def skip_the_lock() -> list[Patch]:
    """Every process believes that it has the channel's lock."""
    return [patch(FileLock, "try_acquire", lambda real: lambda self, *, shared=False: True)]


# ── identity: what proves that a directory, a lock or a head is the channel's ──────────────────


def trust_the_head() -> list[Patch]:
    """Who comes first believes a head that is whole and of this boot, and recovers nothing."""

    def make(real: Any) -> Any:
        def recover_channel(held: HeldChannel, timeout_seconds: float) -> None:
            if not held.is_current():
                real(held, timeout_seconds)

        return recover_channel

    return [patch(opening, "recover_channel", make)]


def follow_a_head_that_went_back() -> list[Patch]:
    """A head that publishes less than it did is believed, and what is behind its end is cut."""

    def make(real: Any) -> Any:
        def _parsed(self: Head, slots: bytes) -> Any:
            self._greatest = 0
            return real(self, slots)

        return _parsed

    nothing = [patch(Healing, n, lambda real: _do_nothing) for n in ("_require_no_commit", "_require_one_append")]
    return [patch(Head, "_parsed", make), *nothing]


def believe_any_owner() -> list[Patch]:
    """Whatever is at a directory's path is the channel's."""
    return [patch(module, "ownership_fault", lambda real: lambda *_: None) for module in (directories, claim)]


def miss_the_original() -> list[Patch]:
    """A copy takes the directories of its original, which is there, for its own."""
    return [
        patch(m, "is_original_elsewhere", lambda real: lambda *_: False)
        for m in (directory_ownership, memory_directory)
    ]


def go_where_the_path_leads() -> list[Patch]:
    """A handle never looks whether its paths still lead to what it opened."""
    return [patch(File, "is_in_place", lambda real: lambda self: True)]


def make_a_lost_lock_again() -> list[Patch]:
    """A lock file that was removed is created again, though others hold the old one, and nobody sees that."""

    def make(real: Any) -> Any:
        def _create_lock_files(fs: FileSystem, layout: Layout) -> None:
            for path in (layout.open_lock, layout.lock):
                FileLock.open(fs, path).close()

        return _create_lock_files

    return [
        patch(opening, "_create_lock_files", make),
        patch(held_channel, "are_anchored", lambda real: lambda *_: True),
    ]


def create_over_what_is_there() -> list[Patch]:
    """A directory without an identity is taken for one in which a creation was cut short, whatever it holds."""
    return [patch(creation, "_require_no_events", lambda real: _do_nothing)]


def declare_lost_what_is_elsewhere() -> list[Patch]:
    """A memory tier that is not to be seen is gone."""
    return [patch(memory_origin.MemoryOrigin, "is_certainly_gone", lambda real: lambda *_: True)]


def trust_a_planted_memory() -> list[Patch]:
    """Whoever created the memory tier's directory, and whoever may write to it, is believed."""
    return [patch(FileSystem, "is_private_directory", lambda real: lambda self, path, owner_of: path.is_dir())]


def keep_what_root_makes() -> list[Patch]:
    """What root makes in a user's channel is root's."""
    return [patch(access, "_other_owner", lambda real: lambda *_: None)]


def _do_nothing(*_: Any) -> None:
    pass


_MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    f.__name__.replace("_", " "): f
    for f in (
        skip_the_sync,
        skip_the_directory_sync,
        sync_one_data_directory,
        rename_before_the_sync,
        skip_the_checksum,
        believe_misplaced_frames,
        believe_half_a_head,
        publish_before_the_write,
        acknowledge_before_the_sync,
        unlink_early,
        keep_the_old_seed,
        write_over_a_file_that_may_come_back,
        read_on_under_another_name,
        reuse_an_id,
        forget_takes_in_flight,
        commit_twice,
        forget_a_take,
        leave_a_torn_tail,
        retry_a_failed_sync,
        heal_nothing,
        swallow_a_failed_write,
        skip_the_lock,
        trust_the_head,
        follow_a_head_that_went_back,
        believe_any_owner,
        miss_the_original,
        go_where_the_path_leads,
        make_a_lost_lock_again,
        create_over_what_is_there,
        declare_lost_what_is_elsewhere,
        trust_a_planted_memory,
        keep_what_root_makes,
    )
}

MUTANTS = {**_MUTANTS, **DELAYING_MUTANTS, **FLOW_MUTANTS, **KEEPING_MUTANTS, **OBJECT_MUTANTS}
