from __future__ import annotations

from pathlib import Path

from spillable_stream import Channel
from spillable_stream.errors import StorageError
from spillable_stream.flow.failed_channels import FailedChannels
from spillable_stream.flow.wired import agent_channel
from tests.support.failed_channels import failed_channel


def test_a_failed_channel_is_tried_again_after_3_s_then_twice_as_long_and_a_minute_at_most(tmp_path: Path) -> None:
    channel, now = failed_channel(tmp_path / "c"), 0.0
    failed = FailedChannels(may_reopen=True, now=lambda: now)
    failed.look({"c": agent_channel(channel)})
    waited = []
    for _ in range(7):
        began = now
        while not failed.due():
            now += 1
        waited.append(now - began)
        failed.refused("c", StorageError("no"))
    assert waited == [3, 6, 12, 24, 48, 60, 60]
    assert failed.flume_counters("c") == {"Unhealthy": 1, "UnhealthySeconds": sum(waited), "ReopenedCount": 0}
    channel.close()


def test_one_that_fails_again_soon_waits_longer_and_one_that_worked_for_a_minute_begins_anew(tmp_path: Path) -> None:
    now = 0.0
    failed = FailedChannels(may_reopen=True, now=lambda: now)
    waited = []
    with Channel(tmp_path / "works") as works:
        for n, works_seconds in enumerate((0, 59, 60)):
            now += works_seconds
            broken = failed_channel(tmp_path / str(n))
            failed.look({"c": agent_channel(broken)})
            began = now
            while not failed.due():
                now += 1
            waited.append(now - began)
            failed.look({"c": agent_channel(works)})
            assert not failed.due() and failed.troubles() == {}
            broken.close()
    assert waited == [3, 6, 3]
    assert failed.flume_counters("c")["ReopenedCount"] == 3


def test_a_channel_that_the_agent_has_no_more_is_forgotten(tmp_path: Path) -> None:
    channel = failed_channel(tmp_path / "c")
    failed = FailedChannels(may_reopen=True)
    failed.look({"c": agent_channel(channel)})
    assert [*failed.troubles()] == ["c"] and failed.has_required
    failed.look({})
    assert failed.troubles() == {} and not failed.has_required
    channel.close()
