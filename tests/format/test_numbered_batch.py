"""A producer's batch reads back from its COMMIT, whoever numbered it."""

from __future__ import annotations

import pytest

from spillable_stream.format.commit_record import CommitRecord
from spillable_stream.format.numbered_batch import BY_PRODUCER, NumberedBatch, Numbers
from spillable_stream.format.packing import unpack


@pytest.mark.parametrize(
    ("batch", "stored"),
    [
        (NumberedBatch("p", Numbers(7, 1 << 40)), ["p", 7, 1 << 40]),
        (NumberedBatch("p", Numbers(7, 9, BY_PRODUCER)), ["p", 7, 9, 0]),
        (NumberedBatch("p", Numbers(7, 9, 2**32 - 1)), ["p", 7, 9, 2**32 - 1]),
        (NumberedBatch("p", Numbers(7, 9, BY_PRODUCER), b"a note"), ["p", 7, 9, 0, b"a note"]),
    ],
)
def test_a_batch_reads_back(batch: NumberedBatch, stored: list[object]) -> None:
    payload = bytes(CommitRecord("put", 0, producer=batch).frame(3).payload)
    assert unpack(payload)["producer"] == stored
    assert CommitRecord.parse(payload) == CommitRecord("put", 0, producer=batch)
