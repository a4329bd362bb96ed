"""The options of a write, and what does not go together; no Spark is needed to show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spillable_stream as ss
from tests.spark.sink.test_sink_plan import sink_plan


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"txnAppId": "job"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "job", "txnVersion": 1, "stream": True}, "txnAppId and txnVersion are for batch writes"),
        ({"deliverAfter": "1s", "deliverAtColumn": "id"}, "deliverAfter and deliverAtColumn are both given"),
        ({"ttlColumn": "id", "deliverAtColumn": "id"}, "both name the column 'id'"),
        ({"ttlColumn": "at"}, "ttlColumn names the column 'at', and the rows have id"),
        ({"deliverAtColumn": "id"}, "deliverAtColumn names the column 'id' of the type bigint; give it a TIMESTAMP"),
        ({"deliverAfter": "367d"}, "deliverAfter must be .*; the most is 31,622,400 s, a year"),
        ({"deliverAfter": "soon"}, "deliverAfter must be seconds, or a number with ms"),
        ({"startingOffsets": "latest"}, "startingOffsets is not an option of a Spark sink"),
    ],
)
def test_options_of_another_use_are_refused_and_create_no_channel(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ss.OptionError, match=why):
        sink_plan(tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()
