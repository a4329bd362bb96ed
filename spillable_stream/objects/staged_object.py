"""Staged segments in a store: the events of a large transaction, in an object of their own until a COMMIT adopts it.

A segment has the bytes that it has in a file (`spillable_stream.log.staged_file`). Its key says how old it is, by the
newest slot that its writer knew, and whose it is::

    segments/BIRTH-OWNER.BATCH.UUID      BIRTH: a slot's number, 20 digits; OWNER: a Spark query's ID, or "local"

Nobody adopts a segment that is born before the last trim's ``births``, so whoever removes those removes none that
counts.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable

from spillable_stream.errors import DiskSpaceError, StorageError
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.format.expiry import NEVER, Expiry, joined
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import Frame, FrameType, Payload, encode, file_seed
from spillable_stream.format.packing import pack
from spillable_stream.format.slot import OBJECT_FORMAT_VERSION
from spillable_stream.names import LOCAL_OWNER, check_owner
from spillable_stream.objects.store import Store

__all__ = [
    "MERGED_OWNER",
    "SEGMENTS",
    "StagedObjectWriter",
    "birth_of",
    "is_merged",
    "owner_of",
    "segment_key",
]

SEGMENTS = "segments/"
"""What the keys of segments begin with."""

MERGED_OWNER = "merged"
"""Whose the objects are that small slots are copied into."""

_KEY = re.compile(r"segments/([0-9]{20})-([A-Za-z0-9_-]{1,128})\.([0-9]{1,20})\.[0-9a-f]{32}\Z")


def segment_key(birth: int, owner: str, batch: int) -> str:
    """Return the key of a new segment; the arguments are `StagedObjectWriter`'s."""
    return f"{SEGMENTS}{birth:020d}-{owner}.{batch}.{uuid.uuid4().hex}"


def birth_of(key: str) -> int | None:
    """Return the newest slot that a segment's writer knew; None if the key is not a segment's."""
    found = _KEY.match(key)
    return int(found[1]) if found else None


def owner_of(key: str) -> tuple[str, int] | None:
    """Return a segment's owner and the owner's number for it; None if the key is not a segment's."""
    found = _KEY.match(key)
    return (found[2], int(found[3])) if found else None


def is_merged(key: str) -> bool:
    """Tell whether an object has copies of small slots."""
    return (owner_of(key) or ("", 0))[0] == MERGED_OWNER


class StagedObjectWriter:
    """Writes one segment.

    Args:
        store: where.
        channel: the channel's UUID.
        birth: the newest slot that is known.
        owner: whose it is (`check_owner`).
        batch: the owner's number for it.

    Attributes:
        name: its key.
        count: how many events it holds.
        payload_bytes: the size of their payloads.

    Raises:
        OptionError: no owner may have this name.
        StoreError: the store refused or failed.
    """

    def __init__(self, store: Store, channel: str, birth: int, owner: str = LOCAL_OWNER, batch: int = 0) -> None:
        check_owner(owner)
        self.name: str = segment_key(birth, owner, batch)
        self.count: int = 0
        self.payload_bytes: int = 0
        self._expiry: Expiry | None = None  # None before the first event
        self._end = 0
        self._failure: BaseException | None = None
        self._where = f"{store.root}/{self.name}"
        self._seed = file_seed(channel, seed_name(self.name))
        self._upload = store.upload(self.name)
        header = {"format": OBJECT_FORMAT_VERSION, "channel": channel, "segment": self.name}
        frame = Frame.of(FrameType.SEGMENT_HEADER, pack(header))
        try:
            self._send(encode(frame, self._seed, time_us=time.time_ns() // 1000))
        except BaseException:
            self.discard()
            raise

    def write(self, frames: Iterable[Frame]) -> None:
        """Append PUT frames.

        Raises:
            StorageError: the store refused or failed, now or before; the segment can only be discarded.
        """
        for frame in frames:
            time_us = time.time_ns() // 1000
            self._send(encode(frame, self._seed, write_order_id=self.count, time_us=time_us))
            self.count += frame.count
            self.payload_bytes += len(frame.payload)
            self._expiry = joined(self._expiry, Expiry.after(frame.ttl_us))

    def _send(self, buffers: list[Payload]) -> None:
        self._require_sound()
        try:
            for buffer in buffers:
                self._upload.write(buffer)
                self._end += len(buffer)
        except BaseException as e:  # a part of a frame may be in it
            self._failure = e
            raise

    def _require_sound(self) -> None:
        if self._failure is not None:
            kind = DiskSpaceError if isinstance(self._failure, DiskSpaceError) else StorageError
            raise kind(f"{self._where} can only be discarded: {self._failure}") from self._failure

    def finish(self) -> SegmentRef:
        """Make the object, and return what a COMMIT needs to adopt it.

        Raises:
            StorageError: the store refused or failed, now or before; the segment can only be discarded.
        """
        self._require_sound()
        try:
            self._upload.finish()
        except BaseException as e:
            self._failure = e
            raise
        expiry = self._expiry or NEVER
        return SegmentRef(self.name, self._end, self.count, self.payload_bytes, 0, 0, 0, *expiry)

    def close(self) -> None:
        """Keep what was staged; nothing is open."""

    def discard(self) -> None:
        """Forget what was staged. An object that is there already is removed by a collector, once it is old."""
        self._upload.discard()
