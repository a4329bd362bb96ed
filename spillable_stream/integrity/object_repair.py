"""`repair` of a channel in an object store: continues the log behind the damage, and loses nothing in silence.

No slot or segment is changed or deleted. What the inspection found to be left becomes the checkpoint of a new slot,
from which every later open begins, and nothing is replayed across the damage any more. In this order::

    1. copies of all that is damaged, changed or removed go to ``quarantine/<UTC time>/``
    2. each hole gets an object that is not a slot: a handle that slept before it finds damage, and not the log's end
    3. a fence, if the newest slot is missing or its header is damaged: the next append proves itself by its token
    4. a slot with a LOST record, and a TRIM up to the first event that can be read. Nothing is replayed across it:
       whoever comes to it, a handle that was open too, loads the newest checkpoint
    5. the checkpoint of that slot: from here on the channel is repaired, but for
    6. the hint, and the older checkpoints, which speak of the damaged log, and are removed
    7. the identity, if it was damaged

Killed in between, the channel is as it was, or refused, and the next repair does it all again.
"""

from __future__ import annotations

import os

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.requests import Control
from spillable_stream.errors import ChannelBusyError, CorruptionError
from spillable_stream.format.file_names import Tier
from spillable_stream.format.frame import FrameType
from spillable_stream.format.record import LostRecord, TrimRecord
from spillable_stream.format.slot import NO_TOKEN, Slot, SlotHeader
from spillable_stream.integrity.findings import Report
from spillable_stream.integrity.object_inspection import ObjectInspection
from spillable_stream.integrity.object_repair_copies import ObjectRepairCopies
from spillable_stream.integrity.object_verify import examine_objects, report_of_objects, store_at
from spillable_stream.objects.appending import Appending, Tail, new_token
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.checkpoints import HINT, Checkpoints, Hint, checkpoint_key
from spillable_stream.objects.identity import IDENTITY, rewrite_identity
from spillable_stream.objects.loading import apply_slot
from spillable_stream.objects.location import Location
from spillable_stream.objects.slots import Slots
from spillable_stream.objects.store import Store
from spillable_stream.objects.void_slots import pass_void
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Trimmed
from spillable_stream.state.ranges import RangeSet

__all__ = ["repair_objects"]

_TIMEOUT_SECONDS = 30.0
_NO_SLOT = (
    b"This slot was missing when the channel was repaired. What it held is in quarantine/, as far as it was there.\n"
)


def repair_objects(location: Location, progress: OnProgress | None) -> Report:
    """Make a damaged channel whole again; `spillable_stream.integrity.repair.repair` explains it.

    Args:
        location: where the channel is.
        progress: is told how far it is, in bytes that are read.
    """
    store, meter = store_at(location), Meter("repair", "bytes", progress)
    inspection = examine_objects(store, meter)
    meter.end()
    report = report_of_objects(location, inspection)
    if report.healthy:
        if inspection.inventory.hint_damaged:
            _Repair(store, inspection).write_hint()
        return report
    if inspection.unrepairable:
        raise CorruptionError(f"{location} can't be repaired: {inspection.unrepairable}", str(location))
    copies = ObjectRepairCopies(store)
    report = report_of_objects(location, inspection, copies.address)
    copies.keep(report, _changed(inspection))
    _Repair(store, inspection).run()
    return report


def _changed(inspection: ObjectInspection) -> list[str]:
    """Return the keys of the objects that a repair changes or removes, and of those that a collector will."""
    inventory = inspection.inventory
    changed = [checkpoint_key(number) for number in inventory.bad_checkpoints]
    if inventory.hint is not None or inventory.hint_damaged:
        changed.append(HINT)
    if inventory.identity_damaged:
        changed.append(IDENTITY)
    if inspection.log_damaged:
        changed += [checkpoint_key(checkpoint.tail.number) for checkpoint in inventory.checkpoints]
        changed += sorted(set(inventory.segments) - inspection.state.segments())
    return changed


class _Repair:
    """The steps of a repair after the copies are made."""

    def __init__(self, store: Store, inspection: ObjectInspection) -> None:
        self._store = store
        self._inspection = inspection
        self._channel = inspection.inventory.channel
        self._slots = Slots(store, self._channel)
        self._checkpoints = Checkpoints(store, self._channel)
        self._writer = f"a repair on {os.uname().nodename} pid {os.getpid()}"

    def run(self) -> None:
        """Do what the inspection found to be necessary."""
        inventory = self._inspection.inventory
        for number in inventory.bad_checkpoints:
            self._checkpoints.delete(number)
        if self._inspection.log_damaged:
            self._begin_anew()
        else:
            self.write_hint()
        if inventory.identity_damaged:
            rewrite_identity(self._store, self._channel, extended=self._inspection.state.is_extended)

    def write_hint(self) -> None:
        """Write the hint anew, to the newest checkpoint that is whole."""
        newest = max([c.tail.number for c in self._inspection.inventory.checkpoints], default=0)
        self._checkpoints.write_hint(Hint(self._inspection.last_number, newest))

    # ── the new slot ────────────────────────────────────────────────────────────────────────────

    def _begin_anew(self) -> None:
        for number in self._inspection.holes:
            if number > 0:
                self._fill(number)
        tail, state = self._append(self._inspection.tail or self._fence())
        self._checkpoints.write(tail, state)
        self._checkpoints.write_hint(Hint(tail.number, tail.number))
        for checkpoint in self._inspection.inventory.checkpoints:
            self._checkpoints.delete(checkpoint.tail.number)

    def _fill(self, number: int) -> None:
        """Put an object that is not a slot in the place of one that is missing, unless something damaged is there.

        Raises:
            ChannelBusyError: a slot appeared there, or no request is done, since each meets another one.
            StoreError: the store refused or failed.
        """
        for _ in Backoff(_TIMEOUT_SECONDS).attempts():
            if self._slots.create(number, _NO_SLOT):
                return
            try:
                is_slot = self._slots.read(number) is not None
            except CorruptionError:
                return
            if is_slot:
                raise self._busy(f"slot {number} appeared")
        raise self._busy(f"each request for slot {number} meets another one")

    def _fence(self) -> Tail:
        """Append a slot without events behind one that can't prove anything, and return the log's end.

        Raises what `_fill` raises.
        """
        inspection = self._inspection
        number, token = inspection.last_number + 1, new_token()
        header = SlotHeader(self._channel, number, inspection.counts or NO_TOKEN, token, self._writer)
        data = b"".join(header.encode())
        for _ in Backoff(_TIMEOUT_SECONDS).attempts():
            if not self._slots.create(number, data):
                if (there := self._slots.read(number)) is None:
                    continue
                if there.header.token != token:
                    raise self._busy(f"slot {number} appeared")
            return Tail(number, token, token, len(data))
        raise self._busy(f"each request for slot {number} meets another one")

    def _append(self, tail: Tail) -> tuple[Tail, ChannelState]:
        """Append what is lost, and from where on slots are needed; return the log's end and the state there."""
        state = self._inspection.state.copy()
        appending = Appending(self._slots, self._writer, Backoff(_TIMEOUT_SECONDS))
        state.trimmed = trimmed = self._trimmed(state, tail.number + 1)
        plan = AppendPlan(state, Tier.DISK, start=appending.begin_bytes(tail))
        Control(FrameType.LOST, self._lost()).plan(plan)
        trim = TrimRecord(through=trimmed.through, births=trimmed.births, deleted=trimmed.deleted)
        Control(FrameType.TRIM, trim).plan(plan)
        attempt = appending.attempt(tail, plan.entries)
        if (there := appending.append(attempt)) is not None:
            if tail.accepts(there) or pass_void(self._slots, there) is None:
                raise self._busy(f"slot {attempt.number} appeared")
            return self._append(tail.after(there))
        apply_slot(self._slots, state, Slot.parse(self._channel, attempt.number, attempt.data))
        return attempt.won, state

    def _lost(self) -> LostRecord:
        loss = self._inspection.loss
        return {
            "lost": list(RangeSet([*loss.lost, *loss.kept])),
            "doubtful": list(loss.doubtful),
            "next": self._inspection.last_id + 1,
            "groups": {},
            "kept": True,
            "anew": True,
        }

    def _trimmed(self, state: ChannelState, number: int) -> Trimmed:
        """Return what says that nobody needs the slots before the first event that can be read.

        An earlier trim may go further: events whose take is forgotten are needed again.
        """
        first = min((file for file in state.blocks.disk.files if isinstance(file, int)), default=number)
        return state.trimmed._replace(through=min(first, number) - 1)

    def _busy(self, why: str) -> ChannelBusyError:
        return ChannelBusyError(f"{self._store.root} is being written: {why}; close it everywhere, then repair it")
