"""Which engine opens the channel at a path, and what makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, NotAChannelError
from spillable_stream.engine.local_engine import LocalEngine
from spillable_stream.engine.local_port import LocalPort
from spillable_stream.engine.open_engine import (
    NewChannel,
    channel_path,
    ensure_channel,
    open_engine,
    port_of,
    uuid_at,
)
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.objects.location import Location
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.storage.filesystem import FileSystem

Open = Callable[..., Channel]
FS = FileSystem()


def new() -> NewChannel:
    """What an event channel is made with."""
    return NewChannel(ChannelOptions.of({"keep_alive": 2.0}), CreationOptions(), [encode_schema(EVENT_SCHEMA)])


def test_a_path_means_the_same_directory_wherever_the_process_is_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = channel_path("c")
    monkeypatch.chdir("/")
    assert found == tmp_path / "c"


def test_a_channel_is_made_once_and_opened_with_what_it_was_made_with(path: Path) -> None:
    ensure_channel(FS, path, new)
    made = uuid_at(path)
    ensure_channel(FS, path, lambda: pytest.fail("there is one"))
    ensure_channel(FS, path, None)
    engine = open_engine(FS, path, 5.0, readonly=False)
    try:
        assert isinstance(engine, LocalEngine)
        assert (engine.path, engine.channel, engine.lock_timeout_seconds) == (path, made, 5.0)
        assert engine.state.options.keep_alive == 2.0
        assert isinstance(port_of(engine), LocalPort)
    finally:
        engine.close()


def test_a_channel_that_is_missing_is_not_made_unless_that_is_wanted(path: Path) -> None:
    for use in (
        lambda: ensure_channel(FS, path, None),
        lambda: open_engine(FS, path, 1.0, readonly=False),
        lambda: uuid_at(path),
    ):
        with pytest.raises(NotAChannelError, match=str(path)):
            use()
    assert not path.exists()


def test_a_handle_that_only_looks_writes_nothing(path: Path, open_channel: Open) -> None:
    open_channel().close()
    before = {found: os.stat(found).st_mtime_ns for found in path.rglob("*")}
    engine = open_engine(FS, path, 5.0, readonly=True)
    assert engine.log.is_view
    engine.close()
    assert {found: os.stat(found).st_mtime_ns for found in path.rglob("*")} == before


def test_a_channel_of_objects_is_refused() -> None:
    with pytest.raises(NotAChannelError, match="s3://bucket/orders is not a directory"):
        open_engine(FS, Location.parse("s3://bucket/orders"), 1.0, readonly=False)
