"""Replays a log past damage: keeps what can be proven, and reports what is unknown.

Every data file and every checkpoint holds an image of the state, exact at its position. So damage hides changes only
until the next image. Up to there,

* a PUT whose COMMIT is damaged is committed if any later frame proves that its append was synced: a failed append
  is cut before the log continues;
* a COMMIT with a whole header commits, though its payload is unknown;
* a take without a COMMIT is not committed: its events are delivered again rather than never;
* a group that ever had an owner exists, unless a later frame says otherwise;
* a group that takes again what it had taken was moved back by a hidden seek;
* a take behind a break, as a hole in a store's log is, may mean events that are lost, and whose IDs others were given
  since: of those before the break it counts for none;
* a merge behind a break may have copied lost events: those that are there stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import pyarrow as pa

from spillable_stream.format.batch import decode_batch, decode_schema
from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.file_names import in_memory
from spillable_stream.format.frame import HEADER_SIZE_BYTES, FrameHeader, FrameType, frame_size, message_of
from spillable_stream.format.packing import MALFORMED, pack
from spillable_stream.format.record import GroupRecord, parse_record
from spillable_stream.format.take_record import TakeRecord
from spillable_stream.integrity.damage_findings import DamageFindings
from spillable_stream.integrity.doubt import Doubt
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.log_file import LogFile
from spillable_stream.integrity.log_steps import ExactImage, HiddenRecords, Steps, VoidSlot
from spillable_stream.integrity.orphans import commit_orphans
from spillable_stream.integrity.partial_transactions import PartialTransactions
from spillable_stream.log.append_check import parsed_commit
from spillable_stream.log.frames import Damage, LocatedFrame
from spillable_stream.log.wal import Position
from spillable_stream.names import is_name
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState, restored
from spillable_stream.state.group import GroupState
from spillable_stream.state.ranges import Range

__all__ = ["TolerantReplay", "fits"]

# Placeholder group that retains every event until we know which real groups still need it.
_PLACEHOLDER = ""
_MISSING_FILE_BYTES = 1 << 32
_MAY_BE_SEEK = (None, FrameType.GROUP, FrameType.COMMIT)


class TolerantReplay:
    """Rebuilds a state from the log of a channel, past damage.

    Args:
        steps: reads the logs, and counts what it reads.
        state: the state to start with.
        findings: collects the damage.
        exact: whether ``state`` is exact, not only the best guess.
        on_image: is told each image that should be the state just then, and the state; None: nobody asks.

    Attributes:
        state: the state so far.
        steps: reads the logs.
        misfits: how many PUT frames are whole, but can't be decoded.
        lost: events that void slots say were in use, and that are lost; others may have their IDs since.
        partial: the transactions with damaged frames, and with whole ones.
    """

    misfits: int

    def __init__(
        self,
        steps: Steps,
        state: ChannelState,
        findings: Findings,
        *,
        exact: bool = True,
        on_image: Callable[[LogFile, Mapping[str, object], ChannelState], None] | None = None,
    ) -> None:
        self.state: ChannelState = state
        self.steps: Steps = steps
        self.misfits = 0
        self._on_image = on_image
        self.lost: list[Range] = []
        self.partial: PartialTransactions = PartialTransactions()
        self._damage = DamageFindings(findings, self.partial)
        self._doubt = Doubt()
        self._skipped: dict[str, tuple[Range, ...]] = {}
        self._knows_first_id = exact or state.next_id > 1
        self._with_memory = self._is_in_memory = False
        self._schemas: list[pa.Schema] = []
        self._begun: list[tuple[int | str, int]] = [("", 0)]  # the last two files, and the next ID before each
        if not exact:
            self._raise_doubt(unknown_bytes=HEADER_SIZE_BYTES)

    @property
    def damaged(self) -> set[int | str]:
        """The numbers of the damaged files."""
        return self._damage.files

    @property
    def uncertain(self) -> bool:
        """Whether damage may hide take or control records that no later frame repeats."""
        return self._doubt.hides_records

    def run(self, disk: Position, memory: Position | None = None) -> ChannelState:
        """Replay each log from a position to its end, and return the state, with every transaction settled.

        Args:
            disk: where to start in the data files.
            memory: where to start in the memory tier's files; None to skip them.
        """
        self._with_memory = memory is not None
        for step in self.steps.since(disk, memory):
            self._is_in_memory = in_memory(step.file.file_id)
            if self._begun[-1][0] != step.file.file_id:
                self._begun = [self._begun[-1], (step.file.file_id, self._next_id())]
            if isinstance(step.what, LocatedFrame):
                self._apply(step.file, step.what, step.fault)
            elif isinstance(step.what, Damage):
                self._pass_over(step.file, step.what)
            elif isinstance(step.what, ExactImage):
                self._correct(step.file, step.what.image)
            elif isinstance(step.what, HiddenRecords):
                self._raise_doubt(unknown_bytes=step.what.size_bytes)
            elif isinstance(step.what, VoidSlot):
                self._add_void(step.file, step.what.first_id)
            else:
                if step.what.text:
                    self._damage.add_missing(step.file, step.what.text, self._next_id())
                self._raise_doubt(unknown_bytes=_MISSING_FILE_BYTES)
                if step.what.is_break:
                    self._doubt.add_break(self.state.groups, self._next_id() - 1)
        return self._settle()

    # ── whole frames ────────────────────────────────────────────────────────────────────────────

    def _apply(self, file: LogFile, found: LocatedFrame, fault: str | None) -> None:
        header, state = found.header, self.state
        if fault is not None:
            self._doubt_frame(file, found, fault)
            # A COMMIT that is misplaced, or lacks frames, may still end a pending transaction or be the next put.
            is_next = header.transaction_id in state.pending or header.write_order_id == state.next_id
            if header.type != FrameType.COMMIT or not is_next:
                return
        if header.type == FrameType.FILE_HEADER:
            return
        if header.type == FrameType.PUT and not fits(header, found.payload or b"", self._decoded_schemas()):
            self.misfits += 1
            self._add_damage(file, _as_damage(found), "the events of a frame can't be decoded")
        elif header.type == FrameType.PUT:
            self.partial.add_frame(header.transaction_id, is_whole=True)
        self._follow(header)
        try:
            if self._doubt.is_raised:
                self._reveal(file, found)
                if self._is_unknown_take(found):
                    return
            if self._doubt.untaken and header.type == FrameType.COMMIT:
                self._commit_behind_a_break(file, found)
                return
            state.apply(file.file_id, found.offset, header, found.payload)
        except MALFORMED as e:
            self._doubt_frame(file, found, f"a {header.type.name} is invalid: {e}")

    def _follow(self, header: FrameHeader) -> None:
        """Use a frame after damage to bound what the damage hides."""
        self._doubt.bound(header, in_memory=self._is_in_memory)
        self._damage.follow(header, self.state.pending.get(header.transaction_id))

    def _reveal(self, file: LogFile, found: LocatedFrame) -> None:
        """Add to a doubtful state what a frame says about hidden changes, before the frame is applied."""
        header, state = found.header, self.state
        if header.write_order_id and not self._knows_first_id:
            self._knows_first_id = True
            state.next_id = state.floor = state.first_kept = header.write_order_id
            self._hold_everything()
        if header.type == FrameType.TAKE:
            self._reveal_seek(TakeRecord.parse(found.payload or b""))
        elif header.type == FrameType.GROUP:
            self._reveal_group(cast("GroupRecord", parse_record(header.type, found.payload or b"")))
        elif header.type == FrameType.COMMIT and (record := parsed_commit(found.payload)) is not None:
            for name in record.seen.get("groups", ()) if record.seen else ():
                self._add_group(name)
            # The frames of a move have the transaction IDs that they had; those before them are of others.
            before = (file.file_id, record.start) if record.kind == "move" else None
            is_memory = in_memory(file.file_id)
            commit_orphans(self.state, self.partial, memory=is_memory, but=header.transaction_id, before=before)

    def _reveal_seek(self, take: TakeRecord) -> None:
        """Move a group back that takes what it had taken: a hidden seek had done so."""
        self._add_group(take.group)
        group, first = self.state.groups[take.group], take.ranges[0][0]
        if first in self._doubt.taken.get(take.group, ()) and (first <= group.position or first in group.ahead):
            group.seek(first - 1, "", "")

    def _reveal_group(self, record: GroupRecord) -> None:
        """Add a group that is moved, or is said to be idle: its creation is hidden. Note who had an owner."""
        self._doubt.record_owner(record)
        if "seek" in record or "idle" in record:
            self._add_group(record["group"])

    def _is_unknown_take(self, found: LocatedFrame) -> bool:
        """Tell whether a frame is the COMMIT of a take whose TAKE frame is hidden; it can't be applied."""
        if found.header.type != FrameType.COMMIT:
            return False
        record, pending = parsed_commit(found.payload), self.state.pending.get(found.header.transaction_id)
        return record is not None and record.kind == "take" and not (pending and pending.takes)

    def _commit_behind_a_break(self, file: LogFile, found: LocatedFrame) -> None:
        """Apply a COMMIT, but for what others have done since, or what it may say of their events."""
        header, state = found.header, self.state
        record = parse_record(header.type, found.payload)
        assert isinstance(record, CommitRecord)
        if self._doubt.is_repeated(record, state):
            state.pending.pop(header.transaction_id, None)
            first, last = max(header.write_order_id, self._next_id()), header.write_order_id + header.count - 1
            state.next_id = max(state.next_id, last + 1)
            events = ((first, last),) if first <= last else ()
            self._damage.add_repeated(file, found.offset, "a batch that is in the log before was put once more", events)
            return
        believed = self._doubt.believed(record, state, self.steps.is_there)
        if record.kind == "merge" and believed != record:
            text = "a merge may have copied lost events: the events that are there stay where they are"
            self._damage.add_repeated(file, found.offset, text, ())
        state.apply_record(file.file_id, found.offset, header, believed)
        if believed.merged:
            state.next_id = max([state.next_id, *(run.first_id + run.count for run in believed.merged.runs)])

    def _add_group(self, name: str) -> None:
        """Add a group whose creation is hidden, where it may have begun, or gone back to."""
        if name not in self.state.groups:
            group = self.state.groups[name] = GroupState(self.state.first_kept - 1)
            self._doubt.add_untaken(name, group)

    def _hold_everything(self) -> None:
        """Keep what is kept, too: a hidden seek may have moved a group back to it."""
        self.state.groups[_PLACEHOLDER] = GroupState(self.state.first_kept - 1)

    def _decoded_schemas(self) -> list[pa.Schema]:
        if len(self._schemas) != len(self.state.schemas):
            self._schemas = [decode_schema(s) for s in self.state.schemas]
        return self._schemas

    # ── damage ──────────────────────────────────────────────────────────────────────────────────

    def _pass_over(self, file: LogFile, damage: Damage) -> None:
        header = damage.header
        if header is None or header.type == FrameType.FILE_HEADER:
            self.partial.add_hole()
            text = "the file's header is damaged" if damage.offset == 0 else "no frame is whole here"
            self._add_damage(file, damage, text)
            self._raise_doubt(unknown_bytes=damage.size)
            return
        self._add_damage(file, damage, f"the payload of a {header.type.name} frame is damaged")
        if header.type == FrameType.PUT:
            self.partial.add_frame(header.transaction_id, is_whole=False)
            self._follow(header)
            self.state.apply(file.file_id, damage.offset, header, None)
        elif header.type == FrameType.COMMIT:
            self._raise_doubt()
            self._damage.before = header
            if self.state.memory.open and not self._with_memory:  # only its payload said what was taken in memory
                self._doubt.hides_takes, self._doubt.takes_through = True, 0
            self._commit_without_payload(file, damage.offset, header)
        else:
            self._raise_doubt(unknown_bytes=damage.size, type_=header.type)

    def _commit_without_payload(self, file: LogFile, offset: int, header: FrameHeader) -> None:
        """Apply a COMMIT whose payload is damaged. Its segments and its batch are unknown."""
        pending = self.state.pending.get(header.transaction_id)
        known = pending is not None and (pending.takes or pending.frames or pending.controls)
        kind = "put" if header.write_order_id else "take" if pending and pending.takes else "control"
        if not known and not header.write_order_id:
            self._raise_doubt(unknown_bytes=frame_size(header.length))
        commit_orphans(self.state, self.partial, memory=in_memory(file.file_id), but=header.transaction_id)
        self.state.apply(file.file_id, offset, header, pack({"kind": kind, "start": 0}))

    def _add_damage(self, file: LogFile, damage: Damage, text: str) -> None:
        self._damage.add(file, damage, text, self._next_id())

    def _add_void(self, file: LogFile, first_id: int) -> None:
        """Add a void slot, and events that are lost: its writer knew them, and what the log had before has not."""
        number, next_id = self._begun[-1]
        before, next_before = self._begun[0]
        if isinstance(number, int) and before == number - 1:
            next_id = next_before  # its writer knew another slot in that place, and another one's events
        events = ((next_id, first_id - 1),) if first_id > next_id else ()
        self.lost += events
        self._damage.add_void(file, events, first_id - 1)

    def _next_id(self) -> int:
        """Return the ID that the next PUT should have."""
        pending = [f for p in self.state.pending.values() for f in p.frames]
        return max([self.state.next_id, *(put.write_order_id + put.count for _, _, put in pending)])

    # ── doubt ───────────────────────────────────────────────────────────────────────────────────

    def _doubt_frame(self, file: LogFile, found: LocatedFrame, text: str) -> None:
        """Report a frame that is whole, but can't be what was written there."""
        self._add_damage(file, _as_damage(found), text)
        self._raise_doubt(unknown_bytes=found.end - found.offset, type_=found.header.type)

    def _raise_doubt(self, unknown_bytes: int = 0, type_: FrameType | None = None) -> None:
        """Record that the state may be wrong from here on.

        Args:
            unknown_bytes: how many bytes may have held frames.
            type_: the type of these; None: any.
        """
        if unknown_bytes:
            self._doubt.add_bytes(unknown_bytes)
            if type_ in _MAY_BE_SEEK:
                self._doubt.add_seeks(self.state.groups)
        self._doubt.until_us = 0
        self._doubt.in_memory.add(self._is_in_memory)
        if not self._doubt.is_raised:
            self._doubt.is_raised = True
            self._doubt.owned.update(filter(is_name, self.state.owners))
            self._hold_everything()

    def _correct(self, file: LogFile, image: Mapping[str, object]) -> None:
        """Replace a doubtful state with an image that is exact here, and keep what the image does not hold."""
        if not self._doubt.is_raised:
            if self._on_image is not None:
                self._on_image(file, image, self.state)
            return
        commit_orphans(self.state, self.partial, memory=False)
        old = self.state
        try:
            new = restored(image)
        except MALFORMED:
            return
        if any(True for events in new.lost for _ in old.blocks.disk.between(*events)):
            return  # a repair continued while these events were away, as on a disk that is back: they are not given up
        disk = new.blocks.disk if "blocks" in image else old.blocks.disk
        new.blocks = Blocks([*disk, *old.blocks.memory])
        for block in old.blocks.memory:
            if any(True for _ in new.blocks.disk.between(block.first_id, block.last_id)):
                new.blocks.memory.remove(block.first_id)
        new.blocks.drop_through(new.first_kept - 1)
        new.blocks.keep_through(new.floor - 1)
        new.next_transaction = max(new.next_transaction, old.next_transaction)
        if len(new.blocks.memory):
            new.next_id = max(new.next_id, old.next_id)
        self.state = new
        self._doubt = Doubt()
        self._knows_first_id = True
        self._damage.close(new.next_id)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> ChannelState:
        """Commit what is proven to be committed, remove the placeholder, and return the state."""
        doubt = self._doubt
        if not doubt.is_raised:
            return self.state
        commit_orphans(self.state, self.partial, memory=False)
        commit_orphans(self.state, self.partial, memory=True)
        if doubt.hides_records:
            for name in sorted(self._doubt.owned.union(self.steps.owned_groups)):
                self._add_group(name)
        if self.steps.last_id is not None:
            self._damage.close(self.steps.last_id + 1)
        self.state.groups.pop(_PLACEHOLDER, None)
        self.state = self.state.copy()
        doubt.give_back(self.state.groups)
        self.state.next_transaction += doubt.transactions
        self._skipped = doubt.skipped(self.state)
        if self.state.groups:
            self.state.raise_floor()
        return self.state

    def delivered_until_ms(self, now_ms: int) -> int:
        """Return until when delayed events may have been delivered without a remaining record; see `Doubt`."""
        return self._doubt.delivered_until_ms(now_ms)

    def repeated(self) -> dict[str, tuple[Range, ...]]:
        """Return, by group, the events that it may have taken without a remaining record, so they may be repeated."""
        return self._doubt.repeated(self.state)

    def skipped(self) -> dict[str, tuple[Range, ...]]:
        """Return, by group, the events that it has taken, and that a hidden seek may have moved it back to."""
        return self._skipped


def _as_damage(found: LocatedFrame) -> Damage:
    return Damage(found.offset, found.end, found.header)


def fits(header: FrameHeader, payload: bytes, schemas: list[pa.Schema]) -> bool:
    """Tell whether a PUT's payload is a record batch of its schema with the number of events that its header says."""
    if header.schema_id >= len(schemas):
        return False
    try:
        batch = decode_batch(message_of(header, pa.py_buffer(payload)), schemas[header.schema_id])
        batch.validate()
    except (pa.ArrowException, OSError, *MALFORMED):
        return False
    return int(batch.num_rows) == header.count
