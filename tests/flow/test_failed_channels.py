from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from spillable_stream import Channel
from spillable_stream.errors import StorageError
from spillable_stream.flow.failed_channels import FailedChannels
from spillable_stream.flow.late_channel import LateChannel
from spillable_stream.flow.wired import agent_channel
from tests.support.failed_channels import failed_channel
from tests.support.waiting import wait_until


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


def test_one_that_fails_before_it_was_found_open_continues_the_row_and_counts_as_opened_again(tmp_path: Path) -> None:
    now, waited = 0.0, []
    failed = FailedChannels(may_reopen=True, now=lambda: now)
    for n in range(5):
        broken = failed_channel(tmp_path / str(n))
        failed.look({"c": agent_channel(broken)})
        began = now
        while not failed.due():
            now += 1
        waited.append(now - began)
        broken.close()
    assert waited == [3, 6, 12, 24, 48]
    assert failed.flume_counters("c") == {"Unhealthy": 1, "UnhealthySeconds": sum(waited), "ReopenedCount": 4}


def test_one_that_a_changed_file_makes_optional_is_open_again_when_it_is_and_is_not_tried_till_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, now, channel = failed_channel(tmp_path / "c"), 0.0, Channel(tmp_path / "other")
    failed = FailedChannels(may_reopen=True, now=lambda: now)
    failed.look({"c": agent_channel(broken)})
    late = LateChannel("c", lambda: channel)
    of_agent = {"c": agent_channel(cast("Channel", late))}
    now = 100.0
    failed.look(of_agent)
    assert [*failed.troubles()] == ["c"] and not failed.due() and "is open again" not in caplog.text
    late.begin()
    wait_until(lambda: late.is_open)
    failed.look(of_agent)
    assert failed.troubles() == {} and "the channel c is open again, 100 s after" in caplog.text
    channel.close()
    broken.close()


def test_one_that_is_optional_keeps_no_source_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = failed_channel(tmp_path / "c")
    late = LateChannel("c", lambda: broken)
    late.begin()
    wait_until(lambda: late.is_open)
    failed = FailedChannels(may_reopen=True)
    failed.look({"c": agent_channel(cast("Channel", late))})
    assert "a storage failure has closed the optional channel c, whose sources pass it over" in caplog.text
    assert "start the agent again" in caplog.text
    broken.close()


def test_a_channel_that_the_agent_has_no_more_is_forgotten(tmp_path: Path) -> None:
    channel = failed_channel(tmp_path / "c")
    failed = FailedChannels(may_reopen=True)
    failed.look({"c": agent_channel(channel)})
    assert [*failed.troubles()] == ["c"] and failed.has_required
    failed.look({})
    assert failed.troubles() == {} and not failed.has_required
    channel.close()
