"""Which events a sink has written and not committed, so that none is written twice.

A sink writes, syncs, notes what it has written, and commits its take. After a crash in between the events come again:
the note says which they are, and how long each file was, so that what came after is cut.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.errors import CorruptionError
from spillable_stream.flow.durable_file import read_file, sync_directory
from spillable_stream.flow.late_channel import ChannelAwayError, asking
from spillable_stream.flow.runner import StartWaitsError
from spillable_stream.flow.slot_file import SlotFile
from spillable_stream.format.packing import NONSENSE
from spillable_stream.state.ranges import Range, RangeSet
from spillable_stream.system_errors import storage_error

__all__ = ["Note", "NoteFile", "NotedEvents", "WrittenEvents", "group_token", "ranges_of", "uncommitted", "without"]


def ranges_of(ids: pa.Array | pa.ChunkedArray) -> list[Range]:
    """Return ascending IDs as ranges."""
    numbers = ids.to_numpy()
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.concatenate(([0], breaks + 1))]
    lasts = numbers[np.concatenate((breaks, [len(numbers) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def without(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return some ranges without what is in others."""
    removed = RangeSet(others)
    return [gap for first, last in ranges for gap in removed.gaps(first, last)]


class WrittenEvents:
    """The events of a channel that its sinks have written and not committed; they share it. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Condition()
        self._ranges = RangeSet()
        self._unread: set[str] = set()
        self._failed: set[str] = set()  # of these
        self._away: set[str] = set()  # of these, since the channel is

    def await_note(self, sink: str) -> None:
        """Expect what the note of a sink says, until `note_is_read`."""
        with self._mutex:
            self._unread.add(sink)
            self._failed.discard(sink)
            self._away.discard(sink)

    def note_is_read(self, sink: str) -> None:
        """Expect no more of a sink: all that its note says was added, or the sink does not run any more."""
        with self._mutex:
            self._unread.discard(sink)
            self._mutex.notify_all()

    def note_fails(self, sink: str, *, is_away: bool) -> None:
        """Let nobody wait for the note of a sink, which can't be read now, and is still expected.

        Args:
            sink: the sink.
            is_away: whether only the channel keeps it from being opened, which is optional, and away.
        """
        with self._mutex:
            self._failed.add(sink)
            (self._away.add if is_away else self._away.discard)(sink)
            self._mutex.notify_all()

    def require_notes(self, seconds: float) -> None:
        """Wait until all is here that the channel's sinks have noted.

        Args:
            seconds: how long, while notes are being read.

        Raises:
            ChannelAwayError: a note is not read yet, and only since the channel is away.
            StartWaitsError: a note is not read yet: events that it names would be written again.
        """
        with self._mutex:
            self._mutex.wait_for(lambda: self._unread <= self._failed, seconds)
            if not self._unread:
                return
            if self._unread <= self._away:
                raise ChannelAwayError(f"{', '.join(sorted(self._unread))} waits for the same channel, which is away")
            has_failed = self._unread <= self._failed
            how = "can't be opened yet" if has_failed else "is still being opened"
            raise StartWaitsError(
                f"{', '.join(sorted(self._unread))} {how}, and may have written events of the same "
                "channel; see why, or remove it from the configuration",
                has_failed=has_failed,
            )

    def __bool__(self) -> bool:
        return len(self._ranges) > 0

    def add(self, ranges: Iterable[Range]) -> None:
        """Add events that were written."""
        with self._mutex:
            for first, last in ranges:
                self._ranges.add(first, last)

    def remove(self, ranges: Iterable[Range]) -> None:
        """Forget events whose take is committed."""
        if not self:
            return
        with self._mutex:
            for first, last in ranges:
                self._ranges.remove(first, last)

    def among(self, ranges: Iterable[Range]) -> list[Range]:
        """Return those of some events that are written and not committed."""
        with self._mutex:
            return [hit for first, last in ranges for hit in self._ranges.within(first, last)]

    def missing(self, ids: pa.ChunkedArray) -> pa.Array | None:
        """Return for each ID whether it is yet to be written; None if all are."""
        numbers = ids.to_numpy()
        with self._mutex:
            hits = self._ranges.within(int(numbers[0]), int(numbers[-1]))
        if not hits:
            return None
        keep = np.ones(len(numbers), bool)
        for first, last in hits:
            keep[np.searchsorted(numbers, first) : np.searchsorted(numbers, last, "right")] = False
        return pa.array(keep)


@dataclass(frozen=True, slots=True)
class Note:
    """What a sink has written.

    Args:
        channel: the UUID of the channel.
        files: the length of each open file, in bytes; what follows does not count.
        ranges: the events in them whose take may not be committed.
        closing: the file that gets its name now; its events are written if it has it.
        closing_ranges: these events.
        token: the token that the group had then; see `spillable_stream.state.group.GroupState`.
        in_use: what the names of open files begin and end with; None where they have their names from the beginning, or
            an earlier version wrote the note.
    """

    channel: str
    files: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()
    closing: str = ""
    closing_ranges: tuple[Range, ...] = ()
    token: str = ""
    in_use: tuple[str, str] | None = None


class NotedEvents:
    """The events that a note of one sink must name: those that it has written, and whose take may not be committed.

    A note replaces the one before. Events of that one may still be uncommitted: a restart finds them in one take with
    later ones, and may end again before it commits them.

    Args:
        written: the events of the channel that are written and not committed; gets those of the note.
        channel: the channel.
        group: the group that takes from it.
        found: the note of an earlier run.
        with_closing: whether the events of the file that was closing then are written too.
        in_use: see `Note`.
    """

    def __init__(
        self,
        written: WrittenEvents,
        channel: Channel,
        group: str,
        found: Note,
        *,
        with_closing: bool = False,
        in_use: tuple[str, str] | None = None,
    ) -> None:
        self._written, self._channel, self._group, self._in_use = written, channel, group, in_use
        ranges = (*found.ranges, *found.closing_ranges) if with_closing else found.ranges
        self._noted = uncommitted(channel, group, ranges, found.token)
        written.add(self._noted)

    def add(self, ranges: Iterable[Range] = ()) -> tuple[Range, ...]:
        """Return what notes must name from now on, with events that are being written.

        Call `WrittenEvents.add` when they are.
        """
        self._noted = list(RangeSet([*self._written.among(self._noted), *ranges]))
        return tuple(self._noted)

    def note(
        self,
        files: Mapping[str, int],
        ranges: Iterable[Range] = (),
        *,
        closing: str = "",
        closing_ranges: tuple[Range, ...] = (),
    ) -> Note:
        """Return a note of what is written, and being written; see `Note` and `add`."""
        token = group_token(self._channel, self._group)
        return Note(self._channel.uuid, files, self.add(ranges), closing, closing_ranges, token, self._in_use)


def group_token(channel: Channel, group: str) -> str:
    """Return a group's token, for a note; see `spillable_stream.state.group.GroupState`.

    The group is the caller's, so what this handle knows is enough.
    """
    with channel.engine().follower.as_known as state:
        found = state.groups.get(group)
        return found.token if found is not None else ""


def uncommitted(channel: Channel, group: str, ranges: Iterable[Range], token: str) -> list[Range]:
    """Return those of some events that a sink has written whose takes a group has not committed.

    There are none if the group has another beginning now: it was moved, or dropped and created again, or the channel
    was restored from a backup and may give their IDs to other events. Events that come now must be written.

    Args:
        channel: the channel.
        group: the group's name.
        ranges: the events.
        token: the group's, when they were written, as `group_token` returned it.

    Raises:
        ChannelAwayError: the channel is optional, and away.
    """
    with asking(channel), channel.engine().snapshot() as state:
        found = state.groups.get(group)
        if found is None or found.token not in ("", token):
            return []
        return [r for first, last in ranges for r in found.untaken(first, last)]


class NoteFile:
    """Keeps the note of a sink in a file, durably: with one sync, where it is not the first one."""

    def __init__(self, directory: str | os.PathLike[str], sink: str) -> None:
        self.path: Path = Path(directory) / f".spillable-{sink}.note"
        self._file = SlotFile(self.path)
        self._earlier = self.path.with_suffix(".json")  # where earlier versions keep it
        self._known: Note | None = None  # what a restart would find
        self._is_known = True

    def read(self, channel: Channel) -> Note | None:
        """Return the note about a channel, durably; None if there is none.

        Raises:
            CorruptionError: it is damaged.
            StorageError: it can't be read, or the disk refused.
        """
        self._known, self._is_known = Note(channel.uuid), True
        self._move_earlier()
        try:
            value = self._file.read()
        except CorruptionError as e:
            raise _damaged(self.path, e.args[0]) from e
        if value is None:
            return None
        note = _decoded(value, self.path)
        if note.channel != channel.uuid:
            return None
        self._known = note
        return note

    def _move_earlier(self) -> None:
        """Put the note of an earlier version in place of this one's.

        Where there is one, the earlier version has run last: this one removes it before it writes anything.
        """
        earlier = read_file(self._earlier)
        if earlier is None:
            return
        _decoded(earlier, self._earlier)
        self._file.replace(earlier.rstrip())
        try:
            self._earlier.unlink()
        except OSError as e:
            raise storage_error(f"can't remove {self._earlier}", e, "check the directory") from e
        sync_directory(self._earlier.parent)

    def write(self, note: Note) -> None:
        """Replace the note, durably.

        Raises:
            StorageError: the disk refused; which one a restart finds is not known before `take_back`.
        """
        self._is_known = False
        self._file.write(_encoded(note))
        self._known, self._is_known = note, True

    @property
    def last(self) -> Note | None:
        """The note that was written last without an error."""
        return self._known

    def names(self, ranges: Iterable[Range], since: Note | None) -> bool:
        """Tell whether a restart finds that some events are written: then they are, whatever interrupted the write.

        Args:
            ranges: the events.
            since: what was `last` before this write. It may name them, too: a seek brings events back.
        """
        return self._known is not None and self._known is not since and not without(ranges, self._known.ranges)

    def take_back(self) -> None:
        """Have a restart find the note that was written last without an error.

        Call it before what the other one names is cut or removed: a restart would take that for written.

        Raises:
            StorageError: the disk refused.
        """
        if not self._is_known and self._known is not None:
            self._file.replace(_encoded(self._known))
            self._is_known = True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _encoded(note: Note) -> bytes:
    value: dict[str, object] = {"version": 1, "channel": note.channel, "files": dict(note.files), "ranges": note.ranges,
             "closing": note.closing, "closing_ranges": note.closing_ranges}  # fmt: skip
    if note.token:
        value["token"] = note.token
    if note.in_use is not None:
        value["in_use"] = note.in_use
    return json.dumps(value).encode()


def _decoded(value: bytes, path: Path) -> Note:
    try:
        found = json.loads(value)
        return Note(
            found["channel"],
            found["files"],
            _ranges(found["ranges"]),
            found["closing"],
            _ranges(found["closing_ranges"]),
            str(found.get("token", "")),
            _in_use(found.get("in_use")),
        )
    except NONSENSE as e:
        raise _damaged(path, repr(e)) from e


def _in_use(found: list[str] | None) -> tuple[str, str] | None:
    if found is None:
        return None
    prefix, suffix = found
    return str(prefix), str(suffix)


def _damaged(path: Path, why: str) -> CorruptionError:
    return CorruptionError(
        f"the note of the sink is damaged ({why}). Move it away: then events that were written and not committed are "
        "written again", str(path),
    )  # fmt: skip


def _ranges(found: list[list[int]]) -> tuple[Range, ...]:
    return tuple((first, last) for first, last in found)
