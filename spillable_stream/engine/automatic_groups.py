"""Automatic groups: created by a stream that has no group of its own, and dropped when nobody reads as them any more.

A stream's checkpoint remembers its automatic group. Nothing says that a checkpoint was deleted, so a group goes when it
has had no owner for `autoGroupTtl`. Only time counts in which somebody had the channel open::

              an owner comes                       autoGroupTtl without an owner
    idle 0 ◀───────────────── idle, grows ────────────────────────────────────────▶ dropped
       │                            ▲
       └────────────────────────────┘
             its owner is gone

How long it has been idle is counted in memory and recorded in the log now and then, so that the count outlives the
process. A crash costs it what was not recorded yet, never more than a hundredth of the time or a minute. An owner that
comes records that it came: it may go, as a query that finds nothing does, before anybody looks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest

from spillable_stream.counted import counted
from spillable_stream.engine.appender import Appender
from spillable_stream.engine.follower import Follower
from spillable_stream.engine.group_changes import GroupChanges, drop_of
from spillable_stream.engine.group_owners import GroupHold, GroupOwners, OwnerSeen
from spillable_stream.engine.log_port import Log
from spillable_stream.engine.one_look import one_look
from spillable_stream.errors import GroupOwnedError, OptionError, SpillableError, StorageError
from spillable_stream.format.record import GroupRecord
from spillable_stream.log_records import fields, log_of
from spillable_stream.names import is_name
from spillable_stream.option_names import named
from spillable_stream.state.channel_state import ChannelState
from spillable_stream.state.group import GroupState

__all__ = ["UNPLANNED_SECONDS", "AutomaticGroups"]

_log = log_of(__name__)

UNPLANNED_SECONDS = 600.0
"""How long a group that never planned a batch may be without an owner.

A query that is killed before it planned its first batch may be started again from its checkpoint: its group must not
go at once, and its events with it.
"""

_MOST_LOOKS = 100  # at owners, each time: with thousands of groups it takes longer until each one's turn comes
_MOST_RECORDS = 1_000  # in one append
_LONGEST_MS = 600_000  # more between two looks is the sleep of a machine, in which nobody could read
_OFTEN_ENOUGH_MS = 60_000
_RECORD_MS = 60_000
_LOOK_PARTS = 20  # a group is looked at so many times before it is dropped,
_RECORD_PARTS = 100  # and its idle time is recorded so many times
_WORTH_A_RECORD_MS = 1_000  # at the end
_DAY_MS, _HOUR_MS, _MINUTE_MS = 86_400_000, 3_600_000, 60_000


@dataclass(slots=True)
class _Watch:
    """What the last look at a group found.

    Args:
        looked_at_ms: when that was, by the count of `look`.
        is_owned: whether it had an owner.
        note: what its last owner wrote about itself. Each owner writes another note, so a new note shows that one came
            and went between two looks.
        recorded_ms: how long it was idle by the log.
        idle_ms: how long it has been idle.
        may_be_idle_ms: how long it may be.
    """

    looked_at_ms: int
    is_owned: bool
    note: str
    recorded_ms: int
    idle_ms: int
    may_be_idle_ms: int

    def is_due(self, now_ms: int) -> bool:
        """Tell whether it is time for another look."""
        return now_ms - self.looked_at_ms >= min(_OFTEN_ENOUGH_MS, self.may_be_idle_ms // _LOOK_PARTS)

    def is_over(self) -> bool:
        """Tell whether the group has been without an owner for long enough to be dropped."""
        return not self.is_owned and self.idle_ms >= self.may_be_idle_ms

    def must_be_recorded(self) -> bool:
        """Tell whether the log is too far behind."""
        grown_ms = self.idle_ms - self.recorded_ms
        return grown_ms < 0 or grown_ms >= max(_RECORD_MS, self.may_be_idle_ms // _RECORD_PARTS)


class AutomaticGroups:
    """Counts how long automatic groups have had no owner, and drops them. Not thread-safe.

    Only one process at a time may call `look`.

    Args:
        log: the channel's log.
        follower: its state.
        appender: appends to the log.
        owners: the owners of the groups.
    """

    def __init__(self, log: Log, follower: Follower, appender: Appender, owners: GroupOwners) -> None:
        self._log = log
        self._follower = follower
        self._appender = appender
        self._owners = owners
        self._now_ms = 0
        self._refused_until_ms = 0  # by the disk
        self._watched: dict[str, _Watch] = {}

    def look(self, elapsed_ms: int) -> None:
        """Check which groups have an owner, count on for the others, and drop those whose time is over.

        Where the disk refuses, a warning is logged, and the next look tries again.

        Args:
            elapsed_ms: how much time has passed since the last look, in milliseconds.

        Raises:
            ChannelClosedError: the channel was closed, moved or removed.
            LockTimeoutError: another thread or process has held the commit lock for too long.
        """
        looked_at = self._count(elapsed_ms, most=_MOST_LOOKS)
        if not looked_at or self._now_ms < self._refused_until_ms:
            return
        watched = [(name, self._watched[name]) for name in looked_at if name in self._watched]
        try:
            for name in [name for name, watch in watched if watch.is_over()]:
                self._drop(name)
            if any(watch.must_be_recorded() for _, watch in watched):
                self._record(_RECORD_MS // 2)
        except StorageError as e:
            self._refused_until_ms = self._now_ms + _OFTEN_ENOUGH_MS
            _log.warning(
                "%s: the positions of streams that nobody reads stay for now: %s",
                self._log.path,
                e,
                extra=fields(self._log.path),
            )

    def settle(self, elapsed_ms: int) -> None:
        """Record how long groups have been idle, for the next process; the handle is about to be closed.

        Args:
            elapsed_ms: how much time has passed since the last look, in milliseconds.
        """
        try:
            self._count(elapsed_ms, most=_MOST_RECORDS, at_once=True)
            self._record(_WORTH_A_RECORD_MS)
        except SpillableError as e:
            _log.debug(
                "%s: it was not recorded how long groups have had no owner: %s",
                self._log.path,
                e,
                extra=fields(self._log.path),
            )

    def _count(self, elapsed_ms: int, *, most: int, at_once: bool = False) -> list[str]:
        """Check which groups have an owner, and return their names; first those not looked at for longest.

        Args:
            elapsed_ms: how much time has passed since the last look, in milliseconds.
            most: at how many to look.
            at_once: whether to look at those, too, for which it is not time yet.
        """
        self._now_ms += max(0, min(elapsed_ms, _LONGEST_MS))
        with self._follower.snapshot as state:
            groups = {name: _seen(group, state) for name, group in _automatic(state)}
        self._watched = watched = {name: watch for name, watch in self._watched.items() if name in groups}
        due = [name for name in groups if at_once or name not in watched or watched[name].is_due(self._now_ms)]
        if not due:
            return []
        self._log.require_in_place()
        looked_at = nsmallest(most, due, key=self._looked_at)
        with one_look():  # in a store, each look is some requests
            for name in looked_at:
                with contextlib.suppress(StorageError):  # nobody knows whether it has an owner
                    self._look_at(name, *groups[name])
        return looked_at

    def _looked_at(self, name: str) -> int:
        return self._watched[name].looked_at_ms if name in self._watched else -1

    def _look_at(self, name: str, recorded_ms: int, may_be_idle_ms: int) -> None:
        before = self._watched.get(name)
        # A group of an old log may have a name not allowed now: no stream created it, nobody can own it, it stays.
        owner = self._owners.inquire(name) if is_name(name) else OwnerSeen(is_alive=True, note="")
        idle_ms = recorded_ms
        if owner.is_alive:
            idle_ms = 0
        elif before is not None and before.recorded_ms == recorded_ms:  # nobody has recorded anything else since
            was_idle = not before.is_owned and before.note == owner.note
            idle_ms = before.idle_ms + self._now_ms - before.looked_at_ms if was_idle else 0
        self._watched[name] = _Watch(self._now_ms, owner.is_alive, owner.note, recorded_ms, idle_ms, may_be_idle_ms)

    # ── what the log is told ────────────────────────────────────────────────────────────────

    def _record(self, least_ms: int) -> None:
        """Record how long groups have been idle, for all whose record is so many milliseconds behind."""
        behind = [
            name
            for name, watch in self._watched.items()
            if watch.idle_ms < watch.recorded_ms or watch.idle_ms - watch.recorded_ms >= least_ms
        ]
        for start in range(0, len(behind), _MOST_RECORDS):
            with self._appender.committing():
                groups = dict(_automatic(self._follower.state))
                told = [
                    name
                    for name in behind[start : start + _MOST_RECORDS]
                    if name in groups and groups[name].idle_ms == self._watched[name].recorded_ms
                ]
                if told:
                    idle: list[GroupRecord] = [{"group": name, "idle": self._watched[name].idle_ms} for name in told]
                    self._appender.append_alone(GroupChanges(idle))
            for name in told:
                self._watched[name].recorded_ms = self._watched[name].idle_ms

    def _drop(self, name: str) -> None:
        """Drop a group, unless it has an owner by now, or had one since the last look at it."""
        with (
            contextlib.suppress(GroupOwnedError, OptionError),  # somebody owns it, or it was dropped by hand
            self._owners.without_owner(name, timeout_seconds=0) as hold,
        ):
            if hold.note == self._watched[name].note:
                self._drop_unowned(name, hold)

    def _drop_unowned(self, name: str, hold: GroupHold) -> None:
        watch = self._watched[name]
        with self._appender.committing():
            state = self._follower.state
            group = state.groups.get(name)
            if group is None or _seen(group, state) != (watch.recorded_ms, watch.may_be_idle_ms):
                return
            if not group.is_automatic:
                return
            hold.require()
            untaken = state.lag(name)
            if hold.position is not None:
                hold.position.forget()
            self._appender.append_alone(drop_of(name, state, hold.require))
        self._tell(name, watch, untaken, has_planned=group.has_planned)
        del self._watched[name]
        self._owners.forget_files(name)

    def _tell(self, name: str, watch: _Watch, untaken: int, *, has_planned: bool) -> None:
        path, idle = self._log.path, _span(watch.idle_ms)
        if not has_planned:
            _log.info(
                "the group %r of %s never planned a batch, and was dropped after %s",
                name,
                path,
                idle,
                extra=fields(path, group=name),
            )
            return
        _log.warning(
            "the group %r of %s, created by a stream without a group of its own, has had no owner for %s and was "
            "dropped: %s. If its stream is started again, it is told which events have left. To keep positions longer, "
            "raise %s; to keep one until it is dropped by hand, give its stream the option group, with a new "
            "checkpoint",
            name,
            path,
            idle,
            f"{counted(untaken, 'event', 'do')} not wait for it any more" if untaken else "it had taken every event",
            named("autoGroupTtl"),
            extra=fields(path, group=name),
        )


def _automatic(state: ChannelState) -> Iterable[tuple[str, GroupState]]:
    return ((name, group) for name, group in state.groups.items() if group.is_automatic)


def _seen(group: GroupState, state: ChannelState) -> tuple[int, int]:
    """Return how long a group was idle by the log, and how long it may be, in milliseconds."""
    may_be_idle_ms = int(state.options.auto_group_ttl * 1000)
    if not group.has_planned:
        may_be_idle_ms = min(may_be_idle_ms, int(UNPLANNED_SECONDS * 1000))
    return group.idle_ms, may_be_idle_ms


def _span(ms: int) -> str:
    for length, unit in ((_DAY_MS, "days"), (_HOUR_MS, "hours"), (_MINUTE_MS, "minutes")):
        if ms >= length:
            return f"{ms / length:.1f} {unit}"
    return counted(round(ms / 1000), "second")
