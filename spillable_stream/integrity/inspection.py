"""Inspects a channel without writing: finds what is damaged, and the state that is left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.local.position_hint import read_position_hint
from spillable_stream.format.batch import EVENT_SCHEMA, decode_schema, encode_schema
from spillable_stream.format.file_names import delayed_name, generation_of, seed_name
from spillable_stream.format.frame import file_seed
from spillable_stream.integrity.delayed_check import DelaysOfDisk, readable_delays
from spillable_stream.integrity.event_check import EventCheck, FilesOfDisk, has_misfit
from spillable_stream.integrity.findings import Findings, Loss, Severity
from spillable_stream.integrity.identity_evidence import check_owners, find_identity, why_unclaimed
from spillable_stream.integrity.inventory import Inventory, take_inventory
from spillable_stream.integrity.log_file import LogFile, opened
from spillable_stream.integrity.log_steps import LogSteps
from spillable_stream.integrity.losses import UNKNOWN_IDS, kept_and_gone, unexplained
from spillable_stream.integrity.partial_transactions import left_in_part
from spillable_stream.integrity.spare_files import check_positions, note_memory, note_segments, note_strays
from spillable_stream.integrity.tolerant_replay import TolerantReplay
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner_file import OWNER_FILE
from spillable_stream.log.unproven_directories import unowned_directories
from spillable_stream.log.wal import Position
from spillable_stream.option_types import ChannelOptions
from spillable_stream.progress import UNTOLD, Meter
from spillable_stream.state.block import Block
from spillable_stream.state.channel_state import ChannelState, restored
from spillable_stream.state.image import image_of
from spillable_stream.state.memory_loss_rules import (
    appends_may_be_missing,
    lose_memory,
    lose_newest_appends,
    may_have_been_used,
    token_of,
)
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
        self._known = inventory.known
        self._doubtful_through = 0
        self._walked: set[int | str] = set()
        self._damaged: set[int | str] = set()
        self._frames = self._read_bytes = 0
        self._unrepairable = ""

    def run(self, *, identity_damaged: bool) -> Inspection:
        """Run all steps; see `Inspection` for the argument."""
        fs, layout, replay = self._fs, self._layout, self._replay_all()
        state = replay.state
        self._meter.expect(sum(block.payload_bytes for block in state.blocks if isinstance(block.file, str)))
        sound, files = self._walked - self._damaged, FilesOfDisk(fs, self._inventory)
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
            self._unrepairable,
            why_unclaimed(fs, layout, unowned) if needs_repair else "",
            len(self._walked) + event_check.files,
            self._frames + event_check.frames,
            self._read_bytes + event_check.read_bytes,
            unowned,
        )

    def _replay_all(self) -> TolerantReplay:
        """Replay both tiers, from the file with which a load begins or from further back, and check their chain."""
        disk, root = self._inventory.disk, self._inventory.root()
        self._meter.begin(sum(file.end for file in [*disk[root:], *self._inventory.memory]))
        replay = self._replay(root)
        if root and not disk[root].holds_everything and self._unexplained(replay.state):
            self._report_missing_files([])
            replay = self._replay(0)  # files that looked like leftovers of a removal are needed
        self._check_chain(root)
        self._add_checkpointed(replay.state)
        self._settle_last_id(replay)
        return replay

    def _add_checkpointed(self, state: ChannelState) -> None:
        """Add the events that the newest checkpoint has and the replay lacks: of files before its first one."""
        for checkpoint in self._inventory.checkpoints[-1:]:
            for block in (Block(*row) for row in image_of(checkpoint.image)["blocks"]):
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

    # ── replaying ───────────────────────────────────────────────────────────────────────────────

    def _replay(self, first: int) -> TolerantReplay:
        """Replay both tiers, starting at the data file with this index in the inventory."""
        disk = self._inventory.disk
        begin = Position(disk[first].file_id, 0) if disk else Position(0, 0)
        base, exact = self._base(first)
        replay = TolerantReplay(self._steps(), base, self._findings, exact=exact)
        replay.run(begin)
        self._count(replay)
        if not self._memory_is_open(replay):
            return replay
        image = self._memory_image(replay)
        if image is None:
            replay = self._replay_checkpoint(replay)
            self._lose_memory(replay)
            return replay
        return self._replay_memory(first, begin, image)

    def _replay_memory(self, first: int, begin: Position, image: LogFile) -> TolerantReplay:
        """Replay both tiers, starting at a file of the memory tier, whose header holds the whole state."""
        files = self._inventory.memory
        if image.header is None:
            base, _ = self._base(first)
            replay = TolerantReplay(self._steps(), base, self._findings, exact=False)
            replay.run(begin, Position(files[0].file_id, 0))
        else:
            disk = Position(*image_of(image.header.state)["disk"])
            last = self._inventory.disk[-1] if self._inventory.disk else None
            if last is not None and disk > Position(last.file_id, last.end):
                text = f"the memory tier knows of the disk tier's log up to {tuple(disk)}, beyond its end"
                self._findings.damage(image.path, text)
                self._damaged.add(last.file_id)
                self._inventory.missing_end = True
            elif last is not None and disk.file_id < self._inventory.disk[self._inventory.root()].file_id:
                self._report_missing_files([])  # the next open reads on from there
            replay = TolerantReplay(self._steps(), restored(image.header.state), self._findings)
            replay.run(disk, Position(image.file_id, 0))
        self._count(replay)
        in_memory = self._fs.is_in_memory(self._layout.memory)
        unsafe = appends_may_be_missing(image.header.state if image.header else None, boot_id(), in_memory)
        if self._inventory.head is None and unsafe and (loss := lose_newest_appends(replay.state)) is not None:
            self._doubtful_through = loss.last_id
        return replay

    def _replay_checkpoint(self, replay: TolerantReplay) -> TolerantReplay:
        """Replay from the newest checkpoint, as the next open does: it knows more about the memory tier than the log.

        Args:
            replay: the replay of the whole log; returned if there is damage, or no usable checkpoint.
        """
        inventory = self._inventory
        if replay.uncertain or self._damaged or not inventory.checkpoints:
            return replay
        newest = inventory.checkpoints[-1]
        if newest.position.file_id not in (file.file_id for file in inventory.disk):
            return replay
        found = TolerantReplay(self._steps(), restored(newest.image), Findings())
        found.run(newest.position)
        return found

    def _steps(self) -> LogSteps:
        return LogSteps(self._fs, self._inventory, self._meter)

    def _count(self, replay: TolerantReplay) -> None:
        self._walked |= replay.steps.walked
        self._damaged |= replay.damaged
        self._frames += replay.steps.frames
        self._read_bytes += replay.steps.read_bytes

    def _base(self, first: int) -> tuple[ChannelState, bool]:
        """Return the state at the start of a data file, and whether it is exact."""
        inventory = self._inventory
        if not inventory.disk:
            if inventory.checkpoints:
                return restored(inventory.checkpoints[-1].image), False
            nothing = "the channel has no data files, and no checkpoint that can be read"
            self._unrepairable = nothing
            return ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)]), False
        header = inventory.disk[first].header
        if header is not None:
            return restored(header.state), True
        later = [f.header.state for f in inventory.disk[first:] + inventory.memory if f.header is not None]
        images = [*later, *(c.image for c in inventory.checkpoints)]
        if images:
            image = image_of(images[0])
            return ChannelState(ChannelOptions.of(image["options"]), image["schemas"]), False
        return self._guessed(inventory.disk[first])

    def _guessed(self, file: LogFile) -> tuple[ChannelState, bool]:
        """Return the initial state of an event channel: the schema is lost, but may be that of event channels.

        A trial replay checks that all frames fit it. If they do not, the channel is unrepairable.
        """
        state = ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)])
        trial = TolerantReplay(self._steps(), state, Findings(), exact=False)
        trial.run(Position(file.file_id, 0))
        if trial.misfits or self._other_files_misfit(state.schemas):
            self._unrepairable = f"the header of {file.path.name} is damaged, and nothing else says its schema"
        else:
            text = "nothing but the damaged header says the options and the schema: all frames fit an event channel's"
            self._findings.note(file.path, f"{text}; the options are the defaults", 1)
        return ChannelState(ChannelOptions(), [encode_schema(EVENT_SCHEMA)]), False

    def _other_files_misfit(self, schemas: list[bytes]) -> bool:
        """Tell whether events in segments or side files are of none of these schemas."""
        fs, layout, decoded = self._fs, self._layout, [decode_schema(s) for s in schemas]
        files = {layout.segment_file(name): seed_name(name) for name in layout.segments(fs)}
        files |= {layout.delayed_file(number): delayed_name(number) for number in layout.delayed_files(fs)}
        for path, name in files.items():
            with opened(fs, path) as file:
                if has_misfit(file, file_seed(layout.channel, name), decoded):
                    return True
        return False

    # ── the memory tier ─────────────────────────────────────────────────────────────────────────

    def _memory_is_open(self, replay: TolerantReplay) -> bool:
        if self._inventory.head is not None:
            return self._inventory.head.memory.file_id > 0
        return replay.state.memory.open or (replay.uncertain and bool(self._inventory.memory))

    def _memory_image(self, replay: TolerantReplay) -> LogFile | None:
        """Return the file of the memory tier to replay from, or None if the tier is gone or its files are another's."""
        inventory = self._inventory
        if not inventory.memory:
            return None
        tier = replay.state.memory
        if not replay.uncertain and generation_of(inventory.memory[-1].file_id) != tier.generation:
            return None
        newest = next((f for f in reversed(inventory.memory) if f.header is not None), None)
        if newest is None or newest.header is None:
            return inventory.memory[0]
        return newest if replay.uncertain or token_of(image_of(newest.header.state)) == tier.token else None

    def _lose_memory(self, replay: TolerantReplay) -> None:
        """Remove the lost memory tier from the state, as the next open does."""
        state, inventory = replay.state, self._inventory
        positions = {name: read_position_hint(self._fs, self._layout, name) for name in state.groups}
        files = [f.file_id for f in inventory.memory]
        directory = MemoryDirectory(self._fs, self._layout)
        unused = not may_have_been_used(state, self._known) and directory.is_unused(state.memory.token, lambda: files)
        last_id = max(state.last_id, self._known.last_id if self._known else 0)
        loss = lose_memory(state, positions, last_id, unused=unused)
        if inventory.head is None:
            self._doubtful_through = max(loss.last_id, last_id + UNKNOWN_IDS if replay.uncertain else 0)
        if loss.lost:
            text = "the memory tier is gone, and with it events that were not taken; opening the channel records it too"
            self._findings.damage(self._layout.memory, text, events=loss.lost)
        else:
            self._findings.note(self._layout.memory, "the memory tier is gone; no event is known to be lost with it")

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
            self._report_missing_files([])

    def _settle_last_id(self, replay: TolerantReplay) -> None:
        """Raise the next ID, and the doubtful ones, above every ID that may have been in use."""
        state, inventory = replay.state, self._inventory
        if self._known is not None:
            state.next_id = max(state.next_id, self._known.last_id + 1)
        last = inventory.disk[-1].file_id if inventory.disk else 0
        newest = max([c.position.file_id for c in inventory.checkpoints], default=0)
        if not inventory.exact and (inventory.missing_end or newest > last):  # the known last ID is a lower bound
            self._doubtful_through = max(self._doubtful_through, state.last_id + UNKNOWN_IDS)

    def _explain(self, lost: list[Range], text: str) -> None:
        """Report lost events that no finding names yet."""
        left = unexplained(lost, self._findings)
        if left and not self._report_missing_files(left):
            self._findings.damage(self._layout.path, text, events=left)

    def _report_missing_files(self, events: list[Range]) -> bool:
        """Report gaps in the numbers of the data files as missing files, and tell whether there are any."""
        present = [f.file_id for f in self._inventory.disk]
        missing = sorted(set(range(present[0], present[-1])) - set(present)) if present else []
        gone = [f.path for f in self._findings.all() if f.severity is Severity.DAMAGE and f.offset is None]
        for path in [self._layout.log_file(i) for i in missing[:100]] or [p for p in gone if "log-" in p.name][:1]:
            self._findings.damage(path, f"{path.name} is missing", events=events)
            missing = missing or [0]
        return bool(missing)
