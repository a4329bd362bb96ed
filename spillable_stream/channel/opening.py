"""From files to a state: loading what is published, recovering what is not, reporting what is lost."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from spillable_stream.channel.group_position import read_group_position
from spillable_stream.channel.memory_tier import MemoryDirectory
from spillable_stream.channel.ranges import Range
from spillable_stream.channel.requests import Control, Plan
from spillable_stream.channel.state import ChannelState
from spillable_stream.errors import (
    ChannelBusyError,
    CorruptionError,
    DataLossError,
    MemoryLossWarning,
    StorageError,
)
from spillable_stream.format.batch import decode_schema
from spillable_stream.format.frame import FrameType
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.head import Published, TierEnd
from spillable_stream.log.layout import Tier, generation_of, in_memory, log_name
from spillable_stream.log.reader import EventReader
from spillable_stream.log.recovery import discard_unfinished_file, oldest_file, recover
from spillable_stream.log.scan import Scanned
from spillable_stream.log.tiers import Positions, Tiers
from spillable_stream.log.wal import Position
from spillable_stream.options import CHANNEL, defaults

__all__ = ["Opening"]

_log = logging.getLogger(__name__)

_ATTEMPTS = 5


class Opening:
    """Loads and recovers the state of a channel.

    Args:
        lock: the channel's lock and head.
        tiers: its logs.
        checkpoints: its checkpoints.
        directory: the memory tier's directory.
    """

    def __init__(self, lock: CommitLock, tiers: Tiers, checkpoints: Checkpoints, directory: MemoryDirectory) -> None:
        self._lock = lock
        self._fs = lock.fs
        self._layout = lock.layout
        self._tiers = tiers
        self._checkpoints = checkpoints
        self._directory = directory

    # ── loading ─────────────────────────────────────────────────────────────────────────────────

    def is_current(self) -> bool:
        """Tell whether the head and the memory tier that it publishes are of use, so that `load` can begin."""
        published = self._lock.head.read()
        return published is not None and self._directory.is_present(published)

    def load(self) -> tuple[ChannelState, Positions]:
        """Return the state at the published ends.

        Raises:
            CorruptionError: a log is damaged.
            DataLossError: events are missing.
        """
        for attempt in range(_ATTEMPTS):
            published = self._lock.published()
            end = Positions.of(published)
            try:
                state, start = self._memory_base(published) if published.memory.file_id else self._disk_base(end.disk)
                for file_id, found in self._tiers.records(start, end):
                    state.apply(file_id, found.offset, found.header, found.payload)
                self._check_complete(state)
            except (FileNotFoundError, DataLossError, CorruptionError):
                # Another process may have made a checkpoint and deleted files meanwhile.
                if attempt == _ATTEMPTS - 1 or (attempt and self._lock.published() == published):
                    raise
                continue
            return state, end
        raise ChannelBusyError(f"{self._layout.path} changes faster than it can be read; try again")

    def _memory_base(self, published: Published) -> tuple[ChannelState, Positions]:
        """Return the state that the newest file of the memory tier begins with."""
        file_id = published.memory.file_id
        path = str(self._layout.log_file(file_id))
        try:
            header = self._tiers.memory.read_file_header(file_id)
        except FileNotFoundError as e:
            raise DataLossError(
                "the memory tier's directory was removed; close every handle and open the channel again", path
            ) from e
        if header is None:
            raise CorruptionError("the header of a file of the memory tier is damaged", path, 0)
        disk = Position(*header.state["disk"])
        return _restored(header.state), Positions(disk, Position(file_id, 0))

    def _disk_base(self, end: Position | None) -> tuple[ChannelState, Positions]:
        """Return the state to replay from: the newest good checkpoint's, else the oldest file's.

        Args:
            end: what was published; None while nothing is, after a reboot.
        """
        for position, image in self._checkpoints.load():
            if end is not None and position > end:
                continue  # made by another process since
            if position.file_id not in self._layout.log_files(self._fs):
                raise DataLossError(
                    f"{log_name(position.file_id)} is missing: a checkpoint was made of it", str(self._layout.path)
                )
            return _restored(image), Positions(position)
        file_id, header = oldest_file(self._fs, self._tiers.disk)
        return _restored(header.state), Positions(Position(file_id, 0))

    def _check_complete(self, state: ChannelState) -> None:
        """Prove that every event that is still needed has a file."""
        if missing := state.missing():
            raise DataLossError(
                f"the events {_shown(missing)} are missing: data files were removed", str(self._layout.path)
            )
        present: set[int | str] = set(self._layout.segments(self._fs))
        for tier in Tier:
            present.update(self._layout.log_files(self._fs, tier))
        for block in state.blocks:
            if block.file not in present:
                raise DataLossError(
                    f"the events {block.first_id} to {block.last_id} are missing: the file "
                    f"{self._layout.file(block.file).name} was removed",
                    str(self._layout.path),
                )

    # ── recovery; the channel's lock is held, and nobody else has the channel open ──────────────

    def recover(self) -> int:
        """Find the ends of the logs, cut what is torn, settle what became of the memory tier, publish.

        Returns:
            How many bytes were cut from the disk tier.

        Raises:
            CorruptionError: bytes that had been synced are damaged.
            DataLossError: data files are missing.
        """
        self._layout.make_small_directories(self._fs)
        discard_unfinished_file(self._fs, self._tiers.disk, self._checkpoints.newest_file_id())
        known, same_boot = self._lock.head.read_any_boot(), self._lock.head.read() is not None
        state, start = self._disk_base(None)

        def apply(file_id: int, found: Scanned) -> None:
            state.apply(file_id, found.offset, found.header, found.payload)

        found = recover(self._fs, self._tiers.disk, start.disk, apply)
        disk = TierEnd(*found.end)
        _log.info("recovered %s: the log ends at %s, event %d", self._layout.path, found.end, state.last_id)
        self._lock.head.write_host()
        if not state.memory.open:
            self._lock.publish(Published(disk, last_id=state.last_id))
            self._directory.remove()
        elif not self._recover_memory(state, disk, trusted=same_boot):
            self._lose(state, found.end, known, same_boot)
        return found.torn_bytes

    def _recover_memory(self, state: ChannelState, disk: TierEnd, *, trusted: bool) -> bool:
        """Publish the memory tier's end and return true, or false if the tier is gone or of no use.

        Args:
            state: what the disk tier says.
            disk: the end of its log.
            trusted: whether the host ran on; after a reboot every event is read, since nothing was synced.
        """
        files = self._layout.log_files(self._fs, Tier.MEMORY)
        if not self._directory.is_own() or not files or generation_of(files[-1]) != state.memory.generation:
            return False
        try:
            end = recover(self._fs, self._tiers.memory, Position(files[-1], 0), lambda *_: None).end
            self._lock.publish(Published(disk, TierEnd(*end)))
            whole, _ = self.load()
            if not trusted:
                self._read_memory(whole)
        except (CorruptionError, StorageError, FileNotFoundError, KeyError) as e:
            _log.warning("the memory tier of %s is of no use: %s", self._layout.path, e)
            self._directory.remove()  # what was published of it meanwhile must not be believed
            return False
        self._lock.publish(Published(disk, TierEnd(*end), last_id=whole.last_id))
        return True

    def _read_memory(self, state: ChannelState) -> None:
        """Prove that every event in memory can be read."""
        schemas = [decode_schema(s) for s in state.schemas]
        reader = EventReader(self._fs, self._layout, schemas.__getitem__)
        try:
            for block in state.blocks.memory:
                for extent in state.blocks.extents(block.first_id, block.last_id):
                    if in_memory(extent.file):
                        for _ in reader.read(extent):
                            pass
        finally:
            reader.close()

    def _lose(self, state: ChannelState, end: Position, known: Published | None, same_boot: bool) -> None:
        """Record what went with the memory tier, publish, and warn.

        Args:
            state: what the disk tier says.
            end: the end of its log.
            known: what the head said last; it is up to date if the host ran on.
            same_boot: whether it did.
        """
        groups = {}
        for name, group in state.groups.items():
            position, ahead = read_group_position(self._fs, self._layout, name)
            group.take(1, position)
            for first, last in ahead:
                group.take(first, last)
            groups[name] = [group.position, list(group.ahead)]
        last_id = max(state.last_id, known.last_id if known else 0)
        reserved = state.memory.reserved_id
        state.do_without_memory(last_id + 1, groups)
        lost = state.missing()
        doubtful = [] if same_boot or reserved <= last_id else [(last_id + 1, reserved)]
        if lost or doubtful:  # before it is recorded: rather twice than never
            message = _loss(str(self._layout.path), lost, doubtful)
            _log.warning(message)
            warnings.warn(MemoryLossWarning(message, tuple(lost), tuple(doubtful)), stacklevel=2)
        next_id = max(last_id, *(b for _, b in doubtful), 0) + 1
        value = {"lost": lost, "doubtful": doubtful, "next": next_id, "groups": groups}
        plan = Plan(state, Tier.DISK, start=end.offset)
        Control(FrameType.LOST, value).plan(plan)
        end = self._tiers.disk.append_unpublished(end, plan.entries)
        self._lock.publish(Published(TierEnd(*end), last_id=next_id - 1))
        self._directory.remove()


def _restored(image: dict[str, Any]) -> ChannelState:
    """Return the state of an image; one that an earlier version made has fewer options."""
    return ChannelState.from_image({**image, "options": {**defaults(CHANNEL), **image["options"]}})


def _loss(path: str, lost: list[Range], doubtful: list[Range]) -> str:
    count = sum(b - a + 1 for a, b in lost)
    message = f"the memory tier of {path} is gone: "
    message += f"{count:,} events are lost, {_shown(lost)}" if lost else "no event is known to be lost"
    if doubtful:
        message += (
            f"; events that were put in the last moments before the host stopped would have IDs among "
            f"{_shown(doubtful)}, and be lost too"
        )
    return message + ". What was on disk is there, in order"


def _shown(ranges: list[Range]) -> str:
    return ", ".join(f"{a} to {b}" if a < b else str(a) for a, b in ranges)
