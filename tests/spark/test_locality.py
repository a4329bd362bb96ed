"""What a task asks of its host before it touches a channel; no Spark is needed to show it."""

from __future__ import annotations

from pathlib import Path

import pytest

import spillable_stream as ss
from spillable_stream.format.batch import EVENT_SCHEMA
from spillable_stream.log.identity import read_identity
from spillable_stream.log.layout import Layout
from spillable_stream.options import BATCH, defaults
from spillable_stream.spark.locality import require_channel
from spillable_stream.spark.partition import plan_partitions, read_partition
from spillable_stream.storage.filesystem import FileSystem
from tests.support.damage import memory_of
from tests.support.events import numbered, put


def made(path: Path, **options: object) -> Layout:
    ss.Channel(path, **options).close()
    return read_identity(FileSystem(), path)


def test_a_host_that_has_the_channel_is_accepted(tmp_path: Path) -> None:
    require_channel(FileSystem(), made(tmp_path / "channel", data_dirs=[tmp_path / "disk"]))


def test_a_host_without_the_channel_is_refused(tmp_path: Path) -> None:
    layout = made(tmp_path / "channel")
    (tmp_path / "channel").rename(tmp_path / "elsewhere")
    with pytest.raises(ss.NotAChannelError, match=f"no channel at {tmp_path}/channel, and every executor must see"):
        require_channel(FileSystem(), layout)


def test_a_host_with_another_channel_of_that_name_is_refused(tmp_path: Path) -> None:
    layout = made(tmp_path / "channel")
    (tmp_path / "channel").rename(tmp_path / "elsewhere")
    made(tmp_path / "channel")
    with pytest.raises(ss.NotAChannelError, match=f"another channel at {tmp_path}/channel, and every executor must"):
        require_channel(FileSystem(), layout)


def test_a_host_without_one_of_the_data_directories_is_refused(tmp_path: Path) -> None:
    layout = made(tmp_path / "channel", data_dirs=[tmp_path / "disk1", tmp_path / "disk2"])
    (tmp_path / "disk2").rename(tmp_path / "elsewhere")
    with pytest.raises(ss.NotAChannelError, match=f"no directory {tmp_path}/disk2 of the channel {tmp_path}/channel"):
        require_channel(FileSystem(), layout)


def test_a_task_without_the_memory_tier_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    with ss.Channel(tmp_path / "channel", memory_capacity=100, minimum_required_space=0) as channel:
        put(channel, *numbered(0, 50))
        engine = channel.engine()
        (part,) = plan_partitions(engine.layout, engine.state, [(1, 50)], defaults(BATCH))
        memory = memory_of(tmp_path / "channel")
        hidden = memory.rename(memory.with_name(f"{memory.name}-hidden"))
        try:
            with pytest.raises(ss.OtherHostError, match=r"the events 1 to 50 of .*run Spark there"):
                list(read_partition(part, EVENT_SCHEMA, defaults(BATCH)))
        finally:
            hidden.rename(memory)
        assert [
            b for batch in read_partition(part, EVENT_SCHEMA, defaults(BATCH)) for b in batch["body"].to_pylist()
        ] == numbered(0, 50)
        assert channel.stats().drain_order == [50]
