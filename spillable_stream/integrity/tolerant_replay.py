"""Replaying a log past damage: what can be proven is kept, and what is not known is said.

Every data file and every checkpoint begins with the truth of its moment, so what damage hides is
hidden until the next of them only. In between,

* a PUT is committed if anything after it proves that its append was synced, though its COMMIT is
  damaged: an append that failed is cut before anything is written behind it;
* a COMMIT whose header is whole commits, though what its payload said is not known;
* a take without a COMMIT is not: its events come again, rather than never;
* a group that somebody once owned is there, unless something later says that it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from spillable_stream.engine.loading import restored
from spillable_stream.format.batch import decode_batch, decode_schema
from spillable_stream.format.file_names import in_memory
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameHeader, FrameType, frame_size
from spillable_stream.format.record import TakeRecord, pack
from spillable_stream.integrity.findings import Finding, Findings, Severity
from spillable_stream.integrity.inventory import Inventory, LogFile, ValidCheckpoint, opened
from spillable_stream.integrity.order import MALFORMED, Order, parsed_commit
from spillable_stream.log.frames import Damage, LocatedFrame, walk
from spillable_stream.log.wal import Position
from spillable_stream.state.channel_state import ChannelState, GroupState
from spillable_stream.state.ranges import Range
from spillable_stream.storage.filesystem import FileSystem

__all__ = ["TolerantReplay", "fits"]

# A group that nobody has, which holds back every event while it is not known who else does.
_HOLD = ""
_CONTROLS = {FrameType.OPTIONS, FrameType.SCHEMA, FrameType.GROUP, FrameType.RESERVE, FrameType.LOST}
_ENDED = {FrameType.COMMIT, FrameType.ROLLBACK, FrameType.FILE_HEADER}
_UNKNOWN_IDS = 1 << 32


class _Truth(NamedTuple):
    """An image of the state, exact at a place of the disk tier's log."""

    image: dict[str, Any]


class _Missing(NamedTuple):
    """A place where a data file is missing."""


class _Step(NamedTuple):
    """What comes next in a log."""

    time_us: int
    file: LogFile
    what: LocatedFrame | Damage | _Truth | _Missing


class TolerantReplay:
    """Feeds a state from the files of a channel, past damage.

    Args:
        fs: the file system.
        evidence: what counts of the files.
        state: the state to begin with.
        findings: where damage is noted.
        exact: whether ``state`` is exact, and not only the best there is.

    Attributes:
        state: the state so far.
        files: how many files were walked.
        frames: how many frames were whole.
        read_bytes: how many bytes these have.
        damaged: the numbers of the files in which there is damage.
        walked: the numbers of the files that were walked as a whole.
        misfits: how many PUT frames are whole and can't be decoded.
        uncertain: whether damage may hide takes or control records that nothing later tells.
    """

    def __init__(
        self, fs: FileSystem, evidence: Inventory, state: ChannelState, findings: Findings, *, exact: bool = True
    ) -> None:
        self.state = state
        self.files = self.frames = self.read_bytes = self.misfits = 0
        self.walked: set[int | str] = set()
        self.damaged: set[int | str] = set()
        self.uncertain = False
        self._fs = fs
        self._evidence = evidence
        self._findings = findings
        self._tainted = False  # whether the state may be wrong
        self._begun = exact or state.next_id > 1  # whether the first event's ID is known
        self._again_through = 0  # up to which ID takes may be hidden
        self._takes_hidden = False  # whether they may be, though all else is known
        self._with_memory = False
        self._hidden_transactions = 0
        self._schemas: list[pa.Schema] = []
        self._orders: dict[int, Order] = {}
        self._before = FrameHeader(FrameType.FILE_HEADER, 0, 0, 0, 0, 0, 0, 0)
        self._hole: tuple[Finding, int] | None = None  # damage, and the next ID before it
        if not exact:
            self._taint(unknown_bytes=HEADER_SIZE_BYTES)

    # ── what comes next ─────────────────────────────────────────────────────────────────────────

    def run(self, disk: Position, memory: Position | None = None) -> ChannelState:
        """TolerantReplay everything from two places on and return the state, with every transaction settled."""
        logs = [self._disk_log(disk)]
        self._with_memory = memory is not None
        if memory is not None:
            logs.append(self._memory_log(memory))
        for step in merge(*logs, key=lambda s: s.time_us):
            if isinstance(step.what, LocatedFrame):
                self._apply(step.file, step.what)
            elif isinstance(step.what, Damage):
                self._pass_over(step.file, step.what)
            elif isinstance(step.what, _Truth):
                self._learn(step.what.image)
            else:
                self._taint(unknown_bytes=_UNKNOWN_IDS)
        return self._settled()

    def _disk_log(self, start: Position) -> Iterator[_Step]:
        checkpoints = [c for c in self._evidence.checkpoints if c.position > start]
        before: LogFile | None = None
        time_us = 0
        for file in [f for f in self._evidence.disk if f.file_id >= start.file_id]:
            previous = file.header.previous if file.header else None
            broken = before is not None and file.header is not None and (previous or (0,))[0] != before.file_id
            while checkpoints and checkpoints[0].position.file_id < file.file_id:
                yield _Step(time_us, file, _Truth(checkpoints.pop(0).image))
                broken = True
            if broken or (before is None and file.file_id > start.file_id):
                yield _Step(time_us, file, _Missing())
            offset = start.offset if file.file_id == start.file_id else 0
            if offset == 0 and file.header is not None:
                yield _Step(time_us, file, _Truth(file.header.state))
            step = None
            for following in self._frames(file, offset, time_us):
                time_us = following.time_us
                yield from _truths(checkpoints, Position(file.file_id, _begin(following)), step)
                step = following
                yield step
            if step is not None:
                yield from _truths(checkpoints, Position(file.file_id, file.end), step)
            before = file
        for checkpoint in checkpoints:
            if before is not None:
                yield _Step(time_us, before, _Truth(checkpoint.image))
        if before is not None and (checkpoints or self._evidence.missing_end):
            yield _Step(time_us, before, _Missing())

    def _memory_log(self, start: Position) -> Iterator[_Step]:
        time_us = 0
        files = [f for f in self._evidence.memory if f.file_id >= start.file_id]
        gaps = {b.file_id for a, b in pairwise(files) if a.file_id + 1 < b.file_id}
        for file in files:
            if file.file_id in gaps:
                yield _Step(time_us, file, _Missing())
            for step in self._frames(file, start.offset if file.file_id == start.file_id else 0, time_us):
                time_us = step.time_us
                yield step

    def _frames(self, file: LogFile, offset: int, time_us: int) -> Iterator[_Step]:
        self.files += 1
        self._orders[file.file_id] = Order(offset)
        if offset == 0:
            self.walked.add(file.file_id)
        with opened(self._fs, file.path) as f:
            for item in walk(f, file.seed, offset, file.end):
                if isinstance(item, LocatedFrame):
                    time_us = item.header.time_us or time_us
                    self.frames += 1
                    self.read_bytes += item.end - item.offset
                yield _Step(time_us, file, item)

    # ── whole frames ────────────────────────────────────────────────────────────────────────────

    def _apply(self, file: LogFile, found: LocatedFrame) -> None:
        header = found.header
        wrong = self._orders[file.file_id].wrong(found)
        if wrong is not None:
            self._note(file, Damage(found.offset, found.end, header), wrong)
            self._taint(unknown_bytes=found.end - found.offset)
            if header.type != FrameType.COMMIT or not self._is_about_pending(found):
                return
        if header.type == FrameType.FILE_HEADER:
            return
        if header.type == FrameType.PUT and not fits(header, found.payload or b"", self._decoded()):
            self.misfits += 1
            self._note(file, Damage(found.offset, found.end, header), "the events of a frame can't be decoded")
        self._fill_hole(header)
        self._before = header
        try:
            if self._tainted and not self._mind(file, found):
                return
            self.state.apply(file.file_id, found.offset, header, found.payload)
        except MALFORMED as e:
            self._note(file, Damage(found.offset, found.end, header), f"a {header.type.name} is invalid: {e}")
            self._taint(unknown_bytes=found.end - found.offset)

    def _is_about_pending(self, found: LocatedFrame) -> bool:
        """Tell whether a COMMIT in a wrong place, or of too few frames, ends what is pending or is the next put."""
        header = found.header
        return header.transaction_id in self.state.pending or header.write_order_id == self.state.next_id

    def _mind(self, file: LogFile, found: LocatedFrame) -> bool:
        """Before a frame is applied to a state that may be wrong: learn what it says of what was hidden.

        Returns:
            Whether it can be applied.
        """
        header, state = found.header, self.state
        if header.write_order_id and not self._begun:
            self._begun = True
            state.next_id = state.floor = header.write_order_id
            state.groups[_HOLD] = GroupState(state.floor - 1)
        if header.type == FrameType.TAKE:
            self._know_group(TakeRecord.parse(found.payload or b"").group)
        elif header.type == FrameType.COMMIT and (record := parsed_commit(found.payload)) is not None:
            for name in (record.seen or {}).get("groups", ()):
                self._know_group(name)
            if record.kind != "move":
                self._commit_orphans(in_memory(file.file_id), header.transaction_id)
            pending = state.pending.get(header.transaction_id)
            return record.kind != "take" or (pending is not None and bool(pending.takes))
        return True

    def _know_group(self, name: str) -> None:
        """Make a group whose making is hidden: it begins where everything does that is held back."""
        self.state.groups.setdefault(name, GroupState(self.state.floor - 1))

    def _decoded(self) -> list[pa.Schema]:
        if len(self._schemas) != len(self.state.schemas):
            self._schemas = [decode_schema(s) for s in self.state.schemas]
        return self._schemas

    # ── damage ──────────────────────────────────────────────────────────────────────────────────

    def _pass_over(self, file: LogFile, damage: Damage) -> None:
        header = damage.header
        if header is None or header.type == FrameType.FILE_HEADER:
            self._orders[file.file_id].wrong(damage._replace(header=None))
            self._note(file, damage, "the file's header is damaged" if damage.offset == 0 else "no frame is whole here")
            self._taint(unknown_bytes=damage.size)
            return
        self._orders[file.file_id].wrong(damage)
        self._note(file, damage, f"the payload of a {header.type.name} frame is damaged")
        if header.type == FrameType.PUT:
            self._fill_hole(header)
            self._before = header
            self.state.apply(file.file_id, damage.offset, header, None)
            return
        self._taint(unknown_bytes=0 if header.type == FrameType.COMMIT else damage.size)
        if header.type == FrameType.COMMIT:
            self._before = header
            if self.state.memory.open and not self._with_memory:  # it said what was taken in memory, once
                self._takes_hidden, self._again_through = True, 0
            self._commit_without_payload(file, damage.offset, header)

    def _commit_without_payload(self, file: LogFile, offset: int, header: FrameHeader) -> None:
        """Commit what a header says is committed; what segments it adopts and which batch it is, is not known."""
        pending = self.state.pending.get(header.transaction_id)
        known = pending is not None and (pending.takes or pending.frames or pending.controls)
        kind = "put" if header.write_order_id else "take" if pending and pending.takes else "control"
        if not known and not header.write_order_id:
            self._taint(unknown_bytes=frame_size(header.length))
        self._commit_orphans(in_memory(file.file_id), header.transaction_id)
        self.state.apply(file.file_id, offset, header, pack({"kind": kind, "start": 0}))

    def _commit_orphans(self, memory: bool, but: int = -1) -> None:
        """Commit what was appended, as later frames prove, and whose own COMMIT is damaged."""
        state = self.state
        for tx, pending in list(state.pending.items()):
            mine = [f for f in pending.frames if in_memory(f[0]) == memory]
            if tx == but or pending.takes or not (mine or pending.controls):
                continue
            first = min((put.write_order_id for _, _, put in mine), default=0)
            last = max((put.write_order_id + put.count - 1 for _, _, put in mine), default=0)
            if mine and (last < state.floor or any(True for _ in state.blocks.disk.between(first, last))):
                del state.pending[tx]  # it is there already
                continue
            for _, _, put in mine:  # of a move
                state.blocks.memory.remove(put.write_order_id)
            kind = "put" if mine else "control"
            header = FrameHeader(FrameType.COMMIT, 0, tx, first, last - first + 1 if mine else 0, 0, 0, 0)
            file_id = mine[-1][0] if mine else self._evidence.disk[-1].file_id
            try:
                state.apply(file_id, 0, header, pack({"kind": kind, "start": 0}))
            except MALFORMED:
                state.pending.pop(tx, None)

    def _taint(self, unknown_bytes: int = 0) -> None:
        """Note that the state may be wrong from here on, and what may be hidden."""
        if unknown_bytes:
            self.uncertain = True
            self._again_through = 0
            self._hidden_transactions += unknown_bytes // HEADER_SIZE_BYTES + 1
        if not self._tainted:
            self._tainted = True
            self.state.groups[_HOLD] = GroupState(self.state.floor - 1)

    def _learn(self, image: dict[str, Any]) -> None:
        """Take over an image that is exact here, if the state may be wrong."""
        if not self._tainted:
            return
        self._commit_orphans(memory=False)
        old = self.state
        try:
            new = restored(image)
        except MALFORMED:
            return
        if "blocks" not in image:
            new.blocks.disk = old.blocks.disk
        new.blocks.memory = old.blocks.memory
        for block in list(new.blocks.memory):
            if any(True for _ in new.blocks.disk.between(block.first_id, block.last_id)):
                new.blocks.memory.remove(block.first_id)
        new.blocks.drop_through(new.floor - 1)
        new.next_transaction = max(new.next_transaction, old.next_transaction)
        if len(new.blocks.memory):
            new.next_id = max(new.next_id, old.next_id)
        self.state = new
        self._tainted = self.uncertain = self._takes_hidden = False
        self._begun = True
        self._again_through = self._hidden_transactions = 0
        self._close_hole(new.next_id)

    # ── which events were in what is damaged ────────────────────────────────────────────────────

    def _note(self, file: LogFile, damage: Damage, text: str) -> None:
        header = damage.header
        events: tuple[Range, ...] = ()
        transactions = {header.transaction_id} if header else set()
        if header and header.type == FrameType.PUT:
            events = ((header.write_order_id, header.write_order_id + header.count - 1),)
        elif header is None and self._before.type not in _ENDED:
            transactions.add(self._before.transaction_id)
        finding = Finding(
            Severity.DAMAGE, file.path, text, damage.offset, damage.size, events, tuple(sorted(transactions - {0}))
        )
        self._findings.add(finding)
        self.damaged.add(file.file_id)
        if header is None:
            self._hole = finding, self._next_id()

    def _next_id(self) -> int:
        """Return the next ID that a PUT should have."""
        pending = [f for p in self.state.pending.values() for f in p.frames]
        return max([self.state.next_id, *(put.write_order_id + put.count for _, _, put in pending)])

    def _fill_hole(self, header: FrameHeader) -> None:
        """Learn from the frame after damage which events and transactions were in it."""
        if self._again_through == 0 and header.type == FrameType.COMMIT and header.write_order_id:
            self._again_through = header.write_order_id - 1 if self.uncertain or self._takes_hidden else 0
        if self._hole is None:
            return
        finding, _ = self._hole
        if header.type == FrameType.COMMIT:
            pending = self.state.pending.get(header.transaction_id)
            held = sum(put.count for _, _, put in pending.frames) if pending else 0
            if held < header.count and not (pending and pending.takes):
                self._findings.add(_about(finding, header.transaction_id))
        if header.type == FrameType.PUT and header.write_order_id:
            self._close_hole(header.write_order_id)
        elif header.type == FrameType.COMMIT and header.write_order_id:
            self._close_hole(header.write_order_id + header.count)
        elif header.type in _CONTROLS:
            self._close_hole(0)

    def _close_hole(self, next_id: int) -> None:
        if self._hole is not None:
            finding, before = self._hole
            self._hole = None
            if next_id > before:
                self._findings.add(_about(finding, 0, ((before, next_id - 1),)))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def _settled(self) -> ChannelState:
        """Return the state, with what was committed committed and nothing held back for nobody."""
        if not self._tainted:
            return self.state
        self._commit_orphans(memory=False)
        self._commit_orphans(memory=True)
        if self.uncertain:
            for name in self._evidence.owned_groups:
                self._know_group(name)
        known = self._evidence.known
        if known is not None:
            self._close_hole(known.last_id + 1)
        if not self._again_through:
            self._again_through = 1 << 62
        image = self.state.image()
        image["groups"].pop(_HOLD, None)
        positions = [group[0] for group in image["groups"].values()]
        image["floor"] = max([image["floor"], *([min(positions) + 1] if positions else [])])
        image["nextTransaction"] += self._hidden_transactions
        self.state = restored(image)
        self.state.blocks.drop_through(self.state.floor - 1)
        return self.state

    def repeated(self) -> dict[str, tuple[Range, ...]]:
        """Return for each group the events that it may have taken, though no record that is left says so."""
        if not self.uncertain and not self._takes_hidden:
            return {}
        through = min(self._again_through, self.state.last_id)
        found = {
            name: tuple(group.ahead.gaps(group.position + 1, through)) for name, group in self.state.groups.items()
        }
        return {name: ranges for name, ranges in found.items() if ranges}


def fits(header: FrameHeader, payload: bytes, schemas: list[pa.Schema]) -> bool:
    """Tell whether a PUT's payload is a record batch of its schema, with as many events as the header says."""
    if header.schema_id >= len(schemas):
        return False
    try:
        batch = decode_batch(pa.py_buffer(payload), schemas[header.schema_id])
        batch.validate()
    except (pa.ArrowException, OSError, *MALFORMED):
        return False
    return int(batch.num_rows) == header.count


def _begin(step: _Step) -> int:
    return step.what.offset if isinstance(step.what, LocatedFrame | Damage) else 0


def _truths(checkpoints: list[ValidCheckpoint], through: Position, before: _Step | None) -> Iterator[_Step]:
    """Yield the checkpoints up to a place; damage that reaches over one hides what comes after it too."""
    while checkpoints and checkpoints[0].position <= through:
        checkpoint = checkpoints.pop(0)
        if before is None:
            continue
        yield _Step(before.time_us, before.file, _Truth(checkpoint.image))
        if isinstance(before.what, Damage) and before.what.end > checkpoint.position.offset:
            yield before


def _about(finding: Finding, transaction_id: int, events: tuple[Range, ...] = ()) -> Finding:
    transactions = (transaction_id,) if transaction_id else ()
    return Finding(finding.severity, finding.path, finding.text, finding.offset, finding.size, events, transactions)
