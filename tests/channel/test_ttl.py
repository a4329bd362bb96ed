"""What a ttl may be."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from spillable_stream import OptionError
from spillable_stream.channel.ttl import ttl_us


def test_a_ttl_is_seconds_or_a_timedelta() -> None:
    assert ttl_us(None) == 0
    assert ttl_us(2) == ttl_us(2.0) == ttl_us(timedelta(seconds=2)) == 2_000_000
    assert ttl_us(np.int64(2)) == ttl_us(np.float32(2)) == ttl_us(Fraction(2)) == 2_000_000
    assert ttl_us(1e-6) == ttl_us(timedelta(microseconds=1)) == 1
    assert ttl_us(100 * 365.25 * 86_400) == 3_155_760_000_000_000


@pytest.mark.parametrize(
    "ttl", [0, -1, 1e-9, math.inf, -math.inf, 3.2e9, 10**400, timedelta(0), timedelta(days=36_526)]
)
def test_a_ttl_of_nothing_less_or_more_than_a_century_is_refused(ttl: Any) -> None:
    with pytest.raises(OptionError, match="ttl must be more than 0 and at most 100 years, not "):
        ttl_us(ttl)


@pytest.mark.parametrize(
    "ttl", [math.nan, True, False, "1 week", b"1", [1], 1j, np.timedelta64(3, "s"), np.timedelta64(3, "ns")]
)
def test_what_is_not_a_time_is_refused(ttl: Any) -> None:
    with pytest.raises(OptionError, match=r"^ttl must be seconds, or a number with .* or a timedelta, not "):
        ttl_us(ttl)
