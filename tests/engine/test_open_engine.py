"""Which engine opens the channel at a path, and what makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel, NotAChannelError, OptionError, repair, verify
from spillable_stream.engine.local.local_engine import LocalEngine
from spillable_stream.engine.local.local_port import LocalPort
from spillable_stream.engine.open_engine import (
    NewChannel,
    ensure_channel,
    open_engine,
    port_of,
    uuid_at,
)
from spillable_stream.engine.store.object_engine import ObjectEngine
from spillable_stream.engine.store.object_port import ObjectPort
from spillable_stream.format.batch import EVENT_SCHEMA, encode_schema
from spillable_stream.objects.location import Location
from spillable_stream.option_types import ChannelOptions, CreationOptions
from spillable_stream.storage.filesystem import FileSystem

Open = Callable[..., Channel]
FS = FileSystem()


def new() -> NewChannel:
    """What an event channel is created with."""
    return NewChannel(ChannelOptions.of({"keep_alive": 2.0}), CreationOptions(), [encode_schema(EVENT_SCHEMA)])


@pytest.mark.parametrize(
    "address",
    [
        "s3:/bucket/orders",
        "object+file:/data/orders",
        "object+file:orders",
        "s3:bucket/orders",
        Path("az://container/orders"),
    ],
)
def test_an_address_that_lost_a_slash_is_not_a_directory_of_that_name(
    address: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Path makes of it: nobody wants his bucket beside his program."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"write (s3|az|object\+file)://.* as a string"):
        Channel(address)
    for look in (verify, repair):
        with pytest.raises(OptionError, match=r"lost a slash"):
            look(address)
    assert list(tmp_path.iterdir()) == []
    Path(address).mkdir(parents=True)
    with Channel(address) as channel:
        assert channel.path == tmp_path / address


def test_a_channel_is_created_once_and_opened_with_what_it_was_created_with(path: Path) -> None:
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


def test_a_channel_that_is_missing_is_not_created_unless_that_is_wanted(path: Path) -> None:
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


def test_a_channel_of_objects_has_an_engine_and_a_port_of_its_own(tmp_path: Path) -> None:
    location = Location.parse(f"object+file://{tmp_path}/orders")
    with Channel(str(location)) as channel:
        assert isinstance(channel.engine(), ObjectEngine)
        assert isinstance(channel.port(), ObjectPort)
        assert uuid_at(location) == channel.uuid


def test_a_place_without_a_channel_of_objects_is_refused_and_nothing_is_created(tmp_path: Path) -> None:
    location = Location.parse(f"object+file://{tmp_path}/orders")
    with pytest.raises(NotAChannelError, match=r"orders is not a channel: it has no channel\.json"):
        open_engine(FS, location, 1.0, readonly=False)
    with pytest.raises(NotAChannelError):
        Channel(str(location), create=False)
    assert not list(tmp_path.rglob("*.json"))


def test_a_path_where_a_channel_of_objects_is_says_how_to_open_it(tmp_path: Path) -> None:
    Channel(f"object+file://{tmp_path}/orders").close()
    with pytest.raises(NotAChannelError, match=r"a channel of objects, not of files: open it as object.file://"):
        Channel(tmp_path / "orders")


def test_an_address_where_a_channel_of_a_disk_is_says_how_to_open_it(tmp_path: Path) -> None:
    Channel(tmp_path / "orders").close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NotAChannelError, match="a channel of a disk, not of a store: open it by its directory's path"):
        Channel(f"object+file://{tmp_path}/orders")
    assert sorted(tmp_path.rglob("*")) == before
