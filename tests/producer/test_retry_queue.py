"""Batches come back when they are due, earliest first."""

from __future__ import annotations

from typing import Any

from spillable_stream.producer.retry_queue import RetryQueue


def test_batches_are_taken_when_they_are_due_and_in_that_order() -> None:
    queue, late, early, later = RetryQueue(), *(object() for _ in range(3))
    assert queue.next_due() is None
    put(queue, (late, 5.0), (early, 2.0), (later, 9.0))
    assert queue.next_due() == 2.0 and len(queue) == 3
    assert queue.take_due(1.9) == []
    assert queue.take_due(5.0) == [early, late]
    assert queue.next_due() == 9.0 and queue.take_all() == [later] and len(queue) == 0


def test_batches_that_are_due_at_once_keep_the_order_in_which_they_were_put() -> None:
    queue, batches = RetryQueue(), [object() for _ in range(20)]
    put(queue, *((batch, 1.0) for batch in batches))
    assert queue.take_all() == batches


def put(queue: RetryQueue, *batches: tuple[Any, float]) -> None:
    for batch, due in batches:
        queue.put(batch, due)
