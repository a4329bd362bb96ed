"""The schemas that a channel may be given: Arrow's, or Spark's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spillable_stream import (
    Channel,
    SchemaError,
)

Open = Callable[..., Channel]


N = pa.field("n", pa.int64())


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([]), "must have columns with different names"),
        (pa.schema([N, N]), "must have columns with different names"),
        (pa.schema([("write_order_id", pa.int64())]), "is taken by the channel itself; rename it"),
        (pa.schema([N, ("N", pa.int64())]), "the columns 'n' and 'N' differ in case only"),
        (pa.schema([("a", pa.null())]), "the column 'a' has the type null"),
        (pa.schema([("a", pa.list_(pa.struct([("b", pa.null())])))]), "the column 'a' has the type list<"),
        (pa.schema([("a", pa.map_(pa.string(), pa.null()))]), "the column 'a' has the type map<string, null>"),
        ("n INT", "must be a pyarrow.Schema or a Spark StructType, not str"),
        ({"n": int}, r"not dict: make one with pyarrow.schema\(.*from_pandas\(frame\)"),
    ],
)
def test_a_schema_that_no_channel_can_have_is_refused(path: Path, schema: object, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Channel(path, schema=schema)
    assert not path.exists()


def test_a_spark_schema_is_taken_as_it_is(open_channel: Open) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    channel = open_channel(schema=StructType([StructField("n", LongType(), False), StructField("s", StringType())]))
    assert channel.schema.equals(pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())]))
