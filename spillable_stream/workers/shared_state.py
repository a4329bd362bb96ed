"""What a worker and its threads share: the work that waits, what became of the rest, and whether it is to end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from spillable_stream.workers.work import Fate, WorkQueue
from spillable_stream.workers.worker_threads import WorkerThreads

__all__ = ["SharedState", "Tally"]


@dataclass(slots=True)
class Tally:
    """What became of a worker's events. The worker's mutex is held.

    Args:
        settled: how many events have which fate.
        failed_calls: how many calls have failed.
        last_error: the error of the last one.
        trouble: why a channel could not commit a fate when that was tried last; "" if it could.
    """

    settled: Counter[Fate] = field(default_factory=Counter)
    failed_calls: int = 0
    last_error: str = ""
    trouble: str = ""


class SharedState:
    """The state of one worker.

    Args:
        group: the worker's group.
        clock: the time, in seconds.

    Attributes:
        clock: the time, in seconds.
        changed: the worker's mutex, which guards all of it but `is_stopping`; notified when a thread ends.
        threads: the worker's threads.
        queue: the work that waits.
        tally: what became of the rest.
        is_stopping: whether it is to end; set in a signal handler, too.
        until_empty: whether it ends once there is nothing left to do.
        error: why it ends; None if it was asked to.
    """

    def __init__(self, group: str, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.changed: threading.Condition = threading.Condition()
        self.threads: WorkerThreads = WorkerThreads(self.changed, f"worker-{group}")
        self.queue: WorkQueue = WorkQueue()
        self.tally: Tally = Tally()
        self.is_stopping: bool = False
        self.until_empty: bool = False
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Let the worker end for this reason, unless it has one already; the mutex is held."""
        if self.error is None:
            self.error, self.is_stopping = error, True

    def is_over(self) -> bool:
        """Tell whether nothing is left to do, for a worker that runs until then; nothing can be claimed now."""
        with self.changed:
            return self.until_empty and not len(self.queue) and not self.threads.busy()
