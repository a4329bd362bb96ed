"""What a task sends through the driver, and what it puts into staged files, for one channel and for several."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from spillable_stream.channel.row_times import RowTimes
from spillable_stream.errors import NotAChannelError, SchemaError, StorageError
from spillable_stream.format.batch import encode_schema
from spillable_stream.format.commit_record import SegmentRef
from spillable_stream.spark.sink.sink_times import wall_clock_ms
from spillable_stream.spark.sink.task_stage import Staged, TaskStage, staging
from tests.support.fake_plans import ObjectStagePlan, StagedObject

SCHEMA = pa.schema([("n", pa.int64())])


def plans(count: int) -> list[ObjectStagePlan]:
    return [ObjectStagePlan(encode_schema(SCHEMA), channel=f"c{i}") for i in range(count)]


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + count), pa.int64())], SCHEMA)


def staged(stages: list[ObjectStagePlan], limit: int, *added: tuple[int, int]) -> list[Staged]:
    """Return what a task stages that adds so many rows, each time, to a channel of a number."""
    with staging(stages, lambda task: limit, "query", 7) as task:
        for channel, count in added:
            task.add(channel, rows(count))
        return task.finish()


def events(message: Staged) -> int:
    return sum(f.count for f in message.frames) + (message.segment.count if message.segment else 0)


def test_small_output_is_in_the_messages_and_a_channel_without_rows_says_so() -> None:
    stages = plans(3)
    found = staged(stages, 1 << 20, (0, 5), (2, 3), (0, 1))
    assert [(m.channel, m.owner, events(m), m.segment, m.has_rows) for m in found] == [
        ("c0", "query", 6, None, True),
        ("c1", "query", 0, None, False),
        ("c2", "query", 3, None, True),
    ]
    assert all(isinstance(f.payload, bytes) for m in found for f in m.frames)
    assert [plan.staged for plan in stages] == [{}, {}, {}]


def test_frames_are_as_large_as_the_plan_says() -> None:
    [message] = staged([replace(plans(1)[0], frame_bytes=8000)], 1 << 20, (0, 10_000))
    assert [frame.count for frame in message.frames] == [1000] * 10


def test_limit_counts_for_all_channels_of_a_task_together() -> None:
    one = staged(plans(1), 20_000, (0, 1000))  # about 8 kB
    assert one[0].segment is None
    several = staged(plans(4), 20_000, *((i, 1000) for i in range(4)))
    sent = [m for m in several if m.segment is None]
    assert len(sent) == 2
    assert sum(len(f.payload) for m in sent for f in m.frames) <= 20_000
    assert [events(m) for m in several] == [1000] * 4


def test_the_largest_output_is_staged_first_and_no_output_is_in_both_places() -> None:
    stages = plans(3)
    found = staged(stages, 10_000, (0, 10), (1, 900), (2, 10), (1, 900), (0, 10))
    assert [m.segment is not None for m in found] == [False, True, False]
    assert [events(m) for m in found] == [20, 1800, 10]
    assert found[1].frames == [] and [len(plan.staged) for plan in stages] == [0, 1, 0]


def test_without_a_limit_to_send_every_channel_with_rows_has_a_file() -> None:
    found = staged(plans(3), 0, (0, 1), (2, 1))
    assert [m.segment is not None for m in found] == [True, False, True]


def test_a_few_rows_that_are_due_later_are_in_the_message() -> None:
    stages, due_ms = plans(2), wall_clock_ms() + 60_000
    with staging(stages, lambda task: 1 << 20, "query", 7) as task:
        task.add(0, rows(3), RowTimes(0, pa.array([0, due_ms, due_ms + 1])))
        task.add(1, rows(2), RowTimes(5, due_ms))
        found = task.finish()
    assert [m.has_rows for m in found] == [True, True]
    assert [events(m) for m in found] == [1, 0]
    assert [[c.frames[1].count for c in m.delayed] for m in found] == [[2], [2]]
    assert [m.delayed[0].frames[1].ttl_us for m in found] == [0, 5]
    assert [plan.staged for plan in stages] == [{}, {}]
    assert pickle.loads(pickle.dumps(found)) == found


def test_rows_that_are_due_later_are_staged_once_they_are_too_large_to_send() -> None:
    (plan,), due_ms = plans(1), wall_clock_ms() + 60_000
    with staging([plan], lambda task: 20_000, "query", 7) as task:
        task.add(0, rows(10))
        for first in range(0, 5000, 1000):
            task.add(0, rows(1000, first), RowTimes(0, due_ms))
        (found,) = task.finish()
    assert found.has_rows and events(found) == 10 and found.segment is None, "the largest part is staged, and no more"
    assert (found.delayed, [run.count for run in found.runs]) == ([], [5000])
    assert found.staged_names() == list(plan.staged) == ["delayed/query.7"]
    assert pickle.loads(pickle.dumps(found)) == found


def test_what_is_staged_of_delayed_rows_goes_with_a_task_that_fails() -> None:
    stages, due_ms = plans(2), wall_clock_ms() + 60_000
    with pytest.raises(SchemaError), staging(stages, lambda task: 0, "query", 7) as task:
        task.add(0, rows(3), RowTimes(0, due_ms))
        task.add(1, rows(3), RowTimes(0, due_ms))
        task.finish()
        assert [len(plan.staged) for plan in stages] == [1, 1]
        task.add(0, pa.record_batch({"other": [1]}))
    assert [plan.staged for plan in stages] == [{}, {}]


def test_task_knows_its_limit_by_its_number() -> None:
    asked: list[int] = []
    with staging(plans(1), lambda task: asked.append(task) or 0, "query", 7):
        pass
    assert asked == [0]


def test_task_that_fails_leaves_no_file_in_any_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    stages, real = plans(3), StagedObject.finish

    def finish(file: StagedObject) -> SegmentRef:
        if file._plan is stages[1]:
            raise StorageError("the second")
        return real(file)

    monkeypatch.setattr(StagedObject, "finish", finish)
    with pytest.raises(StorageError, match="the second"):
        staged(stages, 0, (0, 1), (1, 1), (2, 1))
    assert [plan.staged for plan in stages] == [{}, {}, {}]


def test_a_file_that_cannot_be_discarded_does_not_hide_why_the_task_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def discard(file: StagedObject) -> None:
        raise StorageError("discarding")

    monkeypatch.setattr(StagedObject, "discard", discard)
    with pytest.raises(SchemaError, match="no column 'other'"), staging(plans(1), lambda task: 0, "q", 7) as task:
        task.add(0, rows(1))
        task.add(0, pa.record_batch({"other": [1]}))


def test_host_that_lacks_one_of_the_channels_is_refused_before_any_rows() -> None:
    stages = [*plans(2), ObjectStagePlan(encode_schema(SCHEMA), is_here=False)]
    with pytest.raises(NotAChannelError, match="does not reach the bucket"):
        staged(stages, 1 << 20)


def test_rows_keep_their_order_in_the_file() -> None:
    (plan,) = plans(1)
    task = TaskStage([plan], 1000, "query", 7)
    for first in range(0, 5000, 100):
        task.add(0, rows(100, first))
    task.finish()
    (frames,) = plan.staged.values()
    numbers = [n for f in frames for n in pa.ipc.read_record_batch(pa.py_buffer(f.payload), SCHEMA)["n"].to_pylist()]
    assert numbers == list(range(5000))


def test_whether_the_channels_are_here_is_asked_before_the_first_row_and_waited_for_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    def ask(plan: ObjectStagePlan) -> Callable[[], None]:
        steps.append(f"asked {plan.channel}")
        return lambda: steps.append(f"waited for {plan.channel}")

    monkeypatch.setattr(ObjectStagePlan, "ask_here", ask)
    with staging(plans(2), lambda task: 0, "query", 7) as task:
        for number in range(2):
            steps.append(f"row {number}")
            task.add(0, rows(1))
        task.finish()
    assert steps == ["asked c0", "asked c1", "row 0", "waited for c0", "waited for c1", "row 1"]


def test_a_task_without_rows_is_refused_where_its_channel_is_not() -> None:
    here, elsewhere = plans(2)
    with (
        pytest.raises(NotAChannelError),
        staging([here, replace(elsewhere, is_here=False)], lambda task: 0, "q", 7) as t,
    ):
        t.finish()
