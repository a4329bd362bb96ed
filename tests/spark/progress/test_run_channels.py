"""The channels that a listener has open for the runs of queries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.spark.channel_pool import visit
from spillable_stream.spark.progress.run_channels import RunChannels
from tests.support.events import numbered, put


@pytest.fixture
def channels() -> Iterator[RunChannels]:
    channels = RunChannels()
    yield channels
    channels.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with ss.Channel(tmp_path / "c", minimum_required_space=0) as channel:
        put(channel, *numbered(0, 3))
    return tmp_path / "c"


def uuid_of(path: Path) -> str:
    with ss.Channel(path, create=False) as channel:
        return channel.uuid


def test_runs_share_a_handle_until_the_last_of_them_leaves(channels: RunChannels, path: Path) -> None:
    uuid = uuid_of(path)
    first, second = channels.get(str(path), uuid, "1"), channels.get(str(path), uuid, "2")
    assert first is not None and first is second
    channels.leave("1")
    assert first.stats().last_id == 3
    channels.leave("2")
    with pytest.raises(ss.ChannelClosedError):
        first.stats()


def test_last_run_that_leaves_moves_memory_to_disk_as_any_close_does(channels: RunChannels, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with ss.Channel(path, memory_capacity=100, minimum_required_space=0) as channel:
        assert channels.get(str(path), channel.uuid, "1")
        put(channel, *numbered(0, 3))
    assert os.path.lexists(path / "memory")
    channels.leave("1")
    assert not os.path.lexists(path / "memory")


def test_channel_that_another_call_kept_is_used_again(channels: RunChannels, path: Path) -> None:
    with visit(str(path)) as kept:
        uuid = kept.uuid
    assert channels.get(str(path), uuid, "1") is kept


def test_another_channel_at_the_path_is_refused_with_one_line_for_each_run(
    channels: RunChannels, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for run in ("1", "1", "2"):
        assert channels.get(str(path), "another", run) is None
    assert caplog.text.count("there is another channel") == 2


def test_channel_that_was_created_again_is_opened_anew(channels: RunChannels, path: Path) -> None:
    before = channels.get(str(path), uuid_of(path), "1")
    shutil.rmtree(path)
    with ss.Channel(path, minimum_required_space=0) as made_again:
        put(made_again, b"x")
        now = channels.get(str(path), made_again.uuid, "1")
        assert now is not None and now is not before and now.stats().last_id == 1
