"""A batch that some channels did not take says which, and why the first did not."""

from __future__ import annotations

import pytest

from spillable_stream.errors import ChannelFullError
from spillable_stream.flow.routed_batch import Processed, RoutedBatch
from tests.support.flow_batches import batch_of


@pytest.mark.parametrize(
    ("number", "done", "says"),
    [
        (None, (), "a batch is not in c1, c2: c1: full. Send it again"),
        (7, ("c3",), "batch 7 of p is in c3, and not in c1, c2: c1: full. Send it again"),
    ],
)
def test_an_error_names_the_channels_with_and_without_the_batch(
    number: int | None, done: tuple[str, ...], says: str
) -> None:
    part = batch_of(b"x")
    routed = RoutedBatch(number, dict.fromkeys(("c1", "c2", "c3"), part), {}, Processed(1, 1, 0, {}), b"")
    routed.done.update(done)
    failures = {"c1": ChannelFullError("full"), "c2": ValueError("other")}
    error = routed.delivery_error("p", failures)
    assert str(error) == says and error.failures == failures and error.__cause__ is failures["c1"]
