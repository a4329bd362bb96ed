"""What several tests of producers ask and assert."""

from __future__ import annotations

import asyncio
from typing import Any

from spillable_stream import AsyncProducer, Producer, Result
from spillable_stream.errors import SendFailedError
from tests.support.fake_targets import PATIENCE_SECONDS


def error_of(future: Any) -> SendFailedError:
    error = future.exception(PATIENCE_SECONDS)
    assert isinstance(error, SendFailedError)
    return error


def assert_it_goes_on(producer: Producer) -> None:
    """Assert that sends are stored and told, and that all threads live."""
    told: list[Result] = []
    assert producer.send(b"next", callback=told.append).result(PATIENCE_SECONDS).successful and len(told) == 1
    assert producer.stats().state == "running"
    assert all(thread.is_alive() for thread in producer._pipeline.threads)


async def waiting_for_room(producer: AsyncProducer, *bodies: bytes) -> list[asyncio.Task[asyncio.Future[Result]]]:
    """Return sends that wait for room, in this order."""
    tasks = [asyncio.ensure_future(producer.send(body)) for body in bodies]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


class Mute(Exception):
    """An error whose text raises another one, and no exit, which a log must not keep in the main thread."""

    def __str__(self) -> str:
        raise ValueError("no text")


class Speechless(ValueError):
    def __str__(self) -> str:
        raise SystemExit("no text")


def wait_for_retry(producer: object) -> None:
    """Wait until a batch of a producer waits to be tried again."""
    while not producer.stats().retrying_batches:  # type: ignore[attr-defined]
        pass
