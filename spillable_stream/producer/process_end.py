"""The ends of a process: what producers accepted is stored or reported, and a forked child leaves it to the parent.

Every pipeline is held here from its start until it has ended, so that what was sent needs no reference to its
`Producer`, and an exit finishes what an interrupted close began.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from spillable_stream.errors import ProducerClosedError

if TYPE_CHECKING:
    from spillable_stream.producer.pipeline import Pipeline
    from spillable_stream.producer.producer import Producer

__all__ = ["bounded", "ended", "follow_forks", "forgotten", "refuse_at_end", "started"]

AT_EXIT_SECONDS = 60.0  # one deadline for all producers; what is being tried then is given up
TELLING_SECONDS = 1.0  # then for callbacks; and for everything after Ctrl-C
_BEFORE_QUEUES_END = 100  # a priority of multiprocessing's: callbacks may put into its queues, which end at 10

_log = logging.getLogger("spillable_stream.producer")

_running: dict[Pipeline, None] = {}
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_deadline: float | None = None  # in the machine's monotonic seconds; None before the end
_follows_multiprocessing = False
_child_pid = 0  # the child of multiprocessing whose end is known to be one


# ── what producers call ─────────────────────────────────────────────────────────────────────────


def started(pipeline: Pipeline) -> None:
    """Hold a pipeline until it has `ended`.

    Raises:
        ProducerClosedError: the process is ending, and would not wait for it; it ends at once.
    """
    _running[pipeline] = None
    if _deadline is not None:  # looked at after the line before: either this sees the end, or the end the pipeline
        pipeline.shutdown.begin_close()
    refuse_at_end()
    _follow_multiprocessing()


def refuse_at_end() -> None:
    """Refuse a new producer at the end of the process; raises what `started` does."""
    if _deadline is not None:
        raise ProducerClosedError(
            "the process is ending: its producers are closed, and a new one would be stopped with its events; send "
            "before, in an atexit handler that is registered after the import of spillable_stream.Producer"
        )


def ended(pipeline: Pipeline) -> None:
    """Hold a pipeline no longer."""
    _running.pop(pipeline, None)


def bounded(timeout_seconds: float | None) -> float | None:
    """Return how long a call may wait that was told a timeout: at the end of the process not beyond the deadline."""
    if _deadline is None:
        return timeout_seconds
    left_seconds = max(0.0, _deadline - time.monotonic())
    return left_seconds if timeout_seconds is None else min(timeout_seconds, left_seconds)


def forgotten(producer: Producer, pipeline: Pipeline) -> None:
    """Warn that nobody can close a producer any more; from ``__del__``, and so in any thread and amid anything.

    A warning may run anybody's code, such as a logging handler that sends. Where that could wait for this thread, the
    process's end says it instead.
    """
    if pipeline not in _running or pipeline.accumulator.closing:
        return
    me = get_ident()
    if any(p.own_threads.are_here() or p.accumulator.mutex.slot.get(0) == me for p in list(_running)):
        return
    warnings.warn(
        f"{pipeline.name} was forgotten, but not closed: its events are still stored, as they linger and at the end of "
        "the process, and it keeps its threads and its name until then. Close it, or use it in a with block",
        ResourceWarning,
        stacklevel=3,
        source=producer,
    )


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


def _end() -> None:
    """Close all producers within one deadline, and report what could not be stored by then."""
    global _deadline
    if _deadline is None:
        _deadline = time.monotonic() + AT_EXIT_SECONDS
    pipelines = list(_running)
    unclosed = [p.name for p in pipelines if not p.accumulator.closing]
    try:
        _close_all(pipelines)
    except BaseException:  # somebody is in a hurry: Ctrl-C, or a signal's SystemExit
        _deadline = min(_deadline, time.monotonic() + TELLING_SECONDS)
        _close_all(pipelines)
        raise
    finally:
        _report_all([p for p in pipelines if p in _running])
    for name in unclosed:  # last: a filter may make an exception of it
        warnings.warn(
            f"{name} was never closed, and the end of the process did it. Close it, or use it in a with block",
            ResourceWarning,
            stacklevel=1,
        )


def _close_all(pipelines: list[Pipeline]) -> None:
    _each(pipelines, lambda pipeline: pipeline.shutdown.begin_close())
    _each(pipelines, lambda pipeline: pipeline.shutdown.wait_until_finished(bounded(None)))


def _report_all(late: list[Pipeline]) -> None:
    _each(late, lambda pipeline: pipeline.shutdown.give_up())
    deadline = time.monotonic() + TELLING_SECONDS
    _each(late, lambda pipeline: pipeline.shutdown.wait_until_told(max(0.0, deadline - time.monotonic())))
    _each(late, lambda pipeline: pipeline.shutdown.abandon())
    for pipeline in late:
        ended(pipeline)


def _each(pipelines: list[Pipeline], do: Callable[[Pipeline], object]) -> None:
    """Do something with each, whatever becomes of the others."""
    for pipeline in pipelines:
        try:
            do(pipeline)
        except Exception:
            _log.exception("%s could not be closed at the end of the process", pipeline.name)


atexit.register(_end)


# ── children ────────────────────────────────────────────────────────────────────────────────────


def follow_forks(producer: Producer) -> None:
    """Let a producer know when it finds itself in a forked child; it may be forgotten all the same."""
    _producers.add(producer)


def _after_fork_in_child() -> None:
    global _deadline
    _deadline = None  # the parent's
    for producer in list(_producers):
        producer.after_fork()
    for pipeline in list(_running):
        pipeline.after_fork()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _follow_multiprocessing() -> None:
    """See to it that the end of a child of multiprocessing is an end: most such children leave without ``atexit``."""
    global _follows_multiprocessing
    util = sys.modules.get("multiprocessing.util")
    if util is None:  # this is none of its children: importing it would only cost time
        return
    if not _follows_multiprocessing:  # a child forgets what was registered before its own beginning, but not this
        _follows_multiprocessing = True
        util.register_after_fork(_end, _end_with_multiprocessing)
    if _child_pid != os.getpid():
        _end_with_multiprocessing(_end)


def _end_with_multiprocessing(end: Callable[[], None]) -> None:
    global _child_pid
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(None, end, exitpriority=_BEFORE_QUEUES_END)
        _child_pid = os.getpid()
