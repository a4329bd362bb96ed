"""The order of sinks, and how long one that failed is left out: Flume's numbers."""

from __future__ import annotations

import pytest

from spillable_stream.flow.order_selector import OrderSelector, RandomOrder, RoundRobinOrder


def configured(
    selector: OrderSelector, count: int = 3, *, backoff: bool = True, most_ms: int = 30_000
) -> OrderSelector:
    selector.configure(count, backoff=backoff, max_timeout_ms=most_ms, seed=1)
    return selector


def test_each_round_begins_one_further() -> None:
    selector = configured(RoundRobinOrder())
    assert [selector.next_round(0) for _ in range(4)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_rounds_continue_among_those_that_are_left() -> None:
    selector = configured(RoundRobinOrder())
    selector.next_round(0)
    selector.next_round(0)
    selector.failed(2, 0)
    assert [selector.next_round(1), selector.next_round(1), selector.next_round(1)] == [[0, 1], [1, 0], [0, 1]]


def test_a_sink_is_left_out_twice_as_long_with_each_failure_in_a_row() -> None:
    selector, now = configured(RoundRobinOrder(), most_ms=10**9), 0.0
    for k in range(1, 20):
        selector.failed(0, now)
        timeout_ms = 1000 * 2 ** min(k, 16)
        assert 0 not in selector.next_round(now + timeout_ms)
        now += timeout_ms + 1
        assert 0 in selector.next_round(now)


def test_the_longest_time_out_is_given() -> None:
    selector = configured(RoundRobinOrder(), most_ms=3_000)
    for _ in range(5):
        selector.failed(0, 0)
    assert 0 not in selector.next_round(3_000) and 0 in selector.next_round(3_001)


@pytest.mark.parametrize(("later_ms", "timeout_ms"), [(2_000 + 3_599_999, 4_000), (2_000 + 3_600_000, 2_000)])
def test_failures_are_in_a_row_within_the_time_out_and_an_hour(later_ms: int, timeout_ms: int) -> None:
    selector = configured(RoundRobinOrder())
    selector.failed(0, 0)
    selector.failed(0, later_ms)
    assert 0 not in selector.next_round(later_ms + timeout_ms) and 0 in selector.next_round(later_ms + timeout_ms + 1)


def test_without_backoff_nothing_is_left_out() -> None:
    selector = configured(RoundRobinOrder(), backoff=False)
    selector.failed(0, 0)
    assert selector.next_round(0) == [0, 1, 2]


def test_where_all_are_left_out_nobody_is_asked() -> None:
    selector = configured(RoundRobinOrder(), count=2)
    selector.failed(0, 0)
    selector.failed(1, 0)
    assert selector.next_round(1) == ()


def test_an_order_by_chance_has_each_sink_once_and_varies() -> None:
    selector = configured(RandomOrder())
    rounds = [tuple(selector.next_round(0)) for _ in range(40)]
    assert all(sorted(r) == [0, 1, 2] for r in rounds) and len(set(rounds)) == 6


def test_one_of_your_own_needs_an_order() -> None:
    with pytest.raises(NotImplementedError, match=r"OrderSelector has no order\(\)"):
        configured(OrderSelector()).next_round(0)
