"""The state machine of a query, told what Spark says: no channel is needed to show it."""

from __future__ import annotations

import pytest

from spillable_stream.spark.source.offset import Offset
from spillable_stream.spark.source.query_position import Phase, QueryPosition, Question, is_asked_anew


@pytest.fixture
def query() -> QueryPosition:
    return QueryPosition()


def at(event_id: int, start_id: int | None = None) -> Offset:
    return Offset("c", event_id, start_id)


def asked(query: QueryPosition, start: Offset | None, position_id: int, end_id: int) -> Offset:
    """Ask and answer, and return the answer."""
    return query.answer(query.ask(start, position_id, "c"), end_id, "c")


def test_first_batch_says_where_it_begins_and_the_next_one_does_not(query: QueryPosition) -> None:
    query.begin(3)
    first = asked(query, at(3), 3, 10)
    assert first == at(10, start_id=3)
    assert query.plan(at(3), first) == 3
    assert asked(query, first, 10, 20) == at(20)


def test_spark_may_ask_for_the_beginning_again_before_it_plans_the_first_batch(query: QueryPosition) -> None:
    query.begin(3)
    first = asked(query, at(3), 3, 10)
    query.begin(3)
    assert query.phase is Phase.NEW
    assert query.plan(at(3), first) == 3
    assert query.phase is Phase.PLANNED


def test_batch_that_begins_where_a_restarted_query_would_begin_now_is_not_its_first(query: QueryPosition) -> None:
    """Killed amid its first batch, it is asked again where it begins, which `latest` says otherwise by then."""
    query.begin(13)
    first = at(12, start_id=7)
    assert query.plan(at(13), first) == 7
    assert asked(query, first, 7, 13) == at(13)
    query.plan(first, at(13))
    assert asked(query, at(13), 12, 20) == at(20)


def test_answer_to_a_query_with_nothing_new_is_the_beginning_to_the_letter(query: QueryPosition) -> None:
    query.begin(0)
    first = asked(query, at(0), 0, 10)
    query.plan(at(0), first)
    assert asked(query, first, 10, 10) == first
    assert query.covered_id == 10


def test_first_batch_begins_where_a_former_owners_take_ended(query: QueryPosition) -> None:
    """It was committed after Spark was told the position, and before this worker had the group."""
    query.begin(0)
    assert query.ask(at(0), 5, "c") == Question(5, at(5, start_id=5), 5)
    query.begin(5)
    first = at(10, start_id=5)
    assert query.plan(at(0), first) == 5, "the end knows it better than Spark"


def test_batch_after_the_first_begins_where_spark_says_whatever_the_groups_position_is(query: QueryPosition) -> None:
    query.begin(0)
    asked(query, at(0), 0, 0)
    assert query.phase is Phase.ASKED
    assert query.ask(at(0), 5, "c").begin_id == 0


def test_asking_for_the_next_batch_proves_what_was_before(query: QueryPosition) -> None:
    assert query.ask(at(7), 3, "c").proven_id == 7


def test_before_spark_4_2_the_batch_begins_where_the_last_one_ended(query: QueryPosition) -> None:
    assert query.ask(None, 3, "c") == Question(3, None, None)
    query.plan(at(3), at(8))
    assert query.ask(None, 3, "c") == Question(8, None, 8)
    assert query.answer(Question(8, None, 8), 8, "c") == at(8)
    assert query.ask(None, 9, "c") == Question(9, None, 8), "a listener has committed a later take"


def test_before_spark_4_2_the_batch_begins_at_the_furthest_end_though_an_older_batch_was_planned_again(
    query: QueryPosition,
) -> None:
    query.plan(at(3), at(8))
    query.plan(at(0), at(3))
    assert query.ask(None, 0, "c") == Question(8, None, 3)
    assert query.ask(None, 9, "c").begin_id == 9


def test_before_spark_4_2_the_first_batch_of_a_worker_that_heard_nothing_says_where_it_begins(
    query: QueryPosition,
) -> None:
    assert asked(query, None, 3, 8) == at(8, start_id=3)


def test_new_query_misses_all_that_its_group_lost_and_a_restarted_one_what_came_since(query: QueryPosition) -> None:
    assert query.missed_after(7) == 7
    query.begin(7)
    assert query.missed_after(7) == 0
    query.plan(at(7), at(9, start_id=7))
    assert query.missed_after(9) == 0


def test_what_is_before_the_beginning_of_a_new_query_is_covered(query: QueryPosition) -> None:
    query.begin(4)
    assert query.covered_id == 4
    asked(query, at(4), 4, 10)
    query.begin(4)
    assert query.covered_id == 10


def test_what_spark_was_told_about_last_is_covered(query: QueryPosition) -> None:
    query.begin(0)
    first = asked(query, at(0), 0, 10)
    assert query.covered_id == 10
    query.plan(at(0), at(5))
    assert query.covered_id == 5
    assert first.event_id == 10


def test_first_batch_that_ends_before_it_begins_or_with_another_reset_was_asked_for_anew() -> None:
    def reset(event_id: int, name: str) -> Offset:
        return Offset("c", event_id, reset=name)

    assert is_asked_anew(at(8), at(5)) and is_asked_anew(at(20), at(8, start_id=5))
    assert is_asked_anew(reset(5, "-b"), reset(5, "-a")) and is_asked_anew(at(5), reset(9, "-a"))
    assert not is_asked_anew(at(5), at(5)) and not is_asked_anew(at(5), at(8, start_id=5))
    assert not is_asked_anew(reset(5, "-a"), reset(5, "-a")) and not is_asked_anew(reset(5, "-a"), at(8))
