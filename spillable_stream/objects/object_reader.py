"""Reads extents of a log of objects as record batches, and verifies every payload.

The windows that the frames are decoded from come from `spillable_stream.objects.object_windows`, one ahead of the one
that is being decoded; those of slots from `spillable_stream.objects.proven_slots`. Of a segment no more is read than an
extent is likely to have, and the last window stays at hand: takes of a few events continue there. Where several have
done so in a row, whole windows are read for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.errors import CorruptionError, DataLossError
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
from spillable_stream.log.event_reader import ReadBatch, events_of, frames_in_order, missing_event
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.chain import NO_TOKENS, SlotTokens
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.objects.frame_search import find_frame
from spillable_stream.objects.object_windows import ObjectWindows
from spillable_stream.objects.proven_slots import ProvenSlots
from spillable_stream.objects.slots import object_key
from spillable_stream.objects.store import ObjectMissingError, Store
from spillable_stream.state.ranges import among_events, events_in

__all__ = ["ObjectReader"]

_LEAST_BYTES = 1 << 20  # of a window where an extent seems to end, which is a guess
_AHEAD = 8  # objects whose first window is asked for before they are read
_LOOK_AHEAD = 64  # extents among which these are looked for


class _Found(NamedTuple):
    """A frame that was read.

    Args:
        header: its header.
        payload: its payload, verified.
        base: where the window that it is in begins in the object.
        window: the window.
        at: where the frame begins in it.
    """

    header: FrameHeader
    payload: pa.Buffer
    base: int
    window: pa.Buffer
    at: int


class _Rest(NamedTuple):
    """Where the next read may continue: with the last frame that was read of an object, whose window is kept.

    Args:
        file: the object's key.
        first: the first event of the frame, by its number in the object.
        last: its last event.
        base: where the window begins in the object.
        at: where the frame begins in the window.
        times: how often all that was expected has been read since, each time where it had ended before.
    """

    file: str
    first: int
    last: int
    base: int
    at: int
    times: int


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
        self._windows = ObjectWindows(store, channel, cache, disk_cache, tokens)
        self._slots = ProvenSlots(self._windows, store.root, channel, tokens)
        self._expected: list[Extent] = []
        self._rest: _Rest | None = None

    def expect(self, extents: Sequence[Extent]) -> None:
        """Begin to fetch what will be read next, in this order."""
        self._expected = list(extents)
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        last, files = self._slots.last_file, 0
        for extent in self._expected[:_LOOK_AHEAD]:
            files += extent.file != last
            if files > _AHEAD:
                break
            if not _is_inside(extent) and extent.file != last and self._continued(extent) is None:
                first = self._slots.first_byte(extent.file, extent.offset)
                self._windows.ask(object_key(extent.file), first, self._windows.size_bytes)
            last = extent.file

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
            if not self._forget(key):
                raise
            yield from self._read(key, extent._replace(first_id=expected))  # the store may have it whole
        self._fetch_ahead()

    def _read(self, key: str, extent: Extent) -> Iterator[ReadBatch]:
        expected = extent.first_id
        with self._naming(key, extent):
            for whole, found in self._batches(key, extent):
                if whole.first_id > expected:
                    break
                yield (part := whole.clip(expected, extent.last_id))
                expected = part.last_id + 1
                if expected > extent.last_id:
                    self._keep_rest(extent, found)
                    return
        raise missing_event(expected, self._where(key), extent.offset)

    def _forget(self, key: str) -> bool:
        """Let go of what is kept of an object, and tell whether some had been in the disk's cache before."""
        self._slots.let_go()
        self._let_go_of_rest()
        return self._windows.forget(key)

    def _keep_rest(self, extent: Extent, last: _Found) -> None:
        """Keep the window of the last frame, unless the whole object is at hand; the next read may continue there."""
        if isinstance(extent.file, int) or self._windows.whole(extent.file) is not None:
            return
        first, before = last.header.write_order_id, self._rest_before(extent)
        times = (before.times if before is not None else 0) + (not self._expected)
        self._rest = _Rest(extent.file, first, first + last.header.count - 1, last.base, last.at, times)
        self._windows.keep(last.window)

    def _rest_before(self, extent: Extent) -> _Rest | None:
        """Return the last frame if an extent begins in it, or right behind it."""
        rest, first = self._rest, extent.first_id - extent.base_id
        is_next = rest is not None and rest.file == extent.file and rest.first <= first <= rest.last + 1
        return rest if is_next else None

    def _continued(self, extent: Extent) -> tuple[int, pa.Buffer, int] | None:
        """Return where to continue, as `_begin` does; None if an extent does not, or nothing is at hand."""
        rest = self._rest_before(extent)
        window = None if rest is None else self._windows.kept()
        return None if rest is None or window is None else (rest.base, window, rest.at)

    def _least_bytes(self, key: str) -> int:
        """Return how much of an object to ask for at least: all of a window where reads continue each other."""
        is_likely_next = self._rest is not None and self._rest.file == key and self._rest.times > 1
        return self._windows.size_bytes if is_likely_next else _LEAST_BYTES

    def _let_go_of_rest(self) -> None:
        self._rest = None
        self._windows.let_go()

    def frames(self, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the undecoded payload of each frame that an extent covers, in order.

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
            if not self._forget(key):
                raise
            yield from self._covered(key, extent._replace(first_id=expected))
        self._fetch_ahead()

    def _covered(self, key: str, extent: Extent) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        with self._naming(key, extent):
            yield from frames_in_order(self._frames(key, extent), extent, self._where(key), extent.offset)

    @contextlib.contextmanager
    def _naming(self, key: str, extent: Extent) -> Iterator[None]:
        """Say which events are gone with an object."""
        try:
            yield
        except ObjectMissingError as e:
            raise DataLossError(
                f"{events_in([(extent.first_id, extent.last_id)], 'are')} gone: taken by every group, or removed with "
                "the object",
                self._where(key),
            ) from e

    def _batches(self, key: str, extent: Extent) -> Iterator[tuple[ReadBatch, _Found]]:
        """Yield the events of each frame, all of them, and the frame, from that of the first event on."""
        for found in self._frames(key, extent):
            try:
                yield events_of(found.header, found.payload, extent, self._schema_of), found
            except CorruptionError as e:
                raise self._damaged(key, extent, found.base + found.at) from e

    def _frames(self, key: str, extent: Extent) -> Iterator[_Found]:
        """Yield each PUT frame from that of the first event on."""
        seed, until = file_seed(self._channel, seed_name(extent.file)), None
        base, window, at = self._begin(key, extent, seed)
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
                        yield _Found(header, payload, base, window, at)
                    at += needed
                    continue
            grown = self._more(key, base, at, window, needed, until)
            if len(grown) <= len(window) - at:
                raise self._damaged(key, extent, base + at)
            base, at, window = base + at, 0, grown
            self._slots.continue_with(extent.file, base, window)

    def _begin(self, key: str, extent: Extent, seed: int) -> tuple[int, pa.Buffer, int]:
        """Return where a window begins in an object, the window, and where to begin to read in it."""
        is_kept = bool(self._expected) and self._expected[0].file == extent.file
        if (continued := self._continued(extent)) is not None:
            if not is_kept:
                self._slots.let_go()
            return continued
        if _is_inside(extent) and self._windows.whole(key) is None:
            fetch = partial(self._windows.fetch, key)
            if (found := find_frame(fetch, seed, extent, self._windows.size_bytes)) is not None:
                return found.offset, found.window, 0
        base, window = self._slots.get(extent, is_kept=is_kept)
        at = extent.offset - base
        return (base, window, at) if at <= len(window) else (extent.offset, window.slice(len(window)), 0)

    def _others_until(self, extent: Extent) -> int:
        """Return about where the extents of an object end that are expected after one of them; 0 if none is near."""
        until, offset = 0, extent.offset
        for one in takewhile(lambda one: one.file == extent.file, self._expected):
            if one.offset - offset > self._windows.size_bytes:
                break
            until, offset = one.offset + _LEAST_BYTES, one.offset
        return until

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
        parts, least = [window.slice(at)], self._least_bytes(key)
        most_bytes, size_bytes, following = self._windows.size_bytes, len(window) - at, base + len(window)
        while size_bytes < needed:
            left = most_bytes if until is None else max(until - following, needed - size_bytes, least)
            part = self._windows.get(key, following, min(most_bytes, left))
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
        if following < min(until - frame_bytes, self._windows.ends.get(key, until)):
            left = max(until - following, self._least_bytes(key))
            self._windows.ask(key, following, min(self._windows.size_bytes, left))

    def _damaged(self, key: str, extent: Extent, offset: int) -> CorruptionError:
        return CorruptionError(
            f"a frame is damaged {among_events(extent.first_id, extent.last_id)}", self._where(key), offset
        )

    def _where(self, key: str) -> str:
        return f"{self._store.root}/{key}"

    def close(self) -> None:
        """Forget what was asked for; another `read` asks again."""
        self._expected = []
        self._slots.let_go()
        self._let_go_of_rest()
        self._windows.clear()


def _is_inside(extent: Extent) -> bool:
    """Tell whether an extent begins in the middle of a segment, whose first frame is where its offset says."""
    return extent.first_id > extent.base_id > 0


def _likely_bytes(extent: Extent, header: FrameHeader) -> int:
    """Return about how far it is from a frame to the end of an extent, in bytes, if all frames are alike."""
    size_bytes, events = frame_size(header.length), extent.last_id - extent.base_id - header.write_order_id + 1
    return size_bytes * events // max(1, header.count) + size_bytes
