"""Looking again while others change what is looked at."""

from __future__ import annotations

from itertools import count

from spillable_stream.log.look_again import looks


def test_a_look_tells_whether_anything_moved() -> None:
    moving = count()
    assert [look.is_unmoved() for look in looks(lambda: next(moving))] == [False] * 5
    assert all(look.is_unmoved() for look in looks(lambda: "still"))


def test_looks_are_numbered() -> None:
    assert [look.number for look in looks(lambda: 0, most=3)] == [1, 2, 3]


def test_each_look_begins_with_what_is_there() -> None:
    moving = count(7)
    assert [look.before for look in looks(lambda: next(moving), most=3)] == [7, 8, 9]
