from __future__ import annotations

from spillable_stream.flow.sources.batch_limit import BatchLimit


def test_a_batch_that_was_too_large_is_halved_and_the_next_ones_grow_to_the_batch_size() -> None:
    limit = BatchLimit(100)
    limit.was_too_large(100)
    limit.was_too_large(50)
    found = [limit.events]
    for _ in range(3):
        limit.was_stored()
        found.append(limit.events)
    assert found == [25, 50, 100, 100]
