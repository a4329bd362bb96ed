"""`repair`: begins a damaged channel's log anew with what can be read of it, and loses nothing in silence.

No byte of a data file is changed. The state that is left after the damage becomes the image with
which a new data file begins: where the events are that can be read, what the groups have taken,
and no file before it, so that nothing is replayed across the damage any more. A LOST record in
it says which events are gone. In this order, each step durable before the next:

1. copies of all that is damaged, changed or removed go to ``DIR/quarantine``;
2. the head is made one of another boot, so that nobody continues where it points;
3. the new data file gets its name, whole: from here on the channel is repaired, but for
4. checkpoints and the head, which speak of the old log, and are removed;
5. the identity file is written, if it was damaged.

Before all that, directories that are not proven to be the channel's become so, unless another one has them. One without
an owner file, or with one of another state of the channel, may be the mount point of a disk that is not mounted, so the
repair is refused unless somebody names it; one for copies of checkpoints is left alone then. What they hold is examined
only after that.

Killed in between, the channel is as it was, or refused, and the next repair does it all again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.requests import Control, Move
from spillable_stream.errors import ChannelBusyError, CorruptionError, OptionError, StorageError
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.file_names import Tier, disk_segment, log_name
from spillable_stream.format.frame import FrameType, encode, encode_with, file_seed
from spillable_stream.format.head_page import disowned, parse_host
from spillable_stream.format.record import FileHeader, LostRecord
from spillable_stream.integrity.claimed_directories import ClaimedPaths, claimed_directories, claimed_paths
from spillable_stream.integrity.file_kinds import require_kinds
from spillable_stream.integrity.findings import Findings, Loss, Report
from spillable_stream.integrity.identity_evidence import check_owners, find_identity
from spillable_stream.integrity.inspection import Inspection
from spillable_stream.integrity.object_repair import repair_objects
from spillable_stream.integrity.repair_copies import RepairCopies, memory_files
from spillable_stream.integrity.verify import examine, report_of
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.claim import own_again
from spillable_stream.log.directory_ownership import backup_fault, is_held
from spillable_stream.log.event_reader import EventReader
from spillable_stream.log.identity_file import require_directory, write_identity
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.log.staged_file import copy_to_disk
from spillable_stream.log.unproven_directories import require_claimable, require_claimed, unowned_directories
from spillable_stream.log.wal import Entry
from spillable_stream.objects.location import Location, channel_path
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.image import StateImage
from spillable_stream.state.ranges import RangeSet
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.file import File
from spillable_stream.storage.filesystem import FileSystem, given_file_system
from spillable_stream.storage.lock import FileLock

__all__ = ["repair"]


def repair(
    path: str | os.PathLike[str],
    *,
    claim: ClaimedPaths = (),
    fs: FileSystem | None = None,
    progress: OnProgress | None = None,
) -> Report:
    """Make a damaged channel whole again, without the events that can't be read; a healthy one is not touched.

    Args:
        path: the channel's directory, or its address in an object store.
        claim: the directories of the channel, or the one, that it is to have as they are though they have no owner
            file, or one of an older or another state of the channel: each is new, or its disk is lost for good, and it
            is not the mount point of a disk that is not mounted. One that is missing is created.
        fs: the file system, for tests.
        progress: is told how far it is, in bytes: a verify, then the repair, which reads all again. If it raises, the
            channel is as it was, but for owner files.

    Returns:
        What was found and what was lost; its ``quarantine`` says where the copies are of what was changed. Its
        ``healthy`` is false after a repair, since it is about what was found: `verify` says how the channel is now.

    Raises:
        ImportError: the address is of a cloud, and obstore is not installed.
        OptionError: it is not a path, or no channel can be at such an address; or ``claim`` names a directory that is
            not one of the channel's.
        ForeignDirectoryError: a directory is another channel's, or is not in ``claim`` and has no owner file, or one of
            another state; no file of the channel was changed.
        ChannelBusyError: some process has the channel open; in a store, some process writes to it.
        NotAChannelError: the path holds no channel.
        UnsupportedFormatError: a newer version wrote it.
        CorruptionError: it can't be repaired; the message says why.
        StorageError: the file system or the store refused; do it again.
    """
    place, names = channel_path(path), claimed_paths(claim)
    if isinstance(place, Location):
        if names:
            raise OptionError(f"a channel in an object store has no directories to claim, such as {names[0]}")
        return repair_objects(place, progress)
    fs, path = given_file_system(fs), place
    require_directory(fs, path)
    require_kinds(fs, path)
    layout = find_identity(fs, path, Findings())[0]
    claimed = claimed_directories(fs, layout, names)
    require_claimable(fs, layout, claimed)
    meter = Meter("verify", "bytes", progress)
    with _alone(fs, path, make=False):
        inspection = examine(fs, path, meter)
        meter.end()
        report = report_of(inspection)
        if report.healthy and not claimed.intersection(report.unowned):
            return report
        require_claimed(fs, inspection.layout, report.unowned, claimed)
        if not _may_read_more(fs, inspection.layout):
            _require_repairable(path, inspection.unrepairable)
    meter = Meter("repair", "bytes", progress)
    with _alone(fs, path, make=True):
        owners = Findings()
        copies = _own_again(fs, path, owners, claimed)
        inspection = examine(fs, path, meter)
        for found in owners.all():
            inspection.findings.add(found)
        report = report_of(inspection, copies.path if copies is not None else None)
        if not report.healthy:
            _require_repairable(path, inspection.unrepairable)
            copies = copies or RepairCopies(fs, inspection.layout)
            report = report_of(inspection, copies.path)
            copies.keep(report, _changed(fs, inspection))
            _Repair(fs, inspection).run()
        meter.end()
        return report


def _own_again(fs: FileSystem, path: Path, findings: Findings, claimed: frozenset[Path]) -> RepairCopies | None:
    """Make all directories proven to be the channel's, and those that are claimed known by its token.

    Args:
        fs: the file system.
        path: the channel's directory.
        findings: what proves no directory is added.
        claimed: the directories that become the channel's by somebody's word, too.

    Returns:
        The copies of the owner files as they were; None if none was changed.
    """
    layout, _ = find_identity(fs, path, Findings())
    is_unproven = check_owners(fs, layout, findings, claimed) or not fs.exists(path / OWNER_FILE)
    if not is_unproven and not claimed.intersection(unowned_directories(fs, layout)):
        return None
    kept: list[RepairCopies] = []

    def keep() -> None:
        copies = RepairCopies(fs, layout)
        report = Report(path, layout.channel, findings.all(), Loss(), 0, 0, 0, quarantine=copies.path)
        backup = [layout.backup_checkpoint_dir] if layout.backup_checkpoint_dir else []
        copies.keep(report, [d / OWNER_FILE for d in [path, *layout.directories().values(), *backup]])
        kept.append(copies)

    own_again(fs, layout, claimed=claimed, keep=keep)
    return kept[0]


def _may_read_more(fs: FileSystem, layout: Layout) -> bool:
    """Tell whether a repair may find more once the directories are proven: copies of checkpoints."""
    backup = layout.backup_checkpoint_dir
    with suppress(StorageError):  # nothing depends on that directory
        return backup is not None and backup_fault(fs, layout, backup) is not None
    return False


def _require_repairable(path: Path, why_not: str) -> None:
    if why_not:
        raise CorruptionError(f"{path} can't be repaired: {why_not}", str(path))


@contextmanager
def _alone(fs: FileSystem, path: Path, make: bool) -> Iterator[None]:
    """Hold the lock that every open handle shares.

    Args:
        fs: the file system.
        path: the channel's directory.
        make: create the lock file if it is missing; without it nobody has the channel open.
    """
    if not fs.exists(path / "open.lock") and is_held(fs, path):
        raise ChannelBusyError(f"{path}/open.lock was removed while handles have the channel open; close them first")
    try:
        lock = FileLock(fs.open(path / "open.lock", create=make))
    except FileNotFoundError:
        yield
        return
    try:
        if not lock.try_acquire():
            host = parse_host(fs.read_file(path / "head")) if fs.exists(path / "head") else ""
            raise ChannelBusyError(
                f"{path} is open on the host {host or '?'}; close it everywhere, then repair it. There "
                f"'fuser -v {path}/open.lock' lists the processes that have it open"
            )
        yield
    finally:
        lock.close()


def _changed(fs: FileSystem, inspection: Inspection) -> list[Path]:
    """Return the files that a repair changes or removes."""
    changed = [*inspection.bad_positions, *inspection.inventory.bad_checkpoints]
    if inspection.inventory.half_head:
        changed.append(inspection.layout.head)
    if inspection.identity_damaged:
        changed.append(inspection.layout.path / "channel.json")
    if inspection.log_damaged:
        changed += [inspection.layout.head, *(path for _, path in _checkpoints(fs, inspection.layout).all())]
        if MemoryDirectory(fs, inspection.layout).is_own():
            changed += memory_files(fs, inspection.layout)
        live = inspection.state.segments()
        changed += [inspection.layout.segment_file(n) for n in inspection.layout.segments(fs) if n not in live]
    return changed


def _checkpoints(fs: FileSystem, layout: Layout) -> Checkpoints:
    """Return the channel's checkpoints; a backup directory that fails is in the inspection's findings."""
    return Checkpoints(fs, layout, lambda _: None)


class _Repair:
    """The steps of a repair after the copies are made."""

    def __init__(self, fs: FileSystem, inspection: Inspection) -> None:
        self._fs = fs
        self._inspection = inspection
        self._layout = inspection.layout
        self._checkpoints = _checkpoints(fs, inspection.layout)

    def run(self) -> None:
        """Do what the inspection found to be necessary."""
        fs, inspection = self._fs, self._inspection
        if inspection.log_damaged:
            self._disown_head()
            self._begin_anew()
            self._checkpoints.remove([path for _, path in self._checkpoints.all()])
            self._remove([self._layout.head])
            MemoryDirectory(fs, self._layout).remove()
            fs.sync_directory(self._layout.path)
        elif inspection.inventory.half_head:
            self._disown_head()
        self._checkpoints.remove(inspection.inventory.bad_checkpoints)
        self._remove(inspection.bad_positions)
        if inspection.identity_damaged:
            write_identity(fs, replace(self._layout, owned=True), extended=inspection.state.is_extended)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            self._fs.remove(path)
        for directory in {path.parent for path in paths if self._fs.exists(path.parent)}:
            self._fs.sync_directory(directory)

    def _disown_head(self) -> None:
        """Make the head one of another boot: it still says what had been synced, and nobody continues from it."""
        if self._fs.exists(self._layout.head):
            self._fs.write_atomically(self._layout.head, disowned(self._fs.read_file(self._layout.head), boot_id()))

    # ── the new data file ───────────────────────────────────────────────────────────────────────

    def _begin_anew(self) -> None:
        """Write the data file with which the log begins anew, and give it its name."""
        file_id = self._new_file_id()
        path = self._layout.log_file(file_id)
        temporary = path.with_name(f"{path.name}.tmp")
        moved = self._move_segments(file_id)
        image = self._image(moved)
        self._fs.remove(temporary)
        file = self._fs.open(temporary, create=True, exclusive=True)
        try:
            builder = _LogBuilder(file, self._layout, file_id, image)
            for block in self._inspection.state.blocks.memory:
                if not isinstance(block.file, str):
                    builder.move(self._fs, block)
            builder.lose(self._inspection)
            file.sync()
        finally:
            file.close()
        self._fs.rename(temporary, path)
        self._fs.sync_directory(path.parent)

    def _new_file_id(self) -> int:
        """Return a number that no data file had."""
        inventory = self._inspection.inventory
        known = inventory.known.disk.file_id if inventory.known else 0
        files = self._layout.log_files(self._fs)
        return max([known, self._checkpoints.newest_file_id(), *files]) + 1

    def _move_segments(self, file_id: int) -> list[Block]:
        """Copy the segments of the memory tier to disk, and return their blocks there."""
        moved = []
        for block in self._inspection.state.blocks.memory:
            if isinstance(block.file, str):
                copy_to_disk(self._fs, self._layout, block.file)
                moved.append(replace(block, file=disk_segment(block.file), commit_file=file_id))
        return moved

    def _image(self, moved: list[Block]) -> StateImage:
        """Return the state that is left, all of it on disk."""
        state = self._inspection.state.copy()
        for block in moved:
            state.blocks.disk.insert(block)
        state.blocks.memory.clear()
        state.memory.open = False
        state.overflow = False
        state.recoveries = []  # damage may hide some: an offset that names one of these would not be believed
        for pending in state.pending.values():
            pending.in_memory = False
        return state.image()


class _LogBuilder:
    """Appends to a data file that has no name yet, and applies what it appends.

    Args:
        file: the file.
        layout: the channel's files.
        file_id: the number that it will have.
        image: the state with which it begins.
    """

    def __init__(self, file: File, layout: Layout, file_id: int, image: StateImage) -> None:
        self._end = 0
        self._file = file
        self._layout = layout
        self._file_id = file_id
        self._seed = file_seed(layout.channel, log_name(file_id))
        self._state = ChannelState.from_image(image)
        self._schemas = [decode_schema(s) for s in self._state.schemas]
        plan = self._plan()
        header = FileHeader(layout.channel, file_id, None, dict(image)).frame()
        self._end = file.write(0, encode(header, self._seed, time_us=plan.time_us))

    def _plan(self) -> AppendPlan:
        return AppendPlan(self._state, Tier.DISK, start=self._end)

    def move(self, fs: FileSystem, block: Block) -> None:
        """Append the events of a block of the memory tier, under their IDs."""
        reader = EventReader(fs, self._layout, self._schemas.__getitem__)
        try:
            entries: list[Entry] = [(header, payload, None) for header, payload in reader.frames(block.extent())]
        finally:
            reader.close()
        plan = self._plan()
        Move(entries, []).plan(plan)
        self._append(plan)

    def lose(self, inspection: Inspection) -> None:
        """Append the record of what is lost, if anything is."""
        loss = inspection.loss
        if loss.lost or loss.kept or loss.doubtful:
            value: LostRecord = {
                "lost": list(RangeSet([*loss.lost, *loss.kept])),
                "doubtful": list(loss.doubtful),
                "next": inspection.last_id + 1,
                "groups": {},
            }
            plan = self._plan()
            Control(FrameType.LOST, value).plan(plan)
            self._append(plan)

    def _append(self, plan: AppendPlan) -> None:
        for header, payload, record in plan.entries:
            offset = self._end
            self._end += self._file.write(offset, encode_with(header, payload, self._seed))
            self._state.apply_record(self._file_id, offset, header, record)
