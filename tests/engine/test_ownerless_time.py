"""How long an automatic group has had no owner: the count outlives the process, and costs few records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillable_stream import Channel
from spillable_stream.engine.append_plan import AppendPlan
from spillable_stream.engine.log_port import Followed
from spillable_stream.integrity.verify import verify
from spillable_stream.log.wal import Position
from tests.support.events import numbered, put
from tests.support.groups import DAY_MS, HOUR_MS, LOOK_MS, look_after, make_automatic, names, pass_time

Open = Callable[..., Channel]


@pytest.fixture
def channel(open_channel: Open) -> Channel:
    """A channel with ten events that keeps a position for a day."""
    channel = open_channel(auto_group_ttl="1d")
    put(channel, *numbered(0, 10))
    return channel


def test_the_time_counts_on_in_the_next_process(channel: Channel, open_channel: Open) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, DAY_MS // 2)
    groups.settle(0)
    assert verify(channel.path).healthy
    channel.close()
    channel = open_channel()
    groups = look_after(channel)
    pass_time(groups, DAY_MS // 2 - LOOK_MS)
    assert names(channel) == {"auto-a"}
    groups.look(LOOK_MS)
    assert names(channel) == set()


def test_short_handles_count_too(channel: Channel, open_channel: Open) -> None:
    make_automatic(channel, "auto-a")
    for _ in range(10):
        groups = look_after(channel)
        groups.look(0)
        groups.look(1_000)
        groups.settle(9_000)
        channel.close()
        channel = open_channel()
    assert channel.engine().state.groups["auto-a"].idle_ms == 100_000


def test_time_in_which_nobody_has_the_channel_open_does_not_count(channel: Channel, open_channel: Open) -> None:
    make_automatic(channel, "auto-a")
    for _ in range(5):
        groups = look_after(channel)
        groups.look(10 * DAY_MS)  # nobody knows who owned it before
        channel.close()
        channel = open_channel()
    assert channel.engine().state.groups["auto-a"].idle_ms == 0


def test_a_crash_costs_the_count_a_hundredth(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    pass_time(look_after(channel), DAY_MS // 2)
    known_ms = channel.engine().state.groups["auto-a"].idle_ms
    assert DAY_MS // 2 - DAY_MS // 100 - LOOK_MS <= known_ms <= DAY_MS // 2


def test_counting_costs_few_records(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        make_automatic(channel, f"auto-{i}")
    groups = look_after(channel)
    log, appended = channel.engine().log, list[AppendPlan]()
    append = log.append

    def and_note(plan: AppendPlan, start: Position, at: Followed) -> Position | None:
        appended.append(plan)
        return append(plan, start, at)

    monkeypatch.setattr(log, "append", and_note)
    pass_time(groups, DAY_MS // 2)
    assert 40 <= len(appended) <= 50  # one for all groups, each hundredth of their time


def test_a_group_with_an_owner_costs_no_record(channel: Channel) -> None:
    make_automatic(channel, "auto-a", owned=True)
    groups, before = look_after(channel), channel.engine().log.position()
    pass_time(groups, DAY_MS)
    groups.settle(0)
    assert channel.engine().log.position() == before


def test_a_settled_count_is_not_recorded_again(channel: Channel) -> None:
    make_automatic(channel, "auto-a")
    groups = look_after(channel)
    pass_time(groups, HOUR_MS)
    groups.settle(0)
    before = channel.engine().log.position()
    groups.settle(0)
    assert channel.engine().log.position() == before
