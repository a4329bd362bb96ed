"""Delayed events of a put transaction in a store: they are written to objects before the transaction's slot names them.

::

    segments/BIRTH-delayed.0.UUID     all delayed events of the put, up to 16 MiB: one request
    slot n, COMMIT {delayed: …}       from here on they wait, in every state
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.delayed_chunk import FULL_BYTES, DelayedChunk, use_of
from spillable_stream.engine.delayed_puts import StagedDelayed, StagedRuns
from spillable_stream.format.commit_record import DelayedRun
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.parallel import in_parallel
from spillable_stream.objects.staged_object import birth_of

__all__ = ["ObjectStaging", "StagedDelayObjects", "write_delayed"]

_BEGIN_MS = attrgetter("begin_ms")


class StagedDelayObjects(StagedRuns):
    """Delayed events in objects that are there. It implements `StagedDelayed`."""

    def place(self, plan: AppendPlan) -> list[DelayedRun]:
        """Give each object a number, and return what the COMMIT says of that."""
        first = plan.next_side_file
        plan.next_side_file += len(self.runs)
        plan.is_extended = True
        return [run._replace(file=first + i) for i, run in enumerate(self.runs)]

    def is_younger_than(self, births: int) -> bool:
        """Tell whether no collector may have removed an object.

        Args:
            births: what the state that is planned on says of trims.
        """
        return all([(birth_of(run.name) or 0) >= births for run in self.runs])


def write_delayed(objects: DelayedObjects, birth: int, groups: Iterable[Sequence[DelayedChunk]]) -> StagedDelayObjects:
    """Write delayed events to objects, at the same time.

    Args:
        objects: the channel's side files.
        birth: the newest slot that is known.
        groups: the events: those that go to one object, unless they are too large for that.

    Raises:
        StoreError: the store refused or failed.
    """
    # By stretches, so that an object that is full has few; events that are due at once stay in the order of their puts.
    parts = [part for chunks in groups for part in _parts(sorted(chunks, key=_BEGIN_MS))]
    return StagedDelayObjects(in_parallel(objects.root, [partial(_written, objects, birth, part) for part in parts]))


def _parts(chunks: Sequence[DelayedChunk]) -> Iterator[list[DelayedChunk]]:
    part: list[DelayedChunk] = []
    size_bytes = 0
    for chunk in chunks:
        part.append(chunk)
        size_bytes += chunk.size_bytes
        if size_bytes >= FULL_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


def _written(objects: DelayedObjects, birth: int, chunks: Sequence[DelayedChunk]) -> DelayedRun:
    """Write one object, and return what a COMMIT says of it."""
    stretches = {(chunk.begin_ms, chunk.width_ms) for chunk in chunks}
    first_ms = min([chunk.first_ms for chunk in chunks])
    begin_ms, width_ms = stretches.pop() if len(stretches) == 1 else (first_ms, 0)
    key, end = objects.write(birth, [frame for chunk in chunks for frame in chunk.frames])
    return DelayedRun(0, begin_ms, width_ms, 0, end, *use_of(chunks), first_ms, key)


class ObjectStaging:
    """The delayed events of a large put, or of a task of Spark, in an object store: each part of them has an object.

    Args:
        write_delayed: writes events to objects.
        least_bytes: how much is held until an object is worth its request, and its row of the state.
    """

    def __init__(self, write_delayed: Callable[[list[DelayedChunk]], StagedDelayObjects], least_bytes: int = 0) -> None:
        self._write_delayed = write_delayed
        self._least_bytes = least_bytes
        self._runs: list[DelayedRun] = []
        self._held: list[DelayedChunk] = []
        self._held_bytes = 0

    def write(self, chunks: Sequence[DelayedChunk]) -> None:
        """Write events, once they are many.

        Raises:
            StoreError: the store refused or failed.
        """
        self._held += chunks
        self._held_bytes += sum([chunk.size_bytes for chunk in chunks])
        if self._held_bytes >= self._least_bytes:
            self._write()

    def _write(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._runs += self._write_delayed(held).runs

    def finish(self) -> StagedDelayed:
        """Return what a put needs to name the objects."""
        self._write()
        return StagedDelayObjects(self._runs)

    def close(self) -> None:
        """Do nothing."""

    discard = close  # the collector removes what nobody names
