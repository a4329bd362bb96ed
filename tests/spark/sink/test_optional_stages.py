"""A task stages for its optional channels while it goes on, and waits for each of them for a second in all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from spillable_stream import Event
from spillable_stream.channel.row_times import UNTIMED
from spillable_stream.errors import StorageError
from spillable_stream.flow import bulkhead as module
from spillable_stream.flow.bulkhead import Bulkhead
from spillable_stream.flow.event_batch import as_event_batch
from spillable_stream.spark.sink import optional_channel, optional_stages
from spillable_stream.spark.sink.optional_stages import OptionalStages
from spillable_stream.spark.sink.task_stage import TaskStage
from tests.spark.sink.test_flow_plan import plan
from tests.spark.sink.test_optional_channels import Gate, gate, hang
from tests.support.waiting import wait_until

__all__ = ["gate"]

ONE = as_event_batch([Event(b"INFO a")])


@pytest.fixture
def stages(tmp_path: Path) -> OptionalStages:
    """What a task stages for the channel ``may``, which may send nothing through the driver."""
    return OptionalStages(plan(tmp_path).optional, 0, "query", 1)


def staged_files(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("may*/**/segment.query*")]


def is_idle() -> bool:
    return not any(one.is_busy for one in optional_channel._bulkheads.values())


def test_a_channel_that_is_slower_than_the_task_has_the_rows_that_it_stages_until_the_task_is_done(
    monkeypatch: pytest.MonkeyPatch, gate: Gate, stages: OptionalStages
) -> None:
    hang(monkeypatch, gate, "ask")
    for _ in range(3):
        stages.add("may", ONE, UNTIMED)
    part = stages.finish(gate.opens.set)["may"]
    assert part.staged is not None and part.staged.segment is not None and part.staged.segment.count == 3
    assert (part.rows, part.why_not) == (3, "")


def test_a_slow_channel_holds_a_task_up_for_a_second_however_many_batches_that_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_LIMIT_SECONDS", 0.25)
    monkeypatch.setattr(optional_stages, "_MOST_BYTES", 1)
    add, begun = TaskStage.add, list[object]()

    def add_slowly(task: TaskStage, *given: object) -> None:
        begun.append(given)
        time.sleep(0.1)
        add(task, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(TaskStage, "add", add_slowly)
    stages = OptionalStages(plan(tmp_path).optional, 0, "query", 1)
    for _ in range(50):
        stages.add("may", ONE, UNTIMED)
    part = stages.finish(lambda: None)["may"]
    assert len(begun) < 25, "and not until all are staged"
    assert (part.staged, part.rows) == (None, 50) and "has not answered within a second" in part.why_not
    wait_until(is_idle)
    assert staged_files(tmp_path) == []


def test_rows_that_wait_for_a_channel_are_handed_over_when_it_has_staged_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(optional_stages, "_MOST_BYTES", 1)
    monkeypatch.setattr(module, "_LIMIT_SECONDS", 60.0)
    stages = OptionalStages(plan(tmp_path).optional, 0, "query", 1)
    for _ in range(20):
        stages.add("may", ONE, UNTIMED)
    part = stages.finish(lambda: None)["may"]
    assert part.staged is not None and part.staged.segment is not None and part.staged.segment.count == 20


def test_a_channel_that_fails_is_asked_no_more_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stages: OptionalStages
) -> None:
    add, asked = TaskStage.add, list[int]()

    def fail(task: TaskStage, *given: object) -> None:
        asked.append(1)
        add(task, *given)  # type: ignore[arg-type]
        raise StorageError("the disk is full")

    monkeypatch.setattr(TaskStage, "add", fail)
    make = Bulkhead._make

    def make_slowly(*given: Any) -> Any:
        try:
            return make(*given)
        finally:
            time.sleep(0.1)

    monkeypatch.setattr(Bulkhead, "_make", make_slowly)
    stages.add("may", ONE, UNTIMED)
    wait_until(lambda: stages._stages["may"]._has_ended)
    stages.add("may", ONE, UNTIMED)
    stages.add("may", ONE, UNTIMED)
    part = stages.finish(lambda: None)["may"]
    assert (part.staged, part.rows, part.why_not) == (None, 3, "its rows can't be staged: the disk is full")
    wait_until(is_idle)
    assert asked == [1] and staged_files(tmp_path) == []


def test_of_a_task_that_fails_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, gate: Gate, tmp_path: Path, stages: OptionalStages
) -> None:
    hang(monkeypatch, gate, "ask")
    stages.add("may", ONE, UNTIMED)
    wait_until(lambda: gate.met > 0)
    stages.discard()
    gate.opens.set()
    wait_until(is_idle)
    assert staged_files(tmp_path) == []


def test_tasks_that_a_hanging_channel_refuses_leave_nothing_for_the_time_when_it_answers(
    monkeypatch: pytest.MonkeyPatch, gate: Gate, tmp_path: Path
) -> None:
    plan(tmp_path)
    hang(monkeypatch, gate, "ask")
    optional = plan(tmp_path).optional
    for batch_id in range(10):
        stages = OptionalStages(optional, 0, "query", batch_id)
        stages.add("may", ONE, UNTIMED)
        assert stages.finish(lambda: None)["may"].why_not
    assert gate.met == 1
    assert len(optional["may"].bulkhead._put_off) == 1  # that of the task whose call hangs


def test_channels_without_rows_are_not_asked(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, stages: OptionalStages
) -> None:
    hang(monkeypatch, gate, "ask")
    stages.add("may", ONE.slice(0, 0), UNTIMED)
    assert stages.finish(lambda: None) == {} and gate.met == 0
