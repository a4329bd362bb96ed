"""Which ``load()`` a source is of: what it writes beside its group, and what it says when another one has the group.

Nothing tells a source which query it works for. But each ``load()`` makes one data source, which Spark sends to the
workers of all queries that use its DataFrame; so a name that it was given there tells whether two workers read for one
``load()``. A source's worker is started by the driver, so its parent tells whether they are of one Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spillable_stream.errors import GroupOwnedError

if TYPE_CHECKING:
    from spillable_stream.channel.consumer import Consumer
    from spillable_stream.spark.source.query_group import QueryGroup

__all__ = ["LoadIdentity", "load_name"]

_NOTE = re.compile(
    r"(?P<process>pid \d+ on (?P<host>.+)) since (?P<since>\S+), "
    r"for a Spark query \(driver pid (?P<spark>\d+), load (?P<load>\S+)\)"
)
_WORKER_END_SECONDS = 3.0  # how long Spark takes at most to end the worker of a query that was stopped
_WRITE = 'Write a load() for each use, each with its own .option("group", …)'

# That of a query which was stopped is known to this one alone: with a new checkpoint it would have everything twice.
_COPY = (
    "If it was just stopped, its worker is still closing: try again in a minute. If it runs, its checkpoint has the "
    "same position as this query's, so one is a copy: use a new checkpointLocation"
)


def load_name() -> str:
    """Return a new name for a ``load()``."""
    return os.urandom(8).hex()


class LoadIdentity:
    """One source's view of its ``load()``.

    Args:
        path: the channel's directory.
        name: what `load_name` returned when Spark made the data source.

    Attributes:
        note: what the source writes beside its group (`Consumer`).
    """

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._made_at = datetime.now(UTC)
        self._spark = os.getppid()
        self.note: str = f"for a Spark query (driver pid {self._spark}, load {name})"

    def own(self, own: Callable[[float], Consumer], group: QueryGroup, owner_timeout_seconds: float) -> Consumer:
        """Make the source the group's owner.

        Args:
            own: makes it the owner, within so many seconds.
            group: the group. One that a query created for itself is known to that query's checkpoint alone.
            owner_timeout_seconds: how long to wait for a former owner to go.

        Raises:
            GroupOwnedError: the group has another owner; the message says what to write instead.
        """
        try:
            return own(min(_WORKER_END_SECONDS, owner_timeout_seconds))
        except GroupOwnedError as e:
            owner = _NOTE.fullmatch(e.owner)
            # An owner that came after this source belongs to no query that was there before: it will not go.
            if (
                owner
                and not group.is_automatic
                and owner["load"] == self._name
                and datetime.fromisoformat(owner["since"]) >= self._made_at
            ):
                raise self._used_twice(e, group) from None
        try:
            return own(owner_timeout_seconds)
        except GroupOwnedError as e:
            raise self._refusal(e, group, owner_timeout_seconds) from None

    def _used_twice(self, error: GroupOwnedError, group: QueryGroup) -> GroupOwnedError:
        return GroupOwnedError(
            f"one load() of {self._path} is used twice, in one query (a self-join) or in two, and the group "
            f"{group.name!r} has one reader at a time. {_WRITE}",
            error.owner,
        )

    def _refusal(self, error: GroupOwnedError, group: QueryGroup, waited_seconds: float) -> GroupOwnedError:
        """Say of an owner that the user never made what it works for: a source's worker."""
        owner = _NOTE.fullmatch(error.owner)
        if owner is None:  # a consumer, or a source of an older version
            return error
        is_here = owner["host"] == os.uname().nodename and int(owner["spark"]) == self._spark
        which = "this load()" if owner["load"] == self._name else "another load()"
        if not is_here:
            which = f"the Spark driver pid {owner['spark']} on {owner['host']}"
        message = (
            f"a query of {which} has the group {group.name!r} of {self._path} since {owner['since']}; waited "
            f"{waited_seconds:g} s. {_COPY if group.is_automatic else _WRITE}; or stop that query"
        )
        if is_here and not group.is_automatic:  # which its worker keeps, but Spark ends that with the query
            message += ". If none runs, its start failed: try again in a minute, when its worker has released the group"
        return GroupOwnedError(message, error.owner)
