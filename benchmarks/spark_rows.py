"""The rows of the Spark benchmarks: three kinds, each made by Spark from a number in a column ``value``."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["KINDS", "Kind"]

_TEXT_BYTES = 1 << 20


class Kind(NamedTuple):
    """A kind of rows.

    Args:
        name: its short name.
        title: what the rows are.
        batch_rows: how many rows a micro-batch has.
        columns: returns the columns, of a DataFrame with a BIGINT column ``value``.
    """

    name: str
    title: str
    batch_rows: int
    columns: Callable[[], list[Any]]


def _text(length: int) -> Any:
    """Return a column of ``length`` letters, a piece of a random text: it hardly compresses, and costs a copy."""
    from pyspark.sql import functions as F

    letters = base64.b64encode(random.Random(0).randbytes(_TEXT_BYTES * 3 // 4))
    start = F.pmod(F.xxhash64("value"), F.lit(_TEXT_BYTES - length)).cast("int") + 1
    return F.substring(F.lit(letters), start, F.lit(length)).cast("string")


def _number_and_text(size_bytes: int) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.col("value").alias("id"), _text(size_bytes - 8).alias("text")]


_WIDE = """
    value AS id
    value % 2 = 0 AS flag
    IF(value % 10 = 0, NULL, value % 3 = 0) AS maybe
    CAST(value % 100 AS TINYINT) AS tiny
    CAST(value % 10000 AS SMALLINT) AS small
    CAST(value AS INT) AS int1
    CAST(value % 1000 AS INT) AS int2
    CAST(pmod(xxhash64(value), 2000000000) AS INT) AS int3
    IF(value % 7 = 0, NULL, CAST(value % 50 AS INT)) AS int4
    value * 7 AS long1
    xxhash64(value) AS long2
    IF(value % 5 = 0, NULL, value % 100000) AS long3
    CAST(value AS FLOAT) AS float1
    CAST(xxhash64(value) AS FLOAT) AS float2
    value * 1.1D AS double1
    xxhash64(value) * 1D AS double2
    IF(value % 11 = 0, NULL, value / 3D) AS double3
    CAST(value % 100000 / 100D AS DECIMAL(12, 2)) AS price
    CAST(value AS DECIMAL(28, 6)) AS amount
    date_add(DATE'2020-01-01', CAST(value % 2000 AS INT)) AS day1
    IF(value % 4 = 0, NULL, date_add(DATE'2020-01-01', CAST(value % 30 AS INT))) AS day2
    timestamp_micros(1700000000000000 + value * 1000) AS at1
    IF(value % 6 = 0, NULL, timestamp_micros(1700000000000000 + value % 86400 * 1000000)) AS at2
    CAST(timestamp_micros(1700000000000000 + value * 977) AS TIMESTAMP_NTZ) AS local
    element_at(array('NL', 'BE', 'DE', 'FR', 'PL'), CAST(value % 5 AS INT) + 1) AS country
    IF(value % 9 = 0, NULL, element_at(array('open', 'paid', 'sent'), CAST(value % 3 AS INT) + 1)) AS state
    concat('order-', value) AS code
    hex(xxhash64(value)) AS token
    CAST(hex(value) AS BINARY) AS raw
    array(CAST(value AS INT), CAST(value % 10 AS INT)) AS pair
    named_struct('x', value * 0.5D, 'y', CAST(value % 360 AS INT)) AS point
"""


def _wide() -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(line.strip()) for line in _WIDE.strip().splitlines()]


KINDS = (
    Kind("100 B", "a number and a text, 100 bytes", 1_000_000, lambda: _number_and_text(100)),
    Kind("1 KiB", "a number and a text, 1 KiB", 200_000, lambda: _number_and_text(1024)),
    Kind("wide", "31 columns of 18 types, about 250 bytes", 250_000, _wide),
)
