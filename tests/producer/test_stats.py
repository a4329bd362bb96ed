from __future__ import annotations

from spillable_stream.producer.stats import Percentiles


def test_percentiles_are_of_what_there_is() -> None:
    assert Percentiles.of([]) == Percentiles(0, 0, 0, 0)
    assert Percentiles.of([7.0]) == Percentiles(7, 7, 7, 7)
    assert Percentiles.of([float(i) for i in range(1000, 0, -1)]) == Percentiles(501, 901, 991, 1000)
