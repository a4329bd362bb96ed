"""Checkpoints of a log of objects: the state after a slot, under that slot's number; and the hint to the newest one.

A checkpoint is one CHECKPOINT frame. The state after a slot is the same whoever makes its image, so one that exists is
as good as one's own. The hint is a small JSON map that is overwritten now and then: it may be old, wrong or missing,
and then the checkpoints are listed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from spillable_stream.errors import CorruptionError, StorageError
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    Frame,
    FrameType,
    Payload,
    encode,
    file_seed,
    frame_size,
    parse_header,
    payload_matches,
)
from spillable_stream.format.packing import NONSENSE, pack, unpack
from spillable_stream.format.slot import TOKEN_BYTES
from spillable_stream.objects.appending import Tail
from spillable_stream.objects.chain import Chain
from spillable_stream.objects.slots import Slots, number_in
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.shown_value import command
from spillable_stream.state.channel_state import ChannelState

__all__ = [
    "CHECKPOINTS",
    "HINT",
    "Checkpoint",
    "Checkpoints",
    "Hint",
    "checkpoint_key",
    "decode_checkpoint",
    "encode_checkpoint",
]

CHECKPOINTS = "checkpoints/"
"""What the keys of checkpoints begin with."""

HINT = "hint"
"""The hint's key."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after a slot.

    Args:
        tail: the slot.
        state: the state.
        chain: the slots that it is built from.
        base: the slot of the checkpoint from which it was loaded; its own, if it is one, and 0 if there was none.
        is_newest: whether a listing has shown that this is the newest one that can be read; else a hint led to it.
    """

    tail: Tail
    state: ChannelState
    chain: Chain
    base: int = 0
    is_newest: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to begin to read.

    Args:
        tail: a slot that is there, or was.
        checkpoint: the newest checkpoint, or an older one; 0 if there is none yet.
    """

    tail: int
    checkpoint: int


class Checkpoints:
    """The checkpoints of one channel. Thread-safe.

    Args:
        store: where they are.
        channel: the channel's UUID.
    """

    def __init__(self, store: Store, channel: str) -> None:
        self._store = store
        self._slots = Slots(store, channel)
        self._seed = file_seed(channel, "checkpoint")

    def write(self, tail: Tail, state: ChannelState) -> bool:
        """Create the checkpoint of a slot, unless it is there, and prove that it can be read.

        One of another slot with this number gives way: where the bucket was put back, a handle that did not know may
        have left it.

        Args:
            tail: the slot, proven.
            state: the state after it; nobody changes it meanwhile.

        Returns:
            Whether it was created; False if it was there.

        Raises:
            CorruptionError: another slot's checkpoint is there, and the slot in the log is damaged.
            StorageError: the store refused or failed, what is there is not that state, or the slot is lost.
        """
        is_created = self._store.create(checkpoint_key(tail.number), _encoded(tail, state, self._seed))
        found = self._read(tail.number)
        if found is not None and found.tail.token != tail.token:
            self._require_there(tail)
            self._store.replace(checkpoint_key(tail.number), _encoded(tail, state, self._seed))
            is_created, found = True, self._read(tail.number)
        if found is None:
            later = self.newest_of(self.numbers())
            if later is None or later.tail.number <= tail.number:  # else others deleted it for later ones
                raise StorageError(
                    f"{self._store.root}/{checkpoint_key(tail.number)} can't be read after it was written; nothing "
                    "depends on it yet. If it was there before, "
                    f"`{command('repair', self._store.root)}` moves it aside"
                )
        return is_created

    def _require_there(self, tail: Tail) -> None:
        """Prove that a slot is there, and not another one of its number; raises what `write` raises."""
        if self._slots.token(tail.number) != tail.token:
            raise StorageError(
                f"{self._store.root}: the checkpoint of slot {tail.number} is of another slot {tail.number} than the "
                "one that this handle knows, which is no longer there: the bucket was put back to an earlier "
                "version. No checkpoint was created"
            )

    def newest_of(self, numbers: Sequence[int]) -> Checkpoint | None:
        """Return the newest whole checkpoint of some slots; None if there is none.

        Args:
            numbers: the slots, ascending.

        Raises:
            StoreError: the store refused or failed.
        """
        for number in reversed(numbers):
            if (found := self._read(number)) is not None:
                return found
        return None

    def at(self, number: int) -> Checkpoint | None:
        """Return the checkpoint of a slot; None if there is none, or it is damaged."""
        return self._read(number)

    def numbers(self) -> list[int]:
        """Return the slots that have a checkpoint, ascending."""
        return sorted(self.times())

    def times(self) -> dict[int, float]:
        """Return which slots have a checkpoint, and when it was written by the store's clock."""
        found = ((number_in(info.key, CHECKPOINTS), info.modified_seconds) for info in self._store.list(CHECKPOINTS))
        return {number: at for number, at in found if number is not None}

    def delete(self, number: int) -> None:
        """Delete the checkpoint of a slot."""
        self._store.delete(checkpoint_key(number))

    def take_back(self, number: int) -> None:
        """Delete this channel's checkpoint of a slot; for a channel that was removed. Raises `StoreError`."""
        if self._read(number) is not None:
            self.delete(number)

    def _read(self, number: int) -> Checkpoint | None:
        try:
            found = _parse(self._store.get(checkpoint_key(number)), self._seed)
            return found if found.tail.number == number else None
        except (ObjectMissingError, CorruptionError, *NONSENSE):
            return None

    # ── the hint ────────────────────────────────────────────────────────────────────────────

    def hint(self) -> Hint | None:
        """Return the hint; None if there is none, or it is nonsense."""
        try:
            value = json.loads(bytes(self._store.get(HINT)))
            return Hint(int(value["tail"]), int(value["checkpoint"]))
        except (ObjectMissingError, *NONSENSE):
            return None

    def write_hint(self, hint: Hint) -> None:
        """Overwrite the hint. Raises `StoreError`; nothing depends on it."""
        text = json.dumps({"tail": hint.tail, "checkpoint": hint.checkpoint})
        self._store.replace(HINT, text.encode())


def checkpoint_key(number: int) -> str:
    """Return the key of the checkpoint of a slot."""
    return f"{CHECKPOINTS}{number:020d}"


def encode_checkpoint(channel: str, tail: Tail, state: ChannelState) -> bytes:
    """Return the bytes of the checkpoint of a slot.

    Args:
        channel: the channel's UUID.
        tail: the slot.
        state: the state after it.
    """
    return _encoded(tail, state, file_seed(channel, "checkpoint"))


def decode_checkpoint(channel: str, data: Payload) -> Checkpoint:
    """Return the checkpoint that some bytes are.

    Args:
        channel: the channel's UUID.
        data: the bytes; others than `encode_checkpoint` returns raise CorruptionError, or one of `NONSENSE`.
    """
    return _parse(data, file_seed(channel, "checkpoint"))


def _encoded(tail: Tail, state: ChannelState, seed: int) -> bytes:
    value = {"position": (tail.number, tail.end), "tokens": (tail.token, tail.counts), "state": state.image()}
    return b"".join(encode(Frame.of(FrameType.CHECKPOINT, pack(value)), seed))


def _parse(data: Payload, seed: int) -> Checkpoint:
    """Return the checkpoint that some bytes are; any other bytes raise CorruptionError, or one of `NONSENSE`."""
    header = parse_header(data, 0, seed)
    if header is None or header.type != FrameType.CHECKPOINT or len(data) != frame_size(header.length):
        raise CorruptionError("a checkpoint is damaged")
    payload = bytes(data[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + header.length])
    if not payload_matches(header, payload):
        raise CorruptionError("a checkpoint is damaged")
    value = unpack(payload)
    position, (token, counts) = value["position"], value["tokens"]
    if len(token) != TOKEN_BYTES or len(counts) != TOKEN_BYTES:
        raise CorruptionError("a checkpoint has no tokens")
    number = int(position[0])
    tail = Tail(number, bytes(token), bytes(counts), int(position[1]))
    return Checkpoint(tail, ChannelState.from_image(value["state"]), Chain(number, tail.token), number)
