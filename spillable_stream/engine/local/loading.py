"""Loads the state that a channel's head publishes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from spillable_stream.errors import ChannelBusyError, CorruptionError, DataLossError
from spillable_stream.format.file_names import Tier, log_name
from spillable_stream.format.frame import frame_size
from spillable_stream.format.head_page import CommitPoint
from spillable_stream.format.packing import NONSENSE
from spillable_stream.log.checkpoints import Checkpoints
from spillable_stream.log.commit_lock import CommitLock
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.log.frames import LocatedFrame
from spillable_stream.log.look_again import looks
from spillable_stream.log.recovery import oldest_file
from spillable_stream.log.tier_logs import Positions, Tiers
from spillable_stream.log.wal import Position
from spillable_stream.progress import Meter, meter_of_open
from spillable_stream.state.channel_state import ChannelState, restored
from spillable_stream.state.image import image_of
from spillable_stream.state.ranges import events_in

__all__ = ["LoadedState", "StateLoader", "bytes_between", "metered"]

_PAUSES_SECONDS = (0.0, 0.0, 0.0, 0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 0.0)
"""How long to wait after each look: first not at all, since whoever was in the way has left a newer state."""

LoadedState = tuple[ChannelState, Positions]
"""A state, and the positions in the logs that it reflects."""


class StateLoader:
    """Loads the state of a channel: starts from an image and replays the logs after it.

    Args:
        lock: the commit lock and head.
        tiers: its logs.
        checkpoints: its checkpoints.
    """

    def __init__(self, lock: CommitLock, tiers: Tiers, checkpoints: Checkpoints) -> None:
        self._lock = lock
        self._fs = lock.fs
        self._layout = lock.layout
        self._tiers = tiers
        self._checkpoints = checkpoints

    def load(self, replayed: LoadedState | None = None) -> LoadedState:
        """Return the state at the published ends of the logs.

        Args:
            replayed: the state that a recovery has replayed; used if nothing was published since.

        Raises:
            ChannelBusyError: the channel changes faster than it can be read.
            CorruptionError: a log is damaged.
            DataLossError: events are missing.
        """
        before: CorruptionError | None = None
        for look in looks(self._lock.published, len(_PAUSES_SECONDS)):
            try:
                if replayed is not None and look.number == 1 and replayed[1] == Positions.of(look.before):
                    return self._complete(replayed)
                return self._complete(self.load_at(look.before))
            except FileNotFoundError:  # it was listed: another process removed it, and has published nothing by that
                before = None
            except CorruptionError as e:
                # Another process may have created a checkpoint and removed files: the next look begins with it.
                if before is not None and (type(e), e.path, e.offset) == (type(before), before.path, before.offset):
                    raise
                before = e
            time.sleep(_PAUSES_SECONDS[look.number - 1])
        raise ChannelBusyError(f"{self._layout.path} changes faster than it can be read; try again")

    def load_at(self, ends: CommitPoint) -> LoadedState:
        """Return the state at given ends of the logs; files that it needs may be gone.

        Args:
            ends: the ends that the head publishes, or that a recovery found and has not published yet.

        Raises:
            FileNotFoundError: a file was removed meanwhile.
            CorruptionError: a log is damaged.
            DataLossError: a file of a log is missing.
        """
        end = Positions.of(ends)
        state, start = self._memory_base(ends) if ends.memory.file_id else self.disk_base(end.disk)
        meter = meter_of_open("bytes")
        meter.begin(bytes_between(start.disk, end.disk, state))
        apply = metered(partial(self.apply, state), meter)
        for file_id, found in self._tiers.records(start, end):
            apply(file_id, found)
        meter.end()
        return state, end

    def require_complete(self, state: ChannelState) -> None:
        """Prove that the file of every needed event exists, where nobody publishes meanwhile.

        Raises:
            DataLossError: a file is missing.
        """
        for error in self._missing(state).values():
            raise error

    def _complete(self, loaded: LoadedState) -> LoadedState:
        """Return a state when the file of every needed event has proven to exist; a later one, if some were gone.

        Whoever removes a file has published before that nothing in it is needed any more. So a file that is gone is
        missing only if a state still needs it that was published after that showed.

        Raises:
            DataLossError: a file is missing.
        """
        state, positions = loaded
        missed = self._missing(state)
        if not missed:
            return loaded
        end = Positions.of(self._lock.published())
        for file_id, found in self._tiers.records(positions, end):
            self.apply(state, file_id, found)
        for path, error in self._missing(state).items():
            if path in missed:
                raise error
        return state, end

    def apply(self, state: ChannelState, file_id: int, found: LocatedFrame) -> None:
        """Apply a frame of a log file to a state.

        Raises:
            CorruptionError: the frame is invalid, though its checksums are right.
        """
        try:
            state.apply(file_id, found.offset, found.header, found.payload)
        except CorruptionError as e:
            if e.path:
                raise
            raise type(e)(e.args[0], str(self._layout.log_file(file_id)), found.offset) from e
        except NONSENSE as e:
            text = f"a {found.header.type.name} is invalid: {type(e).__name__}: {e}"
            raise CorruptionError(text, str(self._layout.log_file(file_id)), found.offset) from e

    def _memory_base(self, published: CommitPoint) -> tuple[ChannelState, Positions]:
        """Return the state in the header of the memory tier's newest file, and where replay starts."""
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
        state = restored(header.state, path)
        try:
            disk = Position(*image_of(header.state)["disk"])
        except NONSENSE as e:
            raise CorruptionError("a state of the memory tier does not say where the disk's log was", path, 0) from e
        if disk > Position(*published.disk[:2]):
            raise DataLossError(f"the memory tier knows of the disk tier's log up to {disk}, beyond its end", path)
        return state, Positions(disk, Position(file_id, 0))

    def disk_base(self, end: Position | None) -> tuple[ChannelState, Positions]:
        """Return the state to replay from: that of the newest valid checkpoint, or else of the oldest file.

        Args:
            end: the published end of the disk tier's log; None if none is published, as after a reboot.

        Raises:
            DataLossError: the file that a checkpoint was created in is missing.
        """
        for position, image in self._checkpoints.load():
            if end is not None and position > end:
                continue  # another process created it meanwhile
            if position.file_id not in self._layout.log_files(self._fs):
                raise DataLossError(
                    f"{log_name(position.file_id)} is missing, and a checkpoint needs it; {self._layout.restore_it}",
                    str(self._layout.path),
                )
            return restored(image, str(self._layout.checkpoint_dir)), Positions(position)
        file_id, header = oldest_file(self._fs, self._tiers.disk, end.file_id if end else None)
        return restored(header.state, str(self._layout.log_file(file_id))), Positions(Position(file_id, 0))

    def _missing(self, state: ChannelState) -> dict[str, DataLossError]:
        """Return what to say of each file that is not there and has events that the state needs, by path."""
        found: dict[str, DataLossError] = {}
        if missing := state.missing():
            path = str(self._layout.path)
            text = f"{events_in(missing, 'are')} missing: data files were removed; {self._layout.restore_them}"
            found[path] = DataLossError(text, path)
        present: set[int | str] = set(self._layout.segments(self._fs))
        for tier in Tier:
            present.update(self._layout.log_files(self._fs, tier))
        for block in state.blocks:
            if block.file not in present:
                path = str(file := self._layout.file(block.file))
                what = events_in([(block.first_id, block.last_id)], "are") + " missing"
                text = f"{what}: the file {file.name} was removed; {self._layout.restore_it}"
                found.setdefault(path, DataLossError(text, path))
        delayed = DelayedFiles(self._fs, self._layout)
        for waiting in state.delays.files.values():
            if not self._fs.exists(file := delayed.path(waiting)):
                text = f"delayed events are missing: the file {file.name} was removed; {self._layout.restore_it}"
                found[str(file)] = DataLossError(text, str(file))
        return found


def bytes_between(start: Position, end: Position, state: ChannelState) -> int:
    """Return about how much of the disk tier's log lies between two places.

    Args:
        start: the first place.
        end: the second one.
        state: says how large the files are.
    """
    return max(0, (end.file_id - start.file_id) * state.options.max_file_size + end.offset - start.offset)


def metered(apply: Callable[[int, LocatedFrame], None], meter: Meter) -> Callable[[int, LocatedFrame], None]:
    """Return what applies a frame, given its file's number, and counts its bytes.

    Args:
        apply: applies it.
        meter: counts; where nobody is told, it costs nothing.
    """
    if not meter.is_told:
        return apply

    def apply_and_count(file_id: int, found: LocatedFrame) -> None:
        apply(file_id, found)
        meter.add(frame_size(found.header.length))

    return apply_and_count
