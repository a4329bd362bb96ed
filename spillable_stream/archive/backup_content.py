"""What a channel that is created from a backup begins with: a state, and the events in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.archive.archived_delays import read_delays
from spillable_stream.archive.archived_events import read_events, read_file
from spillable_stream.archive.manifest import Manifest, damaged_backup
from spillable_stream.engine.options_by_storage import fitting_options
from spillable_stream.errors import ChannelError
from spillable_stream.format.frame import FrameHeader, frame_size
from spillable_stream.format.packing import MALFORMED, unpack
from spillable_stream.objects.store import Store
from spillable_stream.option_types import ChannelOptions
from spillable_stream.progress import Meter
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.contents import Restore, Trimmed
from spillable_stream.state.delays import DelayedFile
from spillable_stream.state.spill_rules import MemoryTierInfo

__all__ = ["BackupContent", "MadeChannel", "is_there_error"]


class MadeChannel(NamedTuple):
    """A channel that was created from a backup.

    Args:
        channel: its UUID.
        events: how many events are in it.
        delayed_events: how many more wait until they are due.
    """

    channel: str
    events: int
    delayed_events: int

    @classmethod
    def of(cls, channel: str, state: ChannelState) -> MadeChannel:
        """Return what a state says of a channel; its first block may begin with events that have left."""
        first = state.first_kept
        events = sum(max(0, block.last_id - max(first, block.first_id) + 1) for block in state.blocks)
        return cls(channel, events, state.delays.events)


def is_there_error(path: object) -> ChannelError:
    """Return the error of a restore that would overwrite something."""
    return ChannelError(f"{path} is there: move it away, or restore to another path. Nothing was restored")


class BackupContent:
    """A backup, as a restore reads it.

    Args:
        store: the backup's store.
        manifest: the backup.
        where: what users call its place.

    Attributes:
        manifest: the backup.
        where: what users call its place.
    """

    def __init__(self, store: Store, manifest: Manifest, where: str) -> None:
        self.manifest = manifest
        self.where = where
        self._store = store

    def state(self, *, in_store: bool) -> ChannelState:
        """Return the state of the backup, without events, as that of a channel whose log begins now.

        Args:
            in_store: whether that channel is in a store. It keeps the options that a channel there can have.

        Raises:
            CorruptionError: the backup is damaged.
            StorageError: the backup's store refused.
        """
        data = read_file(self._store, self.manifest.state)
        try:
            state = ChannelState.from_image(unpack(data))
        except MALFORMED as e:
            text = f"the state of the backup can't be read ({e})"
            raise damaged_backup(self._store, self.manifest.state.key, text) from e
        state.memory.open = False
        if in_store:
            state.memory = MemoryTierInfo()
            state.recoveries = []
        state.overflow = False
        state.memory_only_sinks.clear()
        state.memory_only_groups.clear()
        state.producers.memory_only.clear()
        for pending in state.pending.values():
            pending.in_memory = False
        state.trimmed = Trimmed()
        state.owners = {}
        state.restores.append(Restore(state.last_id, secrets.token_hex(8)))
        for group in state.groups.values():  # a sink's note may name events that this channel will give others' IDs
            group.token = secrets.token_hex(8)
        state.options = ChannelOptions.of(fitting_options(state.options.values(), in_store=in_store))
        return state

    def delays(self, state: ChannelState) -> Iterator[tuple[DelayedFile, bytes]]:
        """Yield each side file with events that wait, and its content; `read_delays` says what it raises.

        Args:
            state: what `state` returned.
        """
        return read_delays(self._store, self.manifest, state.delays.files.values())

    def frames(self, state: ChannelState, meter: Meter) -> Iterator[tuple[FrameHeader, pa.Buffer]]:
        """Yield the frames of the backup that the channel keeps, in order, each with a proven payload.

        Args:
            state: what `state` returned.
            meter: counts bytes.

        Raises:
            CorruptionError: the backup is damaged.
            StorageError: the backup's store refused.
        """
        meter.begin(sum(file.size_bytes for file in self.manifest.files))
        for file in self.manifest.files:
            for header, payload in read_events(self._store, self.manifest.channel, file):
                meter.add(frame_size(header.length))
                if header.write_order_id + header.count - 1 >= state.first_kept:
                    yield header, payload
