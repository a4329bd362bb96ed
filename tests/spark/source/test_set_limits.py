"""The limits of a micro-batch count for all channels of a set, and each has its share."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spillable_stream.spark.source.latest_offset import Backlog
from spillable_stream.spark.source.read_options import StreamOptions
from spillable_stream.spark.source.set_limits import fair_shares, limits_of_each


def options(**given: object) -> StreamOptions:
    return StreamOptions.of(given)


@given(limit=st.integers(0, 200), wanted=st.lists(st.integers(0, 60), max_size=8), turn=st.integers(0, 99))
def test_shares_are_as_even_as_what_is_wanted_allows(limit: int, wanted: list[int], turn: int) -> None:
    shares = fair_shares(limit, wanted, turn)
    assert sum(shares) == min(limit, sum(wanted))
    assert all(0 <= share <= most for share, most in zip(shares, wanted, strict=True))
    most = max(shares, default=0)
    assert all(share >= min(want, most - 1) for share, want in zip(shares, wanted, strict=True))


def test_nobody_starves_where_the_limit_is_smaller_than_the_set() -> None:
    got: Counter[int] = Counter()
    for turn in range(12):
        [who] = [i for i, share in enumerate(fair_shares(1, [9, 9, 0, 9], turn)) if share]
        got[who] += 1
    assert got == {0: 4, 1: 4, 3: 4}


def test_without_limits_each_channel_gives_all() -> None:
    waiting = [Backlog(5, 100, False), Backlog(0, 0, False)]
    assert limits_of_each(waiting, options(), 0, is_last=False) == [options(), options()]


def test_events_and_bytes_are_both_shared() -> None:
    waiting = [Backlog(100, 1000, False), Backlog(2, 5000, False), Backlog(0, 0, False)]
    limited = options(max_events_per_trigger=10, max_bytes_per_trigger=1500)
    first, second, third = limits_of_each(waiting, limited, 0, is_last=False)
    assert first is not None and (first.max_events_per_trigger, first.max_bytes_per_trigger) == (8, 750)
    assert second is not None and (second.max_events_per_trigger, second.max_bytes_per_trigger) == (2, 750)
    assert third is not None and third.max_events_per_trigger == 1  # it may pass over what others took


def test_what_is_put_after_a_channel_was_asked_waits() -> None:
    waiting = [Backlog(3, 30, False), Backlog(0, 0, False)]
    limits = limits_of_each(waiting, options(max_events_per_trigger=10), 0, is_last=False)
    assert [each and each.max_events_per_trigger for each in limits] == [3, 1]


def test_a_channel_whose_events_are_smaller_than_a_byte_gives_all_where_there_is_room() -> None:
    waiting = [Backlog(10_000, 40, False), Backlog(1, 0, False)]
    limits = limits_of_each(waiting, options(max_bytes_per_trigger=1_000_000), 0, is_last=True)
    assert [each and (each.max_events_per_trigger, each.max_bytes_per_trigger) for each in limits] == [
        (10_000, None),
        (1, None),
    ]


def test_a_channel_without_a_share_waits_for_the_next_batch() -> None:
    waiting = [Backlog(5, 10, False), Backlog(5, 10, False)]
    shares = [limits_of_each(waiting, options(max_events_per_trigger=1), turn, is_last=False) for turn in (0, 1)]
    assert [[limits is None for limits in each] for each in shares] == [[False, True], [True, False]]


def test_too_few_events_wait_together_until_one_is_overdue_or_the_query_ends() -> None:
    limited = options(min_events_per_trigger=10)
    few = [Backlog(4, 10, False), Backlog(5, 10, False), Backlog(0, 0, False)]
    assert limits_of_each(few, limited, 0, is_last=False) == [None, None, limited]
    free = options()
    enough = [Backlog(5, 10, False), Backlog(5, 10, False)]
    assert limits_of_each(enough, limited, 0, is_last=False) == [free, free]
    overdue = [Backlog(4, 10, True), Backlog(5, 10, False)]
    assert limits_of_each(overdue, limited, 0, is_last=False) == [free, free]
    assert limits_of_each(few, limited, 0, is_last=True) == [free, free, free]
