"""Numbers as people read them."""

from __future__ import annotations

import pytest

from spillable_stream.channel.figures import age_text, rate_text, short_text, size_text


def test_sizes_and_ages_have_a_unit_that_fits() -> None:
    assert [size_text(n) for n in (0, 1, 1023, 1536, 5 << 30)] == [
        "0 bytes",
        "1 byte",
        "1,023 bytes",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert [age_text(s) for s in (0.4, 59, 90, 7200, 129_600)] == ["0 s", "59 s", "1.5 min", "2.0 h", "1.5 d"]


def test_rates_have_a_decimal_where_they_are_small() -> None:
    assert [rate_text(r) for r in (0, 0.25, 9.96, 1134.4)] == ["0/s", "0.2/s", "10/s", "1,134/s"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (10_000, "10k"), (999_999, "1000k"), (1_500_000, "1.5M"),
     (100_000_000, "100M"), (2 * 10**9, "2G"), (10**12, "1T")],
)  # fmt: skip
def test_short_counts_have_six_characters_at_most(number: int, text: str) -> None:
    assert short_text(number) == text and len(text) <= 6
