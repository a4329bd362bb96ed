"""The package, broken on purpose where a channel of objects appends, makes checkpoints and collects."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spillable_stream.engine.append_plan import AppendPlan, CommitResult
from spillable_stream.engine.deliveries import _Deliver
from spillable_stream.engine.store import object_checkpointing
from spillable_stream.engine.store.object_delay_merging import DelayMerge
from spillable_stream.format.frame import Payload
from spillable_stream.objects.appending import Appending
from spillable_stream.objects.collector import Collector
from spillable_stream.objects.delayed_objects import DelayedObjects
from spillable_stream.objects.directory_store import DirectoryStore
from spillable_stream.objects.store import Store
from spillable_stream.state.delays import DelayedFile
from tests.lab.patching import Patch, patch

__all__ = ["OBJECT_MUTANTS"]


def believe_what_was_created() -> list[Patch]:
    """A slot that was created is in the log, whether or not the one before it is still there."""
    return [patch(Appending, "_prove", lambda real: lambda self, attempt, mine: None)]


def delete_every_checkpoint() -> list[Patch]:
    """The collector keeps no checkpoint, not even the newest."""

    def make(real: Any) -> Any:
        def delete_checkpoints(self: Collector, numbers: Iterable[int]) -> None:
            for number in self._checkpoints.numbers():
                self._checkpoints.delete(number)

        return delete_checkpoints

    return [patch(Collector, "delete_checkpoints", make)]


def collect_what_is_needed() -> list[Patch]:
    """What every group has taken is not asked: all slots before the older checkpoint go."""
    return [patch(object_checkpointing, "_first_needed", lambda real: lambda state, number: number)]


def name_an_object_before_it_is_whole() -> list[Patch]:
    """An object has its name while it is being written."""

    def make(real: Any) -> Any:
        def create(self: DirectoryStore, key: str, data: Payload) -> bool:
            path, half = self._path(key), len(data) // 2
            self._prepare(path.parent)
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                return False
            os.write(fd, memoryview(data)[:half])
            time.sleep(0.002)
            os.write(fd, memoryview(data)[half:])
            os.close(fd)
            return True

        return create

    return [patch(DirectoryStore, "create", make)]


def deliver_again() -> list[Patch]:
    """Whether delayed events still wait at the log's end is not asked."""

    def make(real: Any) -> Any:
        def plan(self: _Deliver, plan: AppendPlan) -> CommitResult:
            self.files = ()
            result: CommitResult = real(self, plan)
            return result

        return plan

    return [patch(_Deliver, "plan", make)]


def register_before_it_is_there() -> list[Patch]:
    """A slot names an object of delayed events that is still being sent."""

    def make(real: Any) -> Any:
        def write(self: DelayedObjects, birth: int, frames: Any) -> Any:
            store = self._store
            self._store = _Later(store)  # type: ignore[assignment]
            try:
                return real(self, birth, frames)
            finally:
                self._store = store

        return write

    return [patch(DelayedObjects, "write", make)]


def copy_what_was_delivered() -> list[Patch]:
    """Whether delayed events were delivered while they were copied is not asked."""

    def make(real: Any) -> Any:
        def _left_first(self: DelayMerge, now: Sequence[DelayedFile]) -> int | None:
            return 0 if len(now) == len(self.files) else None

        return _left_first

    return [patch(DelayMerge, "_left_first", make)]


class _Later:
    """A store that answers before it has done what it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def replace(self, key: str, data: Payload) -> None:
        threading.Timer(0.1, self._store.replace, (key, data)).start()


OBJECT_MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    f.__name__.replace("_", " "): f
    for f in (
        believe_what_was_created,
        delete_every_checkpoint,
        collect_what_is_needed,
        name_an_object_before_it_is_whole,
        deliver_again,
        register_before_it_is_there,
        copy_what_was_delivered,
    )
}
