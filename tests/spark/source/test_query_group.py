"""Which group a query reads as, told what Spark says: no channel is needed to show it."""

from __future__ import annotations

import re

import pytest

from spillable_stream.names import is_name
from spillable_stream.spark.source.offset import Offset
from spillable_stream.spark.source.query_group import GroupOrigin, QueryGroup


def at(event_id: int, group: str | None = None, start_id: int | None = None) -> Offset:
    return Offset("c", event_id, start_id, group)


def test_option_names_the_group_and_offsets_say_nothing_of_it() -> None:
    group = QueryGroup("g")
    assert (group.name, group.label, group.is_automatic) == ("g", None, False)
    assert not group.hear(at(5, "auto-1"), 5)
    assert (group.name, group.label, group.origin, group.read_id) == ("g", None, GroupOrigin.OPTION, 5)


def test_each_query_without_the_option_makes_up_a_name_of_its_own() -> None:
    one, other = QueryGroup(None), QueryGroup(None)
    assert one.name != other.name
    for group in (one, other):
        assert re.fullmatch("auto-[0-9a-f]{32}", group.name) and is_name(group.name)
        assert (group.label, group.is_automatic, group.origin) == (group.name, True, GroupOrigin.NEW)


def test_new_query_hears_its_own_name_and_stays_new() -> None:
    group = QueryGroup(None)
    group.begin(3)
    assert not group.hear(at(3, group.name), 3)
    assert not group.hear(at(9, group.name, 3), 3)
    assert (group.origin, group.read_id) == (GroupOrigin.NEW, 3)


def test_query_that_resumes_has_the_name_that_its_checkpoint_has() -> None:
    group = QueryGroup(None)
    assert group.hear(at(7, "auto-1"), 7)
    assert (group.name, group.label, group.origin, group.read_id) == ("auto-1", "auto-1", GroupOrigin.CHECKPOINT, 7)
    assert not group.hear(at(9, "auto-1"), 9)
    assert group.read_id == 9


def test_checkpoint_of_an_earlier_version_names_no_group_and_means_the_default_one() -> None:
    group = QueryGroup(None)
    assert group.hear(at(7), 7)
    assert (group.name, group.label, group.origin) == ("default", None, GroupOrigin.EARLIER)
    assert not group.is_automatic
    assert not group.hear(at(9), 9)


def test_first_batch_that_is_planned_again_has_the_name_that_its_end_has() -> None:
    group = QueryGroup(None)
    group.begin(40)
    made_up = at(40, group.name)
    for end in (at(9, "auto-1", 3), at(9, None, 3)):
        assert group.is_made_up(made_up, end)
        assert group.hear(end, 3)
        assert group.read_id == 3


def test_beginning_of_a_batch_is_made_up_by_nobody_else() -> None:
    group = QueryGroup(None)
    assert not group.is_made_up(at(3, group.name), at(9, group.name, 3))
    assert not group.is_made_up(at(3, "auto-1"), at(9, "auto-1"))
    assert not group.is_made_up(at(3), at(9))
    assert not QueryGroup("g").is_made_up(at(3, "auto-1"), at(9))


@pytest.mark.parametrize("option", [None, "g"])
def test_where_a_query_begins_does_not_change_what_it_has_read(option: str | None) -> None:
    group = QueryGroup(option)
    group.hear(at(5, group.label), 5)
    group.begin(2)
    assert group.read_id == 5
