"""Everything that can be told of a channel by reading it: what is wrong, and the state that is left."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from spillable_stream.engine.group_position import parse_group_position, read_group_position
from spillable_stream.engine.loading import restored
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.format.file_names import group_of
from spillable_stream.integrity.event_check import EventCheck
from spillable_stream.integrity.findings import Findings, Loss, Severity
from spillable_stream.integrity.identity import check_owners, find_identity
from spillable_stream.integrity.inventory import Inventory, LogFile, gather
from spillable_stream.integrity.tolerant_replay import TolerantReplay
from spillable_stream.log.layout import Layout
from spillable_stream.log.owner import OWNER_FILE
from spillable_stream.log.wal import Position
from spillable_stream.options import CHANNEL, defaults
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import Range, RangeSet
from spillable_stream.storage.boot import boot_id
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["Inspection", "survey"]

_UNKNOWN_IDS = 1 << 32  # more than any channel used since its last sign of life
_SHOWN_STRAYS = 10
_POSITION_READS = 3  # its owner may be writing it


@dataclass(slots=True)
class Inspection:
    """What was found, and what a repair needs.

    Args:
        layout: where the files are.
        evidence: what counts of them.
        findings: what was found.
        state: the state that is left, with the events that can be read and before the loss is recorded.
        loss: what can't be had back.
        last_id: the last ID that was, or may have been, in use.
        identity_damaged: whether the identity file must be written anew.
        owners_damaged: whether a directory is not proven to be the channel's.
        bad_positions: group position files that are damaged.
        unrepairable: why nothing can be repaired; empty if it can.
        files: how many files were read.
        frames: how many frames were read.
        read_bytes: how many bytes these have.
    """

    layout: Layout
    evidence: Inventory
    findings: Findings
    state: ChannelState
    identity_damaged: bool
    owners_damaged: bool = False
    loss: Loss = field(default_factory=Loss)
    last_id: int = 0
    bad_positions: list[Path] = field(default_factory=list)
    unrepairable: str = ""
    files: int = 0
    frames: int = 0
    read_bytes: int = 0

    @property
    def log_damaged(self) -> bool:
        """Whether the log has to be begun anew."""
        identity = {"channel.json", OWNER_FILE}
        return any(f.severity is Severity.DAMAGE and f.path.name not in identity for f in self.findings.all())


def survey(fs: FileSystem, path: Path) -> Inspection:
    """Read a channel and find out what is wrong with it; nothing is written.

    Args:
        fs: the file system.
        path: the channel's directory.

    Raises:
        FileNotFoundError: a file vanished meanwhile; try again.
        NotAChannelError: the directory holds no channel.
        UnsupportedFormatError: a newer version wrote it.
        CorruptionError: nothing says what the channel is.
        StorageError: a file can't be read.
    """
    findings = Findings()
    layout, identity_damaged = find_identity(fs, path, findings)
    layout.grant(fs)
    owners_damaged = check_owners(fs, layout, findings)
    found = _Surveyor(fs, gather(fs, layout, findings), findings, identity_damaged).run()
    found.owners_damaged = owners_damaged
    return found


class _Surveyor:
    """The steps of a survey."""

    def __init__(self, fs: FileSystem, evidence: Inventory, findings: Findings, identity_damaged: bool) -> None:
        self._fs = fs
        self._evidence = evidence
        self._findings = findings
        self._layout = evidence.layout
        self._known = evidence.known
        self._doubtful_through = 0
        self._walked: set[int | str] = set()
        self._damaged: set[int | str] = set()
        self._found = Inspection(
            evidence.layout, evidence, findings, ChannelState(defaults(CHANNEL), []), identity_damaged
        )

    def run(self) -> Inspection:
        """Return what was found."""
        evidence, found = self._evidence, self._found
        root = evidence.root()
        replay = self._replay(root)
        if root and not evidence.disk[root].holds_everything and self._unexplained(replay.state):
            replay = self._replay(0)  # what seemed left over from a deletion is needed
        found.state = state = replay.state
        self._check_chain(root)
        self._settle_last_id(replay)
        audit = EventCheck(self._fs, evidence, self._findings, self._walked - self._damaged)
        state.blocks = audit.readable(state)
        lost = state.missing()
        self._explain(lost)
        last_id, through = state.last_id, self._doubtful_through
        doubtful = ((last_id + 1, through),) if through > last_id else ()
        found.loss = Loss(tuple(lost), doubtful, replay.repeated())
        found.last_id = max(last_id, through)
        found.files = len(self._walked) + audit.files
        found.frames += audit.frames
        found.read_bytes += audit.read_bytes
        self._check_positions()
        self._note_segments()
        self._note_strays()
        return found

    # ── replaying ───────────────────────────────────────────────────────────────────────────────

    def _replay(self, first: int) -> TolerantReplay:
        """Replay both tiers from a data file on."""
        disk = self._evidence.disk
        begin = Position(disk[first].file_id, 0) if disk else Position(0, 0)
        base, exact = self._base(first)
        replay = TolerantReplay(self._fs, self._evidence, base, self._findings, exact=exact)
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
        """Replay both tiers from a file of the memory tier on, which begins with the whole state."""
        files = self._evidence.memory
        if image.header is None:
            base, _ = self._base(first)
            replay = TolerantReplay(self._fs, self._evidence, base, self._findings, exact=False)
            replay.run(begin, Position(files[0].file_id, 0))
        else:
            disk = Position(*image.header.state["disk"])
            last = self._evidence.disk[-1] if self._evidence.disk else None
            if last is not None and disk > Position(last.file_id, last.end):
                text = f"the memory tier knows of the disk tier's log up to {tuple(disk)}, beyond its end"
                self._findings.damage(image.path, text)
            replay = TolerantReplay(self._fs, self._evidence, restored(image.header.state), self._findings)
            replay.run(disk, Position(image.file_id, 0))
        self._count(replay)
        rebooted = image.header is None or image.header.state.get("boot") != boot_id()
        if self._evidence.head is None and rebooted:  # what was appended last may not have survived
            self._doubtful_through = replay.state.memory.reserved_id
        return replay

    def _replay_checkpoint(self, replay: TolerantReplay) -> TolerantReplay:
        """Replay from the newest checkpoint, as the next open does: it says more of what was in memory than the log.

        Args:
            replay: of the whole log; where there is damage, it is the best there is.
        """
        evidence = self._evidence
        if replay.uncertain or self._damaged or not evidence.checkpoints:
            return replay
        newest = evidence.checkpoints[-1]
        if newest.position.file_id not in (file.file_id for file in evidence.disk):
            return replay
        found = TolerantReplay(self._fs, evidence, restored(newest.image), Findings())
        found.run(newest.position)
        return found

    def _count(self, replay: TolerantReplay) -> None:
        self._walked |= replay.walked
        self._damaged |= replay.damaged
        self._found.frames += replay.frames
        self._found.read_bytes += replay.read_bytes

    def _base(self, first: int) -> tuple[ChannelState, bool]:
        """Return the state to replay a data file from, and whether it is exact."""
        evidence = self._evidence
        if not evidence.disk:
            if evidence.checkpoints:
                return restored(evidence.checkpoints[-1].image), False
            self._found.unrepairable = "the channel has no data files, and no checkpoint that can be read"
            return ChannelState(defaults(CHANNEL), [encode_schema(EVENT_SCHEMA)]), False
        header = evidence.disk[first].header
        if header is not None:
            return restored(header.state), True
        later = [f.header.state for f in evidence.disk[first:] + evidence.memory if f.header is not None]
        images = [*later, *(c.image for c in evidence.checkpoints)]
        if images:
            return ChannelState({**defaults(CHANNEL), **images[0]["options"]}, images[0]["schemas"]), False
        return self._guessed(evidence.disk[first])

    def _guessed(self, file: LogFile) -> tuple[ChannelState, bool]:
        """Return the state of an event channel, where nothing says what the channel's schema is and all frames fit."""
        state = ChannelState(defaults(CHANNEL), [encode_schema(EVENT_SCHEMA)])
        trial = TolerantReplay(self._fs, self._evidence, state, Findings(), exact=False)
        trial.run(Position(file.file_id, 0))
        if trial.misfits:
            self._found.unrepairable = f"the header of {file.path.name} is damaged, and nothing else says its schema"
        else:
            text = "nothing but the damaged header says the options and the schema: all frames fit an event channel's"
            self._findings.note(file.path, f"{text}; the options are the defaults", 1)
        return ChannelState(defaults(CHANNEL), [encode_schema(EVENT_SCHEMA)]), False

    # ── the memory tier ─────────────────────────────────────────────────────────────────────────

    def _memory_is_open(self, replay: TolerantReplay) -> bool:
        if self._evidence.head is not None:
            return self._evidence.head.memory.file_id > 0
        return replay.state.memory.open or (replay.uncertain and bool(self._evidence.memory))

    def _memory_image(self, replay: TolerantReplay) -> LogFile | None:
        """Return the file of the memory tier to replay from, or None if the tier is gone or another one's."""
        evidence = self._evidence
        published = evidence.head.memory.file_id if evidence.head else 0
        if not evidence.memory or evidence.memory[-1].file_id < published:
            return None
        whole = [f for f in evidence.memory if f.header is not None]
        if not whole:
            return evidence.memory[0]
        header = whole[-1].header
        token = header.state["memory"][4] if header else ""
        return whole[-1] if replay.uncertain or token == replay.state.memory.token else None

    def _lose_memory(self, replay: TolerantReplay) -> None:
        """Do without the memory tier: what the next open does too."""
        state, reserved = replay.state, replay.state.memory.reserved_id
        groups = {}
        for name, group in state.groups.items():
            group.merge(*read_group_position(self._fs, self._layout, name))
            groups[name] = group.taken()
        last_id = max(state.last_id, self._known.last_id if self._known else 0)
        state.do_without_memory(last_id + 1, groups)
        if self._evidence.head is None:
            self._doubtful_through = max(reserved, last_id + _UNKNOWN_IDS if replay.uncertain else 0)
        if lost := state.missing():
            text = "the memory tier is gone, and with it events that were not taken; opening the channel records it too"
            self._findings.damage(self._layout.memory, text, events=lost)
        else:
            self._findings.note(self._layout.memory, "the memory tier is gone; no event is known to be lost with it")

    # ── what is missing ─────────────────────────────────────────────────────────────────────────

    def _unexplained(self, state: ChannelState) -> list[Range]:
        """Return the events that are needed and in no file, though no damage that was found had them."""
        known = RangeSet(r for f in self._findings.all() for r in f.events)
        return [gap for first, last in state.missing() for gap in known.gaps(first, last)]

    def _check_chain(self, root: int) -> None:
        """Note data files that are missing behind the newest checkpoint."""
        disk, checkpoints = self._evidence.disk, self._evidence.checkpoints
        if not disk or not checkpoints:
            return
        newest = checkpoints[-1].position.file_id
        head = self._evidence.head
        if head is not None and checkpoints[-1].position > Position(*head.disk[:2]):
            return  # made since
        if newest not in (f.file_id for f in disk):
            path = self._layout.log_file(newest)
            self._findings.damage(path, f"{path.name} is missing: a checkpoint was made of it")
        elif newest < disk[root].file_id:
            self._note_missing_files([])

    def _settle_last_id(self, replay: TolerantReplay) -> None:
        """Let no ID be used again that may have been."""
        state, evidence = replay.state, self._evidence
        if self._known is not None:
            state.next_id = max(state.next_id, self._known.last_id + 1)
        last = evidence.disk[-1].file_id if evidence.disk else 0
        newest = max([c.position.file_id for c in evidence.checkpoints], default=0)
        if not evidence.exact and (evidence.missing_end or newest > last):  # what is known is a lower bound
            self._doubtful_through = max(self._doubtful_through, state.last_id + _UNKNOWN_IDS)

    def _explain(self, lost: list[Range]) -> None:
        """Make sure that some finding names every event that is lost."""
        known = RangeSet(r for f in self._findings.all() for r in f.events)
        left = [gap for first, last in lost for gap in known.gaps(first, last)]
        if left and not self._note_missing_files(left):
            self._findings.damage(self._layout.path, "events that should be there are in no file", events=left)

    def _note_missing_files(self, events: list[Range]) -> bool:
        """Note the data files whose numbers are missing in between, and tell whether there are any."""
        present = [f.file_id for f in self._evidence.disk]
        missing = sorted(set(range(present[0], present[-1])) - set(present)) if present else []
        gone = [f.path for f in self._findings.all() if f.severity is Severity.DAMAGE and f.offset is None]
        for path in [self._layout.log_file(i) for i in missing[:100]] or [p for p in gone if "log-" in p.name][:1]:
            self._findings.damage(path, f"{path.name} is missing", events=events)
            missing = missing or [0]
        return bool(missing)

    # ── what can be missed ──────────────────────────────────────────────────────────────────────

    def _check_positions(self) -> None:
        """Check the files that keep the groups' positions for the report of a loss."""
        state = self._found.state
        for name in self._fs.list_files(self._layout.path / "groups"):
            group = group_of(name, "position")
            if group is None or self._position_is_good(group):
                continue
            path = self._layout.group_position(group)
            if state.memory.open and group in state.groups:
                text = "the group's position is damaged: should the memory tier be lost, what it took counts as lost"
                self._findings.warn(path, text, 0)
                self._found.bad_positions.append(path)
            else:
                self._findings.note(path, "the group's position is damaged; nothing needs it now", 0)

    def _position_is_good(self, group: str) -> bool:
        for _ in range(_POSITION_READS):
            try:
                data = self._fs.read_file(self._layout.group_position(group))
            except FileNotFoundError:
                return True
            if not data or parse_group_position(self._layout, group, data) is not None:
                return True
        return False

    def _note_segments(self) -> None:
        """Note the segments that hold no event of the channel."""
        for name in sorted(set(self._layout.segments(self._fs)) - self._found.state.blocks.segments()):
            text = "no event in the channel is in this segment: it is being written, was taken, or is left over"
            self._findings.note(self._layout.segment_file(name), text)

    def _note_strays(self) -> None:
        """Note what is in the channel's directories and is no file of it."""
        layout = self._layout
        directories = {*layout.data_dirs, layout.checkpoint_dir, layout.memory, layout.path / "groups"}
        for directory in sorted(directories):
            files = set(self._fs.list_files(directory))
            names = [n for n in self._fs.list(directory) if n not in files or not layout.is_own(directory, n)]
            if names:
                shown = ", ".join(ascii(os.fsencode(n))[1:] for n in names[:_SHOWN_STRAYS])
                more = f", and {len(names) - _SHOWN_STRAYS} more" if len(names) > _SHOWN_STRAYS else ""
                are = (
                    "name in it is not the channel's and is"
                    if len(names) == 1
                    else "names in it are not the channel's and are"
                )
                self._findings.note(directory, f"{len(names)} {are} left alone: {shown}{more}")
