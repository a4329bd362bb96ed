"""Takes inventory of a channel in an object store: its identity, its objects, and its checkpoints.

A listing says what there may be. Nothing is missing because it shows it not: whoever needs an object asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spillable_stream.errors import CorruptionError, NotAChannelError
from spillable_stream.format.slot import HEADER_READ_BYTES, claimed_channel, parse_slot_header
from spillable_stream.integrity.findings import Findings
from spillable_stream.integrity.object_files import is_there
from spillable_stream.objects.checkpoints import CHECKPOINTS, HINT, Checkpoint, Checkpoints, Hint, checkpoint_key
from spillable_stream.objects.identity import IDENTITY, QUERIES, WORKERS, read_identity
from spillable_stream.objects.salvage import QUARANTINE
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.staged_object import birth_of
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.objects.void_slots import void_slots
from spillable_stream.objects.wrong_place import no_channel_but

__all__ = ["ObjectInventory", "take_object_inventory"]

_NUMBER = re.compile(r"[0-9]{20}\Z")
_SHOWN_STRAYS = 10


@dataclass(slots=True)
class ObjectInventory:
    """The objects of a channel, as known before any slot is replayed.

    Args:
        channel: the channel's UUID.
        identity_damaged: whether the identity must be written anew.
        sizes: the sizes of all objects that were listed, in bytes, by key.
        slots: the numbers of the slots that were listed, ascending.
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
    slots: list[int]
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
    sizes = {info.key: info.size_bytes for info in store.list("")}
    slots = _numbers(sizes, LOG)
    channel, identity_damaged = _find_identity(store, slots, _numbers(sizes, CHECKPOINTS), findings)
    checkpoints = Checkpoints(store, channel)
    hint = checkpoints.hint()
    hint_damaged = hint is None and is_there(store, HINT) and checkpoints.hint() is None
    if hint_damaged:
        findings.note(Path(HINT), "the hint is nonsense; the next checkpoint rewrites it, and nothing depends on it")
    named = {*_numbers(sizes, CHECKPOINTS), *([hint.checkpoint] if hint is not None and hint.checkpoint > 0 else [])}
    whole, bad = _read_checkpoints(store, checkpoints, sorted(named))
    _note_strays(sizes, findings)
    segments = [key for key in sizes if birth_of(key) is not None]
    queries = [key.removeprefix(QUERIES) for key in sizes if key.startswith(QUERIES)]
    void = void_slots(sizes)
    return ObjectInventory(
        channel, identity_damaged, sizes, slots, void, whole, bad, sorted(segments), queries, hint, hint_damaged
    )


def _numbers(keys: Iterable[str], prefix: str) -> list[int]:
    names = (key.removeprefix(prefix) for key in keys if key.startswith(prefix))
    return sorted(int(name) for name in names if _NUMBER.match(name))


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


def _note_strays(keys: Iterable[str], findings: Findings) -> None:
    """Note foreign objects under the channel's root."""
    names = sorted(key for key in keys if not _is_own(key))
    if names:
        shown = ", ".join(ascii(name) for name in names[:_SHOWN_STRAYS])
        more = f", and {len(names) - _SHOWN_STRAYS} more" if len(names) > _SHOWN_STRAYS else ""
        are = "object is not the channel's and is" if len(names) == 1 else "objects are not the channel's and are"
        findings.note(Path(), f"{len(names)} {are} left alone: {shown}{more}")


def _is_own(key: str) -> bool:
    for prefix in (LOG, CHECKPOINTS):
        if key.startswith(prefix):
            return _NUMBER.match(key.removeprefix(prefix)) is not None or bool(void_slots([key]))
    return key in (IDENTITY, HINT) or key.startswith((QUERIES, WORKERS, QUARANTINE)) or birth_of(key) is not None


# ── identity ────────────────────────────────────────────────────────────────────────────────────


def _find_identity(store: Store, slots: list[int], checkpoints: list[int], findings: Findings) -> tuple[str, bool]:
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
        found = next(_claims(store, slots), None) if checkpoints or any(slots) else None
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


def _claims(store: Store, slots: list[int]) -> Iterator[str]:
    """Yield the UUID that each slot's header says, which its own checksum proves, the newest first."""
    for number in reversed(slots):
        try:
            data = store.get_range(slot_key(number), 0, HEADER_READ_BYTES) if number else store.get(slot_key(0))
            claimed = claimed_channel(data)
            if claimed and parse_slot_header(claimed, number, data) is not None:
                yield claimed
        except (ObjectMissingError, CorruptionError):
            continue
