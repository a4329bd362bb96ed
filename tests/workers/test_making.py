from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillable_stream import AsyncWorker, Channel, OptionError, ReadonlyChannelError, SchemaError, Worker
from spillable_stream.channel.open_channel import _open_channels


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
def test_a_worker_that_is_not_created_by_a_channel_names_the_call(kind: Any, tmp_path: Path) -> None:
    for given, named in (((tmp_path, print), {}), ((tmp_path, "g", print), {"max_attempts": 3}), ((), {})):
        with pytest.raises(OptionError, match=r"worker is created by channel\.(async_)?worker\(group, function\)"):
            kind(*given, **named)


def test_a_dead_letter_channel_that_is_the_channel_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("c")
    with Channel(tmp_path / "c", minimum_required_space=0) as channel, Channel(tmp_path / "c") as another:
        before = set(_open_channels)
        for itself in (channel, another, tmp_path / "c", str(tmp_path / "link")):
            with pytest.raises(OptionError, match=r"dead_letter is .* itself; use another channel") as error:
                channel.worker("g", print, dead_letter=itself)
            assert set(_open_channels) == before and error, "a handle that was opened for it is closed"
        assert not channel.stats().groups and not channel.stats().workers


def test_a_dead_letter_channel_that_is_neither_a_channel_nor_a_path_is_named(tmp_path: Path) -> None:
    wrong: Any = 5
    refused = pytest.raises(OptionError, match=r"^dead_letter must be a Channel, or the path of one, not 5$")
    with Channel(tmp_path / "c", minimum_required_space=0) as channel, refused:
        channel.worker("g", print, dead_letter=wrong)


def test_a_typed_dead_letter_channel_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    with (
        Channel(tmp_path / "c", minimum_required_space=0) as channel,
        Channel(tmp_path / "typed", schema=schema, minimum_required_space=0) as typed,
        pytest.raises(SchemaError, match="must be an event channel"),
    ):
        channel.worker("g", print, dead_letter=typed)


def test_a_handle_that_only_looks_has_no_worker_and_takes_no_dead_letters(tmp_path: Path) -> None:
    Channel(tmp_path / "c", minimum_required_space=0).close()
    with Channel(tmp_path / "c", readonly=True) as channel:
        with pytest.raises(ReadonlyChannelError, match="a worker"):
            channel.worker("g", print)
        with (
            Channel(tmp_path / "d", minimum_required_space=0) as another,
            pytest.raises(ReadonlyChannelError, match="a dead letter"),
        ):
            another.worker("g", print, dead_letter=channel)


def test_nothing_is_created_by_a_call_that_is_refused(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", schema=pa.schema([("n", pa.int64())]), minimum_required_space=0) as channel:
        with pytest.raises(OptionError, match="needs batch_size"):
            channel.worker("g", print, dead_letter=tmp_path / "dead")
        with pytest.raises(OptionError, match="group must be"):
            channel.worker("../g", print, batch_size=1, dead_letter=tmp_path / "dead")
        with pytest.raises(OptionError, match="max_attempts must be"):
            channel.worker("g", print, batch_size=1, max_attempts=0, dead_letter=tmp_path / "dead")
    assert os.listdir(tmp_path) == ["c"]


def test_a_dead_letter_channel_that_was_opened_for_a_worker_is_closed_with_it(tmp_path: Path) -> None:
    with Channel(tmp_path / "c", minimum_required_space=0) as channel:
        with channel.worker("g", print, dead_letter=tmp_path / "dead") as worker:
            pass
        assert worker._dead_letter is not None and worker._dead_letter.engine
        with pytest.raises(Exception, match="is closed"):
            worker._dead_letter.stats()
