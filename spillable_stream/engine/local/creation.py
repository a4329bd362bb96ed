"""Creates a channel on this host: its directories, its first data file, and last its identity file."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from spillable_stream.engine.local.failed_creation import FailedCreation
from spillable_stream.errors import ChannelBusyError, NotAChannelError, OptionError, SpillableError, StorageError
from spillable_stream.format.file_names import CLAIM_LOCK, Tier, log_name, parse_checkpoint
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameType, file_seed, frame_size, parse_header
from spillable_stream.format.head_page import NO_TIER, CommitPoint, parse_head
from spillable_stream.log.claim import make_directories, require_unowned
from spillable_stream.log.commit_lock import CommitLock, checkpoint_ms_now
from spillable_stream.log.directory_ownership import is_held
from spillable_stream.log.frames import FrameScanner, find_frame
from spillable_stream.log.host_memory import directory_in_memory
from spillable_stream.log.identity_file import (
    has_identity,
    layout_of,
    planned_layout,
    require_directory,
    what_else_is_at,
    write_identity,
)
from spillable_stream.log.layout import Layout
from spillable_stream.log.nesting import require_apart
from spillable_stream.log.owner_file import HOME, OWNER_FILE, read_owner
from spillable_stream.log.tail import written_bytes
from spillable_stream.log.wal import WriteAheadLog
from spillable_stream.log_records import fields, log_of
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.shown_value import command
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.storage.access import Access
from spillable_stream.storage.filesystem import FileSystem
from spillable_stream.storage.lock import FileLock

__all__ = ["check_creation", "create_channel", "planned_directories", "warn_of_memory"]

_log = log_of(__name__)

_LOCK = "open.lock"  # whoever creates the channel holds it, and creates it first
_OWN_NAMES = {
    *("lock", _LOCK, "checkpoint.lock", "head", "data", "groups", "checkpoint", "memory", "memory.json"),
    *("quarantine", "producers", "upkeep.lock", "store", "store.lock"),
    *(OWNER_FILE, CLAIM_LOCK),
}
_LOCK_SECONDS = 30.0
_POLL_SECONDS = 0.05
_ATTEMPTS = 5  # while others remove the directory


def create_channel(
    fs: FileSystem, path: Path, options: ChannelOptions, fixed: CreationOptions, schemas: list[bytes]
) -> None:
    """Create a channel at ``path`` unless it exists; several processes may try at once.

    Where `check_creation` refuses it, nothing is created, not even a directory. One that fails removes what it has
    created. A creation cut short begins anew, under the same identity. A directory with committed events but without an
    identity file is a channel that lost the file: the creation is refused, and nothing is removed.

    Args:
        fs: the file system.
        path: the channel's directory, which must be missing or empty.
        options: the channel's options.
        fixed: its directories and its mode.
        schemas: the schema of its events, as an Arrow IPC message.

    Raises:
        NotAChannelError: the directory holds other things, or a channel without its identity file.
        ForeignDirectoryError: a directory belongs to another channel.
        OptionError: two of its directories are the same, or one is inside of another channel's or holds a channel; one
            that is created at the same moment may be refused, too.
        LockUnsupportedError: the file system's locks do not work.
        ChannelBusyError: another process has been creating it for too long.
        StorageError: the file system refused.
    """
    planned = check_creation(fs, path, fixed)
    fs.access = Access(planned.mode)
    failed = FailedCreation(fs, planned)
    with failed.without_directory(), contextlib.ExitStack() as held:
        if (creating := _creating(fs, planned)) is None:
            return
        held.callback(creating.close)
        if has_identity(fs, path):
            return
        with failed.without_files():
            creating.check_exclusive(fs)
            failed.continue_as(_continued(fs, planned))
            _create_files(fs, failed.layout, options, schemas)
    _log.info("created %s", path, extra=fields(path))
    warn_of_memory(fs, planned)


def warn_of_memory(fs: FileSystem, layout: Layout) -> None:
    """Warn of a new channel that ends with the host, whatever is synced, unless it is where temporary files are.

    Args:
        fs: the file system.
        layout: the channel's directories, which exist.
    """
    if (directory := directory_in_memory(fs, layout)) is not None:
        _log.warning(
            "the channel %s has %s on a file system in memory: its events end with the host, whatever was committed. "
            "Create it on a disk",
            layout.path,
            "its directory" if directory == layout.path else directory,
            extra=fields(layout.path, file=directory),
        )


def _creating(fs: FileSystem, planned: Layout) -> FileLock | None:
    """Create the channel's directory, and return the lock of the creation, held; None once there is a channel.

    A creation that fails removes its lock, and the directory: whoever has waited for that begins anew.
    """
    deadline, attempts = time.monotonic() + _LOCK_SECONDS, _ATTEMPTS
    while True:
        try:
            fs.make_directory(planned.path)
            planned.grant(fs)
            lock = FileLock.open(fs, planned.open_lock)
        except StorageError as e:
            attempts -= 1
            if not attempts or not isinstance(e.__cause__, FileNotFoundError):
                raise
            time.sleep(_POLL_SECONDS)
            continue
        try:
            is_free = lock.acquire(_POLL_SECONDS)
            if is_free and lock.is_in_place():
                return lock
            if not is_free and _is_created(fs, planned.path, deadline):
                lock.close()
                return None
        except BaseException:
            lock.close()
            raise
        lock.close()


def _is_created(fs: FileSystem, path: Path, deadline: float) -> bool:
    """Tell whether another process has created the channel; raises if it never will, or takes too long."""
    if has_identity(fs, path):
        return True
    if is_held(fs, path) and not has_identity(fs, path):
        raise NotAChannelError(
            f"{path} has no channel.json, but handles have the channel open: the file was removed meanwhile. Close "
            f"them, and run '{command('repair', path)}', which rewrites it"
        )
    if time.monotonic() > deadline:
        raise ChannelBusyError(
            f"another process has been creating {path} for more than {_LOCK_SECONDS:g} s; check whether it is stuck"
        )
    return False


def planned_directories(layout: Layout) -> list[Path]:
    """Return all directories of a layout, the channel's own first, the backup checkpoint directory included."""
    return [layout.path, *_directories(layout)]


def check_creation(fs: FileSystem, path: Path, fixed: CreationOptions) -> Layout:
    """Return the layout of a new channel, or refuse one that can be seen to be impossible; nothing is created.

    What another creation of the channel, under way or cut short, has created is judged under its lock only, by
    `create_channel`. Whether the channel is apart from others is judged there again: two that are created at the same
    moment, one in a directory of the other, may not see each other here.

    Args:
        fs: the file system.
        path: the channel's directory.
        fixed: its directories and its mode.

    Raises:
        NotAChannelError: the directory holds other things, or a channel without its identity file.
        ForeignDirectoryError: a directory belongs to another channel.
        OptionError: two of its directories are the same, or one is inside of another channel's or holds a channel.
        StorageError: a directory can't be created.
    """
    require_directory(fs, path)
    planned = planned_layout(path, fixed)
    for directory in (path, *planned.directories().values()):
        fs.require_place(directory)
    _refuse_strangers(fs, path, planned)
    if not fs.exists(path / _LOCK):
        try:
            _continued(fs, planned)
        except SpillableError:
            if not fs.exists(path / _LOCK):  # else another creation has begun meanwhile
                raise
    require_apart(fs, path, _directories(planned))
    return planned


def _refuse_strangers(fs: FileSystem, path: Path, planned: Layout) -> None:
    """Refuse a directory with files that no channel has."""
    own = _OWN_NAMES | _names_in(path, planned)
    if (earlier := read_owner(fs, path)) is not None and earlier.layout is not None:
        own |= _names_in(path, layout_of(path, earlier.layout))
    foreign = [n for n in fs.list(path) if n not in own and not n.endswith(".tmp")]
    if foreign and not has_identity(fs, path):
        raise NotAChannelError(
            f"{path} is not a channel and not empty (it holds {foreign[0]!r})"
            f"{what_else_is_at(fs, path) or '; use another directory'}"
        )


def _names_in(path: Path, layout: Layout) -> set[str]:
    """Return the names in the channel's directory that lead to directories of a layout."""
    return {d.relative_to(path).parts[0] for d in _directories(layout) if d.is_relative_to(path) and d != path}


def _directories(layout: Layout) -> list[Path]:
    """Return the directories of a layout except the channel's own, the backup checkpoint directory included."""
    return [*layout.directories().values(), *filter(None, [layout.backup_checkpoint_dir])]


def _continued(fs: FileSystem, planned: Layout) -> Layout:
    """Return the layout, with the identity of a creation that was cut short, after proving that it holds no events.

    Raises:
        OptionError: two of its directories are the same.
        NotAChannelError: the directories hold a channel, or what is left of one.
        ForeignDirectoryError: a directory belongs to another channel.
    """
    # Left by an interrupted creation, or by a channel that lost its identity file.
    earlier = read_owner(fs, planned.path)
    layout, cut_short, channel = planned, [planned], ""
    if earlier is not None and earlier.role == HOME:
        layout, channel = replace(planned, channel=earlier.channel), earlier.channel
        if earlier.layout is not None:
            cut_short.append(layout_of(planned.path, earlier.layout))
    _require_distinct(fs, layout)
    require_unowned(fs, layout)
    for found in cut_short:
        _require_no_events(fs, found, channel)
    return layout


def _require_distinct(fs: FileSystem, layout: Layout) -> None:
    """Prove that all directories are distinct after links are resolved."""
    known: dict[Path, Path] = {fs.real_path(layout.path): layout.path}
    for directory in _directories(layout):
        other = known.setdefault(fs.real_path(directory), directory)
        if other != directory:
            raise OptionError(f"{other} and {directory} are the same directory; give two, or one of these paths")


def _require_no_events(fs: FileSystem, layout: Layout, channel: str) -> None:
    """Prove that a layout holds at most the first file of an interrupted creation.

    Directories that another channel owns are that one's: an earlier creation may have let go of them.

    Args:
        fs: the file system.
        layout: the directories to search.
        channel: the UUID of the interrupted creation; "" without one.
    """
    paths = [layout.log_file(file_id) for file_id in layout.log_files(fs)]
    owners = {path: read_owner(fs, path.parent) for path in paths}  # a creation writes it before the first file
    unproven = {path: owner for path, owner in owners.items() if owner is None or owner.channel == channel}
    for path, owner in unproven.items():
        is_first = [*unproven] == [layout.log_file(1)]
        if not is_first or not (_is_unused(fs, path) if owner is None else _is_torn(fs, path, channel)):
            raise NotAChannelError(
                f"{layout.path} has no channel.json, but {path} is there: either its channel.json was removed, or "
                f"these are another channel's data. '{command('repair', layout.path)}' can rebuild it; "
                "nothing was changed"
            )
    if (trace := _trace_of_use(fs, layout)) is not None:
        raise NotAChannelError(
            f"{layout.path} has no channel.json, but {trace} says that a channel was used here. Mount the disk of its "
            f"data and restore the file; or let '{command('repair', layout.path)}' rebuild it. Nothing was "
            "changed"
        )


def _trace_of_use(fs: FileSystem, layout: Layout) -> Path | None:
    """Return a file that no interrupted creation leaves: a checkpoint, or a head that publishes commits."""
    if layout.checkpoint_dir.is_relative_to(layout.path):  # outside, checkpoints may belong to another channel
        created = (name for name in fs.list_files(layout.checkpoint_dir) if parse_checkpoint(name))
        if (checkpoint := next(created, None)) is not None:
            return layout.checkpoint_dir / checkpoint
    head = parse_head(fs.read_file(layout.head)) if fs.exists(layout.head) else None
    return layout.head if head is not None and (head.published.last_id or head.published.disk.file_id > 1) else None


def _is_torn(fs: FileSystem, path: Path, channel: str) -> bool:
    """Tell whether the first file of an interrupted creation holds at most its header, whole or torn."""
    with contextlib.closing(fs.open(path, readonly=True)) as file:
        seed = file_seed(channel, log_name(1))
        header = next(iter(FrameScanner(file, seed, 0)), None)
        if header is not None:
            return written_bytes(file, header.end) == 0
        return not any(next(find_frame(file, seed, 0, type), None) for type in (FrameType.PUT, FrameType.COMMIT))


def _is_unused(fs: FileSystem, path: Path) -> bool:
    """Tell whether a file of unknown ownership holds nothing, or only the header of a data file."""
    with contextlib.closing(fs.open(path, readonly=True)) as file:
        header = parse_header(file.read(0, HEADER_SIZE_BYTES), 0, None)
        is_first = header is not None and header.type == FrameType.FILE_HEADER
        return written_bytes(file, frame_size(header.length) if header and is_first else 0) == 0


def _create_files(fs: FileSystem, layout: Layout, options: ChannelOptions, schemas: list[bytes]) -> None:
    make_directories(fs, layout)
    # Again: of two channels that are created at the same moment, one in a directory of the other, both have owned their
    # directories before they look, so one at least sees the other. If each does, both are refused.
    require_apart(fs, layout.path, _directories(layout))
    for file_id in layout.log_files(fs):  # left by an interrupted creation
        fs.remove(layout.log_file(file_id))
    fs.remove(layout.head)
    lock = CommitLock(fs, layout)
    wal = WriteAheadLog(lock, Tier.DISK)
    try:
        lock.publish(CommitPoint(NO_TIER, checkpoint_ms=checkpoint_ms_now()))
        wal.create_first_file(ChannelState(options, schemas).small, 1)
    finally:
        wal.close()
        lock.close()
    FileLock.open(fs, layout.checkpoint_lock).close()  # so that an open creates nothing that a full disk refuses
    write_identity(fs, layout)
