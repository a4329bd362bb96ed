"""Reads extents of a log of objects as record batches, and verifies every payload.

Objects are read in windows of 8 MiB, one ahead of the one that is being decoded: a request costs some 20 ms whatever
its size. Small ones come whole, and stay for a while (`spillable_stream.objects.cache`). Windows may be kept on this
host's disk, too (`spillable_stream.objects.disk_cache`). Of a segment no more is read than an extent is likely to have.

A slot is read from its beginning on, where its token is: the one of this number may be another one by now. What of it
was read last stays until the next extent that is expected is of another object: a slot has many blocks. But a state
that was loaded anew may be of another log: what was asked for before is not used then. Bytes of another slot are let go
wherever they are kept, and the store is asked once more.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.errors import CorruptionError, DataLossError, UnsafeStoreError
from spillable_stream.format.extent import Extent
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    FrameHeader,
    FrameType,
    file_seed,
    frame_size,
    header_size,
    parse_header,
    payload_matches,
)
from spillable_stream.format.slot import parse_slot_header
from spillable_stream.log.event_reader import ReadBatch, events_of
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import NO_TOKENS, SlotTokens
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.frame_search import find_frame
from spillable_stream.objects.parallel import begin
from spillable_stream.objects.slots import LOG, slot_key
from spillable_stream.objects.store import ObjectMissingError, Store

__all__ = ["ObjectReader", "object_key", "other_events"]

_WINDOW_BYTES = 8 << 20
_LEAST_BYTES = 1 << 20  # of a window where an extent seems to end, which is a guess
_AHEAD = 8  # extents whose first window is asked for before they are read


def object_key(file: int | str) -> str:
    """Return the key of the object that a block is in: a slot's number, or a segment's or merged object's key."""
    return slot_key(file) if isinstance(file, int) else file


class _SlotPart(NamedTuple):
    """Bytes of a slot that are at hand.

    Args:
        number: the slot's number.
        base: where they begin in it.
        data: the bytes.
        token: the slot's token; None if they do not say it.
        identity: what the slot of this number was known by when they were asked for (`SlotTokens.identity_of`).
    """

    number: int
    base: int
    data: pa.Buffer
    token: bytes | None
    identity: str | None

    def has(self, extent: Extent, identity: str | None) -> bool:
        """Tell whether an extent begins in them, of a slot that is known by an identity now."""
        is_of_slot = self.number == extent.file and self.identity == identity
        return is_of_slot and 0 <= extent.offset - self.base < len(self.data)

    def may_be(self, token: bytes | None) -> bool:
        """Tell whether nothing says that they are of another slot than that with a token."""
        return token is None or self.token is None or token == self.token


class _Window(NamedTuple):
    """A window that was asked for.

    Args:
        key: the key of the object.
        offset: where it begins.
        identity: what a slot of this number was known by then; None for other objects, which no other ones follow.
    """

    key: str
    offset: int
    identity: str | None


class ObjectReader:
    """Reads the events of extents. For one thread at a time.

    Args:
        store: where the objects are.
        channel: the channel's UUID.
        schema_of: returns a schema of the channel by its number.
        cache: objects that are at hand.
        disk_cache: where windows are kept on this host's disk; None: nowhere.
        tokens: returns what tells slots from others of their numbers; by default, nothing does.
    """

    def __init__(
        self,
        store: Store,
        channel: str,
        schema_of: Callable[[int], pa.Schema],
        cache: ObjectCache | None = None,
        disk_cache: DiskCache | None = None,
        tokens: Callable[[], SlotTokens] = lambda: NO_TOKENS,
    ) -> None:
        self._store = store
        self._channel = channel
        self._schema_of = schema_of
        self._cache = cache or ObjectCache(4 * _WINDOW_BYTES)
        self._disk_cache = disk_cache
        self._tokens = tokens
        self._cached_as = f"{channel} at {store.root}"  # a copy of a bucket has the UUID, and slots of its own later
        self._expected: list[Extent] = []
        self._ends: dict[str, int] = {}  # where objects end, as far as a window has shown it
        self._last: _SlotPart | None = None  # while the next extent that is expected is of the same slot
        self._kept: dict[tuple[str, str, int], bool] = {}  # windows in the disk's cache: whether they were there before
        self._begun: OrderedDict[_Window, Future[pa.Buffer]] = OrderedDict()

    def expect(self, extents: Sequence[Extent]) -> None:
        """Begin to fetch what will be read next, in this order."""
        self._expected = list(extents)
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        slot: int | str | None = None if self._last is None else self._last.number
        for extent in self._expected[:_AHEAD]:
            if not _is_inside(extent) and extent.file != slot:
                self._ask(object_key(extent.file), _first_byte(extent), _WINDOW_BYTES)
            slot = extent.file if isinstance(extent.file, int) else None

    def _ask(self, key: str, offset: int, size_bytes: int) -> None:
        window = _Window(key, offset, self._identity_of(key))
        if window not in self._begun and self._cache.get(key) is None:
            self._begun[window] = begin(self._store.root, lambda: self._fetch(key, offset, size_bytes))
            while len(self._begun) > 2 * _AHEAD:  # of reads that were given up
                self._begun.popitem(last=False)

    def _fetch(self, key: str, offset: int, size_bytes: int) -> pa.Buffer:
        asked_at, name = self._cache.clears, self._name_on_disk(key, size_bytes)
        disk = None if name is None else self._disk_cache
        if disk is None or name is None or (buffer := disk.get(self._cached_as, name, offset)) is None:
            return self._fetch_anew(key, offset, size_bytes)
        self._kept[key, name, offset] = True
        self._note(key, offset, size_bytes, buffer, asked_at)
        return buffer

    def _fetch_anew(self, key: str, offset: int, size_bytes: int) -> pa.Buffer:
        """Ask the store, whatever is at hand."""
        asked_at, name = self._cache.clears, self._name_on_disk(key, size_bytes)
        data = self._store.get_range(key, offset, offset + size_bytes)
        buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        disk = None if name is None else self._disk_cache
        if disk is not None and name is not None and len(buffer) and asked_at == self._cache.clears:
            disk.put(self._cached_as, name, offset, buffer)
            self._kept[key, name, offset] = False
        self._note(key, offset, size_bytes, buffer, asked_at)
        return buffer

    def _note(self, key: str, offset: int, size_bytes: int, buffer: pa.Buffer, asked_at: int) -> None:
        """Take note of what an answer shows: where the object ends, or all of it."""
        if len(buffer) < size_bytes:
            self._ends[key] = offset + len(buffer)
            if offset == 0:
                self._cache.put(key, buffer, asked_at)

    def _name_on_disk(self, key: str, size_bytes: int) -> str | None:
        """Return what the disk's cache calls an object's windows of a size; None for an object that it can't have.

        A segment's key is its own forever. A slot's is not, where a bucket is put back to an older version. A window of
        another size than the usual says so: what is shorter than it was asked for ends where the object does.
        """
        size = "" if size_bytes == _WINDOW_BYTES else f" {size_bytes}"
        if self._disk_cache is None:
            return None
        if not key.startswith(LOG):
            return f"{key}{size}"
        identity = self._identity_of(key)
        return None if identity is None else f"{key} {identity}{size}"

    def _identity_of(self, key: str) -> str | None:
        """Return what a slot of this number is known by; None for what is none, or is not known."""
        return self._tokens().identity_of(int(key.removeprefix(LOG))) if key.startswith(LOG) else None

    def _window(self, key: str, offset: int, size_bytes: int) -> pa.Buffer:
        """Return some bytes of an object from an offset on, or all up to its end; none only where it has ended."""
        if (whole := self._cache.get(key)) is not None:
            return whole.slice(min(offset, len(whole)))
        asked = self._begun.pop(_Window(key, offset, self._identity_of(key)), None)
        return self._fetch(key, offset, size_bytes) if asked is None else asked.result()

    def read(self, extent: Extent) -> Iterator[ReadBatch]:
        """Yield the events of an extent, in order.

        Raises:
            CorruptionError: a frame is damaged or missing; names the events.
            DataLossError: the object was removed.
            StoreError: the store refused or failed.
            UnsafeStoreError: the slot is another one than the one in which the events were.
        """
        if self._expected and self._expected[0] == extent:
            del self._expected[0]
        key, expected = object_key(extent.file), extent.first_id
        try:
            for part in self._read(key, extent):
                yield part
                expected = part.last_id + 1
        except CorruptionError:
            if not self._forget_kept(key):
                raise
            yield from self._read(key, extent._replace(first_id=expected))  # the store may have it whole
        self._fetch_ahead()

    def _read(self, key: str, extent: Extent) -> Iterator[ReadBatch]:
        expected = extent.first_id
        with self._naming(key, extent):
            for whole in self._batches(key, extent):
                if whole.first_id > expected:
                    break
                yield (part := whole.clip(expected, extent.last_id))
                expected = part.last_id + 1
                if expected > extent.last_id:
                    return
        raise CorruptionError(
            f"event {expected} is not where the channel's state says", self._where(key), extent.offset
        )

    def _forget_kept(self, key: str) -> bool:
        """Let go of the windows of an object in the disk's cache, and tell whether one had been there before."""
        wait([self._begun.pop(window) for window in list(self._begun) if window.key == key])  # they may be of the cache
        found = [window for window in list(self._kept) if window[0] == key]  # windows of others come meanwhile
        for _, name, offset in found:
            assert self._disk_cache is not None
            self._disk_cache.forget(self._cached_as, name, offset)
        self._cache.forget(key)
        self._last = None
        return any([self._kept.pop(window) for window in found])

    def frames(self, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the undecoded payload of each frame that an extent covers.

        Raises what `read` raises.
        """
        if self._expected and self._expected[0] == extent:
            del self._expected[0]
        key, expected = object_key(extent.file), extent.first_id
        try:
            for header, payload in self._covered(key, extent):
                yield header, payload
                expected = header.write_order_id + extent.base_id + header.count
        except CorruptionError:
            if not self._forget_kept(key):
                raise
            yield from self._covered(key, extent._replace(first_id=expected))
        self._fetch_ahead()

    def _covered(self, key: str, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        with self._naming(key, extent):
            for header, payload, _ in self._frames(key, extent):
                yield header, payload
                if header.write_order_id + extent.base_id + header.count > extent.last_id:
                    return

    @contextlib.contextmanager
    def _naming(self, key: str, extent: Extent) -> Iterator[None]:
        """Say which events are gone with an object."""
        try:
            yield
        except ObjectMissingError as e:
            raise DataLossError(
                f"the events {extent.first_id} to {extent.last_id} are gone: every group took them, or the object was "
                "removed",
                self._where(key),
            ) from e

    def _batches(self, key: str, extent: Extent) -> Iterator[ReadBatch]:
        """Yield the events of each frame, all of them, from the frame that holds the first event on."""
        for header, payload, offset in self._frames(key, extent):
            try:
                yield events_of(header, payload, extent, self._schema_of)
            except CorruptionError as e:
                raise self._damaged(key, extent, offset) from e

    def _frames(self, key: str, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer, int]]:
        """Yield the header, verified payload and offset of each PUT frame from that of the first event on."""
        seed, at, until = file_seed(self._channel, seed_name(extent.file)), 0, None
        base, window = self._begin(key, extent, seed)
        others_until = self._others_until(extent)
        while True:
            needed = header_size(window, at)
            if at + needed <= len(window):
                header = parse_header(window, at, seed)
                if header is None:
                    raise self._damaged(key, extent, base + at)
                needed = frame_size(header.length)
                if header.type == FrameType.PUT:
                    until = max(base + at + _likely_bytes(extent, header), others_until)
                    self._ask_ahead(key, base + len(window), until, needed)
                if at + needed <= len(window):
                    if header.type == FrameType.PUT and (
                        header.write_order_id + extent.base_id + header.count > extent.first_id
                    ):
                        payload = window.slice(at + HEADER_SIZE_BYTES, header.length)
                        if not payload_matches(header, payload):
                            raise self._damaged(key, extent, base + at)
                        yield header, payload, base + at
                    at += needed
                    continue
            grown = self._more(key, base, at, window, needed, until)
            if len(grown) <= len(window) - at:
                raise self._damaged(key, extent, base + at)
            base, at, window = base + at, 0, grown
            if self._last is not None and self._last.number == extent.file:
                self._last = self._last._replace(base=base, data=window)

    def _begin(self, key: str, extent: Extent, seed: int) -> tuple[int, pa.Buffer]:
        """Return where to begin to read, and what is there."""
        if _is_inside(extent) and self._cache.get(key) is None:
            fetch = partial(self._fetch, key)
            if (found := find_frame(fetch, seed, extent, _WINDOW_BYTES)) is not None:
                return found
        if isinstance(extent.file, int):
            return extent.offset, self._slot_from(key, extent.file, extent)
        return extent.offset, self._window(key, extent.offset, _WINDOW_BYTES)

    def _slot_from(self, key: str, number: int, extent: Extent) -> pa.Buffer:
        """Return what is at hand of a slot from an extent's offset on, if it is the slot of its number that is known.

        Raises:
            UnsafeStoreError: it is another one.
        """
        tokens, part = self._tokens(), self._last
        known, identity = tokens.token_of(number), tokens.identity_of(number)
        if part is None or not part.has(extent, identity):
            first, data = 0, self._cache.get(key)
            if data is None:
                first = self._first_asked(key, extent, identity)
                data = self._window(key, first, _WINDOW_BYTES)
            part = self._part(number, first, data, identity)
        if not part.may_be(known):  # it was kept, or asked for, before the bucket was put back, or after
            self._forget_kept(key)
            part = self._part(number, 0, self._fetch_anew(key, 0, _WINDOW_BYTES), identity)
            if not part.may_be(known):
                self._forget_kept(key)
                raise other_events(self._store.root, extent.first_id, extent.last_id)
        self._last = part if self._expected and self._expected[0].file == number else None
        return part.data.slice(min(extent.offset - part.base, len(part.data)))

    def _first_asked(self, key: str, extent: Extent, identity: str | None) -> int:
        """Return where the window of a slot begins to read an extent from: one that was asked for, if it is in one."""
        for window in self._begun:
            is_of_slot = window.key == key and window.identity == identity
            if is_of_slot and window.offset <= extent.offset < window.offset + _WINDOW_BYTES:
                return window.offset
        return _first_byte(extent)

    def _part(self, number: int, base: int, data: pa.Buffer, identity: str | None) -> _SlotPart:
        return _SlotPart(number, base, data, self._token_in(data, number) if base == 0 else None, identity)

    def _token_in(self, data: pa.Buffer, number: int) -> bytes | None:
        with contextlib.suppress(CorruptionError):  # its frames may be whole
            found = parse_slot_header(self._channel, number, data)
            return None if found is None else found[0].token
        return None

    def _others_until(self, extent: Extent) -> int:
        """Return about where the extents of a slot end that are expected after one of them; 0 if none is."""
        if not isinstance(extent.file, int):
            return 0
        others = takewhile(lambda one: one.file == extent.file, self._expected)
        return max((one.offset + _LEAST_BYTES for one in others), default=0)

    def _more(self, key: str, base: int, at: int, window: pa.Buffer, needed: int, until: int | None) -> pa.Buffer:
        """Return the bytes from ``base + at`` on: what is left of a window, and enough of what follows.

        Args:
            key: the object.
            base: where the window begins.
            at: where to begin in it.
            window: what is at hand.
            needed: how many bytes there must be, unless the object ends before.
            until: where the last frame that is wanted is likely to end; None if that is not known yet.
        """
        parts = [window.slice(at)]
        size_bytes, following = len(window) - at, base + len(window)
        while size_bytes < needed:
            left = _WINDOW_BYTES if until is None else max(until - following, needed - size_bytes, _LEAST_BYTES)
            part = self._window(key, following, min(_WINDOW_BYTES, left))
            if not len(part):
                break
            parts.append(part)
            size_bytes, following = size_bytes + len(part), following + len(part)
        return pa.py_buffer(b"".join(parts))

    def _ask_ahead(self, key: str, following: int, until: int, frame_bytes: int) -> None:
        """Ask for the window after the one that is about to be decoded, if that is likely to lack a frame.

        Args:
            key: the object.
            following: where the next window begins.
            until: where the last frame that is wanted ends at the latest, if all frames are alike.
            frame_bytes: the size of one.
        """
        if following < min(until - frame_bytes, self._ends.get(key, until)):
            self._ask(key, following, min(_WINDOW_BYTES, max(until - following, _LEAST_BYTES)))

    def _damaged(self, key: str, extent: Extent, offset: int) -> CorruptionError:
        return CorruptionError(
            f"a frame is damaged among the events {extent.first_id} to {extent.last_id}", self._where(key), offset
        )

    def _where(self, key: str) -> str:
        return f"{self._store.root}/{key}"

    def close(self) -> None:
        """Forget what was asked for; another `read` asks again."""
        self._expected = []
        self._last = None
        self._begun.clear()


def other_events(root: str, first_id: int, last_id: int) -> UnsafeStoreError:
    """Return the error if others have the IDs of events that were to be read.

    Args:
        root: the store's root.
        first_id: the first of the events.
        last_id: the last one.
    """
    return UnsafeStoreError(
        f"{root} has other events {first_id} to {last_id} than those that were to be read: the bucket was put back to "
        "an earlier version since, and others have these IDs now. None of them was returned. Run `spillable verify "
        f"{root}`. If that finds damage, run `spillable repair {root}`; then read again, with what is there"
    )


def _first_byte(extent: Extent) -> int:
    """Return where to begin to read an extent: a slot's header says which slot it is, and comes in the same request."""
    return 0 if isinstance(extent.file, int) and extent.offset < _WINDOW_BYTES // 2 else extent.offset


def _is_inside(extent: Extent) -> bool:
    """Tell whether an extent begins in the middle of a segment, whose first frame is where its offset says."""
    return extent.first_id > extent.base_id > 0


def _likely_bytes(extent: Extent, header: FrameHeader) -> int:
    """Return about how far it is from a frame to the end of an extent, in bytes, if all frames are alike."""
    size_bytes, events = frame_size(header.length), extent.last_id - extent.base_id - header.write_order_id + 1
    return size_bytes * events // max(1, header.count) + size_bytes
