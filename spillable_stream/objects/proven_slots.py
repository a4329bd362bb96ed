"""Bytes of slots, proven by the token in them to be of the slot that is known, as far as they say it.

A slot is read from its beginning on, where its token is: the one of this number may be another one by now. Bytes of
another slot are let go wherever they are kept, and the store is asked once more. Other objects need no proof: their
keys are their own forever.

The bytes that were read last stay while more of the same object is wanted: one has many blocks. But a state that was
loaded anew may be of another log: what was asked for before of a slot is not used then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.errors import CorruptionError, UnsafeStoreError
from spillable_stream.format.extent import Extent
from spillable_stream.format.slot import parse_slot_header
from spillable_stream.objects.chain import SlotTokens
from spillable_stream.objects.object_windows import ObjectWindows
from spillable_stream.objects.slots import object_key, slot_key
from spillable_stream.objects.staged_object import is_merged
from spillable_stream.shown_value import command

__all__ = ["ProvenSlots", "other_events"]


class _Part(NamedTuple):
    """Bytes of an object that are at hand.

    Args:
        file: the slot's number; another object's key.
        base: where they begin in it.
        data: the bytes.
        token: the slot's token; None if they do not say it, or it is none.
        identity: what the slot of this number was known by when they were asked for (`SlotTokens.identity_of`).
    """

    file: int | str
    base: int
    data: pa.Buffer
    token: bytes | None
    identity: str | None

    def has(self, file: int | str, offset: int, identity: str | None) -> bool:
        """Tell whether an offset is in them, of an object that is known by an identity now."""
        is_of_file = self.file == file and self.identity == identity
        return is_of_file and 0 <= offset - self.base < len(self.data)

    def may_be(self, token: bytes | None) -> bool:
        """Tell whether nothing says that they are of another slot than that with a token."""
        return token is None or self.token is None or token == self.token


class ProvenSlots:
    """The bytes of slots and other objects, and those that were read last. For one thread at a time.

    Args:
        windows: where they come from.
        root: the store's root, for errors.
        channel: the channel's UUID.
        tokens: returns what tells slots from others of their numbers.
    """

    def __init__(self, windows: ObjectWindows, root: str, channel: str, tokens: Callable[[], SlotTokens]) -> None:
        self._windows = windows
        self._root = root
        self._channel = channel
        self._tokens = tokens
        self._last: _Part | None = None

    @property
    def last_file(self) -> int | str | None:
        """The object whose bytes are kept; None if none are."""
        return None if self._last is None else self._last.file

    def first_byte(self, file: int | str, offset: int) -> int:
        """Return where to begin to read, for an offset of an object.

        A slot's header says which slot it is, and comes in the same request where the offset is near it. Of copies of
        small slots all are read: they are few, and wanted one after the other.

        Args:
            file: the slot's number; another object's key.
            offset: the offset, in bytes.
        """
        size_bytes = self._windows.size_bytes
        until = size_bytes // 2 if isinstance(file, int) else size_bytes if is_merged(file) else 0
        return 0 if offset < until else offset

    def get(self, extent: Extent, *, is_kept: bool) -> tuple[int, pa.Buffer]:
        """Return where a window of an object begins, and the window: it has an extent's offset, or ends before.

        Args:
            extent: the extent, which is in the object.
            is_kept: whether to keep it for the next call, which is about the same object.

        Raises:
            ObjectMissingError: there is no such object.
            StoreError: the store refused or failed.
            UnsafeStoreError: it is another slot than the one of its number that is known.
        """
        file, kept = extent.file, self._last
        if isinstance(file, int):
            part = self._slot(file, extent, kept)
        elif kept is not None and kept.has(file, extent.offset, None):
            part = kept
        else:
            part = self._read(file, extent.offset, None)
        self._last = part if is_kept else None
        return part.base, part.data

    def _slot(self, number: int, extent: Extent, part: _Part | None) -> _Part:
        tokens = self._tokens()
        known, identity = tokens.token_of(number), tokens.identity_of(number)
        if part is None or not part.has(number, extent.offset, identity):
            part = self._read(number, extent.offset, identity)
        if not part.may_be(known):  # it was kept, or asked for, before the bucket was put back, or after
            part = self._read_anew(number, identity)
            if not part.may_be(known):
                self.forget(number)
                raise other_events(self._root, extent.first_id, extent.last_id)
        return part

    def _read(self, file: int | str, offset: int, identity: str | None) -> _Part:
        key, first = object_key(file), 0
        data = self._windows.whole(key)
        if data is None:
            asked = self._windows.first_asked(key, offset)
            first = self.first_byte(file, offset) if asked is None else asked
            data = self._windows.get(key, first, self._windows.size_bytes)
        return self._part(file, first, data, identity)

    def _read_anew(self, number: int, identity: str | None) -> _Part:
        self.forget(number)
        data = self._windows.fetch_anew(slot_key(number), 0, self._windows.size_bytes)
        return self._part(number, 0, data, identity)

    def _part(self, file: int | str, base: int, data: pa.Buffer, identity: str | None) -> _Part:
        token = self._token_in(data, file) if isinstance(file, int) and base == 0 else None
        return _Part(file, base, data, token, identity)

    def _token_in(self, data: pa.Buffer, number: int) -> bytes | None:
        with contextlib.suppress(CorruptionError):  # its frames may be whole
            found = parse_slot_header(self._channel, number, data)
            return None if found is None else found[0].token
        return None

    def continue_with(self, file: int | str, base: int, data: pa.Buffer) -> None:
        """Keep the bytes of an object that follow, if those before them are kept.

        Args:
            file: the slot's number; another object's key.
            base: where they begin in it.
            data: the bytes.
        """
        if self._last is not None and self._last.file == file:
            self._last = self._last._replace(base=base, data=data)

    def forget(self, number: int) -> bool:
        """Let go of a slot wherever it is kept, and tell whether it had been in the disk's cache before."""
        self.let_go()
        return self._windows.forget(slot_key(number))

    def let_go(self) -> None:
        """Let go of what was read last."""
        self._last = None


def other_events(root: str, first_id: int, last_id: int) -> UnsafeStoreError:
    """Return the error if others have the IDs of events that were to be read.

    Args:
        root: the store's root.
        first_id: the first of the events.
        last_id: the last one.
    """
    others = f"another event {first_id} than the one that was"
    if first_id < last_id:
        others = f"other events {first_id} to {last_id} than those that were"
    return UnsafeStoreError(
        f"{root} has {others} to be read: the bucket was put back to an earlier version "
        "since, and others put what is there. Nothing of that was returned. Run "
        f"`{command('verify', root)}`. If that finds damage, run `{command('repair', root)}`; then read again, "
        "with what is there"
    )
