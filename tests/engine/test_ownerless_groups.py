"""Groups that nobody reads as: found for who is refused, without being in the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine import ownerless_groups as module
from spillable_stream.engine.ownerless_groups import OwnerlessGroup, ownerless_groups
from tests.support.events import numbered, put, take
from tests.support.groups import give_up, make_automatic

Open = Callable[..., Channel]


def found(channel: Channel) -> list[OwnerlessGroup]:
    """Return what is found in a channel."""
    engine = channel.engine()
    with engine.snapshot() as state:
        return ownerless_groups(engine.owners, state)


def test_only_automatic_groups_without_an_owner_are_found_those_with_most_to_take_first(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    take(channel, 1, "named")
    give_up(channel, "named")
    make_automatic(channel, "auto-a", planned=3)
    make_automatic(channel, "auto-b", planned=1)
    make_automatic(channel, "auto-c", owned=True)
    assert found(channel) == [("auto-b", 9), ("auto-a", 7)]


def test_of_many_groups_only_some_are_looked_at(open_channel: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LOOKS", 2)
    channel = open_channel()
    put(channel, *numbered(0, 10))
    for i in range(1, 5):
        make_automatic(channel, f"auto-{i}", planned=i)
    assert found(channel) == [("auto-1", 9), ("auto-2", 8)]


def test_a_group_that_cannot_be_looked_at_is_left_out(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    make_automatic(channel, "auto-a")
    lock = channel.engine().layout.group_lock("auto-a")
    lock.unlink()
    lock.mkdir()
    assert found(channel) == []


def test_stats_and_the_notebook_name_them(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    assert channel.stats().without_owner == ()
    assert "without an owner" not in channel._repr_html_()
    for i in range(1, 6):
        make_automatic(channel, f"auto-{i}", planned=i)
    assert channel.stats().without_owner == ("auto-1", "auto-2", "auto-3", "auto-4", "auto-5")
    assert "without an owner: auto-1, auto-2, auto-3 and 2 more." in channel._repr_html_()
    assert "channel.drop_group('auto-1')" in channel._repr_html_()


def test_a_handle_that_only_looks_names_them_too(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, *numbered(0, 10))
    make_automatic(channel, "auto-a")
    with Channel(channel.path, create=False, readonly=True) as looking:
        assert looking.stats().without_owner == ("auto-a",)
