"""Replays the tiers of a channel on this host past damage: from which file on, and with or without the memory tier."""

from __future__ import annotations

from collections.abc import Sequence

from spillable_stream.engine.local.memory_directory import MemoryDirectory
from spillable_stream.engine.local.position_hint import read_position_hint
from spillable_stream.format.batch import EVENT_SCHEMA, decode_schema, encode_schema
from spillable_stream.format.file_names import delayed_name, generation_of, seed_name
from spillable_stream.format.frame import file_seed
from spillable_stream.integrity.event_check import has_misfit
from spillable_stream.integrity.findings import Findings, Severity
from spillable_stream.integrity.inventory import Inventory
from spillable_stream.integrity.log_file import LogFile, opened
from spillable_stream.integrity.log_steps import LogSteps
from spillable_stream.integrity.losses import UNKNOWN_IDS
from spillable_stream.integrity.tolerant_replay import TolerantReplay
from spillable_stream.log.wal import Position
from spillable_stream.option_types import ChannelOptions
from spillable_stream.progress import Meter
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

__all__ = ["TierReplay", "report_missing_files"]


class TierReplay:
    """Replays both tiers, also more than once: what a replay finds may say that it began at the wrong file.

    Args:
        fs: the file system.
        inventory: which files count, and up to where.
        findings: collects what is wrong with them.
        meter: counts the bytes that are read.

    Attributes:
        doubtful_through: the last ID that a lost memory tier, or lost appends to it, may have used; 0 if there is none.
        walked: the files that were read.
        damaged: those of them that are damaged.
        frames: how many whole frames were read.
        read_bytes: the size of these frames.
        unrepairable: why no repair can continue behind it; "" if one can.
    """

    def __init__(self, fs: FileSystem, inventory: Inventory, findings: Findings, meter: Meter) -> None:
        self._fs, self._inventory, self._findings, self._meter = fs, inventory, findings, meter
        self._layout, self._known = inventory.layout, inventory.known
        self.doubtful_through: int = 0
        self.walked: set[int | str] = set()
        self.damaged: set[int | str] = set()
        self.frames: int = 0
        self.read_bytes: int = 0
        self.unrepairable: str = ""

    def run(self, first: int) -> TolerantReplay:
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
                self.damaged.add(last.file_id)
                self._inventory.missing_end = True
            elif last is not None and disk.file_id < self._inventory.disk[self._inventory.root()].file_id:
                report_missing_files(self._inventory, self._findings)  # the next open reads on from there
            replay = TolerantReplay(self._steps(), restored(image.header.state), self._findings)
            replay.run(disk, Position(image.file_id, 0))
        self._count(replay)
        in_memory = self._fs.is_in_memory(self._layout.memory)
        unsafe = appends_may_be_missing(image.header.state if image.header else None, boot_id(), in_memory)
        if self._inventory.head is None and unsafe and (loss := lose_newest_appends(replay.state)) is not None:
            self.doubtful_through = loss.last_id
        return replay

    def _replay_checkpoint(self, replay: TolerantReplay) -> TolerantReplay:
        """Replay from the newest checkpoint, as the next open does: it knows more about the memory tier than the log.

        Args:
            replay: the replay of the whole log; returned if there is damage, or no usable checkpoint.
        """
        inventory = self._inventory
        if replay.uncertain or self.damaged or not inventory.checkpoints:
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
        self.walked |= replay.steps.walked
        self.damaged |= replay.damaged
        self.frames += replay.steps.frames
        self.read_bytes += replay.steps.read_bytes

    def _base(self, first: int) -> tuple[ChannelState, bool]:
        """Return the state at the start of a data file, and whether it is exact."""
        inventory = self._inventory
        if not inventory.disk:
            if inventory.checkpoints:
                return restored(inventory.checkpoints[-1].image), False
            nothing = "the channel has no data files, and no checkpoint that can be read"
            self.unrepairable = nothing
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
            self.unrepairable = f"the header of {file.path.name} is damaged, and nothing else says its schema"
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
            self.doubtful_through = max(loss.last_id, last_id + UNKNOWN_IDS if replay.uncertain else 0)
        if loss.lost:
            text = "the memory tier is gone, and with it events that were not taken; opening the channel records it too"
            self._findings.damage(self._layout.memory, text, events=loss.lost)
        else:
            self._findings.note(self._layout.memory, "the memory tier is gone; no event is known to be lost with it")


def report_missing_files(inventory: Inventory, findings: Findings, events: Sequence[Range] = ()) -> bool:
    """Report gaps in the numbers of the data files as missing files, and tell whether there are any.

    Args:
        inventory: which files are there.
        findings: collects the missing ones.
        events: the events that are missing with them.
    """
    present = [f.file_id for f in inventory.disk]
    missing = sorted(set(range(present[0], present[-1])) - set(present)) if present else []
    gone = [f.path for f in findings.all() if f.severity is Severity.DAMAGE and f.offset is None]
    for path in [inventory.layout.log_file(i) for i in missing[:100]] or [p for p in gone if "log-" in p.name][:1]:
        findings.damage(path, f"{path.name} is missing", events=events)
        missing = missing or [0]
    return bool(missing)
