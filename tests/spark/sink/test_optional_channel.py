"""An optional channel of a flow: what a task needs of it, and its one bulkhead in a process."""

from __future__ import annotations

import pickle
from pathlib import Path

from spillable_stream.flow.event_times import EventTimes
from spillable_stream.spark.sink.optional_channel import OptionalChannel, bulkhead_of
from tests.spark.sink.test_flow_plan import plan
from tests.support.forks import in_child


def test_a_task_is_sent_the_plan_that_tasks_need(tmp_path: Path) -> None:
    channel = plan(tmp_path).optional["may"]
    assert channel.plan is not None
    assert pickle.loads(pickle.dumps(channel.for_tasks())).plan == channel.plan.for_tasks()


def test_a_channel_that_cannot_be_opened_goes_to_the_tasks_with_the_reason() -> None:
    channel = OptionalChannel("flow", "may", EventTimes(), None, "its disk is away")
    assert channel.for_tasks() is channel


def test_each_channel_of_a_flow_has_one_bulkhead_in_a_process() -> None:
    first = bulkhead_of("flow", "may")
    assert OptionalChannel("flow", "may", EventTimes(), None).bulkhead is first
    assert bulkhead_of("flow", "other") is not first and bulkhead_of("another", "may") is not first


def test_a_forked_child_has_bulkheads_of_its_own() -> None:
    first = bulkhead_of("flow", "may")
    in_child(lambda: bulkhead_of("flow", "may") is not first)
