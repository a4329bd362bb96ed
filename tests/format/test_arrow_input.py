from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from spillable_stream.errors import SchemaError
from spillable_stream.format.arrow_input import arrow_rows

TABLE = pa.table({"sku": ["a", "b"], "price": [1.5, 2.5]})


class Frame:
    """As a data frame of polars, or a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


class Broken:
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise TypeError("a column of objects")


def test_batches_and_tables_stay_as_they_are() -> None:
    batch = TABLE.to_batches()[0]
    assert arrow_rows(TABLE, "put_batch") is TABLE
    assert arrow_rows(batch, "put_batch") is batch


def test_a_data_frame_is_read_through_its_arrow_interface() -> None:
    assert arrow_rows(Frame(), "put_batch").equals(TABLE)
    assert arrow_rows(TABLE.to_pandas(), "put_batch").to_pydict() == TABLE.to_pydict()
    indexed = TABLE.to_pandas().set_index("sku")
    assert arrow_rows(indexed, "put_batch").select(["sku", "price"]).to_pydict() == TABLE.to_pydict()


@pytest.mark.parametrize("rows", [None, 3, {"sku": ["a"]}, [{"sku": "a"}], b"x", pd.DataFrame])
def test_anything_else_is_refused_with_what_to_call_instead(rows: object) -> None:
    with pytest.raises(SchemaError, match=f"put_batch takes a .* data frame, not {type(rows).__name__}; put_many"):
        arrow_rows(rows, "put_batch")


def test_a_frame_that_arrow_cannot_read_is_refused() -> None:
    mixed = pd.DataFrame({"sku": ["a", 3]}, dtype=object)
    with pytest.raises(
        SchemaError, match=r"an Arrow table: Conversion failed for column sku with type object: Expected"
    ):
        arrow_rows(mixed, "put_batch")
    with pytest.raises(SchemaError, match="send_batch can't read a Broken as an Arrow table: a column of objects"):
        arrow_rows(Broken(), "send_batch")
