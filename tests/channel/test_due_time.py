"""When a delayed event is due, as users say it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spillable_stream import Channel
from spillable_stream.channel.due_time import due_ms, require_orderable
from spillable_stream.errors import OptionError
from spillable_stream.option_parsers import MOST_DELAY_SECONDS

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("after", "at", "expected"),
    [
        (None, None, 0),
        (2, None, NOW_MS + 2000),
        (np.int64(2), None, NOW_MS + 2000),
        (np.float32(0.5), None, NOW_MS + 500),
        (0.0004, None, NOW_MS + 1),
        (timedelta(minutes=1), None, NOW_MS + 60_000),
        (0, None, 0),
        (None, NOW + timedelta(seconds=5), NOW_MS + 5000),
        (None, (NOW + timedelta(seconds=5)).astimezone(timezone(timedelta(hours=-7))), NOW_MS + 5000),
        (None, NOW - timedelta(days=1), 0),
        (MOST_DELAY_SECONDS, None, NOW_MS + 1000 * MOST_DELAY_SECONDS),
    ],
)
def test_a_delay_says_when_an_event_is_due(after: Any, at: Any, expected: int) -> None:
    assert due_ms(after, at, NOW_MS) == expected


@pytest.mark.parametrize(
    ("after", "at", "text"),
    [
        (1, NOW, "both given"),
        (-1, None, "deliver_after must be .* not -1"),
        (math.nan, None, "deliver_after must be .* not nan"),
        (timedelta(seconds=-1), None, "0 or more"),
        (True, None, "deliver_after must be .* not True"),
        ("5 weeks", None, "deliver_after must be .* not '5 weeks'"),
        (np.timedelta64(3, "s"), None, "deliver_after must be .* not np.timedelta64"),
        (np.timedelta64(3, "ns"), None, "deliver_after must be .* not np.timedelta64"),
        (MOST_DELAY_SECONDS + 1, None, "at most a year"),
        (10**9, None, "at most a year .*, not deliver_after = 1000000000"),
        (math.inf, None, "at most a year"),
        (10**400, None, "at most a year"),
        (None, NOW + timedelta(days=367), "at most a year .*, not until 20"),
        (None, datetime(2030, 1, 1), "no time zone"),
        (None, NOW_MS, "give a datetime"),
        (None, pd.NaT, "NaT, which is not a time"),
    ],
)
def test_what_is_not_a_delay_is_refused(after: Any, at: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        due_ms(after, at, NOW_MS)
    assert str(caught.value).endswith("Nothing was put")


FIXED = [pa.string_view(), pa.binary_view(), pa.list_(pa.string_view()), pa.run_end_encoded(pa.int32(), pa.int64())]


@pytest.mark.parametrize("column", FIXED, ids=str)
def test_rows_that_arrow_cannot_put_in_another_order_are_never_delayed(column: pa.DataType, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("text", column)])
    row = pa.RecordBatch.from_pylist([{"id": 1, "text": None}], pa.schema([("id", pa.int64())]))
    with Channel(tmp_path / "c", schema=columns) as channel:
        with channel.put_transaction() as tx, pytest.raises(OptionError, match="can't reorder its column 'text'"):
            tx.put_batch(row, deliver_after=1)
        with pytest.raises(OptionError, match="can't delay rows"):
            channel.due_ms(1, None)
        assert channel.due_ms(0, None) == 0
        with channel.put_transaction() as tx:
            tx.put_batch(row)


def test_rows_of_all_other_columns_can_be_delayed() -> None:
    others = [pa.string(), pa.list_view(pa.string()), pa.struct([("a", pa.null())]), pa.map_(pa.string(), pa.int8())]
    require_orderable(pa.schema([(str(column), column) for column in others]), "here")
