"""Delayed events of a put transaction, on their way into side files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.delayed_chunk import DelayedChunk, use_of
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.log.delayed_files import DelayedFiles
from spillable_stream.state.spill_rules import TierUsage

__all__ = ["Delayed", "DelayedPuts", "StagedDelayed", "StagedRuns", "Staging"]

_RUN_BYTES = 80
_NAMED_RUN_BYTES = 192


class Delayed(Protocol):
    """The delayed events of one transaction, as its put sees them."""

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""

    def commit_bytes(self) -> int:
        """Return how many bytes they add to the transaction's COMMIT, at most."""

    def place(self, plan: AppendPlan) -> list[DelayedRun]:
        """Plan where the events go, and return what the COMMIT says of that.

        Raises:
            StorageError: the storage refused.
        """


class StagedDelayed(Delayed, Protocol):
    """Delayed events that are written already."""

    @property
    def runs(self) -> Sequence[DelayedRun]:
        """What a COMMIT says of each side file; the file's number is not known before that."""


@dataclass(frozen=True, slots=True)
class StagedRuns:
    """Delayed events that are written already; the base of a `StagedDelayed`.

    Args:
        runs: what a COMMIT says of each side file; the file's number is not known before that.
    """

    runs: Sequence[DelayedRun]

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""
        return TierUsage(sum([run.count for run in self.runs]), sum([run.payload_bytes for run in self.runs]))

    def commit_bytes(self) -> int:
        """Return how many bytes they add to the transaction's COMMIT, at most."""
        return _NAMED_RUN_BYTES * len(self.runs)


class Staging(Protocol):
    """The delayed events of one transaction that are written before its commit, since they are many."""

    def write(self, chunks: Sequence[DelayedChunk]) -> None:
        """Write events.

        Raises:
            StorageError: the storage refused. All that was written can only be discarded.
        """

    def finish(self) -> StagedDelayed:
        """Make durable what was written, and return what a put needs to name it.

        Raises:
            StorageError: the storage refused; it can only be discarded.
        """

    def close(self) -> None:
        """Let go of what was written, and keep it."""

    def discard(self) -> None:
        """Let go of what was written, and remove it."""


@dataclass(slots=True)
class DelayedPuts:
    """The delayed events of one transaction, which go to side files on a disk. It implements `Delayed`."""

    files: DelayedFiles
    chunks: list[DelayedChunk]

    def use(self) -> TierUsage:
        """Return the number of events and the size of their payloads."""
        return use_of(self.chunks)

    def commit_bytes(self) -> int:
        """Return how many bytes they add to the transaction's COMMIT, at most."""
        return _RUN_BYTES * len(self.chunks)

    def place(self, plan: AppendPlan) -> list[DelayedRun]:
        """Plan where the events go; see `Delayed.place`."""
        return plan.delay(self.files).place(self.chunks)

    def size_bytes(self) -> int:
        """Return how many bytes they take in side files, at most, but for the files' headers."""
        return sum([chunk.size_bytes for chunk in self.chunks])
