"""The engine of a channel on this host: its files, and what a handle does before they are closed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spillable_stream import Channel
from spillable_stream.engine.requests import Control
from spillable_stream.format.frame import FrameType
from tests.support.events import put, take
from tests.support.waiting import wait_until

Open = Callable[..., Channel]


def test_a_commit_that_waits_for_the_lock_applies_meanwhile_what_others_commit(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lock held, everybody would wait for that."""
    one, two = open_channel().engine(), open_channel().engine()
    follow, held = one.log.follow, list[bool]()

    def noting(*arguments: Any) -> int:
        held.append(one.log.lock._held is not None)
        return follow(*arguments)

    monkeypatch.setattr(one.log, "follow", noting)
    commit = Control(FrameType.GROUP, {"group": "by one", "position": 0})
    with ThreadPoolExecutor(1) as pool:
        with two.appender.committing():
            waiting = pool.submit(one.commit, commit)
            two.appender.append_alone(Control(FrameType.GROUP, {"group": "by two", "position": 0}))
            wait_until(lambda: "by two" in one.state.groups)
            assert not waiting.done()
        waiting.result()
    assert held == [False], "applied once, without the lock"
    assert {"by one", "by two"} <= set(two.follow().groups)


def test_files_are_counted_as_they_are(open_channel: Open) -> None:
    channel = open_channel(memory_capacity=100, byte_capacity=1 << 24, byte_capacity_buffer_percentage=50)
    engine = channel.engine()
    before = engine.file_counts(engine.state)
    assert (before.data_files, before.memory_files, before.segments, before.torn_bytes) == (1, 0, 0, 0)
    assert 0 < before.memory_payload_bytes <= 1 << 23, "what a tier would get that is created now"
    put(channel, b"1")
    after = engine.file_counts(engine.state)
    assert (after.data_files, after.memory_files) == (1, 1)
    assert after.memory_payload_bytes == engine.state.memory_limits().payload_bytes


def test_a_channel_without_a_memory_tier_has_no_bytes_for_it(open_channel: Open) -> None:
    engine = open_channel(memory_capacity=0).engine()
    assert engine.file_counts(engine.state).memory_payload_bytes == 0
    assert engine.memory_put_bytes() == 0


def test_a_parked_handle_resumes_where_it_was_and_a_closed_one_does_not(open_channel: Open) -> None:
    channel = open_channel()
    put(channel, b"1")
    engine = channel.engine()
    engine.park()
    assert engine.resume()
    assert take(channel) == [b"1"]
    engine.close()
    assert engine.closed and not engine.resume()
