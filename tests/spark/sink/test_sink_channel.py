"""The channel of a write, and what a plan says of it; no Spark is needed to show it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import spillable_stream as ss
from spillable_stream.engine.port import Put, SinkBatch
from spillable_stream.format.batch import encode_batch
from spillable_stream.spark.sink.sink_channel import TASK_INLINE_BYTES
from tests.spark.sink.test_sink_plan import IDS, sink_plan

WIDE = StructType([*IDS.fields, StructField("more", LongType()), StructField("note", LongType())])


def test_channel_is_created_for_the_rows_and_gets_columns_where_the_write_merges_schemas(tmp_path: Path) -> None:
    path = tmp_path / "c"
    plans = [sink_plan(path), sink_plan(path, WIDE, mergeSchema=True), sink_plan(path)]
    assert [plan.stage.schema_id for plan in plans] == [0, 1, 1]
    with ss.Channel(tmp_path / "c", create=False) as channel:
        assert channel.schema.names == ["id", "more", "note"]


@pytest.mark.parametrize("stream", [False, True])
def test_columns_that_the_channel_does_not_have_are_refused_with_what_to_do(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "c"
    sink_plan(path)
    found = (2, "column 'more'", "name, leave it"), (3, "columns 'more', 'note'", "names, leave them")
    for columns, names, advice in found:
        with pytest.raises(ss.SchemaError) as e:
            sink_plan(path, StructType(WIDE.fields[:columns]), stream=stream)
        assert str(e.value).startswith(
            f"{path} does not fit the rows: it has no {names}: check the {advice} out, or set the option mergeSchema "
            f"to true, which adds {advice.split()[-1]} for good. The channel has (id: int64); what is given has (id: "
        )
    with ss.Channel(path, create=False) as channel:
        assert channel.schema.names == ["id"]


@pytest.mark.parametrize("merge", [False, True])
def test_a_column_that_differs_in_case_only_is_refused_with_the_channels_name_of_it(
    tmp_path: Path, merge: bool
) -> None:
    sink_plan(tmp_path / "c")
    with pytest.raises(ss.SchemaError, match="the new column 'ID' differs from 'id' in case only: call it 'id'"):
        sink_plan(tmp_path / "c", StructType([StructField("ID", LongType())]), mergeSchema=merge)


def test_rows_that_do_not_fit_are_refused_with_the_channels_path(tmp_path: Path) -> None:
    sink_plan(tmp_path / "c")
    for merge in (False, True):
        with pytest.raises(ss.SchemaError, match=f"^{tmp_path}/c does not fit the rows: .*'id'.*another type"):
            sink_plan(tmp_path / "c", StructType([StructField("id", StringType())]), mergeSchema=merge)


@pytest.mark.parametrize("merge", [False, True])
def test_a_write_that_is_refused_leaves_the_channels_options_as_they_were(tmp_path: Path, merge: bool) -> None:
    sink_plan(tmp_path / "c", transactionCapacity=5)
    for schema in (StructType([StructField("id", StringType())]), *([] if merge else [WIDE])):
        with pytest.raises(ss.SchemaError):
            sink_plan(tmp_path / "c", schema, mergeSchema=merge, transactionCapacity=7)
    with ss.Channel(tmp_path / "c", create=False) as channel:
        assert channel.options["transaction_capacity"] == 5
    sink_plan(tmp_path / "c", WIDE, mergeSchema=True, transactionCapacity=7)
    with ss.Channel(tmp_path / "c", create=False) as channel:
        assert channel.options["transaction_capacity"] == 7


def test_task_sends_what_the_sinks_option_says_or_else_the_channels_if_that_is_less(tmp_path: Path) -> None:
    path = tmp_path / "c"
    assert sink_plan(path).max_inline_bytes == TASK_INLINE_BYTES
    assert sink_plan(path, maxInlineBytes=7).max_inline_bytes == 7
    with ss.Channel(path, create=False, max_inline_bytes=1000):
        assert sink_plan(path).max_inline_bytes == 1000


def test_a_plan_says_only_those_batches_that_its_commit_may_ask_for(tmp_path: Path) -> None:
    def stored(**options: Any) -> Mapping[str, int]:
        return sink_plan(tmp_path / "c", **options).stored

    sink_plan(tmp_path / "c")
    with ss.Channel(tmp_path / "c", create=False) as channel:
        for name in ("query", "txn:job", "txn:job/4-00000000", "txn:another"):
            put = Put(encode_batch(pa.record_batch({"id": pa.array([1], pa.int64())})), [], SinkBatch(name, 7))
            assert channel.port().publish(put, 0.0)
    assert stored() == {}
    assert stored(txnAppId="job", txnVersion=5) == {"txn:job": 7, "txn:job/4-00000000": 7}
    assert len(stored(stream=True)) == 4
    assert sink_plan(tmp_path / "c", stream=True).for_tasks().stored == {}
