"""Side files in a store: where delayed events wait until they are due, in objects of their own.

A side object has the bytes of a side file on a disk (`spillable_stream.log.delayed_frames`). Its key is a segment's, of
the owner "delayed", so the rules of segments are its rules: it is there before a COMMIT names it, none may name it that
is born before the last trim's ``births``, and it is deleted once no event waits in it, or if no COMMIT ever named it.

A small object is read whole. Of a large one the table behind its end says when its events are due, and only the parts
are read in which some are; so a delivery of a few events costs a few requests of a megabyte.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

import pyarrow as pa

from spillable_stream.errors import CorruptionError, DataLossError
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import (
    HEADER_SIZE_BYTES,
    Frame,
    FrameHeader,
    FrameType,
    Payload,
    file_seed,
    parse_header,
    payload_matches,
    total_size,
)
from spillable_stream.format.packing import pack
from spillable_stream.format.slot import OBJECT_FORMAT_VERSION
from spillable_stream.log.delayed_frames import DelayedFrame, encode_now, frames_for, frames_of
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.dues_table import dues_table, parse_dues_table
from spillable_stream.objects.parallel import in_parallel
from spillable_stream.objects.salvage import ObjectBytes
from spillable_stream.objects.staged_object import segment_key
from spillable_stream.objects.store import ObjectMissingError, Store, StoreError, uploading
from spillable_stream.state.delays import DelayedFile

__all__ = ["DELAYED_OWNER", "DelayedObjects"]

_AHEAD_BYTES = 32 << 20
_PARTS_BYTES = 32 << 20
_LARGE_BYTES = 1 << 20  # from there on not all of an object is read for some of its events
_WINDOW_BYTES = 1 << 20
_FRAME_BYTES = 320 << 10  # what is read beyond a window, for a frame that begins in it
_TABLE_BYTES = 64 << 20  # more than any has
_WHOLE_PART = 2  # with so large a part of an object, all of it is read

DELAYED_OWNER = "delayed"
"""Whose the objects are in which delayed events wait."""


class DelayedObjects:
    """The side files of a channel in a store. It implements `SideFiles`. Thread-safe.

    Args:
        store: where they are.
        channel: the channel's UUID.
        cache: objects that are at hand.

    Attributes:
        left: the keys of objects in which nothing waits any more, for the collector.
    """

    def __init__(self, store: Store, channel: str, cache: ObjectCache) -> None:
        self._store = store
        self._channel = channel
        self._cache = cache
        self.left: deque[str] = deque()

    @property
    def root(self) -> str:
        """The store's root."""
        return self._store.root

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def write(self, birth: int, frames: Sequence[Frame]) -> tuple[str, int]:
        """Write an object, with one request unless it is large, and return its key and its size in bytes.

        Args:
            birth: the newest slot that is known.
            frames: pairs of a DUES and a PUT frame.

        Raises:
            StoreError: the store refused or failed.
        """
        key = segment_key(birth, DELAYED_OWNER, 0)
        header = {"format": OBJECT_FORMAT_VERSION, "channel": self._channel, "segment": key}
        first = Frame.of(FrameType.SEGMENT_HEADER, pack(header))
        written, seed = [first, *frames], self._seed(key)
        end = total_size(written)
        if end > _LARGE_BYTES:
            written.append(dues_table(frames, total_size([first])))
        data = pa.py_buffer(b"".join(encode_now(written, seed)))
        self._send(key, data)
        self._cache.put(key, data)  # what is due soon need not be asked for
        return key, end

    def create(self, content: bytes, of: DelayedFile, channel: str) -> str:
        """Write an object of what `SideFiles.content` returned, in this channel or in another one, and return its key.

        Args:
            content: the bytes.
            of: the side file that they are from, as its state has it.
            channel: the UUID of the channel that they are from.

        Raises:
            StoreError: the store refused or failed.
        """
        key = segment_key(0, DELAYED_OWNER, 0)
        before = file_seed(channel, of.seed_name)
        made = bytearray(content)
        for offset, part in frames_for(ObjectBytes(content), len(content), before, self._channel, self._seed(key)):
            made[offset : offset + len(part)] = part
        self._send(key, bytes(made))
        return key

    def _send(self, key: str, data: Payload) -> None:
        if len(data) < _PARTS_BYTES:
            self._store.replace(key, data)
            return
        with uploading(self._store, key) as upload:  # of one event that is so large
            upload.write(data)

    def _seed(self, key: str) -> int:
        return file_seed(self._channel, seed_name(key))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def expect(self, files: Sequence[DelayedFile], until_ms: int) -> None:
        """Ask for objects at the same time, as many as the cache can keep; see `SideFiles.expect`."""
        wanted, size_bytes, is_large = list[Callable[[], object]](), 0, False
        for file in files:
            is_all = file.width_ms > 0 and file.begin_ms + file.width_ms <= until_ms
            if self._cache.get(file.name) is None and size_bytes + file.end <= _AHEAD_BYTES:
                is_whole = is_all or file.end <= _LARGE_BYTES
                wanted.append(partial(self._read if is_whole else self._behind, file))
                size_bytes += file.end
                is_large |= file.end > _LARGE_BYTES
        if len(wanted) > 1 or is_large:
            with contextlib.suppress(CorruptionError, StoreError):
                in_parallel(self._store.root, wanted)

    def _data(self, of: DelayedFile) -> pa.Buffer:
        """Return an object, whole.

        Raises:
            DataLossError: it is not there.
            StoreError: the store refused or failed.
        """
        found = self._cache.get(of.name)
        return self._read(of) if found is None else found

    def _read(self, of: DelayedFile) -> pa.Buffer:
        return self._asked(of, of.name, self._store.get)

    def _behind(self, of: DelayedFile) -> pa.Buffer:
        """Return what is behind the bytes of an object that count."""
        return self._range(of, of.end, of.end + _TABLE_BYTES)

    def _window(self, of: DelayedFile, number: int) -> pa.Buffer:
        """Return a part of an object: what begins in one of its windows."""
        start = number * _WINDOW_BYTES
        return self._range(of, start, min(of.end, start + _WINDOW_BYTES + _FRAME_BYTES))

    def _range(self, of: DelayedFile, start: int, end: int) -> pa.Buffer:
        key = f"{_parts_of(of)}{start}-{end}"
        found = self._cache.get(key)
        return self._asked(of, key, lambda name: self._store.get_range(name, start, end)) if found is None else found

    def _asked(self, of: DelayedFile, kept_as: str, ask: Callable[[str], Payload]) -> pa.Buffer:
        try:
            data = ask(of.name)
        except ObjectMissingError as e:
            raise DataLossError(
                "delayed events are missing: the object was removed; give them up with spillable repair",
                self._where(of),
            ) from e
        found = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        self._cache.put(kept_as, found)
        return found

    def frames(self, of: DelayedFile, start: int = 0, *, verify: bool = False) -> Iterator[DelayedFrame]:
        """Yield the PUT frames of a side file that count; see `SideFiles.frames`."""
        if of.end > _LARGE_BYTES and not verify and self._cache.get(of.name) is None:
            listed = parse_dues_table(bytes(self._behind(of)), self._seed(of.name), start)
            if listed is not None and not of.holes:
                yield from listed
                return
        data = ObjectBytes(bytes(self._data(of)))
        damaged = partial(self.damaged, of)
        yield from frames_of(data, self._seed(of.name), of, start, damaged=damaged, verify=verify)

    def puts(self, of: DelayedFile, offsets: Sequence[int]) -> Generator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the header and the events of PUT frames; see `SideFiles.puts`."""
        seed, needed = self._seed(of.name), sorted({offset // _WINDOW_BYTES for offset in offsets})
        is_known = of.end <= _LARGE_BYTES or self._cache.get(of.name) is not None
        is_whole = is_known or len(needed) * _WINDOW_BYTES * _WHOLE_PART > of.end
        windows: dict[int, pa.Buffer] = {}
        if not is_whole:
            asked = in_parallel(self._store.root, [partial(self._window, of, number) for number in needed])
            windows = dict(zip(needed, asked, strict=True))
        data, base = self._data(of) if is_whole else pa.py_buffer(b""), 0
        for offset in offsets:
            if not is_whole:
                number = offset // _WINDOW_BYTES
                data, base = windows[number], number * _WINDOW_BYTES
            at = offset - base
            header = parse_header(data, at, seed) if at + HEADER_SIZE_BYTES <= len(data) else None
            if header is None or header.type is not FrameType.PUT:
                raise self.damaged(of, offset)
            begin = at + HEADER_SIZE_BYTES
            payload = data[begin : begin + header.length]  # fewer bytes where the object was cut
            if len(payload) < header.length and not is_whole:  # of one large event
                start = offset + HEADER_SIZE_BYTES
                payload = self._range(of, start, start + header.length)
            if not payload_matches(header, payload):
                raise self.damaged(of, offset)
            yield header, payload

    def content(self, of: DelayedFile) -> bytes:
        """Return the bytes of a side file that count; see `SideFiles.content`."""
        for _ in self.frames(of, verify=True):
            pass
        return bytes(self._data(of).slice(0, of.end))

    def damaged(self, of: DelayedFile, offset: int) -> CorruptionError:
        """Return the error of a file that is damaged; it is asked for again by the next read."""
        self._cache.forget(of.name)
        self._cache.forget_all(_parts_of(of))
        return CorruptionError("a frame of delayed events is damaged; see spillable verify", self._where(of), offset)

    def _where(self, of: DelayedFile) -> str:
        return f"{self._store.root}/{of.name}"

    def remove(self, of: DelayedFile) -> None:
        """Leave an object to the collector: others may still read it who do not know."""
        self.left.append(of.name)


def _parts_of(of: DelayedFile) -> str:
    """Return what the names begin with that parts of an object are kept as."""
    return f"{of.name}@"
