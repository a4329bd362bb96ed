"""Options that a channel can only have on a disk, only in an object store, or only in the spool in front of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spillable_stream.errors import OptionError
from spillable_stream.option_names import named
from spillable_stream.options import CHANNEL, CREATION, defaults, keyword_of

__all__ = ["SpoolOptions", "divide_spool_options", "fitting_options", "refuse_unfit_options"]

_NO_MEMORY = "there is no memory tier in front of a store"
_ONE_ROOT = "all objects of a channel are under one root"

_OF_DISKS = {
    "memoryCapacity": _NO_MEMORY,
    "byteCapacity": _NO_MEMORY,
    "memoryDir": _NO_MEMORY,
    "minimumRequiredSpace": "a store does not say how much space is free",
    "dataDirs": _ONE_ROOT,
    "checkpointDir": _ONE_ROOT,
    "backupCheckpointDir": _ONE_ROOT,
    "mode": "the store's own policies say who may read and write",
}
_SYNCED_AT_ONCE = "a commit to a disk is synced at once"
_OF_STORES = {
    "commitInterval": _SYNCED_AT_ONCE,
    "commitTimeout": _SYNCED_AT_ONCE,
    "pollInterval": "a look at a disk asks no server",
    "gcDelay": "a slow reader of a disk keeps the files that it has open",
}
_DEFAULTS = {**defaults(CHANNEL), **defaults(CREATION)}


class SpoolOptions(NamedTuple):
    """The spool that a handle wants in front of an object store.

    Args:
        path: its directory.
        durability: "local" or "memory".
        of_channel: the options of its channel that were given, by keyword name.
    """

    path: str
    durability: str
    of_channel: dict[str, Any]

    @property
    def is_durable(self) -> bool:
        """Whether a put is acknowledged when it is synced on this host's disk."""
        return self.durability == "local"


def divide_spool_options(
    given: Mapping[str, Any], *, in_store: bool, readonly: bool
) -> tuple[dict[str, Any], SpoolOptions | None]:
    """Return the options of a channel, and of the spool in front of it; None without one.

    Args:
        given: the options of a handle, by keyword name. With a spool, those that a store can't have are the spool's.
        in_store: whether the channel is in an object store.
        readonly: whether the handle only looks.

    Raises:
        OptionError: the channel can't have a spool, or these contradict each other.
    """
    rest = dict(given)
    durability, path = rest.pop("durability", "object"), rest.pop("spool", None)
    if durability == "object" and path is None:
        return rest, None
    _require_spool(durability, path, in_store=in_store, readonly=readonly)
    of_spool = {name: rest.pop(name) for name in map(keyword_of, _OF_DISKS) if name in rest}
    _require_memory(durability, of_spool)
    return rest, SpoolOptions(path, durability, of_spool)


def _require_spool(durability: str, path: str | None, *, in_store: bool, readonly: bool) -> None:
    """Refuse a spool that is not wanted, or one that is and has no directory; raises OptionError."""
    if not in_store:
        wrong = "spool" if durability == "object" else "durability"
        raise OptionError(
            f"{wrong} is for channels in an object store: {_SYNCED_AT_ONCE}, and {named('memoryCapacity')} puts memory "
            "in front of it; leave it out",
            wrong,
        )
    if path is None:
        raise OptionError(
            f"durability={durability} puts to a directory of this host first; give it as spool", "durability"
        )
    if durability == "object":
        raise OptionError(
            "with durability=object a put goes to the store at once, so a spool would be empty; give spool with "
            "durability=local or durability=memory, or leave it out",
            "spool",
        )
    if readonly:
        raise OptionError(
            "a read-only handle puts nothing, so it has no spool; leave durability and spool out", "spool"
        )


def _require_memory(durability: str, of_spool: Mapping[str, Any]) -> None:
    """Refuse a memory tier of the spool that contradicts what a put waits for; raises OptionError."""
    if durability == "local" and of_spool.get("memory_capacity"):
        raise OptionError(
            f"{named('memoryCapacity')} contradicts durability=local, with which a put is synced on disk when it is "
            "acknowledged; leave it out, or use durability=memory",
            "memory_capacity",
        )
    if durability == "memory" and of_spool.get("memory_capacity") == 0:
        raise OptionError(
            f"durability=memory needs a {named('memoryCapacity')} above 0; raise it, or use durability=local",
            "memory_capacity",
        )


def fitting_options(given: Mapping[str, Any], *, in_store: bool) -> dict[str, Any]:
    """Return those of some options that a channel at such a place can have.

    Args:
        given: options by keyword name.
        in_store: whether the channel is in an object store.
    """
    unfit = set(map(keyword_of, _OF_DISKS if in_store else _OF_STORES))
    return {name: value for name, value in given.items() if name not in unfit}


def refuse_unfit_options(given: Mapping[str, object], *, in_store: bool) -> None:
    """Refuse options that a channel at such a place can't have.

    Args:
        given: options by keyword name; one that has its default counts as not given.
        in_store: whether the channel is in an object store.

    Raises:
        OptionError: names the first, and why it can't be.
    """
    place, instead = ("on a disk", ", or use a directory's path") if in_store else ("in an object store", "")
    for name, why in (_OF_DISKS if in_store else _OF_STORES).items():
        keyword = keyword_of(name)
        if given.get(keyword) not in (None, _DEFAULTS[keyword]):
            raise OptionError(f"{named(name)} is for channels {place}: {why}; leave it out{instead}", keyword)
