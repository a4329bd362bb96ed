"""Options that a channel can only have on a disk, or only in an object store."""

from __future__ import annotations

from collections.abc import Mapping

from spillable_stream.errors import OptionError
from spillable_stream.options import CHANNEL, CREATION, defaults

__all__ = ["refuse_options_of_disks", "refuse_options_of_stores"]

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
_OF_STORES = ("commitInterval", "gcDelay")


def refuse_options_of_disks(given: Mapping[str, object]) -> None:
    """Refuse options of channels on a disk, for one in an object store.

    Args:
        given: options by keyword name; one that has its default counts as not given.

    Raises:
        OptionError: names the first, and why it can't be.
    """
    for name, why in _OF_DISKS.items():
        if _is_given(name, given):
            raise OptionError(f"{name} is for channels on a disk: {why}; leave it out, or use a directory's path")


def refuse_options_of_stores(given: Mapping[str, object]) -> None:
    """Refuse options of channels in an object store, for one on a disk.

    Args:
        given: options by keyword name; one that has its default counts as not given.

    Raises:
        OptionError: names the first.
    """
    for name in _OF_STORES:
        if _is_given(name, given):
            raise OptionError(
                f"{name} is for channels in an object store: a commit to a disk is synced at once; leave it out"
            )


def _is_given(name: str, given: Mapping[str, object]) -> bool:
    keyword = "".join("_" + c.lower() if c.isupper() else c for c in name)
    return given.get(keyword) not in (None, {**defaults(CHANNEL), **defaults(CREATION)}[keyword])
