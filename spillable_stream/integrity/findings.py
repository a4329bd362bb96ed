"""What an examination of a channel says: findings, what would be lost, and the report of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from spillable_stream.counted import counted
from spillable_stream.objects.location import Location
from spillable_stream.state.ranges import Range, RangeSet, count_of, listed

__all__ = ["Finding", "Findings", "Loss", "Report", "Severity"]

_MOST_SEGMENTS = 10  # each in a note of its own: a job that failed may have left any number


class Severity(StrEnum):
    """How bad a finding is."""

    DAMAGE = "damage"  # bytes that count are not what was written
    WARNING = "warning"  # the same, of bytes that can be missed
    NOTE = "note"  # nothing is wrong


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Args:
        severity: how bad it is.
        path: the file; of a channel in a store, the object's key.
        text: what it is, in one sentence.
        offset: where in the file, in bytes; None for the file as a whole.
        size: how many bytes of it; None for the file as a whole.
        events: the write-order IDs of the events in it, as far as they are known.
        transactions: the IDs of the transactions that it is part of, as far as they are known.
    """

    severity: Severity
    path: Path
    text: str
    offset: int | None = None
    size: int | None = None
    events: tuple[Range, ...] = ()
    transactions: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {**asdict(self), "severity": self.severity.value, "path": str(self.path)}


class Findings:
    """Findings in the order in which they were found; those of one place are merged."""

    def __init__(self) -> None:
        self._at: dict[tuple[Path, int | None], Finding] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding; of a place that has one, add the events and transactions to it."""
        key = finding.path, finding.offset
        known = self._at.get(key)
        if known is None:
            self._at[key] = finding
            return
        worse = min(known, finding, key=lambda f: list(Severity).index(f.severity))
        events = tuple(RangeSet(known.events).union(finding.events))
        transactions = tuple(sorted({*known.transactions, *finding.transactions}))
        self._at[key] = Finding(
            worse.severity, finding.path, worse.text, known.offset, known.size, events, transactions
        )

    def note(self, path: Path, text: str, offset: int | None = None, size: int | None = None) -> None:
        """Add a note."""
        self.add(Finding(Severity.NOTE, path, text, offset, size))

    def note_segments(self, unnamed: Collection[str], path_of: Callable[[str], Path]) -> None:
        """Note the segments that no event is in: some by name, and how many more there are.

        Args:
            unnamed: their names.
            path_of: returns the path of one.
        """
        shown = sorted(unnamed)[:_MOST_SEGMENTS]
        for name in shown:
            text = "no event in the channel is in this segment: it is being written, was taken, or is left over"
            self.note(path_of(name), text)
        if more := len(unnamed) - len(shown):
            text = f"no event in the channel is in {counted(more, 'more segment')} of this folder"
            self.note(path_of(shown[0]).parent, text)

    def warn(self, path: Path, text: str, offset: int | None = None) -> None:
        """Add a warning."""
        self.add(Finding(Severity.WARNING, path, text, offset))

    def damage(
        self, path: Path, text: str, offset: int | None = None, size: int | None = None, events: Iterable[Range] = ()
    ) -> None:
        """Add damage."""
        self.add(Finding(Severity.DAMAGE, path, text, offset, size, tuple(events)))

    def all(self) -> tuple[Finding, ...]:
        """Return them, the worst first."""
        return tuple(sorted(self._at.values(), key=lambda f: list(Severity).index(f.severity)))


@dataclass(frozen=True, slots=True)
class Loss:
    """Everything that can't be recovered.

    Args:
        lost: events that some group has yet to take and that can't be read any more.
        kept: events that can't be read any more though they were kept; no group needs them.
        doubtful: IDs that may have been in use: nobody can tell.
        repeated: for each group, events that it may have taken and would get again, since a record of it is damaged.
        skipped: for each group, events that it has taken and would not get again, though a seek may have moved it back
            to them, since a record of it is damaged.
        partial: the IDs of transactions that are left in part: some of their events are lost, or kept no more.
        redelivered: how many delayed events that wait may have been delivered before, since a record of it may be
            damaged: those that were come once more, under other IDs.
        delayed: how many delayed events can't be read any more. They have no IDs yet.
    """

    lost: tuple[Range, ...] = ()
    doubtful: tuple[Range, ...] = ()
    repeated: dict[str, tuple[Range, ...]] = field(default_factory=dict)
    kept: tuple[Range, ...] = ()
    skipped: dict[str, tuple[Range, ...]] = field(default_factory=dict)
    partial: tuple[int, ...] = ()
    redelivered: int = 0
    delayed: int = 0

    @property
    def count(self) -> int:
        """How many events are lost."""
        return count_of(self.lost)

    def events_text(self) -> str:
        """Return in words which events are lost; "" for none."""
        lost = [f"{counted(self.count, 'event')}, {listed(self.lost)}"] if self.lost else []
        return ", and ".join([*lost, *([counted(self.delayed, "delayed event")] if self.delayed else [])])


@dataclass(frozen=True, slots=True)
class Report:
    """What an examination says.

    Args:
        path: the channel's directory, or where in a store it is.
        channel: its UUID.
        findings: what was found, the worst first.
        loss: what `repair` would have to give up, or had to.
        files: how many files or objects were read.
        frames: how many frames were read.
        read_bytes: how many bytes these have.
        unrepairable: why `repair` can do nothing; empty if it can.
        quarantine: after a repair, the directory with the copies of what was changed, or its address in a store; None
            if nothing was.
        unowned: the channel's directories that have no owner file, as that of a disk that is not mounted, or one of an
            older or another state of the channel; a repair gives them to the channel only with ``claim``.
    """

    path: Path | Location
    channel: str
    findings: tuple[Finding, ...]
    loss: Loss
    files: int
    frames: int
    read_bytes: int
    unrepairable: str = ""
    quarantine: Path | str | None = None
    unowned: tuple[Path, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing was found to repair; there may be notes. A repair's report says what was before it."""
        return all(f.severity is Severity.NOTE for f in self.findings)

    @property
    def damaged(self) -> bool:
        """Whether bytes that count are damaged."""
        return any(f.severity is Severity.DAMAGE for f in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values; names stay, and new ones may come."""
        return {
            "path": str(self.path),
            "channel": self.channel,
            "healthy": self.healthy,
            "findings": [f.as_dict() for f in self.findings],
            "loss": {**asdict(self.loss), "count": self.loss.count},
            "checked": {"files": self.files, "frames": self.frames, "bytes": self.read_bytes},
            "unrepairable": self.unrepairable or None,
            "quarantine": str(self.quarantine) if self.quarantine else None,
            "unowned": [str(directory) for directory in self.unowned],
        }
