"""The end of a micro-batch whose write can't be planned. `test_spark_errors` has a query that meets it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from spillable_stream.errors import NotAChannelError
from spillable_stream.spark.sink.failed_plan import FailedPlanWriter, ends_a_batch

GONE = NotAChannelError("/data/orders is not a channel: it is missing")


def test_the_commit_says_why_and_the_abort_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    writer = FailedPlanWriter("/data/orders", GONE)
    for call in (lambda: writer.write(iter(())), lambda: writer.commit([], 7)):
        with pytest.raises(NotAChannelError) as raised:
            call()
        assert raised.value is GONE
    caplog.set_level(logging.WARNING)
    writer.abort([], 7)
    assert caplog.messages == [f"/data/orders: the micro-batch 7 is aborted without the channel: {GONE}"]


@pytest.mark.parametrize(
    ("program", "ends"), [("python_streaming_sink_runner.py", True), ("write_into_data_source.py", False)]
)
def test_a_batch_ends_where_sparks_runner_of_commits_asks(program: str, ends: bool) -> None:
    code = compile("found = ask()", f"/spark/python/pyspark/sql/worker/{program}", "exec")
    names: dict[str, Any] = {"ask": lambda: ends_a_batch()}
    exec(code, names)
    assert names["found"] is ends
