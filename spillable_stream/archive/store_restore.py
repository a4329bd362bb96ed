"""Creates a channel from a backup in a store.

::

    segments/0…0-merged.0.UUID      the events, in objects that nobody else writes; read again when all are there
    segments/0…0-delayed.0.UUID     those that wait until they are due
    log/0…0                         the state, which says where the events are: created only if it is absent
    channel.json                    from here on it is a channel

So of any number of restores, and of creators of channels, whoever creates slot 0 decides, and the others remove what
they wrote. What a restore leaves that was killed before that is removed by the collector of the channel that is created
there. One that was killed after it left all but ``channel.json``, which the next restore of the same backup creates.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

from spillable_stream.archive.backup_content import BackupContent, MadeChannel, is_there_error
from spillable_stream.engine.store.object_opening import require_place
from spillable_stream.errors import ChannelError, CorruptionError
from spillable_stream.format.expiry import Expiry
from spillable_stream.format.file_names import seed_name
from spillable_stream.format.frame import FrameHeader, Payload, encode_with, file_seed
from spillable_stream.format.packing import pack
from spillable_stream.format.slot import SlotHeader
from spillable_stream.objects.backoff import Backoff
from spillable_stream.objects.cache import ObjectCache
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.identity import create_own_identity, finish_identity, read_first_slot
from spillable_stream.objects.location import Location
from spillable_stream.objects.object_reader import ObjectReader
from spillable_stream.objects.open_store import open_store
from spillable_stream.objects.self_test import CHECKS, require_sound
from spillable_stream.objects.slots import slot_key
from spillable_stream.objects.staged_object import MERGED_OWNER, SEGMENTS, segment_key
from spillable_stream.objects.store import Store, StoreError, Upload
from spillable_stream.progress import Meter, OnProgress
from spillable_stream.state.block import Block
from spillable_stream.state.blocks import Blocks
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.delays import Delays

__all__ = ["MayReplace", "restore_to_store"]

MayReplace = Callable[[str], bool]
"""Is told what another process began and did not finish, and tells whether to replace it."""

_OBJECT_BYTES = 64 << 20
_WRITE_BYTES = 1 << 20
_CREATION_SECONDS = 30.0


def restore_to_store(
    content: BackupContent, to: Location, new_identity: bool, progress: OnProgress | None, may_replace: MayReplace
) -> MadeChannel:
    """Create a channel from a backup; arguments and errors are those of `spillable_stream.archive.restore.restore`."""
    require_place(to)
    store, state = open_store(to), content.state(in_store=True)
    begun: SlotHeader | None = None
    if first := next(_keys(store), ""):
        if first != slot_key(0) or (begun := _begun(store)) is None:
            raise is_there_error(to)
        if _is_of(begun, content, state, new_identity):
            return _finished(store, begun, progress)
        _require_replaceable(store, begun, may_replace)
    require_sound(store)
    channel = str(uuid.uuid4()) if new_identity else content.manifest.channel
    objects = _EventObjects(store, channel)
    try:
        state.blocks = objects.write(content.frames(state, Meter("restore", "bytes", progress)), state)
        objects.write_delays(content, state)
        _check(store, channel, state, Meter("verify", "bytes", progress))
    except BaseException:
        objects.remove()
        raise
    if begun is not None:
        _remove_begun(store, begun, objects)
    # From here on slot 0 may be there and name the objects, whatever is raised.
    writer = f"{os.uname().nodename} pid {os.getpid()}"
    if not create_own_identity(store, channel, dict(state.image()), writer, Backoff(_CREATION_SECONDS)):
        objects.remove()
        raise is_there_error(to)
    return MadeChannel.of(channel, state)


def _keys(store: Store) -> Iterator[str]:
    """Yield the keys of the objects, without those that a killed restore may have left before it created slot 0."""
    return (info.key for info in store.list("") if not info.key.startswith((SEGMENTS, CHECKS)))


def _begun(store: Store) -> SlotHeader | None:
    """Return what slot 0 says if there is nothing more: its creator was killed then, or is about to finish."""
    header = read_first_slot(store)
    return header if set(_keys(store)) == {slot_key(0)} else None


def _is_of(begun: SlotHeader, content: BackupContent, state: ChannelState, new_identity: bool) -> bool:
    """Tell whether a restore of the same backup, to the same kind of identity, wrote a slot 0."""
    theirs = ChannelState.from_image(begun.state or {})
    is_same_backup = _without_keys(theirs) == _without_keys(state)
    return is_same_backup and new_identity != (begun.channel == content.manifest.channel)


def _finished(store: Store, begun: SlotHeader, progress: OnProgress | None) -> MadeChannel:
    """Finish what another restore of the same backup began. Nothing is removed: it may be alive, and do the same.

    Raises:
        ChannelError: another channel is there by now.
        CorruptionError: its events are not there.
        StorageError: the store refused or failed.
    """
    theirs = ChannelState.from_image(begun.state or {})
    _check(store, begun.channel, theirs, Meter("verify", "bytes", progress))
    if not finish_identity(store, begun, Backoff(_CREATION_SECONDS)):
        raise is_there_error(store.root)
    return MadeChannel.of(begun.channel, theirs)


def _require_replaceable(store: Store, begun: SlotHeader, may_replace: MayReplace) -> None:
    """Ask whether a slot 0 that something else's creator left may go: nobody can know whether that creator still lives.

    Raises:
        ChannelError: it may not.
    """
    what = (
        f"{begun.writer} began a channel at {store.root} that is not this backup, or not with this identity, and has "
        "not finished it"
    )
    if not may_replace(what):
        raise ChannelError(
            f"{what}: remove it with --yes (may_replace), once that process is gone, or restore to another path. "
            "Nothing was restored"
        )


def _remove_begun(store: Store, begun: SlotHeader, objects: _EventObjects) -> None:
    """Remove the slot 0 of a creator that has not finished; from here on there is nothing, or this restore's channel.

    Raises:
        ChannelError: that creator, or another one, has come further meanwhile.
        StoreError: the store refused or failed.
    """
    now = _begun(store)
    if now is None or now.token != begun.token:
        objects.remove()
        raise is_there_error(store.root)
    store.delete(slot_key(0))


def _without_keys(state: ChannelState) -> bytes:
    """Return a small state as it is wherever its delayed events are, and whichever restore made it."""
    files = [file._replace(name="").fields() for file in state.delays.files.values()]
    groups = {name: replace(group, token="").image() for name, group in state.groups.items()}
    restores = [*state.restores[:-1], *[restore.last_id for restore in state.restores[-1:]]]
    more = Delays(state.delays.next_number, files).image()
    return pack({**state.small(), "groups": groups, "restores": restores, **more})


def _check(store: Store, channel: str, state: ChannelState, meter: Meter) -> None:
    """Read the events where the state says that they are.

    Raises:
        CorruptionError: some are not there, in the order or waiting.
        StoreError: the store refused or failed.
    """
    waiting = DelayedObjects(store, channel, ObjectCache(0))
    for file in state.delays.files.values():
        waiting.content(file)
    extents = [block.extent() for block in state.blocks]
    meter.begin(sum(block.payload_bytes for block in state.blocks))
    reader = ObjectReader(store, channel, lambda _: None)
    reader.expect(extents)
    with contextlib.closing(reader):
        for extent in extents:
            expected = extent.first_id
            for header, payload in reader.frames(extent):
                if header.write_order_id != expected:
                    break
                expected += header.count
                meter.add(len(payload))
            if expected != extent.last_id + 1:
                raise CorruptionError(
                    f"event {expected} is not there after it was written; nothing was restored. spillable check-store "
                    "tests the store",
                    f"{store.root}/{extent.file}",
                    extent.offset,
                )
    meter.end()


class _EventObjects:
    """Writes objects that hold nothing but events.

    Args:
        store: where.
        channel: the channel's UUID.
    """

    def __init__(self, store: Store, channel: str) -> None:
        self._store = store
        self._channel = channel
        self._keys: list[str] = []
        self._upload: Upload | None = None
        self._parts: list[Payload] = []
        self._parts_bytes = 0
        self._end = self._seed = 0

    def write(self, frames: Iterator[tuple[FrameHeader, Payload]], state: ChannelState) -> Blocks:
        """Write all frames, and return where they are.

        Args:
            frames: the events, in order.
            state: the channel's state.
        """
        found = Blocks()  # which merges neighbors in one numbered file: each object has a number at first
        is_dated = state.options.retention_ms > 0
        try:
            for header, payload in frames:
                if self._upload is None or self._end >= _OBJECT_BYTES:
                    self._end_object()
                    self._begin_object()
                where = header.write_order_id, header.count, len(self._keys), self._end, header.length, header.time_us
                until_us, expiry = header.time_us if is_dated else 0, Expiry.after(header.ttl_us, header.time_us)
                found.add(Block(*where, 0, 0, 0, until_us, *expiry))
                self._append(encode_with(header, payload, self._seed))
            self._end_object()
        except BaseException:
            if self._upload is not None:
                self._upload.discard()
            raise
        for block in found:
            assert isinstance(block.file, int)
            block.file = self._keys[block.file - 1]
        return Blocks(found, state.floor - 1)

    def write_delays(self, content: BackupContent, state: ChannelState) -> None:
        """Write the events of a backup that wait, and note in the state where they are."""
        objects = DelayedObjects(self._store, self._channel, ObjectCache(0))
        for file, data in content.delays(state):
            name = objects.create(data, file, content.manifest.channel)
            self._keys.append(name)
            state.delays.files[file.number] = file._replace(name=name)

    def _begin_object(self) -> None:
        key = segment_key(0, MERGED_OWNER, 0)
        self._upload = self._store.upload(key)
        self._keys.append(key)
        self._seed, self._end = file_seed(self._channel, seed_name(key)), 0

    def _append(self, parts: list[Payload]) -> None:
        self._parts += parts
        size_bytes = sum(map(len, parts))
        self._parts_bytes += size_bytes
        self._end += size_bytes
        if self._parts_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts and self._upload is not None:
            self._upload.write(b"".join(map(bytes, self._parts)))
        self._parts, self._parts_bytes = [], 0

    def _end_object(self) -> None:
        if self._upload is not None:
            self._flush()
            self._upload.finish()
            self._upload = None

    def remove(self) -> None:
        """Remove what was written, as far as the store does it now."""
        with contextlib.suppress(StoreError):
            for key in self._keys:
                self._store.delete(key)
