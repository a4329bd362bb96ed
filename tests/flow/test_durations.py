from __future__ import annotations

import pyarrow as pa
import pytest

from spillable_stream.flow.durations import durations_us

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90 * SECOND), ("0", 0), ("0.5", SECOND // 2), ("250ms", SECOND // 4), ("2s", 2 * SECOND),
        ("1.5 m", 90 * SECOND), (" 2h ", 7200 * SECOND), ("7d", 7 * 86_400 * SECOND), ("0.000001", 1),
        ("", None), ("soon", None), ("-1", None), ("1e3", None), ("1w", None), ("5 min", None), (".5", None),
        ("9" * 13, None), (None, None),
    ],
)  # fmt: skip
def test_a_text_is_a_time_span_or_none(text: str | None, expected: int | None) -> None:
    assert durations_us(pa.array(["1", text], pa.string())).to_pylist() == [SECOND, expected]
