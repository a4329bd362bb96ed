"""What Spark's calls of a write become, however many channels it writes to."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spillable_stream.engine.port import SinkBatch
from spillable_stream.errors import NotAChannelError, SpillableError
from spillable_stream.spark.sink.failed_plan import FailedPlanWriter
from spillable_stream.spark.sink.flow_writer import FlowStreamWriter
from spillable_stream.spark.sink.sharded_writer import ShardedBatchWriter, ShardedStreamWriter
from spillable_stream.spark.sink.spark_checkpoint import SparkCheckpoint
from spillable_stream.spark.sink.spark_writers import BatchWriter, SinkWriter, StreamWriter
from spillable_stream.spark.sink.writer import SpillableBatchWriter, SpillableStreamWriter
from spillable_stream.spark.sink.written_channels import NOTE


@dataclass
class Output(WriterCommitMessage):
    owner: str
    checkpoints: str = ""
    run: str = ""
    channel: str = "uuid"


@dataclass
class Plan:
    transaction: SinkBatch | None = None
    schema: StructType = field(default_factory=StructType)

    def for_tasks(self) -> Plan:
        return replace(self, transaction=None)


class Recording(SinkWriter[Plan]):
    """Notes what is asked of it."""

    asked: list[object]

    def _stage(self, batches: Iterator[pa.RecordBatch], owner: str, batch_id: int) -> Output:
        self.asked = [list(batches), owner, batch_id]
        return Output(owner)

    def _publish(self, messages: list[WriterCommitMessage | None], batch_id: int, sink: SinkBatch | None) -> None:
        self.asked = [*getattr(self, "asked", []), ("publish", batch_id, sink)]

    def _discard(self, messages: list[WriterCommitMessage | None]) -> None:
        self.asked = [("discard", messages)]

    def _outputs(self, messages: list[WriterCommitMessage | None]) -> list[Output]:
        return [m for m in messages if isinstance(m, Output)]

    def _written(self, messages: list[WriterCommitMessage | None]) -> dict[str, str]:
        return dict([("path", output.channel) for output in self._outputs(messages)])

    def _remembered(
        self, batch: SinkBatch, messages: list[WriterCommitMessage | None], *, is_first: bool
    ) -> tuple[SinkBatch, set[str]]:
        return batch._replace(query=f"{batch.query}/divided"), {"uuid"}


class Batch(BatchWriter[Plan], Recording):
    pass


class Stream(StreamWriter[Plan], Recording):
    pass


class Told(SparkCheckpoint):
    """Notes where tasks say that checkpoints are."""

    def sync_batch(self, batch_id: int, checkpoints: str) -> None:
        raise SpillableError(f"{batch_id}: {checkpoints}")


def test_the_tasks_of_a_batch_write_share_an_owner_that_no_other_write_has() -> None:
    owners = set()
    for writer in (Batch(Plan()), Batch(Plan())):
        for _ in range(2):
            writer.write(iter(()))
            owners.add(writer.asked[1])
    assert len(owners) == 2


@pytest.mark.parametrize(
    ("transaction", "sink"), [(None, None), (SinkBatch("txn:a", 5), SinkBatch("txn:a/divided", 5))], ids=["none", "5"]
)
def test_a_batch_write_is_remembered_by_the_transaction_that_it_was_given(
    transaction: SinkBatch | None, sink: SinkBatch | None
) -> None:
    writer = Batch(Plan(transaction))
    writer.commit([Output("job")])
    assert writer.asked == [("publish", 0, sink)]


def test_a_micro_batch_is_remembered_by_its_query_and_published_once_its_offsets_are_synced() -> None:
    writer = Stream(Plan())
    writer.commit([None, Output("query"), Output("query")], 7)
    assert writer.asked == [("publish", 7, SinkBatch("query/divided", 7))]
    writer = Stream(Plan(), Told())
    with pytest.raises(SpillableError, match="7: here"):
        writer.commit([Output("query"), None, Output("query", "here")], 7)
    assert not hasattr(writer, "asked"), "nothing was published"


def test_a_micro_batch_without_a_message_from_any_task_is_not_published() -> None:
    writer = Stream(Plan())
    writer.commit([None], 7)
    assert not hasattr(writer, "asked")


def test_a_micro_batch_is_refused_before_anything_is_published_where_its_run_wrote_to_another_channel() -> None:
    Stream(Plan()).commit([Output("query", run="a run")], 6)
    writer = Stream(Plan())
    with pytest.raises(NotAChannelError, match="path was removed or replaced while the query ran"):
        writer.commit([None, Output("query", run="a run", channel="another")], 7)
    assert not hasattr(writer, "asked"), "nothing was published"
    writer.commit([Output("query", run="the next run", channel="another")], 7)
    assert writer.asked == [("publish", 7, SinkBatch("query/divided", 7))]


def test_a_micro_batch_is_noted_before_it_is_published(tmp_path: Path) -> None:
    """A driver that dies in between leaves channels that have the batch, or not: they are asked."""

    class Dying(Stream):
        def _publish(self, *_: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Dying(Plan(), SparkCheckpoint(str(tmp_path))).commit([Output("query", run="a run that dies")], 7)
    assert json.loads((tmp_path / NOTE).read_text())["channels"] == {"path": "uuid"}


def test_the_tasks_of_a_stream_are_sent_what_they_need_of_the_plan() -> None:
    sent = pickle.loads(pickle.dumps(Stream(Plan(SinkBatch("txn:a", 1)))))
    assert sent._plan == Plan() and sent._schema == StructType()


def test_a_task_whose_query_spark_does_not_name_is_refused() -> None:
    with pytest.raises(SpillableError, match="does not say which query and batch this is"):
        Stream(Plan()).write(iter(()))


def test_an_abort_discards_what_was_staged() -> None:
    for writer in (Batch(Plan()), Stream(Plan())):
        messages: list[WriterCommitMessage | None] = [Output("one"), None]
        writer.abort(messages) if isinstance(writer, Batch) else writer.abort(messages, 7)
        assert writer.asked == [("discard", messages)]


WRITERS = (
    SpillableBatchWriter,
    SpillableStreamWriter,
    ShardedBatchWriter,
    ShardedStreamWriter,
    FlowStreamWriter,
    FailedPlanWriter,
)


def methods_of(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: found for name, found in vars(kind).items() if inspect.isfunction(found) and name != "__init__"}


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_each_method_of_a_writer_takes_the_place_of_one_that_is_called(writer: type) -> None:
    """A type checker does not see that: Spark's classes, which it skips, are among the bases."""
    for place, kind in enumerate(writer.__mro__):
        if not kind.__module__.startswith("spillable_stream.") or kind in (SinkWriter, StreamWriter, BatchWriter):
            continue
        for name, method in methods_of(kind).items():
            bases = [vars(base)[name] for base in writer.__mro__[place + 1 :] if name in vars(base)]
            assert bases, f"nothing calls {name}"
            assert [*inspect.signature(method).parameters] == [*inspect.signature(bases[-1]).parameters], name
    left = [name for name in dir(writer) if getattr(getattr(writer, name), "__isabstractmethod__", False)]
    assert left == [], "nothing takes their place"
