"""Inspects a channel without writing: finds what is damaged, and the state that is left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.integrity.delayed_check import DelaysOfDisk, readable_delays
from spillable_stream.integrity.event_check import EventCheck, FilesOfDisk
from spillable_stream.integrity.findings import Findings, Loss, Severity
from spillable_stream.integrity.identity_evidence import check_owners, find_identity, why_unclaimed
from spillable_stream.integrity.inventory import Inventory, take_inventory
from spillable_stream.integrity.losses import UNKNOWN_IDS, kept_and_gone, unexplained
from spillable_stream.integrity.partial_transactions import left_in_part
from spillable_stream.integrity.spare_files import check_positions, note_memory, note_segments, note_strays
from spillable_stream.integrity.tier_replay import TierReplay, report_missing_files
from spillable_stream.integrity.tolerant_replay import TolerantReplay
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.log.unproven_directories import unowned_directories
from spillable_stream.log.wal import Position
from spillable_stream.progress import UNTOLD, Meter
from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.image import image_of
from spillable_stream.state.ranges import Range
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Inspection", "inspect"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of an inspection, which a repair starts from.

    Args:
        layout: the channel's files.
        inventory: which files count, and up to where.
        findings: the damage, warnings and notes.
        state: the state that is left, with only the events that can be read, and without a record of the loss.
        identity_damaged: whether the identity file must be rewritten.
        loss: what can't be recovered.
        last_id: the last write-order ID that was, or may have been, in use.
        bad_positions: damaged group position files that a repair removes.
        unrepairable: why a repair is impossible, whatever is claimed; "" if it is possible.
        unclaimed: why a repair is refused unless a directory is claimed, or is another's; "" if it is not.
        files: how many files were read.
        frames: how many whole frames were read.
        read_bytes: the size of these frames.
        unowned: the directories that a repair gives to the channel only by somebody's word.
    """

    layout: Layout
    inventory: Inventory
    findings: Findings
    state: ChannelState
    identity_damaged: bool
    loss: Loss
    last_id: int
    bad_positions: list[Path]
    unrepairable: str
    unclaimed: str
    files: int
    frames: int
    read_bytes: int
    unowned: tuple[Path, ...]

    @property
    def log_damaged(self) -> bool:
        """Whether a repair must start a new log."""
        identity = {"channel.json", OWNER_FILE}
        return any(f.severity is Severity.DAMAGE and f.path.name not in identity for f in self.findings.all())


def inspect(fs: FileSystem, path: Path, meter: Meter = UNTOLD) -> Inspection:
    """Read a channel and find what is wrong with it; write nothing.

    Args:
        fs: the file system.
        path: the channel's directory.
        meter: counts the bytes that are read.

    Raises:
        FileNotFoundError: a file was removed meanwhile; try again.
        NotAChannelError: the directory does not hold a channel.
        UnsupportedFormatError: a newer version wrote the channel.
        CorruptionError: the channel's identity is lost.
        StorageError: a file can't be read.
    """
    findings = Findings()
    layout, identity_damaged = find_identity(fs, path, findings)
    layout.grant(fs)
    check_owners(fs, layout, findings)
    inspector = _Inspector(fs, take_inventory(fs, layout, findings), findings, meter)
    return inspector.run(identity_damaged=identity_damaged)


class _Inspector:
    """The steps of an inspection."""

    def __init__(self, fs: FileSystem, inventory: Inventory, findings: Findings, meter: Meter) -> None:
        self._fs, self._meter = fs, meter
        self._inventory = inventory
        self._findings = findings
        self._layout = inventory.layout
        self._tiers = TierReplay(fs, inventory, findings, meter)
        self._doubtful_through = 0

    def run(self, *, identity_damaged: bool) -> Inspection:
        """Run all steps; see `Inspection` for the argument."""
        fs, layout, replay = self._fs, self._layout, self._replay_all()
        state = replay.state
        self._meter.expect(sum(block.payload_bytes for block in state.blocks if isinstance(block.file, str)))
        sound, files = self._tiers.walked - self._tiers.damaged, FilesOfDisk(fs, self._inventory)
        event_check = EventCheck(files, self._findings, sound, self._meter)
        state.blocks = event_check.readable(state)
        loss, bad_positions = self._loss(replay, event_check), check_positions(fs, layout, state, self._findings)
        self._warn_of_open(state)
        note_segments(fs, layout, state, self._findings)
        note_strays(fs, layout, self._findings)
        note_memory(fs, layout, self._findings)
        unowned = unowned_directories(fs, layout, files_missing=self._are_files_missing())
        needs_repair = any(f.severity is not Severity.NOTE for f in self._findings.all())
        return Inspection(
            layout,
            self._inventory,
            self._findings,
            state,
            identity_damaged,
            loss,
            max(state.last_id, self._doubtful_through),
            bad_positions,
            self._tiers.unrepairable,
            why_unclaimed(fs, layout, unowned) if needs_repair else "",
            len(self._tiers.walked) + event_check.files,
            self._tiers.frames + event_check.frames,
            self._tiers.read_bytes + event_check.read_bytes,
            unowned,
        )

    def _replay_all(self) -> TolerantReplay:
        """Replay both tiers, from the file with which a load begins or from further back, and check their chain."""
        disk, root = self._inventory.disk, self._inventory.root()
        self._meter.begin(sum(file.end for file in [*disk[root:], *self._inventory.memory]))
        replay = self._tiers.run(root)
        if root and not disk[root].holds_everything and self._unexplained(replay.state):
            report_missing_files(self._inventory, self._findings)
            replay = self._tiers.run(0)  # files that looked like leftovers of a removal are needed
        self._check_chain(root)
        self._add_checkpointed(replay.state)
        self._settle_last_id(replay)
        return replay

    def _add_checkpointed(self, state: ChannelState) -> None:
        """Add the events that the newest checkpoint has and the replay lacks: damage or missing first files hide them.

        Those in memory are not: a tier that is gone took them along, and its loss is told elsewhere.
        """
        for checkpoint in self._inventory.checkpoints[-1:]:
            for block in Blocks(Block(*row) for row in image_of(checkpoint.image)["blocks"]).disk:
                events = max(block.first_id, state.first_kept), block.last_id
                if any(state.gone().gaps(*events)) and not any(True for _ in state.blocks.between(*events)):
                    state.blocks.disk.insert(block)

    def _loss(self, replay: TolerantReplay, event_check: EventCheck) -> Loss:
        """Return what is lost, and leave only the delayed events that can be read in the state."""
        state = replay.state
        until_ms = replay.delivered_until_ms(time.time_ns() // 1_000_000)
        delays = readable_delays(DelaysOfDisk(self._fs, self._layout), state, self._findings, until_ms)
        state.delays = delays.delays
        lost = state.missing()
        kept = kept_and_gone(state, lost, self._findings)
        self._explain(lost, "events that should be there are in no file")
        self._explain(kept, "events that are kept are in no file; no group needs them")
        partial = left_in_part([replay.partial, event_check.partial], self._findings, [*lost, *kept])
        last_id, through = state.last_id, self._doubtful_through
        doubtful = ((last_id + 1, through),) if through > last_id else ()
        again, skipped = replay.repeated(), replay.skipped()
        return Loss(tuple(lost), doubtful, again, tuple(kept), skipped, partial, delays.due, delays.lost)

    def _are_files_missing(self) -> bool:
        """Tell whether something is damaged that is not there, but for the memory tier and the checkpoints."""
        damaged = (f.path for f in self._findings.all() if f.severity is Severity.DAMAGE)
        apart = {self._layout.memory, self._layout.checkpoint_dir}.difference(self._layout.data_dirs)
        return any(not self._fs.is_file(p) and apart.isdisjoint((p, p.parent)) for p in damaged)

    def _warn_of_open(self, state: ChannelState) -> None:
        """Warn where the next open gives up more than what is damaged: all of a memory tier, after a reboot."""
        memory, found = self._layout.memory, self._findings.all()
        if not state.memory.open or not any(f.severity is Severity.DAMAGE and memory in f.path.parents for f in found):
            return
        origin = MemoryDirectory(self._fs, self._layout).origin()
        if origin is None or origin.boot != boot_id().hex():
            text = "the host was booted since: an open gives up all that is in memory, a repair only what can't be read"
            self._findings.warn(memory, text)

    # ── what is missing ─────────────────────────────────────────────────────────────────────────

    def _unexplained(self, state: ChannelState) -> list[Range]:
        """Return the needed and the kept events that no file has and no finding explains."""
        known = state.gone().union(r for f in self._findings.all() for r in f.events)
        kept = state.blocks.gaps(state.first_kept, state.needed_from() - 1)
        return [gap for first, last in [*kept, *state.missing()] for gap in known.gaps(first, last)]

    def _check_chain(self, root: int) -> None:
        """Report data files that are missing from the newest checkpoint's on."""
        disk, checkpoints, head = self._inventory.disk, self._inventory.checkpoints, self._inventory.head
        if not disk or not checkpoints:
            return
        newest = checkpoints[-1].position.file_id
        if head is not None and checkpoints[-1].position > Position(*head.disk[:2]):
            return  # the checkpoint is newer than the head that we read
        if newest not in (f.file_id for f in disk):
            path = self._layout.log_file(newest)
            self._findings.damage(path, f"{path.name} is missing, and a checkpoint needs it")
        elif newest < disk[root].file_id:
            report_missing_files(self._inventory, self._findings)

    def _settle_last_id(self, replay: TolerantReplay) -> None:
        """Raise the next ID, and the doubtful ones, above every ID that may have been in use."""
        state, inventory, self._doubtful_through = replay.state, self._inventory, self._tiers.doubtful_through
        if inventory.known is not None:
            state.next_id = max(state.next_id, inventory.known.last_id + 1)
        last = inventory.disk[-1].file_id if inventory.disk else 0
        newest = max([c.position.file_id for c in inventory.checkpoints], default=0)
        if not inventory.exact and (inventory.missing_end or newest > last):  # the known last ID is a lower bound
            self._doubtful_through = max(self._doubtful_through, state.last_id + UNKNOWN_IDS)

    def _explain(self, lost: list[Range], text: str) -> None:
        """Report lost events that no finding names yet."""
        left = unexplained(lost, self._findings)
        if left and not report_missing_files(self._inventory, self._findings, left):
            self._findings.damage(self._layout.path, text, events=left)
