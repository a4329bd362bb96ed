"""Options that a channel can't have where it is are refused by name, with the reason; defaults are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillable_stream import Channel
from spillable_stream.engine.options_by_storage import (
    SpoolOptions,
    divide_spool_options,
    refuse_unfit_options,
)
from spillable_stream.errors import NotAChannelError, OptionError
from spillable_stream.option_names import keyword_of
from spillable_stream.options import CHANNEL, CREATION, defaults

Open = Callable[..., Channel]

MEMORY, ROOT = "there is no memory tier", "all objects of a channel are under one root"
OF_DISKS = {
    "memoryCapacity": (10, MEMORY),
    "byteCapacity": (1 << 20, MEMORY),
    "memoryDir": ("/dev/shm", MEMORY),
    "minimumRequiredSpace": (1 << 20, "a store does not say how much space is free"),
    "dataDirs": (["/a"], ROOT),
    "checkpointDir": ("/a", ROOT),
    "backupCheckpointDir": ("/a", ROOT),
    "mode": (0o750, "the store's own policies say who may read and write"),
}
OF_STORES = {"commitInterval": 5, "pollInterval": 50, "gcDelay": 5.0}


@pytest.mark.parametrize("name", OF_DISKS)
def test_an_option_of_disks_is_refused_in_a_store_with_its_reason(name: str) -> None:
    value, why = OF_DISKS[name]
    with pytest.raises(OptionError, match=f"^{keyword_of(name)} is for channels on a disk: {why}") as caught:
        refuse_unfit_options({keyword_of(name): value}, in_store=True)
    assert caught.value.option == keyword_of(name)


@pytest.mark.parametrize("name", OF_STORES)
def test_an_option_of_stores_is_refused_on_a_disk_with_its_reason(name: str) -> None:
    why = {"pollInterval": "a look at a disk", "gcDelay": "a slow reader"}.get(name, "a commit to a disk is synced")
    with pytest.raises(OptionError, match=f"^{keyword_of(name)} is for channels in an object store: {why}") as caught:
        refuse_unfit_options({keyword_of(name): OF_STORES[name]}, in_store=False)
    assert caught.value.option == keyword_of(name)


def test_defaults_and_options_fitting_are_refused_nowhere() -> None:
    everything = {**defaults(CHANNEL), **defaults(CREATION)}
    for in_store, others in ((True, OF_STORES), (False, OF_DISKS)):
        refuse_unfit_options(everything, in_store=in_store)
        fitting = {keyword_of(name): "anything" for name in others}
        refuse_unfit_options({"keep_alive": 7.0, "retention_ms": 5000, **fitting}, in_store=in_store)


@pytest.mark.parametrize("name", OF_STORES)
def test_a_channel_on_a_disk_is_neither_created_nor_changed_by_an_option_of_stores(
    open_channel: Open, path: Path, name: str
) -> None:
    with pytest.raises(OptionError, match=keyword_of(name)):
        open_channel(**{keyword_of(name): OF_STORES[name]})
    with pytest.raises(NotAChannelError):
        Channel(path, create=False)
    before = open_channel().options
    with pytest.raises(OptionError, match=keyword_of(name)):
        open_channel(**{keyword_of(name): OF_STORES[name]})
    assert open_channel().options == before


@pytest.mark.parametrize("given", [{"memory_capacity": 10}, {"data_dirs": ["/a"]}, {"mode": "0750"}])
def test_a_channel_in_a_store_is_neither_created_nor_changed_by_an_option_of_disks(
    open_handle: Open, given: dict[str, object]
) -> None:
    with pytest.raises(OptionError, match="is for channels on a disk"):
        open_handle(**given)
    with pytest.raises(NotAChannelError):
        open_handle(create=False)
    before = open_handle().options
    with pytest.raises(OptionError, match="is for channels on a disk"):
        open_handle(**given)
    assert open_handle().options == before


@pytest.mark.parametrize(
    ("given", "in_store", "said"),
    [
        (
            {"durability": "local", "spool": "/s"},
            False,
            "^durability is for channels in an object store: a commit to a d",
        ),
        ({"spool": "/s"}, False, "^spool is for channels in an object store"),
        ({"durability": "local"}, True, "^durability=local puts to a directory of this host .*; give it as spool"),
        ({"durability": "memory"}, True, "^durability=memory puts to a directory"),
        ({"spool": "/s"}, True, "a spool would be empty; give spool with durability=local"),
        ({"durability": "object", "spool": "/s"}, True, "a spool would be empty"),
        (
            {"durability": "local", "spool": "/s", "memory_capacity": 5},
            True,
            "memory_capacity contradicts durability=lo",
        ),
        ({"durability": "memory", "spool": "/s", "memory_capacity": 0}, True, "needs a memory_capacity above 0"),
    ],
)
def test_a_spool_that_cannot_be_is_refused_with_its_reason(given: dict[str, object], in_store: bool, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        divide_spool_options(given, in_store=in_store, readonly=False)
    assert caught.value.option in given


def test_a_handle_that_only_looks_has_no_spool() -> None:
    with pytest.raises(OptionError, match="puts nothing"):
        divide_spool_options({"durability": "local", "spool": "/s"}, in_store=True, readonly=True)


@pytest.mark.parametrize("in_store", [True, False])
def test_without_a_spool_every_option_is_the_channels(in_store: bool) -> None:
    for given in ({}, {"keep_alive": 1.0, "memory_capacity": 5}):
        found = divide_spool_options({**given, "durability": "object"}, in_store=in_store, readonly=True)
        assert found == (given, None)


def test_with_a_spool_the_options_of_disks_are_the_spools() -> None:
    given = {"durability": "memory", "spool": "/s", "memory_capacity": 5, "mode": "0770", "gc_delay": 1.0}
    rest, spool = divide_spool_options(given, in_store=True, readonly=False)
    assert rest == {"gc_delay": 1.0}
    assert spool == SpoolOptions("/s", "memory", {"memory_capacity": 5, "mode": "0770"}) and not spool.is_durable


@pytest.mark.parametrize("given", [{"durability": "local", "spool": "s"}, {"spool": "s"}])
def test_a_channel_on_a_disk_has_no_spool(open_channel: Open, given: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="is for channels in an object store"):
        open_channel(**given)
    assert open_channel().options
