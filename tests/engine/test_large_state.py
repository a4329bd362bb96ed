"""A state that is larger than a frame can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.requests import Control
from spillable_stream.errors import StateTooLargeError
from spillable_stream.format.frame import FrameType
from spillable_stream.format.numbered_batch import Numbers
from spillable_stream.format.packing import pack
from spillable_stream.option_types import ChannelOptions
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState
from spillable_stream.state.producer_history import PASSING, ProducerHistory
from tests.support.damage import reboot
from tests.support.events import put, take


def test_a_state_that_fits_no_header_leaves_the_log_in_its_file(
    path: Path, open_channel: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is acknowledged that could not be read, and what makes the state smaller can still be written."""
    monkeypatch.setattr("spillable_stream.format.frame.MAX_PAYLOAD_BYTES", 10_000)
    channel = open_channel(max_file_size=6_000)
    put(channel, b"0")
    engine = channel.engine()
    with engine.committing():
        for i in range(500):
            engine.appender.append_alone(Control(FrameType.GROUP, {"group": f"group-{i:020d}", "position": 0}))
    put(channel, *[bytes(100)] * 20)
    files = sorted((path / "data").glob("log-*"))
    assert files[-1].stat().st_size > 40_000
    assert caplog.text.count("does not fit a frame") == 1
    before = sorted((path / "checkpoint").iterdir())
    with pytest.raises(StateTooLargeError, match=r"drop groups that nobody needs"):
        channel.checkpoint()
    assert sorted((path / "checkpoint").iterdir()) == before
    channel.close()
    reboot(path)
    channel = open_channel()
    assert (channel.stats().channel_size, len(channel.stats().groups)) == (21, 500)
    for i in range(1, 500):
        channel.drop_group(f"group-{i:020d}")
    monkeypatch.setattr(channel.engine().log.tiers.disk._rolling, "_roll_again_at", float("-inf"))
    put(channel, b"last")
    assert len(list((path / "data").glob("log-*"))) > len(files)
    channel.checkpoint()
    assert len(take(channel, group=f"group-{0:020d}")) == 22


def test_the_largest_state_that_a_channel_can_be_used_to_fits_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 groups with long names and gaps between takes, and all that is remembered of queries and producers."""
    state = ChannelState(ChannelOptions(), [b"x" * 10_000])
    far = 1 << 62
    for i in range(10_000):
        group = state.groups[f"{i:0128d}"] = GroupState(far)
        for gap in range(0, 20, 2):
            group.ahead.add(far + gap + 2, far + gap + 2)
    state.sinks = {f"{i:036d}": 1 << 40 for i in range(10_000)}
    state.producers = ProducerHistory()
    for i in range(2_000):
        name = f"{PASSING if i % 2 else ''}{i:0120d}"
        for gap in range(0, 128, 2):
            numbers = Numbers(far + gap, far + gap, (1 << 32) - 1 - gap)
            state.producers.record(name, numbers, (far, far + 1), in_memory=False)
    assert len(list(state.producers)) == 2_000
    assert len(pack(state.small())) < (1 << 30) // 50
