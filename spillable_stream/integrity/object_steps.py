"""What the slots of a damaged channel say, in order: frames, damage, exact images, and where slots are missing.

Whether a slot counts is in the slot after it, too: its ``previous`` is the token of the last one before it that counts.
So damage to a header hides only whether the last slots counted, and then they did: no commit is forgotten that may have
been acknowledged. Only one whose own writer said that it is void did not count then; and if it did, since the writer
could not take that back, its events are lost, so IDs after the last one that is known are doubtful, and no others get
them. What a slot's own writer said of it counts less than what others have planned on it: they may have seen the lost
slot in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import chain, filterfalse, takewhile
from pathlib import Path

from spillable_stream.errors import CorruptionError
from spillable_stream.format.frame import FrameType, frame_size, parse_header
from spillable_stream.format.slot import HEADER_READ_BYTES, Slot, SlotHeader, parse_slot_header, slot_seed
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.log_file import LogFile
from spillable_stream.integrity.log_steps import ExactImage, MissingFiles, Step, VoidSlot, frame_steps
from spillable_stream.integrity.object_files import is_there
from spillable_stream.integrity.object_inventory import ObjectInventory, numbers_after
from spillable_stream.log.append_check import parsed_commit
from spillable_stream.log.frames import Damage, LocatedFrame, walk
from spillable_stream.log.wal import Position
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.checkpoints import Checkpoint, checkpoint_key
from spillable_stream.objects.parallel import in_parallel, most_at_once
from spillable_stream.objects.salvage import ObjectBytes
from spillable_stream.objects.slots import object_key, slot_key
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.progress import UNTOLD, Meter

__all__ = ["ObjectSteps"]

_FAR_SLOTS = 10_000  # what is that far beyond the log's end is not a slot, but a stray
_SHOWN_MISSING = 100
_HEADER = "the file's header is damaged"
_OTHER_BEFORE = "the slot was appended after one that is not there now: objects were removed or overwritten"
_NOT_COUNTED = "the slot is damaged; it did not count"
_IDS = {FrameType.PUT, FrameType.COMMIT}


class ObjectSteps:
    """Reads the slots after a place, past damage. It implements `Steps`.

    Args:
        store: where they are.
        inventory: what else is there.
        findings: collects what no step says.
        base: the slot to begin after; None if that is not known: begin after ``first``.
        first: the number of that slot.
        owned_groups: groups that ever had an owner.
        meter: counts the bytes that are read.

    Attributes:
        frames: how many frames were whole.
        read_bytes: how many bytes these have.
        walked: the numbers of the slots that were read.
        last_number: the newest slot that is there, or was.
        token: the token of that slot; None if it is missing or its header is damaged.
        counts: the token of the newest slot that counts; None if nothing says it.
        last_end: where the newest slot ends, in bytes.
        holes: the first slot of each run of missing ones.
        hides_ids: whether damage may hide write-order IDs after the last one that is known.
        begun: the checkpoint with which a repair began the log anew; None if none did.
    """

    def __init__(
        self,
        store: Store,
        inventory: ObjectInventory,
        findings: Findings,
        base: Tail | None,
        first: int,
        owned_groups: list[str],
        meter: Meter = UNTOLD,
    ) -> None:
        self.frames: int = 0
        self.read_bytes: int = 0
        self.walked: set[int | str] = set()
        self.last_number: int = first
        self.token: bytes | None = base.token if base else None
        self.counts: bytes | None = base.counts if base else None
        self.last_end: int = base.end if base else 0
        self.holes: list[int] = []
        self.hides_ids: bool = False
        self.begun: int | None = None
        self._store = store
        self._channel = inventory.channel
        self._listed = inventory.slots
        self._void = inventory.void
        self._sizes = inventory.sizes
        self._checkpoints: dict[int, Checkpoint] = {c.tail.number: c for c in inventory.checkpoints}
        self._findings = findings
        self._owned_groups = owned_groups
        self._meter = meter
        self._was_missing = False
        self._unsaid: LogFile | None = None  # the slot of a repair, after which no checkpoint has come yet
        self._counted_before = -1  # slots before this one, whose headers are damaged, counted

    @property
    def owned_groups(self) -> list[str]:
        """The groups that ever had an owner; some may have been dropped."""
        return self._owned_groups

    @property
    def last_id(self) -> int | None:
        """None: only the log says it."""
        return None

    def is_there(self, file: int | str) -> bool:
        """Tell whether a slot, by number, or a segment, by key, is there; raises `StoreError`."""
        is_listed = file in self._listed if isinstance(file, int) else file in self._sizes
        return is_listed or is_there(self._store, object_key(file))

    def since(self, disk: Position, memory: Position | None = None) -> Iterator[Step]:
        """Yield the steps after a slot, in order.

        Args:
            disk: the slot, as a file.
            memory: unused: there is no memory tier.

        Raises:
            StoreError: the store refused or failed.
            UnsupportedFormatError: a newer version wrote a slot.
        """
        time_us = 0
        for number, data in self._objects(disk.file_id + 1):
            file, last = self._log_file(number), None
            for step in self._missing(number) if data is None else self._slot(number, data, time_us):
                time_us, file, last = max(step.time_us, time_us), step.file, step
                self._count(step)
                yield step
            self.last_number, self._was_missing = number, data is None
            yield from self._image(number, file, time_us, last)
        if self._unsaid is not None:
            text = "a repair began the log anew with this slot, and was not finished: it has no checkpoint"
            self._findings.damage(self._unsaid.path, text)
        for stray in numbers_after(self._listed, self.last_number):
            if self._is_void(stray):
                whole = self._whole(stray, self._get(stray) or b"")
                yield Step(time_us, self._log_file(stray), VoidSlot(whole.first_id if whole else 0))
            else:
                text = "the object is far beyond the end of the log, and not a slot"
                self._findings.note(Path(slot_key(stray)), text)

    # ── objects ─────────────────────────────────────────────────────────────────────────────────

    def _objects(self, first: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield every slot up to the last one that is there, and None for those that are missing."""
        number, width, known = first, 1, -1
        while True:
            largest_bytes = 0
            wanted = [partial(self._get, n) for n in range(number, number + width)]
            for data in in_parallel(self._store.root, wanted):
                if data is None and number > known:
                    known = self._last_known(number)
                    if number > known:
                        return
                yield number, data
                number += 1
                largest_bytes = max(largest_bytes, len(data or b""))
            width = min(4 * width, most_at_once(largest_bytes))

    def _get(self, number: int) -> bytes | None:
        """Return the bytes of a slot; a second time if they are damaged, on the way perhaps."""
        try:
            data = bytes(self._store.get(slot_key(number)))
            return data if self._whole(number, data) else bytes(self._store.get(slot_key(number)))
        except ObjectMissingError:
            return None

    def _last_known(self, number: int) -> int:
        """Return the newest slot that is known to be, or have been, there after one that is missing."""
        known = [n for n in self._checkpoints if n >= number]
        later = filterfalse(self._is_void, numbers_after(self._listed, number))
        known += takewhile(lambda n: n - number <= _FAR_SLOTS, later)
        far = deque(filterfalse(self._is_void, numbers_after(self._listed, number + _FAR_SLOTS)), _SHOWN_MISSING)
        known += [n for n in far if self._header(n) is not None]
        return max(known, default=-1)

    def _is_void(self, number: int) -> bool:
        """Tell whether a slot is void that was not planned on the one before it."""
        slot = self._whole(number, self._get(number) or b"") if self._is_named(number) else None
        return slot is not None and self._is_said_void(slot.header)

    def _is_named(self, number: int) -> bool:
        """Tell whether a writer said of a slot of this number that it is void."""
        return any(number == said for said, _ in self._void)

    def _is_said_void(self, header: SlotHeader) -> bool:
        """Tell whether the writer of a slot said that it is void, and nobody has planned on it."""
        if (header.number, header.token) not in self._void:
            return False
        following = self._following(header.number)
        return following is None or following.previous != header.token

    def _whole(self, number: int, data: bytes) -> Slot | None:
        try:
            return Slot.parse(self._channel, number, data)
        except CorruptionError:
            return None

    def _parsed(self, number: int, data: bytes) -> tuple[SlotHeader, int] | None:
        try:
            return parse_slot_header(self._channel, number, data)
        except CorruptionError:
            return None

    def _header(self, number: int) -> SlotHeader | None:
        """Return the header of a slot, by itself."""
        try:
            data = bytes(self._store.get_range(slot_key(number), 0, HEADER_READ_BYTES))
        except ObjectMissingError:
            return None
        found = self._parsed(number, data)
        return found[0] if found else None

    def _log_file(self, number: int, begin: int = 0, end: int = 0) -> LogFile:
        seed = slot_seed(self._channel, number)
        return LogFile(number, Path(slot_key(number)), seed, None, begin, end)

    # ── slots ───────────────────────────────────────────────────────────────────────────────────

    def _missing(self, number: int) -> Iterator[Step]:
        file = self._log_file(number)
        text = f"slot {number} is missing"
        self.token, self.last_end = None, 0
        if not self._was_missing:
            self.holes.append(number)
        if self._may_count(number) and not self._was_missing:
            yield Step(0, file, MissingFiles(text, is_break=True))
        elif number - self.holes[-1] < _SHOWN_MISSING:
            self._findings.damage(file.path, text)

    def _slot(self, number: int, data: bytes, time_us: int) -> Iterator[Step]:
        found, whole = self._parsed(number, data), self._whole(number, data)
        begin, end = self._extent(number, data)
        file, self.last_end = self._log_file(number, begin, end), len(data)
        if found is None:
            self.token, counts = None, self._may_count(number)
        else:
            self.token, is_next = found[0].token, self.counts == found[0].previous
            if not is_next and self._is_said_void(found[0]):
                if whole is None:
                    self._findings.damage(file.path, _NOT_COUNTED, 0)
                else:
                    yield Step(time_us, file, VoidSlot(whole.first_id))
                return
            counts = is_next or self.counts is None
            self.counts = self.token
        if not counts and found is None:
            self._findings.damage(file.path, _NOT_COUNTED, 0)
            return
        self.walked.add(number)
        if not data:
            yield Step(time_us, file, MissingFiles(f"slot {number} is empty"))
            return
        if found is None and begin:
            self._findings.damage(file.path, _HEADER, 0, begin)
        if not counts:
            yield Step(time_us, file, MissingFiles(_OTHER_BEFORE, is_break=True))
        if whole is not None and whole.begins_anew:  # the slot's checkpoint says the state, or a later one
            self._unsaid = file
            yield Step(time_us, file, MissingFiles())
        is_told = found is None and begin > 0
        for step in frame_steps(ObjectBytes(data), file, begin, time_us):
            is_told = is_told or isinstance(step.what, Damage) or step.fault is not None
            yield step
        if whole is None and not is_told:
            self._findings.damage(file.path, "the slot is not whole, though each of its frames is", begin)

    def _extent(self, number: int, data: bytes) -> tuple[int, int]:
        """Return where the append in a slot begins, and where it ends; 0 for the beginning if nothing says it."""
        seed, size = slot_seed(self._channel, number), len(data)
        header = parse_header(data, 0, seed)
        if header is not None and header.type == FrameType.FILE_HEADER:
            return frame_size(header.length), max(size, header.write_order_id)
        frames = [item for item in walk(ObjectBytes(data), seed, 0, size) if isinstance(item, LocatedFrame)]
        commits = [parsed_commit(f.payload) for f in frames if f.header.type == FrameType.COMMIT]
        begins = {commit.start for commit in commits if commit is not None}
        return (frames[0].offset if frames and frames[0].offset in begins else 0), size

    def _may_count(self, number: int) -> bool:
        """Tell whether a slot may have counted whose header is lost, and learn from what follows which one did last."""
        if number < self._counted_before:
            return True
        checkpoint = self._checkpoints.get(number)
        if checkpoint is not None:
            is_new, self.counts = checkpoint.tail.counts != self.counts, checkpoint.tail.counts
            return is_new
        following = self._following(number)
        if following is None and self._is_named(number):
            self.hides_ids = True  # its writer may have proven it since, and failed to take that back
            return False
        if following is None:
            self.counts = None
            return True
        if following.previous == self.counts:
            return False
        self.counts, self._counted_before = following.previous, following.number
        return True

    def _following(self, number: int) -> SlotHeader | None:
        """Return the next header after a slot that can be read, and is of no void one."""
        said: list[SlotHeader] = []
        following: SlotHeader | None = None
        later = chain([number + 1], numbers_after(self._listed, number + 1))
        for header in filter(None, map(self._header, later)):
            if (header.number, header.token) not in self._void:
                following = header
                break
            said.append(header)
        for header in reversed(said):
            if following is not None and following.previous == header.token:
                following = header
        return following

    # ── what a step says ────────────────────────────────────────────────────────────────────────

    def _count(self, step: Step) -> None:
        """Count a step, and remember whether IDs may be hidden after it."""
        what = step.what
        if isinstance(what, LocatedFrame):
            self.frames += 1
            size_bytes = what.end - what.offset
            self.read_bytes += size_bytes
            self._meter.add(size_bytes)
        if isinstance(what, LocatedFrame | Damage) and what.header is not None:
            is_next = isinstance(what, LocatedFrame) and what.header.type == FrameType.LOST  # it says the next ID
            if is_next or (what.header.type in _IDS and what.header.write_order_id):
                self.hides_ids = False
            elif isinstance(what, Damage) and what.header.type == FrameType.FILE_HEADER:
                self.hides_ids = True
        elif not isinstance(what, VoidSlot):
            self.hides_ids = True

    def _image(self, number: int, file: LogFile, time_us: int, last: Step | None) -> Iterator[Step]:
        """Yield the checkpoint of a slot."""
        checkpoint = self._checkpoints.get(number)
        if checkpoint is None:
            return
        if self.token is not None and checkpoint.tail.token != self.token:
            text = "the checkpoint belongs to a slot that is not the one there now"
            self._findings.damage(Path(checkpoint_key(number)), text, 0)
            return
        if self._unsaid is not None:
            self.begun, self._unsaid = number, None
        self.hides_ids = False
        self.counts = checkpoint.tail.counts
        yield Step(last.time_us if last else time_us, file, ExactImage(checkpoint.state.image()))
