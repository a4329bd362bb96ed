"""Inspects a channel in an object store without writing: finds what is damaged, and the state that is left.

What `spillable_stream.integrity.inspection` does with files, this does with objects: the same replay past damage, the
same check of events, the same findings. What differs is where the replay begins, and that others may append, merge and
delete meanwhile, on any host.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from spillable_stream.errors import CorruptionError
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import file_seed
from spillable_stream.format.packing import pack, unpack
from spillable_stream.integrity.delayed_check import ReadableDelays, readable_delays
from spillable_stream.integrity.event_check import EventCheck, has_misfit
from spillable_stream.integrity.findings import Findings, Loss, Severity
from spillable_stream.integrity.log_file import LogFile
from spillable_stream.integrity.losses import UNKNOWN_IDS, kept_and_gone, unexplained
from spillable_stream.integrity.object_base import Base, find_base
from spillable_stream.integrity.object_files import DelaysOfStore, FilesOfStore
from spillable_stream.integrity.object_inventory import ObjectInventory, take_object_inventory
from spillable_stream.integrity.object_steps import ObjectSteps
from spillable_stream.integrity.partial_transactions import left_in_part
from spillable_stream.integrity.tolerant_replay import TolerantReplay
from spillable_stream.log.wal import Position
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.checkpoints import checkpoint_key
from spillable_stream.objects.identity import IDENTITY
from spillable_stream.objects.read_ahead import require_there
from spillable_stream.objects.slots import LOG, Slots
from spillable_stream.objects.store import Store
from spillable_stream.objects.stored_object import StoredObject
from spillable_stream.progress import UNTOLD, Meter
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.ranges import RangeSet

__all__ = ["ObjectInspection", "inspect_objects"]


@dataclass(frozen=True, slots=True)
class ObjectInspection:
    """The result of an inspection, which a repair starts from.

    Args:
        inventory: which objects there are.
        findings: the damage, warnings and notes.
        state: the state that is left, with only the events that can be read, and without a record of the loss.
        loss: what can't be recovered.
        last_id: the last write-order ID that was, or may have been, in use.
        last_number: the newest slot that is there, or was.
        tail: that slot; None if it is missing or its header is damaged.
        counts: the token of the newest slot that counts; None if nothing says it.
        holes: the first slot of each run of missing ones.
        unrepairable: why a repair is impossible; "" if it is possible.
        objects: how many objects were read.
        frames: how many whole frames were read.
        read_bytes: how many bytes these have.
    """

    inventory: ObjectInventory
    findings: Findings
    state: ChannelState
    loss: Loss
    last_id: int
    last_number: int
    tail: Tail | None
    counts: bytes | None
    holes: list[int]
    unrepairable: str
    objects: int
    frames: int
    read_bytes: int

    @property
    def log_damaged(self) -> bool:
        """Whether a repair must begin the log anew."""
        found = [f for f in self.findings.all() if f.severity is Severity.DAMAGE]
        return any(f.path != Path(IDENTITY) for f in found)


def inspect_objects(store: Store, meter: Meter = UNTOLD) -> ObjectInspection:
    """Read a channel and find what is wrong with it; write nothing.

    Args:
        store: where it is.
        meter: counts the bytes that are read.

    Raises:
        BehindError: slots were deleted meanwhile that were read; try again.
        CorruptionError: the channel's identity is lost.
        NotAChannelError: there is no channel.
        StoreError: the store refused or failed.
        UnsupportedFormatError: a newer version wrote it.
    """
    begun = 0
    while True:
        findings = Findings()
        inventory = take_object_inventory(store, findings)
        inspector = _Inspector(store, _without_stale(inventory, begun, findings), findings, meter)
        try:
            return inspector.run()
        except _BegunAnewError as e:
            begun = e.number


class _BegunAnewError(Exception):
    """A repair began the log anew after the place where the replay began: what is before it does not count.

    Args:
        number: the checkpoint to begin with.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _without_stale(inventory: ObjectInventory, begun: int, findings: Findings) -> ObjectInventory:
    """Return an inventory without the checkpoints before the one with which a repair began the log anew."""
    for checkpoint in inventory.checkpoints:
        if checkpoint.tail.number < begun:
            path = Path(checkpoint_key(checkpoint.tail.number))
            findings.note(path, "a handle that was open during a repair created the checkpoint; no open begins with it")
    return replace(inventory, checkpoints=[c for c in inventory.checkpoints if c.tail.number >= begun])


class _Inspector:
    """The steps of an inspection."""

    def __init__(self, store: Store, inventory: ObjectInventory, findings: Findings, meter: Meter) -> None:
        self._store = store
        self._meter = meter
        self._inventory = inventory
        self._findings = findings
        self._slots = Slots(store, inventory.channel)

    def run(self) -> ObjectInspection:
        """Run all steps.

        Raises what `inspect_objects` raises.
        """
        inventory = self._inventory
        self._meter.begin(None)  # the sizes of the slots are not known before they are read
        base = find_base(self._slots, inventory, self._findings)
        unrepairable = base.unrepairable or self._misfit(base)
        steps, replay = self._replay(base, self._findings)
        if steps.begun is not None:
            raise _BegunAnewError(steps.begun)
        if base.tail is not None and base.is_proven:
            require_there(self._slots, base.tail)
        state = replay.state
        missing = self._missing(base, state)
        files = FilesOfStore(self._store, inventory.channel, inventory.sizes)
        check = EventCheck(files, self._findings, steps.walked - replay.damaged, self._meter)
        state.blocks = check.readable(state)
        port = DelaysOfStore(self._store, inventory.channel, inventory.sizes)
        until_ms = replay.delivered_until_ms(time.time_ns() // 1_000_000)
        delays = readable_delays(port, state, self._findings, until_ms)
        state.delays = delays.delays
        loss, last_id = self._loss(state, steps, replay, check, delays)
        self._note_segments(state)
        tail = None
        if steps.token is not None and (base.is_proven or steps.last_number > base.number):
            tail = Tail(steps.last_number, steps.token, steps.counts or steps.token, steps.last_end)
        return ObjectInspection(
            inventory,
            self._findings,
            state,
            loss,
            last_id,
            steps.last_number,
            tail,
            steps.counts,
            [*missing, *steps.holes],
            unrepairable,
            len(steps.walked) + check.files + len(inventory.checkpoints),
            steps.frames + check.frames,
            steps.read_bytes + check.read_bytes,
        )

    def _missing(self, base: Base, state: ChannelState) -> list[int]:
        """Return the slots that are missing before the replay's beginning, and note each."""
        missing = {
            number: found
            for number, found in base.missing.items()
            if number > state.trimmed.through and not self._began_anew(number, base.number)
        }
        for found in missing.values():
            self._findings.add(found)
        return list(missing)

    def _began_anew(self, after: int, through: int) -> bool:
        """Tell whether a repair began the log anew between two slots: what is wrong before that does not count."""
        for number in range(after + 1, through + 1):
            with suppress(CorruptionError):
                slot = self._slots.read(number)
                if slot is not None and slot.begins_anew:
                    return True
        return False

    def _replay(self, base: Base, findings: Findings) -> tuple[ObjectSteps, TolerantReplay]:
        groups = self._inventory.queries
        steps = ObjectSteps(self._store, self._inventory, findings, base.tail, base.number, groups, self._meter)
        exact = base.tail is not None
        replay = TolerantReplay(steps, base.state.copy(), findings, exact=exact, on_image=self._compare)
        replay.run(Position(base.number, 0))
        return steps, replay

    def _compare(self, file: LogFile, image: Mapping[str, object], state: ChannelState) -> None:
        """Prove that a checkpoint says what the log before it says."""
        if _plain(image) != _plain(state.image()):
            path = Path(checkpoint_key(file.file_id))
            self._findings.damage(path, "the checkpoint says another state than the log before it", 0)

    def _misfit(self, base: Base) -> str:
        """Return why the state that a replay begins with can't be guessed; "" if it can, or need not be."""
        if base.tail is not None:
            return ""
        _, trial = self._replay(base, Findings())
        if trial.misfits or self._segments_misfit(base.state.schemas):
            return "slot 0 is damaged, and nothing else says the channel's schema"
        text = "nothing but slot 0 says the options and the schema: all frames fit an event channel's"
        self._findings.note(Path(LOG), f"{text}; the options are the defaults", 1)
        return ""

    def _segments_misfit(self, schemas: list[bytes]) -> bool:
        """Tell whether events in segments, in the order or waiting, are of none of these schemas."""
        inventory, decoded = self._inventory, [decode_schema(s) for s in schemas]
        for key in inventory.segments:
            source = StoredObject(self._store, key, inventory.sizes.get(key))
            if has_misfit(source, file_seed(inventory.channel, seed_name(key)), decoded):
                return True
        return False

    def _loss(
        self, state: ChannelState, steps: ObjectSteps, replay: TolerantReplay, check: EventCheck, delays: ReadableDelays
    ) -> tuple[Loss, int]:
        """Return what can't be recovered, and the last ID that may have been in use."""
        lost = state.missing()
        unused = [(max(first, state.last_id + 1), last) for first, last in replay.lost if last > state.last_id]
        kept = kept_and_gone(state, lost, self._findings)
        for ranges, text in (
            (lost, "events that should be there are in no object"),
            (kept, "events that are kept are in no object; no group needs them"),
        ):
            if left := unexplained(ranges, self._findings):
                self._findings.damage(Path(LOG), text, events=left)
        lost = list(RangeSet([*lost, *unused]))
        last_id = max([state.last_id, *(last for _, last in unused)])
        through = last_id + UNKNOWN_IDS if steps.hides_ids else last_id
        doubtful = ((last_id + 1, through),) if through > last_id else ()
        partial = left_in_part([replay.partial, check.partial], self._findings, [*lost, *kept])
        again, skipped = replay.repeated(), replay.skipped()
        loss = Loss(tuple(lost), doubtful, again, tuple(kept), skipped, partial, delays.due, delays.lost)
        return loss, through

    def _note_segments(self, state: ChannelState) -> None:
        """Note the segments without events of the channel, in the order or waiting."""
        self._findings.note_segments(set(self._inventory.segments) - state.segments(), Path)


def _plain(image: Mapping[str, object]) -> object:
    """Return an image as it is read back: without the difference between a tuple and a list."""
    return unpack(pack(dict(image)))
