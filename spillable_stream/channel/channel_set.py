"""A set of channels that is read as one: several places, or a pattern, which is looked at again for new channels.

::

    /data/orders-*              every channel whose path fits: *, ? and […], as in a shell
    s3://bucket/orders-*        the same in a store, in the last part of the address
    /data/orders,/data/returns  these two

A path that is a channel as it is written is that channel, whatever is in its name.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from spillable_stream.channel.known_uuid import uuid_at
from spillable_stream.errors import CorruptionError, NotAChannelError, OptionError
from spillable_stream.objects.location import Location, is_location

__all__ = ["ChannelSet", "SetMember", "channels_matching", "is_pattern", "may_be_set", "none_fits", "require_pattern"]

_WILDCARD = re.compile(r"[*?\[]")


class SetMember(NamedTuple):
    """A channel of a set.

    Args:
        path: its path or address.
        uuid: its UUID.
    """

    path: str
    uuid: str


def is_pattern(path: str) -> bool:
    """Tell whether a path has a wildcard."""
    return _WILDCARD.search(path) is not None


def may_be_set(path: str) -> bool:
    """Tell whether a path may name several channels: it has a comma or a wildcard."""
    return "," in path or is_pattern(path)


def require_pattern(path: str) -> None:
    """Refuse an address with a wildcard where none can be; a path without one is fine.

    Raises:
        OptionError: it has one there.
    """
    if is_location(path) and is_pattern(path.rpartition("/")[0]):
        raise OptionError(
            f"{path} has a wildcard before its last part; in a store only the last part can have one, as in "
            "s3://bucket/orders-*"
        )


class ChannelSet:
    """The channels at some places.

    Args:
        paths: paths and addresses, each of which may be a pattern.

    Raises:
        OptionError: a wildcard is where none can be.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        for path in paths:
            require_pattern(path)
        self._paths = tuple(paths)
        self._known: dict[str, str] = {}

    def __str__(self) -> str:
        return ",".join(self._paths)

    @property
    def grows(self) -> bool:
        """Whether channels may join it."""
        return any(map(is_pattern, self._paths))

    @property
    def is_remote(self) -> bool:
        """Whether a look costs requests to a store."""
        return any(map(is_location, self._paths))

    def find(
        self,
        create: Callable[[str], None] | None = None,
        *,
        is_new: bool = True,
        read_at: Mapping[str, str] = MappingProxyType({}),
    ) -> list[SetMember]:
        """Return the channels that are there now: those that fit a pattern by name, each once.

        Args:
            create: creates the channel at a path, where one that is named is missing; None: it is not created.
            is_new: whether one that is named and missing is an error; else it may be back later.
            read_at: by UUID, at which paths channels were read before: copies of these elsewhere are passed over.

        Raises:
            NotAChannelError: at a path without a wildcard there is none.
            OptionError: there is a channel and a copy of it.
            StorageError: the storage refused.
        """
        found: dict[str, list[SetMember]] = {}  # by UUID
        for path in self._paths:
            if self._is_pattern(path):
                members = [self._member(fits, None, may_be_missing=True) for fits in _matching(path)]
            else:
                members = [self._member(path, create, may_be_missing=not is_new)]
            for member in filter(None, members):
                others = found.setdefault(member.uuid, [])
                if not any(_is_same_place(other.path, member.path) for other in others):
                    others.append(member)
        return [self._original(members, read_at.get(uuid)) for uuid, members in found.items()]

    def _original(self, members: list[SetMember], read_at: str | None) -> SetMember:
        """Return which of a channel and its copies is read: the only one there is, or that which was read before."""
        if len(members) == 1:
            return members[0]
        for member in members:
            if member.path == read_at:
                return member
        raise OptionError(
            f"{self} has the channel {members[0].uuid} twice, at {members[0].path} and at {members[1].path}: one is a "
            "copy of the other, and their events may differ by now. Move the copy to where the set does not find it"
        )

    def _is_pattern(self, path: str) -> bool:
        """Tell whether a path is a pattern: one that is a channel as it is written is that channel."""
        if not is_pattern(path):
            return False
        if is_location(path) and "?" in path:  # which no address of a channel has
            return True
        return self._member(path, None, may_be_missing=True) is None

    def has(self, path: str, uuid: str) -> bool:
        """Tell whether a channel is at a path now."""
        try:
            return uuid_at(path) == uuid
        except NotAChannelError:
            return False

    def forget(self, path: str) -> None:
        """Look at a path anew: what was there is gone."""
        self._known.pop(path, None)

    def _member(self, path: str, create: Callable[[str], None] | None, *, may_be_missing: bool) -> SetMember | None:
        """Return the channel at a path; None if there is none, or none yet."""
        if path not in self._known:
            try:
                self._known[path] = uuid_at(path)
            except NotAChannelError:
                if create is not None:
                    create(path)
                    return self._member(path, None, may_be_missing=may_be_missing)
                if may_be_missing:
                    return None
                raise
        return SetMember(path, self._known[path])


def _is_same_place(path: str, other: str) -> bool:
    """Tell whether two paths name one channel, and not a copy of it."""
    if path == other or is_location(path) or is_location(other):
        return path == other
    try:
        return os.path.samefile(path, other)
    except FileNotFoundError:  # one is gone meanwhile: the next look finds the other
        return True


def none_fits(channels: ChannelSet) -> NotAChannelError:
    """Return the error for a set without a channel; no option makes one for a pattern."""
    return NotAChannelError(f"no channel fits {channels}. Start what puts to one first")


def channels_matching(pattern: str) -> list[str]:
    """Return the paths of the channels that fit a pattern now, by name, the damaged ones among them.

    Args:
        pattern: a path or an address, with a wildcard.

    Raises:
        StorageError: the storage refused.
    """
    return [path for path in _matching(pattern) if _is_channel(path)]


def _is_channel(path: str) -> bool:
    try:
        uuid_at(path)
    except NotAChannelError:
        return False
    except CorruptionError:
        pass
    return True


def _matching(pattern: str) -> list[str]:
    """Return what fits a pattern, by name."""
    if not is_location(pattern):
        return sorted(filter(os.path.isdir, glob.glob(pattern)))
    from spillable_stream.objects.open_store import open_store  # its imports are for stores alone

    above, _, name = pattern.rpartition("/")
    place = Location.parse(f"{above}/any")
    parent = posixpath.dirname(place.prefix)
    names = open_store(Location(place.scheme, place.bucket, parent)).folders()
    return [
        str(Location(place.scheme, place.bucket, posixpath.join(parent, found)))
        for found in sorted(names)
        if fnmatch.fnmatchcase(found, name)
    ]
