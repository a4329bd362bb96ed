"""Takes inventory of a channel in an object store: its identity, its objects, and its checkpoints.

A listing says what there may be. Nothing is missing because it shows it not: whoever needs an object asks for it. Slots
that nobody may delete are many millions, and come in a row: so no key of a slot is kept, but ranges of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from spillable_stream.errors import CorruptionError, NotAChannelError
from spillable_stream.format.slot import HEADER_READ_BYTES, claimed_channel, parse_slot_header
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.object_files import is_there
from spillable_stream.objects.checkpoints import CHECKPOINTS, HINT, Checkpoint, Checkpoints, Hint, checkpoint_key
from spillable_stream.objects.identity import IDENTITY, QUERIES, WORKERS, read_identity
from spillable_stream.objects.salvage import QUARANTINE
from spillable_stream.objects.slots import LOG, number_in, slot_key
from spillable_stream.objects.staged_object import birth_of
from spillable_stream.objects.store import ObjectInfo, ObjectMissingError, Store
from spillable_stream.objects.stored_object import WINDOW_BYTES
from spillable_stream.objects.void_slots import void_slots
from spillable_stream.objects.wrong_place import no_channel_but
from spillable_stream.state.ranges import Range, RangeSet

__all__ = ["ObjectInventory", "numbers_after", "take_object_inventory"]

_SHOWN_STRAYS = 10


@dataclass(slots=True)
class ObjectInventory:
    """The objects of a channel, as known before any slot is replayed.

    Args:
        channel: the channel's UUID.
        identity_damaged: whether the identity must be written anew.
        sizes: the sizes in bytes, by key, of the segments that were listed, and of what else is read in several parts.
        slots: the numbers of the slots that were listed.
        void: the numbers and tokens of the slots that their writers said to be void.
        checkpoints: the whole checkpoints, ascending.
        bad_checkpoints: the slots whose checkpoints are damaged, ascending.
        segments: the keys of the segments that were listed.
        queries: the groups as which a Spark query ever read.
        hint: the hint; None if there is none, or it is nonsense.
        hint_damaged: whether it is nonsense.
    """

    channel: str
    identity_damaged: bool
    sizes: dict[str, int]
    slots: RangeSet
    void: set[tuple[int, bytes]]
    checkpoints: list[Checkpoint]
    bad_checkpoints: list[int]
    segments: list[str]
    queries: list[str]
    hint: Hint | None
    hint_damaged: bool


def take_object_inventory(store: Store, findings: Findings) -> ObjectInventory:
    """List the objects, and read the identity, the hint and the checkpoints.

    Args:
        store: where the channel is.
        findings: collects what is wrong with them.

    Raises:
        CorruptionError: the identity is lost, and no slot says it.
        NotAChannelError: there is no channel.
        StoreError: the store refused or failed.
        UnsupportedFormatError: a newer version wrote it.
    """
    listed = _Listed()
    for info in store.list(""):
        listed.add(info)
    slots = RangeSet(sorted(listed.slots))
    channel, identity_damaged = _find_identity(store, slots, findings, has_checkpoints=bool(listed.checkpoints))
    checkpoints = Checkpoints(store, channel)
    hint = checkpoints.hint()
    hint_damaged = hint is None and is_there(store, HINT) and checkpoints.hint() is None
    if hint_damaged:
        findings.note(Path(HINT), "the hint is nonsense; the next checkpoint rewrites it, and nothing depends on it")
    named = {*listed.checkpoints, *([hint.checkpoint] if hint is not None and hint.checkpoint > 0 else [])}
    whole, bad = _read_checkpoints(store, checkpoints, sorted(named))
    _note_strays(listed.strays, findings)
    return ObjectInventory(
        channel,
        identity_damaged,
        listed.sizes,
        slots,
        listed.void,
        whole,
        bad,
        sorted(listed.segments),
        sorted(listed.queries),
        hint,
        hint_damaged,
    )


def numbers_after(slots: RangeSet, number: int) -> Iterator[int]:
    """Yield the numbers of slots after one, ascending."""
    for first, last in slots:
        yield from range(max(first, number + 1), last + 1)


@dataclass(slots=True)
class _Listed:
    """What a listing has shown, in any order, some of it twice. `ObjectInventory` explains it.

    Most listings are in order, and show all slots as one range. A directory's may be in none: then it is a range for
    each slot, and to sort them once is quicker than to put each into its place.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    slots: list[Range] = field(default_factory=list)
    void: set[tuple[int, bytes]] = field(default_factory=set)
    checkpoints: set[int] = field(default_factory=set)
    segments: set[str] = field(default_factory=set)
    queries: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)

    def add(self, info: ObjectInfo) -> None:
        """Add an object."""
        key = info.key
        if (number := number_in(key, LOG)) is not None:
            self._add_slot(number)
        elif (number := number_in(key, CHECKPOINTS)) is not None:
            self.checkpoints.add(number)
        elif void := void_slots([key]):
            self.void |= void
        elif birth_of(key) is not None:
            self.segments.add(key)
        elif key.startswith(QUERIES):
            self.queries.add(key.removeprefix(QUERIES))
        elif key not in (IDENTITY, HINT) and not key.startswith((WORKERS, QUARANTINE)):
            self.strays.add(key)
        if key in self.segments or info.size_bytes >= WINDOW_BYTES:
            self.sizes[key] = info.size_bytes

    def _add_slot(self, number: int) -> None:
        if self.slots and self.slots[-1][1] == number - 1:
            self.slots[-1] = self.slots[-1][0], number
        else:
            self.slots.append((number, number))


def _read_checkpoints(store: Store, checkpoints: Checkpoints, numbers: list[int]) -> tuple[list[Checkpoint], list[int]]:
    whole: list[Checkpoint] = []
    bad: list[int] = []
    for number in numbers:
        found = checkpoints.at(number) or checkpoints.at(number)  # the second time, should it be damaged on the way
        if found is not None:
            whole.append(found)
        elif is_there(store, checkpoint_key(number)):
            bad.append(number)
    return whole, bad


def _note_strays(strays: set[str], findings: Findings) -> None:
    """Note foreign objects under the channel's root."""
    names = sorted(strays)
    if names:
        shown = ", ".join(ascii(name) for name in names[:_SHOWN_STRAYS])
        more = f", and {len(names) - _SHOWN_STRAYS} more" if len(names) > _SHOWN_STRAYS else ""
        are = "object is not the channel's and is" if len(names) == 1 else "objects are not the channel's and are"
        findings.note(Path(), f"{len(names)} {are} left alone: {shown}{more}")


# ── identity ────────────────────────────────────────────────────────────────────────────────────


def _find_identity(store: Store, slots: RangeSet, findings: Findings, *, has_checkpoints: bool) -> tuple[str, bool]:
    """Return the channel's UUID, and whether the identity has to be written anew: every slot says it too."""
    try:
        channel = read_identity(store)
    except (CorruptionError, NotAChannelError):
        found = next(_claims(store, slots), None)
        if found is None:
            raise
        findings.damage(Path(IDENTITY), "the channel's identity can't be read; its other objects say it too")
        return found, True
    if channel is None:
        # Slot 0 alone is a channel that somebody is making, or died making: nobody can have committed to it.
        found = next(_claims(store, slots), None) if has_checkpoints or slots.last > 0 else None
        if found is None:
            raise no_channel_but(store)
        findings.damage(Path(IDENTITY), "the channel's identity is missing; its other objects say it too")
        return found, True
    other = ""
    for found in _claims(store, slots):
        if found == channel:
            return channel, False
        other = other or found
    if other:
        findings.damage(Path(IDENTITY), f"the channel's identity is damaged: its slots belong to the channel {other}")
    return other or channel, bool(other)


def _claims(store: Store, slots: RangeSet) -> Iterator[str]:
    """Yield the UUID that each slot's header says, which its own checksum proves, the newest first."""
    for number in chain.from_iterable(range(last, first - 1, -1) for first, last in reversed(list(slots))):
        try:
            data = store.get_range(slot_key(number), 0, HEADER_READ_BYTES) if number else store.get(slot_key(0))
            claimed = claimed_channel(data)
            if claimed and parse_slot_header(claimed, number, data) is not None:
                yield claimed
        except (ObjectMissingError, CorruptionError):
            continue
