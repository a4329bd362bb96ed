"""Closes all producers at the end of the process, so that accepted events are stored or reported.

This module references every pipeline from its start to its end. So accepted events do not depend on a reference to
their `Producer`, and an exit finishes an interrupted close. A forked child leaves the pipelines to its parent.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from spillable_stream.errors import ProducerClosedError
from spillable_stream.log_records import fields, log_of

if TYPE_CHECKING:
    from spillable_stream.producer.pipeline import Pipeline
    from spillable_stream.producer.producer import Producer

__all__ = ["bounded", "ended", "follow_forks", "forgotten", "refuse_at_end", "started"]

AT_EXIT_SECONDS = 60.0  # one deadline for all producers; attempts still running then are given up
TELLING_SECONDS = 1.0  # after that, for callbacks; after Ctrl-C, for everything
_BEFORE_QUEUES_END = 100  # multiprocessing's exit priority; its queues, which callbacks may use, end at 10

_log = log_of("spillable_stream.producer")

_running: dict[Pipeline, None] = {}
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_deadline: float | None = None  # in monotonic seconds; None until the process ends
_follows_multiprocessing = False
_child_pid = 0  # the child of multiprocessing whose end already calls `_end`


# ── what producers call ─────────────────────────────────────────────────────────────────────────


def started(pipeline: Pipeline) -> None:
    """Keep a reference to a pipeline until it has `ended`.

    Raises:
        ProducerClosedError: the process is ending and would not wait for the pipeline, which is closed at once.
    """
    _running[pipeline] = None
    if _deadline is not None:  # checked after registering: either this sees the end, or the end sees the pipeline
        pipeline.shutdown.begin_close()
    refuse_at_end()
    _follow_multiprocessing()


def refuse_at_end() -> None:
    """Refuse a new producer at the end of the process; raises what `started` raises."""
    if _deadline is not None:
        raise ProducerClosedError(
            "the process is ending: its producers are closed, and a new one would be stopped with its events; send "
            "before, in an atexit handler that is registered after the import of spillable_stream.Producer"
        )


def ended(pipeline: Pipeline) -> None:
    """Drop the reference to a pipeline."""
    _running.pop(pipeline, None)


def bounded(timeout_seconds: float | None) -> float | None:
    """Return a call's timeout, shortened to the deadline at the end of the process; None for no limit."""
    if _deadline is None:
        return timeout_seconds
    left_seconds = max(0.0, _deadline - time.monotonic())
    return left_seconds if timeout_seconds is None else min(timeout_seconds, left_seconds)


def forgotten(producer: Producer, pipeline: Pipeline) -> None:
    """Warn that a producer was never closed and nothing refers to it any more.

    ``__del__`` calls this, so it may run in any thread, in the middle of anything. A warning may run user code, such as
    a logging handler that sends. Where that code could wait for this thread, the end of the process warns instead.
    """
    if pipeline not in _running or pipeline.buffer.closing:
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
    """Close all producers within one deadline, and report the events that could not be stored by then."""
    global _deadline
    if _deadline is None:
        _deadline = time.monotonic() + AT_EXIT_SECONDS
    pipelines = list(_running)
    unclosed = [p.name for p in pipelines if not p.buffer.closing]
    try:
        _close_all(pipelines)
    except BaseException:  # the user is in a hurry: Ctrl-C, or a signal's SystemExit
        _deadline = min(_deadline, time.monotonic() + TELLING_SECONDS)
        _close_all(pipelines)
        raise
    finally:
        _report_all([p for p in pipelines if p in _running])
    for name in unclosed:  # last: a warning filter may raise it
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
    """Do something with each pipeline; log an error and continue with the next."""
    for pipeline in pipelines:
        try:
            do(pipeline)
        except Exception:
            _log.exception(
                "%s could not be closed at the end of the process", pipeline.name, extra=fields(component=pipeline.name)
            )


atexit.register(_end)


# ── children ────────────────────────────────────────────────────────────────────────────────────


def follow_forks(producer: Producer) -> None:
    """Notify a producer in a forked child. The reference is weak, so a forgotten producer is still collected."""
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
    """Call `_end` at the end of a child of multiprocessing too: most such children exit without ``atexit``."""
    global _follows_multiprocessing
    util = sys.modules.get("multiprocessing.util")
    if util is None:  # not such a child: an import would only cost time
        return
    if not _follows_multiprocessing:  # a child drops earlier finalizers, but keeps this hook
        _follows_multiprocessing = True
        util.register_after_fork(_end, _end_with_multiprocessing)
    if _child_pid != os.getpid():
        _end_with_multiprocessing(_end)


def _end_with_multiprocessing(end: Callable[[], None]) -> None:
    global _child_pid
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(None, end, exitpriority=_BEFORE_QUEUES_END)
        _child_pid = os.getpid()
