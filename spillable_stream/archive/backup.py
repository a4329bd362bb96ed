"""`backup`: a consistent copy of a live channel, which copies only new events.

A backup is the channel at one moment: its state, and every event that is in it. The state is an image of what the
log publishes at that moment, of both tiers. Events never change, so those that an earlier backup has are not read
again; the new ones are read where that state says, in order. Nothing is held for the copy: an event that every group
has taken may leave before it is read, and so may a side file whose delayed events were all delivered. Then the copy
begins anew with a later state, which does not need them any more, and keeps what it has read.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from spillable_stream.archive.archived_delays import DelayedCopies
from spillable_stream.archive.archived_events import check_file, write_file
from spillable_stream.archive.event_copies import EventCopies, last_event, own_frames, reading
from spillable_stream.archive.manifest import (
    LastEvent,
    Manifest,
    has_manifest,
    manifest_key,
    newest_manifest,
    write_manifest,
)
from spillable_stream.arguments import path_text, require_resolvable
from spillable_stream.channel.channel import Channel
from spillable_stream.engine.engine import Engine
from spillable_stream.engine.log_port import ChannelPath
from spillable_stream.errors import (
    ChannelBusyError,
    CorruptionError,
    DataLossError,
    ForeignDirectoryError,
    OptionError,
    SpillableError,
)
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import COPIES, is_copy
from spillable_stream.format.packing import pack
from spillable_stream.log.nesting import require_outside
from spillable_stream.log_records import fields, log_of
from spillable_stream.objects.directory_store import remove_made
from spillable_stream.objects.location import DIRECTORY, Location, is_inside, is_location
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.store import ObjectMissingError, StoreError
from spillable_stream.objects.wrong_place import require_outside_in_store
from spillable_stream.option_names import named
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.state.block import Block
from spillable_stream.state.delays import Delays
from spillable_stream.state.image import StateImage
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["BackupReport", "archive_location", "backup", "shown_location"]

_log = log_of(__name__)

_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup that was created.

    Args:
        channel: the channel's UUID.
        source: where the channel is.
        copy: where the backup is.
        number: the backup's number there; the first is 1.
        last_id: the last write-order ID in use at that moment: the copy has what came up to there, and nothing after.
        copied_events: how many events were copied now.
        copied_bytes: how many bytes were written for them, and for those that wait.
        files: how many files of events the backup has.
        kept_files: how many of them an earlier backup had written.
        delayed_events: how many events wait in it until they are due; they are none of those that were copied.
    """

    channel: str
    source: str
    copy: str
    number: int
    last_id: int
    copied_events: int
    copied_bytes: int
    files: int
    kept_files: int
    delayed_events: int


def archive_location(to: str | os.PathLike[str]) -> Location:
    """Return where a backup is that a user's path or address names.

    Raises:
        OptionError: it is an address at which nothing can be.
    """
    text = path_text("the path of a copy", to)
    if is_location(text):
        return Location.parse(text)
    require_resolvable("the path of a copy", text)
    return Location(DIRECTORY, "", os.path.abspath(text))


def shown_location(location: Location) -> str:
    """Return what users call the place of a backup: a directory's path, or its address."""
    return location.prefix if location.scheme == DIRECTORY else str(location)


def backup(
    channel: Channel | str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    progress: OnProgress | None = None,
) -> BackupReport:
    """Copy a channel, in use or not, to a directory or a store: all that was committed by one moment, in both tiers.

    A later backup to the same place copies only the events that came since, and takes the place of the one before. It
    counts when it is whole, and was read again; one that was interrupted changes nothing.

    Args:
        channel: the channel, or a handle of it.
        to: a directory, or an address in a store, that is empty or has an earlier backup of the channel.
        progress: is told how far it is, in events, then in bytes read again; if it raises, nothing is created.

    Returns:
        What was copied, and up to which event.

    Raises:
        NotAChannelError: there is no channel, or ``to`` holds something else.
        ForeignDirectoryError: ``to`` has a backup of another channel, or of another continuation of this one.
        ChannelBusyError: events leave faster than they can be copied, or another backup was created here meanwhile.
        CorruptionError: an event can't be read, or ``to`` does not return what was written.
        OptionError: nothing can be at ``to``.
        StorageError: the file system or the store refused.
    """
    if not isinstance(channel, Channel):
        with Channel(channel, create=False, readonly=True) as opened:
            return backup(opened, to, progress=progress)
    location = archive_location(to)
    _require_outside(channel.path, location)
    return _Backup(channel.engine(), location, progress).run()


def _require_outside(path: ChannelPath, location: Location) -> None:
    """Refuse a backup in a directory of any channel, or inside of one or of another backup; in a cloud, in its folders.

    Raises:
        OptionError: it would be there.
    """
    if isinstance(path, Path):
        inside = location.scheme == DIRECTORY and is_inside(location.prefix, path)
    else:
        inside = path == location
    if inside:
        raise OptionError(f"{shown_location(location)} is inside of the channel {path}: give a place outside of it")
    if location.scheme == DIRECTORY:
        require_outside(FileSystem(), Path(location.prefix), shown_location(location))
    else:
        require_outside_in_store(location)


class _Backup:
    """One backup.

    Args:
        engine: the channel.
        location: where it goes.
        progress: as `backup` says.
    """

    def __init__(self, engine: Engine, location: Location, progress: OnProgress | None) -> None:
        self._engine = engine
        self._store = open_store(location)
        self._where = shown_location(location)
        self._meter = Meter("backup", "events", progress)
        self._check_meter = Meter("check", "bytes", progress)
        self._token = uuid.uuid4().hex
        self._taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._events = EventCopies(engine, self._store, self._token, self._meter)
        self._delays = DelayedCopies(self._store, self._token, ())
        self._is_on_disk = location.scheme == DIRECTORY
        self._may_count = False  # whether its manifest may be there

    def run(self) -> BackupReport:
        """Create the backup; raises what `backup` does."""
        before = newest_manifest(self._store, self._where)
        if before is not None and before.channel != self._engine.channel:
            raise ForeignDirectoryError(
                f"{self._where} is a backup of the channel {before.channel}, not of {self._engine.channel} at "
                f"{self._engine.path}; give each channel a place of its own"
            )
        self._engine.log.look_closely()
        listed = (info.key for folder in COPIES for info in self._store.list(folder))
        left = set(filter(is_copy, listed))  # whatever else is there is somebody else's
        try:
            self._begin_behind(before)
            image, delays = self._copy()
            manifest = self._manifest(image, delays, before)
            events = [*manifest.files, *manifest.delays]
            written = [manifest.state, *(f for f in events if f.key.endswith(self._token))]
            self._check_meter.begin(sum(file.size_bytes for file in written))
            for file in written:
                check_file(self._store, file, self._check_meter)
            self._require_files(manifest)
            if not self._name(manifest):
                raise ChannelBusyError(f"another backup to {self._where} was created meanwhile; run this one again")
        except BaseException:
            self._discard()
            raise
        # Another backup that needs one of these began before this one counted, so it fails.
        for key in (left | {file.key for file in self._delays.written}) - manifest.keys():
            self._store.delete(key)
        if before is not None:
            self._store.delete(manifest_key(before.number))
        kept = sum(not file.key.endswith(self._token) for file in events)
        report = BackupReport(
            manifest.channel,
            manifest.source,
            self._where,
            manifest.number,
            manifest.last_id,
            self._events.count,
            self._events.size_bytes + sum(file.size_bytes for file in self._delays.written),
            len(events),
            kept,
            delays.events,
        )
        more = fields(report.source, last_id=report.last_id)
        _log.info("backed up %s to %s up to the event %d", report.source, report.copy, report.last_id, extra=more)
        return report

    # ── what an earlier backup has ──────────────────────────────────────────────────────────────

    def _begin_behind(self, before: Manifest | None) -> None:
        """Continue an earlier backup, once it has proven to be of this channel's past."""
        if before is None:
            return
        self._delays = DelayedCopies(self._store, self._token, before.delays)
        with self._engine.snapshot() as state:
            last_id = state.last_id
            extents = (
                state.blocks.extents(before.last_event.first_id, before.last_event.first_id)
                if before.last_event
                else []
            )
        if last_id < before.last_id:
            raise self._diverged(before, f"its last event is {last_id}, and the backup has {before.last_id}")
        if before.last_event is None or not extents:
            return  # its last event has left, so nothing of the backup is needed
        try:
            found = self._last_event(extents[0])
        except CorruptionError:  # it has left meanwhile, or is damaged, which the copy finds
            return
        if found != before.last_event:
            raise self._diverged(before, f"its event {found.first_id} is another one")
        self._events.begin_behind(before.files, found)

    def _last_event(self, extent: Extent) -> LastEvent:
        with reading(self._engine) as reader:
            header, _ = next(own_frames(reader, extent))
        return last_event(header)

    def _diverged(self, before: Manifest, why: str) -> ForeignDirectoryError:
        return ForeignDirectoryError(
            f"{self._where} is a backup of another continuation of the channel {before.channel}, which was at "
            f"{before.source}, than the one at {self._engine.path}: {why}. Give this one a place of its own"
        )

    # ── copying ─────────────────────────────────────────────────────────────────────────────────

    def _copy(self) -> tuple[StateImage, Delays]:
        """Copy the events that are not copied yet, and return a state all of whose events are, and which of it wait."""
        failed: tuple[int, int | str] | None = None
        for _ in range(_ROUNDS):
            with self._engine.snapshot() as state:
                image = state.image()
            delays = Delays(*image.get("delays", ()))
            if not self._copy_delays(delays):
                continue
            extents = [Block(*row).extent(self._events.through + 1) for row in image["blocks"]]
            try:
                self._events.copy([e for e in extents if e.last_id > self._events.through])
            except CorruptionError:
                now = self._events.through, _file_of(extents, self._events.through + 1)
                if now == failed:
                    raise
                failed = now
                continue
            self._events.finish()
            return image, delays
        raise ChannelBusyError(
            f"the events of {self._engine.path} leave faster than they can be copied to {self._where}; try again "
            f"when less is put and taken, or set {named('retentionBytes')}, so that events stay for a while"
        )

    def _copy_delays(self, delays: Delays) -> bool:
        """Copy side files, and tell whether all are; if not, the events of one have been delivered meanwhile."""
        files = self._engine.deliveries.files
        for file in sorted(delays.files.values(), key=lambda f: f.next_ms):  # those that go first
            try:
                self._delays.copy(files, file)
            except DataLossError:
                with self._engine.snapshot() as state:
                    if file.number in state.delays.files:
                        raise
                return False
        return True

    # ── the manifest ────────────────────────────────────────────────────────────────────────────

    def _manifest(self, image: StateImage, delays: Delays, before: Manifest | None) -> Manifest:
        """Write the state, and return the manifest of the backup."""
        number = before.number + 1 if before is not None else 1
        small = {name: value for name, value in image.items() if name != "blocks"}
        state = write_file(self._store, f"states/{number:020}-{self._token}", pack(small))
        first_kept = image.get("firstKept", image["floor"])
        return Manifest(
            number=number,
            channel=self._engine.channel,
            source=str(self._engine.path),
            taken_at=self._taken_at,
            mode=str(self._engine.fixed_options().get("mode", "0700")),
            last_id=image["nextId"] - 1,
            state=state,
            files=tuple(file for file in self._events.files if file.last_id >= first_kept),
            last_event=self._events.last,
            delays=self._delays.of(delays.files.values()),
        )

    def _require_files(self, manifest: Manifest) -> None:
        """Prove that the files of earlier backups are there, and as large as they were."""
        sizes = {info.key: info.size_bytes for folder in COPIES for info in self._store.list(folder)}
        for file in (*manifest.files, *manifest.delays):
            if sizes.get(file.key) != file.size_bytes:
                raise CorruptionError(
                    "a file of an earlier backup is gone, or was cut: create a new backup elsewhere",
                    f"{self._where}/{file.key}",
                )

    def _name(self, manifest: Manifest) -> bool:
        """Create the manifest, and tell whether it is there, and no other one of its number."""
        self._may_count = True
        try:
            if write_manifest(self._store, manifest):
                return True
        except StoreError as e:
            self._may_count = e.may_have_happened
            raise
        try:
            self._may_count = has_manifest(self._store, manifest)
        except ObjectMissingError:  # of a later backup, too, which may have this one's files
            return False
        return self._may_count

    def _discard(self) -> None:
        """Forget what a backup that failed has begun.

        In a directory, whose disk may be full, it leaves nothing. In a store, which may not answer, files that it
        finished are removed by the next backup.
        """
        self._events.discard()
        if self._is_on_disk and not self._may_count:
            with suppress(SpillableError):
                for key in [info.key for folder in COPIES for info in self._store.list(folder)]:
                    if key.endswith(self._token):
                        self._store.delete(key)
        remove_made(self._store)


def _file_of(extents: list[Extent], event: int) -> int | str:
    """Return the file of the first extent that has an event, or one after it."""
    return next((e.file for e in extents if e.last_id >= event), 0)
