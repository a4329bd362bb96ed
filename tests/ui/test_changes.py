"""What the page may change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, OptionError, ReadonlyChannelError
from spillable_stream.options import CHANNEL, OPTIONS
from spillable_stream.ui.changes import ChannelChanges, changeable_options, creation_question
from tests.support.events import numbered, put, take

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    found = open_channel(retention_ms=3_600_000)
    put(found, *numbered(0, 10))
    take(found, 4, "a")
    return found


def test_nothing_is_changed_unless_it_is_allowed(channel: Channel, path: Path) -> None:
    changes, before = ChannelChanges(allowed=False), channel.stats()
    for change in (
        lambda: changes.seek(str(path), "a", "earliest"),
        lambda: changes.create_group(str(path), "b", "earliest"),
        lambda: changes.drop_group(str(path), "a"),
        lambda: changes.alter(str(path), "memoryCapacity", "7"),
        lambda: changes.checkpoint(str(path)),
    ):
        with pytest.raises(ReadonlyChannelError, match="start it with --allow-changes"):
            change()
    after = channel.stats()
    assert (after.groups, after.transactions) == (before.groups, before.transactions)


def test_groups_are_created_moved_and_dropped(channel: Channel, path: Path) -> None:
    changes = ChannelChanges(allowed=True)
    assert changes.create_group(str(path), "b", "earliest") == "b was created at earliest."
    assert changes.create_group(str(path), "c", "latest") == "c was created at latest."
    assert changes.seek(str(path), "b", "8") == "b takes the event 8 next."
    groups = channel.stats().groups
    assert (groups["b"].position, groups["c"].lag) == (7, 0)
    assert changes.drop_group(str(path), "b") == "b was dropped."
    assert set(channel.stats().groups) == {"a", "c"}


@pytest.mark.parametrize(
    ("at", "groups", "leave"), [("latest", [], True), ("latest", ["a"], False), ("earliest", [], False)]
)
def test_the_question_before_a_first_group_says_which_events_leave(at: str, groups: list[str], leave: bool) -> None:
    asked = creation_question("/data/orders", "b", at, groups)
    assert asked.startswith(f"Create the group b in /data/orders at {at}?")
    assert ("wait for a first group now leave" in asked) == leave


def test_what_is_not_possible_is_refused(channel: Channel, path: Path) -> None:
    changes = ChannelChanges(allowed=True)
    for change in (
        lambda: changes.create_group(str(path), "a", "earliest"),
        lambda: changes.create_group(str(path), "b", "8"),
        lambda: changes.create_group(str(path), "../b", "earliest"),
        lambda: changes.drop_group(str(path), "nobody"),
        lambda: changes.alter(str(path), "dataDirs", "/elsewhere"),
        lambda: changes.alter(str(path), "memoryCapacity", "many"),
        lambda: changes.seek(str(path), "b", "somewhere"),
    ):
        with pytest.raises(OptionError):
            change()
    assert set(channel.stats().groups) == {"a"}


def test_an_option_is_changed_for_all(channel: Channel, path: Path) -> None:
    assert ChannelChanges(allowed=True).alter(str(path), "retentionMs", "60000") == "retentionMs is 60000 now."
    assert channel.options["retention_ms"] == 60_000


def test_a_checkpoint_is_created(channel: Channel, path: Path) -> None:
    before = set((path / "checkpoint").iterdir()) if (path / "checkpoint").exists() else set()
    assert ChannelChanges(allowed=True).checkpoint(str(path)) == "A checkpoint was created."
    assert set((path / "checkpoint").iterdir()) - before


def test_the_options_that_can_be_changed_are_the_channels() -> None:
    assert changeable_options() == [option for option in OPTIONS if CHANNEL in option.scopes]
