"""Which channels a set has, in directories and in stores."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from spillable_stream import Channel, NotAChannelError, OptionError
from spillable_stream.channel.channel_set import ChannelSet, is_pattern, may_be_set
from spillable_stream.objects import open_store
from spillable_stream.objects.location import Location
from tests.support.memory_store import MemoryStore
from tests.support.object_channels import stores_in_memory


@pytest.fixture(params=["directory", "directory store", "store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for channels."""
    if request.param == "directory":
        yield str(tmp_path)
    elif request.param == "directory store":
        yield f"object+file://{tmp_path}"
    else:
        with stores_in_memory() as stores:

            def open_parent(location: Location) -> MemoryStore:
                parent, found = MemoryStore(str(location)), str(location).rstrip("/") + "/"
                for place, store in stores.items():
                    if place.startswith(found):
                        parent.objects |= {f"{place.removeprefix(found)}/{k}": v for k, v in store.objects.items()}
                return parent

            with mock.patch.object(open_store, "open_store", open_parent):
                yield "s3://bucket"


def make(path: str) -> str:
    options = {} if "://" in path else {"minimum_required_space": 0}
    with Channel(path, **options) as channel:  # type: ignore[arg-type]
        return channel.uuid


def paths(channels: ChannelSet) -> list[str]:
    return [member.path for member in channels.find()]


def test_a_pattern_finds_channels_by_name_and_those_that_come_later(root: str) -> None:
    channels = ChannelSet([f"{root}/orders-*"])
    assert channels.find() == [] and channels.grows
    made = {f"{root}/{name}": make(f"{root}/{name}") for name in ("orders-10", "orders-2", "other-1", "orders")}
    assert paths(channels) == [f"{root}/orders-10", f"{root}/orders-2"]
    assert {m.path: m.uuid for m in channels.find()}.items() <= made.items()
    make(f"{root}/orders-1")
    assert paths(channels) == [f"{root}/orders-{n}" for n in (1, 10, 2)]


@pytest.mark.parametrize("pattern", ["orders-?", "orders-[12]", "orders-*"])
def test_every_wildcard_is_one_in_every_place(root: str, pattern: str) -> None:
    for name in ("orders-1", "orders-2", "order"):
        make(f"{root}/{name}")
    assert paths(ChannelSet([f"{root}/{pattern}"])) == [f"{root}/orders-1", f"{root}/orders-2"]


def test_a_path_in_a_list_that_is_a_channel_as_it_is_written_is_that_channel(root: str) -> None:
    for name in ("x[1]", "x1", "a"):
        make(f"{root}/{name}")
    assert paths(ChannelSet([f"{root}/x[1]", f"{root}/a"])) == [f"{root}/x[1]", f"{root}/a"]
    assert paths(ChannelSet([f"{root}/x[!2]", f"{root}/x?", f"{root}/a"])) == [f"{root}/x1", f"{root}/a"]


def test_what_is_gone_may_be_looked_for_anew(root: str) -> None:
    make(f"{root}/a")
    channels = ChannelSet([f"{root}/a"])
    [member] = channels.find()
    channels.forget(member.path)
    assert channels.find() == [member]
    assert channels.has(*member)
    assert not channels.has(member.path, "another") and not channels.has(f"{root}/b", member.uuid)


def test_what_fits_a_pattern_and_is_not_a_channel_is_none_yet(tmp_path: Path) -> None:
    make(str(tmp_path / "orders-1"))
    (tmp_path / "orders-2").mkdir()
    (tmp_path / "orders-3").write_text("no channel")
    channels = ChannelSet([f"{tmp_path}/orders-*"])
    assert paths(channels) == [m.path for m in channels.find(create=make)] == [f"{tmp_path}/orders-1"]
    make(str(tmp_path / "orders-2"))
    assert paths(channels) == [f"{tmp_path}/orders-1", f"{tmp_path}/orders-2"]


def test_named_channels_come_in_the_order_of_their_names_and_each_once(root: str) -> None:
    for name in ("b", "a"):
        make(f"{root}/{name}")
    channels = ChannelSet([f"{root}/b", f"{root}/a", f"{root}/[ab]", f"{root}/a"])
    assert paths(channels) == [f"{root}/b", f"{root}/a"]
    assert not ChannelSet([f"{root}/b", f"{root}/a"]).grows


def test_a_channel_and_its_copy_are_refused_unless_it_is_known_which_one_was_read(tmp_path: Path) -> None:
    uuid = make(str(tmp_path / "orders-2"))
    shutil.copytree(tmp_path / "orders-2", tmp_path / "orders-1")
    (tmp_path / "orders-3").symlink_to(tmp_path / "orders-2")
    make(str(tmp_path / "orders-4"))
    channels = ChannelSet([f"{tmp_path}/orders-[12]"])
    with pytest.raises(
        OptionError, match=rf"{uuid} twice, at {tmp_path}/orders-1 and at {tmp_path}/orders-2: one is a"
    ):
        channels.find()
    for path in (f"{tmp_path}/orders-1", f"{tmp_path}/orders-2"):
        assert channels.find(read_at={uuid: path}) == [(path, uuid)]
    with pytest.raises(OptionError, match="one is a copy"):
        channels.find(read_at={uuid: f"{tmp_path}/elsewhere"})
    assert paths(ChannelSet([f"{tmp_path}/orders-[234]"])) == [f"{tmp_path}/orders-2", f"{tmp_path}/orders-4"]


def test_a_named_channel_that_is_missing_is_an_error_or_made(root: str) -> None:
    make(f"{root}/a")
    channels = ChannelSet([f"{root}/a", f"{root}/b"])
    with pytest.raises(NotAChannelError, match=r"/b\b"):
        channels.find()
    assert [m.path for m in channels.find(create=make)] == [f"{root}/a", f"{root}/b"]
    assert len(channels.find()) == 2


@pytest.mark.parametrize("pattern", ["s3://bucket/*/orders", "s3://buck*/orders", "object+file:///d[12]/orders-*"])
def test_a_wildcard_before_the_last_part_of_a_stores_address_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match="has a wildcard before its last part"):
        ChannelSet([pattern])


def test_a_wildcard_may_be_anywhere_in_a_directorys_path(tmp_path: Path) -> None:
    for name in ("east/orders", "west/orders", "west/returns"):
        make(str(tmp_path / name))
    assert paths(ChannelSet([f"{tmp_path}/*/orders"])) == [f"{tmp_path}/east/orders", f"{tmp_path}/west/orders"]


@pytest.mark.parametrize(
    ("path", "is_set", "has_wildcard"),
    [
        ("/data/orders", False, False),
        ("/data/a,/data/b", True, False),
        ("s3://b/o-?", True, True),
        ("/d/[a]", True, True),
    ],
)
def test_what_may_be_a_set(path: str, is_set: bool, has_wildcard: bool) -> None:
    assert (may_be_set(path), is_pattern(path)) == (is_set, has_wildcard)
