"""`restore`: creates a channel from a backup, in a directory or in a store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.archive.backup import archive_location, shown_location
from spillable_stream.archive.backup_content import BackupContent
from spillable_stream.archive.directory_restore import restore_to_directory
from spillable_stream.archive.manifest import Manifest, newest_manifest
from spillable_stream.archive.store_restore import MayReplace, restore_to_store
from spillable_stream.arguments import flag, function
from spillable_stream.engine.open_engine import uuid_at
from spillable_stream.errors import (
    ChannelBusyError,
    CorruptionError,
    ForeignDirectoryError,
    NotAChannelError,
    SpillableError,
)
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.location import channel_path
from spillable_stream.objects.open_store import open_store
from spillable_stream.progress import OnProgress
from spillable_stream.shown_value import command

__all__ = ["RestoreReport", "restore"]

_log = log_of(__name__)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A channel that was created from a backup.

    Args:
        channel: its UUID.
        path: where it is.
        copy: where the backup is.
        number: the backup's number there.
        taken_at: when the backup was begun, in ISO 8601.
        last_id: the last write-order ID in use: the channel has what the original had up to there.
        events: how many events are in it.
        is_new: whether it has an identity of its own.
        delayed_events: how many more events wait in it until they are due.
    """

    channel: str
    path: str
    copy: str
    number: int
    taken_at: str
    last_id: int
    events: int
    is_new: bool
    delayed_events: int


def restore(
    copy: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    new_identity: bool = False,
    progress: OnProgress | None = None,
    may_replace: MayReplace | None = None,
) -> RestoreReport:
    """Create a channel from a backup, as the channel was at its moment: events, groups, options, producers and queries.

    All directories of the channel are inside of its own, wherever those of the original were. It is verified before it
    is a channel. Of two restores to one place at once, one fails, and leaves the other alone.

    Args:
        copy: the backup: a directory, or an address in a store.
        to: where the channel will be: a directory that is missing or empty, or an address at which there is nothing.
            A disk and a store each keep the options that they can have; the others get their defaults.
        new_identity: whether it gets a UUID of its own, as a second channel. Without it the channel is the original's
            successor, which is refused while the original is where it was.
        progress: is told how far it is: the restore in bytes, then the verify; if it raises, nothing is created.
        may_replace: is told in words what another process has begun at an address and not finished, such as a restore
            of an earlier backup that was killed, and tells whether to replace it. That process must be gone. By default
            it stays, and a `ChannelError` says so.

    Raises:
        NotAChannelError: there is no backup at ``copy``.
        ChannelError: something is at ``to``, or was begun there and may not be replaced.
        ForeignDirectoryError: the original is where it was, and ``new_identity`` is false.
        ChannelBusyError: another backup took the place of this one meanwhile; nothing was created.
        CorruptionError: the backup is damaged; nothing was created.
        OptionError: an argument is not of its type; nothing can be at ``copy``, or no channel at ``to``.
        UnsafeStoreError: the store of ``to`` does not create objects only if they are absent.
        UnsupportedFormatError: a newer version wrote the backup.
        StorageError: the file system or the store refused; nothing was created, unless the error says that this is not
            known, or that the channel may not outlive a power cut.
    """
    new_identity = flag("new_identity", new_identity)
    may_replace = _may_not if may_replace is None else function("may_replace", may_replace)
    location, path = archive_location(copy), channel_path(to)
    store, where = open_store(location), shown_location(location)
    manifest = newest_manifest(store, where)
    if manifest is None:
        raise NotAChannelError(f"there is no backup at {where}; give the place that a backup was created to")
    if not new_identity:
        _require_original_gone(manifest, where)
    content = BackupContent(store, manifest, where)
    try:
        if isinstance(path, Path):
            made = restore_to_directory(content, path, new_identity, progress)
        else:
            made = restore_to_store(content, path, new_identity, progress, may_replace)
    except CorruptionError as e:
        newest = newest_manifest(store, where)
        if newest is None or newest.number == manifest.number:
            raise
        text = f"another backup to {where} was created meanwhile, and took the place of this one; restore again"
        raise ChannelBusyError(text) from e
    more = fields(path, last_id=manifest.last_id)
    _log.info("restored %s from %s up to the event %d", path, where, manifest.last_id, extra=more)
    of = where, manifest.number, manifest.taken_at, manifest.last_id
    return RestoreReport(made.channel, str(path), *of, made.events, new_identity, made.delayed_events)


def _may_not(_: str) -> bool:
    return False


def _require_original_gone(manifest: Manifest, where: str) -> None:
    """Refuse a second channel of one identity, as far as this host can tell.

    Raises:
        ForeignDirectoryError: the original is where it was.
    """
    try:
        is_there = uuid_at(channel_path(manifest.source)) == manifest.channel
    except (SpillableError, ImportError):  # it is gone, or out of this host's reach
        return
    if is_there:
        raise ForeignDirectoryError(
            f"the channel {manifest.channel} is still at {manifest.source}, and two channels of one identity must not "
            "be in use: move the original away first, or create another channel by "
            f"'{command('restore', where, 'PATH', '--new-identity')}'"
        )
