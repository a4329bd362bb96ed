"""The read cache that a handle, or a read of Spark's, wants on this host's disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillable_stream.errors import OptionError
from spillable_stream.objects.disk_cache import DiskCache
from spillable_stream.option_names import named
from spillable_stream.options import HANDLE, defaults

__all__ = ["divide_cache_options"]

_DEFAULT_BYTES: int = defaults(HANDLE)["cache_bytes"]


def divide_cache_options(given: Mapping[str, Any], *, in_store: bool) -> tuple[dict[str, Any], DiskCache | None]:
    """Return options without those of the read cache, and the cache; None without one.

    Args:
        given: the options of a handle or of a read, by keyword name.
        in_store: whether the channel, or one of the set, is in an object store.

    Raises:
        OptionError: the channel can't have a cache, or its size is given without its directory.
    """
    rest = dict(given)
    directory, most_bytes = rest.pop("cache_dir", None), rest.pop("cache_bytes", _DEFAULT_BYTES)
    if directory is None and most_bytes == _DEFAULT_BYTES:
        return rest, None
    if not in_store:
        wrong = "cache_bytes" if directory is None else "cache_dir"
        raise OptionError(
            f"{named(wrong)} is for channels in an object store: what is on a disk needs no cache; leave it out", wrong
        )
    if directory is None:
        size, place = named("cacheBytes"), named("cacheDir")
        raise OptionError(
            f"{size} says how large the read cache may get; give {place}, too, or leave it out", "cache_bytes"
        )
    return rest, DiskCache(directory, most_bytes)
