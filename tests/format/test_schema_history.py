"""What a plan takes to a task of the schemas that a channel has had."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import spillable_stream as ss
from spillable_stream.engine.port import ReadPlan
from spillable_stream.format.batch import encode_schema, merge_schemas
from spillable_stream.format.schema_history import SchemaHistory

WIDE = pa.schema(
    [pa.field(f"c{i}", pa.int64(), nullable=i > 0, metadata={"n": str(i)}) for i in range(200)], {"of": "x"}
)


def grown(schema: pa.Schema, times: int) -> list[pa.Schema]:
    """Return a schema and those that it grows to."""
    found = [schema]
    for i in range(times):
        found.append(merge_schemas(found[-1], found[-1].append(pa.field(f"new{i}", pa.list_(pa.string())))))
    return found


@pytest.mark.parametrize("times", [0, 1, 9])
def test_schemas_come_back_as_they_were(times: int) -> None:
    schemas = grown(WIDE, times)
    history = pickle.loads(pickle.dumps(SchemaHistory.of(tuple(map(encode_schema, schemas)))))
    for found, schema in zip(history.decoded(), schemas, strict=True):
        assert found.equals(schema, check_metadata=True)


def test_schemas_that_do_not_begin_alike_come_back_too() -> None:
    schemas = [pa.schema([("a", pa.int64())]), pa.schema([("b", pa.int64()), ("a", pa.int64())])]
    assert SchemaHistory.of(tuple(map(encode_schema, schemas))).decoded() == schemas


@pytest.mark.parametrize("store", ["", "object+file://"], ids=["disk", "store"])
def test_a_plan_is_hardly_larger_where_the_channel_has_had_more_schemas(tmp_path: Path, store: str) -> None:
    with ss.Channel(f"{store}{tmp_path}/c", schema=WIDE) as channel:
        with channel.put_transaction() as tx:
            tx.put({"c0": 1})

        def plan() -> ReadPlan:
            (found,) = channel.port().plan_read([[(1, 1)]])
            return found

        before = len(pickle.dumps(plan()))
        for schema in grown(WIDE, 9)[1:]:
            channel.evolve(schema)
        assert len(pickle.dumps(plan())) < 1.1 * before
        reader = plan().open()
        (read,) = reader.read(plan().extents[0])
        assert read.batch.schema.equals(WIDE) and read.batch["c0"].to_pylist() == [1]
        reader.close()
