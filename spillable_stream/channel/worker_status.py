"""What a worker says of itself to other processes, and what they make of it."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Mapping
from dataclasses import asdict, fields, replace

from spillable_stream.channel.figures import age_text
from spillable_stream.channel.stats import WorkerStats
from spillable_stream.engine.worker_statuses import SILENT_SECONDS
from spillable_stream.format.packing import NONSENSE
from spillable_stream.shown_value import printable
from spillable_stream.storage.lock import has_ended, process_note

__all__ = ["decode_status", "encode_status", "seen_workers", "worker_text"]

_ALIVE = ("running", "stopping")


def encode_status(stats: WorkerStats, silent_seconds: float = SILENT_SECONDS) -> bytes:
    """Return what a worker of this process says of itself.

    Args:
        stats: what it does.
        silent_seconds: how long it may say nothing more.
    """
    said = {**asdict(stats), "process": process_note(), "at": time.time()}
    if silent_seconds != SILENT_SECONDS:
        said["silent_after"] = silent_seconds
    return json.dumps(said).encode()


def decode_status(status: bytes) -> WorkerStats | None:
    """Return what a worker said, judged by whether its process lives; None if another version said it otherwise."""
    try:
        said = json.loads(status)
        at, silent_after = float(said["at"]), float(said.get("silent_after", SILENT_SECONDS))
        found = WorkerStats(**{field.name: said[field.name] for field in fields(WorkerStats)})
    except NONSENSE:
        return None
    if found.state not in _ALIVE:
        return found
    silent_seconds = time.time() - at
    if has_ended(found.process):
        return replace(found, state="died", is_healthy=False, trouble=f"its process, {found.process}, is gone")
    if silent_seconds > silent_after:
        trouble = f"its process, {found.process}, has said nothing for {age_text(silent_seconds)}"
        return replace(found, state="silent", is_healthy=False, trouble=trouble)
    return found


def seen_workers(statuses: Mapping[str, bytes], groups: Container[str]) -> tuple[WorkerStats, ...]:
    """Return the workers of other processes by what they said.

    Args:
        statuses: what they said, by group.
        groups: the groups of the channel: of one that was dropped, the status may still be there.
    """
    of_groups = [status for group, status in sorted(statuses.items()) if group in groups]
    return tuple(found for status in of_groups if (found := decode_status(status)) is not None)


def worker_text(worker: WorkerStats) -> str:
    """Return in one line what a worker did, and what its function raised last if nothing else is wrong with it."""
    parts = [f"{worker.done_events:,} done"]
    for count, what in (
        (worker.failed_calls, "failed calls" if worker.failed_calls != 1 else "failed call"),
        (worker.dead_letter_events, "dead-lettered"),
        (worker.dropped_events, "dropped"),
        (worker.waiting_events, "waiting to be tried again"),
        (worker.left_calls, "calls did not return" if worker.left_calls != 1 else "call did not return"),
    ):
        parts += [f"{count:,} {what}"] if count else []
    if worker.trouble:
        parts.append(worker.trouble)
    elif worker.last_error:
        parts.append(f"last error: {worker.last_error}")
    return printable(" · ".join(parts))  # others have written the errors
