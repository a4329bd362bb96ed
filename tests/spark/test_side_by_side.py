"""Calls that are under way at the same time."""

from __future__ import annotations

import threading

import pytest

from spillable_stream.spark.side_by_side import side_by_side


def test_results_come_in_the_order_of_the_calls() -> None:
    assert side_by_side([lambda i=i: i for i in range(40)]) == list(range(40))
    assert side_by_side([]) == []


def test_calls_are_under_way_at_the_same_time() -> None:
    together = threading.Barrier(8)
    assert len(side_by_side([lambda: together.wait(60)] * 8)) == 8


def test_one_call_begins_no_thread() -> None:
    assert side_by_side([threading.get_ident]) == [threading.get_ident()]


def test_calls_may_begin_others_and_wait_for_them() -> None:
    assert side_by_side([lambda: side_by_side([lambda: 1] * 20)] * 20) == [[1] * 20] * 20


def test_the_first_error_is_raised_once_all_have_ended() -> None:
    ended = []

    def fail(number: int) -> None:
        ended.append(number)
        if number:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side([lambda i=i: fail(i) for i in range(3)])
    assert sorted(ended) == [0, 1, 2]
