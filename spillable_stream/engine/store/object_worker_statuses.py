"""What workers of a channel in an object store say of themselves: a small object for each group.

::

    a worker   writes workers/GROUP, at most every 10 seconds, in a thread of its own: no commit waits for it
    a reader   lists workers/ once, and reads a group's object while the state says that a worker owns the group
    a drop     of the group deletes it

Without a worker nothing is written, and after that one listing nothing is read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from spillable_stream.engine.follower import Follower
from spillable_stream.engine.periodic_thread import PeriodicThread
from spillable_stream.engine.store.last_requests import LastRequests
from spillable_stream.engine.worker_statuses import WORKER_MARK, StatusPace, status_seed
from spillable_stream.format.sealed_note import seal, unseal
from spillable_stream.objects.identity import QUERIES, WORKERS
from spillable_stream.objects.store import ObjectMissingError, Store, StoreError
from spillable_stream.state.group import GroupState

__all__ = ["READ_SECONDS", "ObjectStatusWriter", "ObjectWorkerStatuses"]

READ_SECONDS = 10.0
"""How much time there is between two reads of an object by one handle, at least."""

_PACE = StatusPace(change_seconds=10.0, alive_seconds=60.0, silent_seconds=180.0)


class ObjectStatusWriter:
    """The object of a group's worker. It implements `StatusWriter`.

    Args:
        write_now: writes a value, or fails without an error.
        is_owner: tells whether the worker still owns the group, as far as is known: otherwise the object is another's.
        last_requests: the last requests of the handle.

    Attributes:
        pace: how often to write.
    """

    pace: StatusPace = _PACE

    def __init__(
        self, write_now: Callable[[bytes], None], is_owner: Callable[[], bool], last_requests: LastRequests
    ) -> None:
        self._write_now = write_now
        self._is_owner = is_owner
        self._last_requests = last_requests
        self._next: bytes | None = None
        self._thread = PeriodicThread(self, "spillable worker status")

    def write(self, value: bytes) -> None:
        """Let a thread write over the object. Where the last write is under way, this one comes with the next."""
        self._next = value
        self._thread.ensure()

    def period_seconds(self) -> float:
        """Return 0: the thread writes at once."""
        return 0.0

    def run_once(self) -> bool:
        """Write the last thing that was said; the thread ends then."""
        value, self._next = self._next, None
        if value is not None and self._is_owner():
            self._write_now(value)
        return False

    def close(self, last: bytes | None) -> None:
        """Write the last thing, and wait for it, unless the store is away.

        A forked child has no thread, and leaves all to the parent.
        """
        if last is not None and self._last_requests.have_ended(self._thread.end):  # else it may write after this
            self._next = last
            self._last_requests.are_answered(self.run_once)


class _Read(NamedTuple):
    """The last read of an object.

    Args:
        epoch: the group's owner then; 0 for nobody.
        at: when that was, in seconds of the monotonic clock.
        group: the group then: one that is created anew under its name is another one. None if there was none.
    """

    epoch: int
    at: float
    group: GroupState | None


_NEVER = _Read(0, float("-inf"), None)


class ObjectWorkerStatuses:
    """The objects of a channel's workers. It implements `WorkerStatuses`.

    Args:
        store: where the channel is.
        channel: its UUID.
        follower: its state.
        last_requests: the last requests of the handle.
    """

    def __init__(self, store: Store, channel: str, follower: Follower, last_requests: LastRequests) -> None:
        self._store = store
        self._last_requests = last_requests
        self._channel = channel
        self._follower = follower
        self._found: dict[str, bytes] = {}
        self._reads: dict[str, _Read] | None = None

    def open(self, group: str) -> ObjectStatusWriter:
        """Return the object of a group that is owned."""
        epoch = self._epoch(group)

        def write_now(value: bytes) -> None:
            with contextlib.suppress(StoreError):
                self._store.replace(WORKERS + group, seal(value, status_seed(self._channel, group)))

        return ObjectStatusWriter(write_now, lambda: self._epoch(group) == epoch, self._last_requests)

    def read(self) -> dict[str, bytes]:
        """Return the statuses, by group, as they were up to `READ_SECONDS` ago."""
        if self._reads is None:
            self._reads = {}
            for group in self._listed():
                self._read(group)
        now, groups = time.monotonic(), self._follower.state.groups
        for group, owner in list(self._follower.state.owners.items()):  # another thread may follow meanwhile
            if WORKER_MARK in owner.note:
                last = self._reads.get(group, _NEVER)
                if last.epoch != owner.epoch or now - last.at >= READ_SECONDS:
                    self._read(group)
        for group, last in list(self._reads.items()):
            has_ended = last.epoch and self._epoch(group) != last.epoch  # it says how before it gives the group up
            if has_ended or groups.get(group) is not last.group:
                self._read(group)
        return dict(self._found)

    def forget(self, group: str) -> None:
        """Delete a group's objects: a worker's, and that of the Spark query that read as it."""
        for prefix in (WORKERS, QUERIES):
            with contextlib.suppress(StoreError):
                self._store.delete(prefix + group)

    def _listed(self) -> set[str]:
        with contextlib.suppress(StoreError):
            return {info.key.removeprefix(WORKERS) for info in self._store.list(WORKERS)}
        return set()

    def _read(self, group: str) -> None:
        assert self._reads is not None
        self._reads[group] = _Read(self._epoch(group), time.monotonic(), self._follower.state.groups.get(group))
        try:
            data = bytes(self._store.get(WORKERS + group))
        except ObjectMissingError:
            self._found.pop(group, None)
            return
        except StoreError:
            return
        if (value := unseal(data, status_seed(self._channel, group))) is not None:
            self._found[group] = value

    def _epoch(self, group: str) -> int:
        """Return the number of a group's ownership, as it is known; 0 if nobody owns it."""
        owner = self._follower.state.owners.get(group)
        return 0 if owner is None else owner.epoch
