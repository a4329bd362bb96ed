"""Takes inventory of a channel: which of its files count, and up to where.

The head, the checkpoints and the headers of the files prove it. Nothing here writes, creates or maps a file: the head
is read like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from spillable_stream.counted import counted
from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.format.file_names import Tier, generation_of, in_memory, log_name
from spillable_stream.format.frame import HEADER_SIZE_BYTES
from spillable_stream.format.head_page import NO_TIER, CommitPoint, HeadState, TierEnd, is_half_damaged, parse_head
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.log_file import LogFile, headers_of, opened, read_log_file
from spillable_stream.integrity.valid_checkpoints import ValidCheckpoint, read_checkpoints
from spillable_stream.log.chain import (
    NewestFile,
    first_commit,
    first_of_chain,
    judge_newest_file,
    named_end,
    newest_generation,
    stale_file,
)
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.directory_ownership import is_held
from spillable_stream.log.layout import Layout
from spillable_stream.log.recovery import is_of_another_history
from spillable_stream.log.tail import Tail, find_tail, pass_over
from spillable_stream.state.image import image_of
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Inventory", "take_inventory"]

_HEAD_READS = 5  # the writer may be in the middle of a slot
_NOT_PUBLISHED = "the file was being created and is not published; it does not count"


@dataclass(slots=True)
class Inventory:
    """The files that count, as known before any frame is replayed.

    Args:
        layout: the channel's files.
        head: the published ends, if the head counts because a process holds the channel; otherwise None.
        known: the ends that the head last published in any boot; None if it is missing or damaged.
        checkpoints: the readable checkpoints, in the order of the log.
        bad_checkpoints: the damaged checkpoints.
        disk: the data files that count, in order.
        memory: the files of the newest memory tier that count, in order.
        owned_groups: the groups that ever had an owner; some may have been dropped.
        half_head: whether one slot of this boot's head is damaged.
        exact: whether `known` is the last publication, not only a lower bound.
        missing_end: whether the newest data file is missing or cut.
        missing_memory_end: whether the newest file of the memory tier is missing.
    """

    layout: Layout
    head: CommitPoint | None
    known: CommitPoint | None
    checkpoints: list[ValidCheckpoint]
    bad_checkpoints: list[Path]
    disk: list[LogFile]
    memory: list[LogFile]
    owned_groups: list[str]
    half_head: bool = False
    exact: bool = False
    missing_end: bool = False
    missing_memory_end: bool = False

    def root(self) -> int:
        """Return the index of the first data file of the unbroken chain that leads to the last one."""
        files = [f.file_id for f in self.disk]
        return first_of_chain(self.layout, files, headers_of(self.disk), pass_over) if files else 0


def take_inventory(fs: FileSystem, layout: Layout, findings: Findings) -> Inventory:
    """Read the head, the checkpoints and the headers of all log files.

    Args:
        fs: the file system.
        layout: the channel's files.
        findings: collects what is wrong with them.

    Raises:
        FileNotFoundError: a file was removed meanwhile.
        ForeignDirectoryError: the memory tier's directory can no longer be trusted.
        StorageError: a file can't be read.
    """
    found = _read_head(fs, layout, findings)
    known = found[1] if found else None
    counts = found is not None and found[0] == boot_id() and is_held(fs, layout.path)
    head, half = known if counts else None, False
    if head is not None and _is_half_damaged(fs, layout):
        findings.warn(layout.head, "half of the head is damaged: the other half may be older than the last publication")
        head, half = None, True
    checkpoints, bad = read_checkpoints(fs, layout, findings)
    disk = [read_log_file(fs, layout, i) for i in layout.log_files(fs)]
    directory = MemoryDirectory(fs, layout)
    directory.require_trusted()
    own = directory.is_own() or directory.proves_itself()  # in a copied channel, the link leads to the original's
    newest = newest_generation(layout.log_files(fs, Tier.MEMORY)) if own else []
    memory = [read_log_file(fs, layout, i) for i in newest]
    owned = [g for name in fs.list_files(layout.path / "groups") if (g := layout.group_of(name, "lock")) is not None]
    inventory = Inventory(layout, head, known, checkpoints, bad, disk, memory, owned, half)
    inventory.exact = head is not None
    _trust_disk(fs, inventory, findings)
    _trust_memory(fs, inventory, findings)
    return inventory


def _read_head(fs: FileSystem, layout: Layout, findings: Findings) -> tuple[bytes, CommitPoint] | None:
    """Return the head's boot ID and published ends, or None if it is missing or damaged."""
    for _ in range(_HEAD_READS):
        try:
            data = fs.read_file(layout.head)
        except FileNotFoundError:
            return None
        found = parse_head(data)
        if found is not None:
            return found[1:]
    if any(data):
        findings.note(layout.head, "the head is damaged; the next open creates a new one from the log")
    return None


def _is_half_damaged(fs: FileSystem, layout: Layout) -> bool:
    """Tell whether the newer slot of the head may be damaged; several reads exclude a write in progress."""
    return all(is_half_damaged(_read_or_empty(fs, layout.head)) for _ in range(_HEAD_READS))


def _read_or_empty(fs: FileSystem, path: Path) -> bytes:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return b""


def _trust_disk(fs: FileSystem, inventory: Inventory, findings: Findings) -> None:
    """Determine which data files count, and up to where."""
    known = inventory.known.disk if inventory.known else NO_TIER
    if inventory.head:
        _drop_unpublished(inventory.disk, inventory.head.disk, findings)
    else:
        checkpoint = Checkpoints(fs, inventory.layout, lambda _: None).newest_file_id()
        text = "the file was being created when the host stopped; the next open removes it"
        _drop_unfinished(fs, inventory.disk, max(checkpoint, known.file_id), text, findings)
    _drop_another_state(inventory, findings)
    root = inventory.disk[inventory.root()] if inventory.disk else None
    if root is not None:
        if root.holds_everything:
            known = _report_cut_short_repair(inventory, root, known, findings)
        _drop_stale(inventory, root, known, findings)
    if not inventory.disk:
        findings.damage(inventory.layout.data_dirs[0], "the channel has no data files")
    elif known.file_id > inventory.disk[-1].file_id:
        path = inventory.layout.log_file(known.file_id)
        findings.damage(path, f"{path.name}, the newest data file, is missing")
        inventory.missing_end = True
    _settle_ends(fs, inventory.disk, known)
    _drop_foreign_history(fs, inventory, findings)
    if inventory.disk:
        _trust_last(fs, inventory, inventory.disk[-1], inventory.head and inventory.head.disk, known, findings)


def _settle_ends(fs: FileSystem, files: list[LogFile], known: TierEnd) -> None:
    """Determine up to where each file but the newest counts."""
    for file, following in pairwise(files):
        end = named_end(following.header, file.file_id)
        if end is None:
            with opened(fs, file.path) as f:
                floor = known.end if known.file_id == file.file_id else 0
                end = _end_of(find_tail(f, file.seed, 0, floor, pass_over))
            file.may_be_cut = True
        file.end = end


def _end_of(tail: Tail) -> int:
    """Return up to where a file counts; one without a whole frame, as far as it has bytes: its header was there."""
    return tail.end or max(tail.torn_bytes, HEADER_SIZE_BYTES)


def _drop_foreign_history(fs: FileSystem, inventory: Inventory, findings: Findings) -> None:
    """Leave out checkpoints of another history: the log was restored from a backup and continued differently."""
    for file in inventory.disk:
        for made in [c for c in inventory.checkpoints if c.position.file_id == file.file_id]:
            with opened(fs, file.path) as f:
                if is_of_another_history(f, file.seed, made.position.offset, image_of(made.image)["time"]):
                    text = f"{file.path.name} holds other commits where this checkpoint was: it is of another history"
                    findings.damage(made.path, text)
                    inventory.checkpoints.remove(made)


def _trust_last(
    fs: FileSystem, inventory: Inventory, last: LogFile, published: TierEnd | None, known: TierEnd, findings: Findings
) -> None:
    """Determine up to where a tier's newest file counts."""
    if published and published.file_id == last.file_id:
        last.end = published.end
        if published.state != HeadState.CLEAN:
            findings.note(last.path, "an append was under way, or was cut short; it does not count", last.end)
        return
    made = [c.position.offset for c in inventory.checkpoints if c.position.file_id == last.file_id]
    floor = max([known.end if known.file_id == last.file_id else 0, *made])
    with opened(fs, last.path) as file:
        tail = find_tail(file, last.seed, 0, floor, pass_over)
    last.end = _end_of(tail)
    if in_memory(last.file_id):
        return
    if tail.is_cut or not tail.end:
        inventory.missing_end = True  # more may be missing than is proven
    if not tail.end:
        return
    last.may_be_cut = max(known.file_id, *(c.position.file_id for c in inventory.checkpoints), 0) > last.file_id
    if tail.torn_bytes and last.may_be_cut:
        text = "no transaction is whole here, and a later file followed, so all of this one had been synced"
        findings.damage(last.path, text, tail.end, tail.torn_bytes)
    elif tail.torn_bytes:
        text = f"a transaction that was never acknowledged: the next open cuts {counted(tail.torn_bytes, 'byte')}"
        findings.note(last.path, text, tail.end, tail.torn_bytes)


def _drop_unpublished(files: list[LogFile], published: TierEnd, findings: Findings) -> None:
    """Leave out new files that were being created; the next commit removes them."""
    while files and files[-1].file_id > published.file_id:
        findings.note(files.pop().path, _NOT_PUBLISHED)


def _drop_unfinished(fs: FileSystem, files: list[LogFile], published: int, text: str, findings: Findings) -> None:
    """Leave out the newest files of a tier that are unfinished: their process died while it created them."""
    headers = headers_of(files)
    while files:
        commit = partial(first_commit, fs, files[-1].path, files[-1].seed)
        verdict = judge_newest_file([f.file_id for f in files], headers, lambda: published, commit)
        if verdict is not NewestFile.UNFINISHED:
            break
        findings.note(files.pop().path, text)


def _drop_another_state(inventory: Inventory, findings: Findings) -> None:
    """Leave out what a repair began if the channel continued without it: another state of it is on a disk elsewhere.

    A repair that was cut short has not removed the head and the checkpoints yet, either. But its file begins behind
    every ID that they know: an ID that it could still give was given elsewhere. No clock tells: it may be set back.
    """
    known = inventory.known
    while inventory.disk and inventory.head is None:
        at = inventory.root()
        root = inventory.disk[at]
        if root.header is None or not root.holds_everything:
            return
        next_id = image_of(root.header.state)["nextId"]
        newer = [
            checkpoint.path
            for checkpoint in inventory.checkpoints
            if checkpoint.position.file_id < root.file_id and image_of(checkpoint.image)["nextId"] > next_id
        ]
        if known is not None and known.disk.file_id < root.file_id and known.last_id >= next_id:
            newer.append(inventory.layout.head)
        if not newer:
            return
        text = f"the file is of an older or another state of the channel: {newer[0].name} is newer, and of another log"
        for file in inventory.disk[at:]:
            findings.damage(file.path, text)
        del inventory.disk[at:]


def _report_cut_short_repair(inventory: Inventory, root: LogFile, known: TierEnd, findings: Findings) -> TierEnd:
    """Report and leave out what an interrupted repair did not remove yet; return the known end that remains."""
    text = "a repair was cut short and left what contradicts its outcome: run it again"
    for checkpoint in [c for c in inventory.checkpoints if c.position.file_id < root.file_id]:
        findings.damage(checkpoint.path, text)
        inventory.checkpoints.remove(checkpoint)
    if known.file_id and known.file_id < root.file_id:
        findings.damage(inventory.layout.head, text)
        return NO_TIER
    return known


def _drop_stale(inventory: Inventory, root: LogFile, known: TierEnd, findings: Findings) -> None:
    """Leave out stale files: one that begins before the published end of the file before it, and all after that."""
    files = [f.file_id for f in inventory.disk]
    start = max([root.file_id, *(c.position.file_id for c in inventory.checkpoints if c.position.file_id in files)])
    stale = stale_file(files, headers_of(inventory.disk), known, start)
    if stale is None:
        return
    at = files.index(stale)
    for file in inventory.disk[at:]:
        text = f"the file is stale: {log_name(known.file_id)} was committed beyond where this one begins"
        findings.damage(file.path, text)
    del inventory.disk[at:]


def _trust_memory(fs: FileSystem, inventory: Inventory, findings: Findings) -> None:
    """Determine which files of the memory tier count, and up to where."""
    known = inventory.known.memory if inventory.known else NO_TIER
    published = inventory.head.memory if inventory.head else None
    files = inventory.memory
    if published is not None and published.file_id:
        _drop_unpublished(files, published, findings)
    _drop_unfinished(fs, files, known.file_id, _NOT_PUBLISHED, findings)
    _settle_ends(fs, files, known)
    if files:
        _trust_last(fs, inventory, files[-1], published, known, findings)
        if files[-1].file_id < known.file_id and generation_of(known.file_id) == generation_of(files[-1].file_id):
            path = inventory.layout.log_file(known.file_id)
            findings.damage(path, f"{path.name}, the newest file of the memory tier, is missing")
            inventory.missing_memory_end = True
