"""Workers whose clock a test sets, and what there is to see of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spillable_stream import Channel, Event
from spillable_stream.workers.config import WorkerConfig
from spillable_stream.workers.worker import Worker


class Clock:
    """A clock that a test sets, or that jumps to whenever something is due."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(
    channel: Channel,
    function: Callable[[Any], object],
    dead: Channel | None = None,
    clock: Clock | None = None,
    **given: Any,
) -> Worker:
    values = {"batch_size": None, "max_attempts": 3, "backoff": 0.0, "threads": 1, "timeout": None, **given}
    return Worker(channel, "g", function, WorkerConfig(**values), dead, clock=clock or Clock(), rng=lambda: 0.0)


def lag(channel: Channel) -> int:
    return channel.stats().groups["g"].lag


def letters(dead: Channel) -> list[dict[str, Any]]:
    return [{**row, "headers": dict(row["headers"])} for batch in dead.read() for row in batch.to_pylist()]


def fails_on_three(events: list[Event]) -> None:
    if b"3" in [event.body for event in events]:
        raise ValueError
