"""The channels of an agent that a storage failure closed: since when, why, and when each is tried again.

::

    open ── a sync fails, and what settles that, too ──▶ failed ── 3 s, 6 s … a minute ──▶ opened again? ──yes──▶ open

A failed handle takes no event and gives none. It is never replaced beneath what uses it, which knows positions, numbers
and staged events of that handle: all of it is stopped, and started anew with another handle, as by a changed file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from spillable_stream.channel.channel import Channel
from spillable_stream.error_text import text_of
from spillable_stream.errors import SpillableError
from spillable_stream.flow.late_channel import is_open, is_optional
from spillable_stream.flow.runner import doubled_seconds
from spillable_stream.flow.surroundings import REAL
from spillable_stream.flow.wired import AgentChannels
from spillable_stream.log_records import fields, log_of

__all__ = ["FailedChannels", "displacement_of", "failure_of"]

_log = log_of("spillable_stream.flow")

_FIRST_RETRY_SECONDS = 3.0
_LONGEST_RETRY_SECONDS = 60.0  # one that works for as long is well again: the next failure begins anew


@dataclass(slots=True)
class _Known:
    """A channel that fails, or did.

    Args:
        handle: the handle whose log failed.
        why: why.
        since: when, in monotonic seconds.
        since_ms: when, in milliseconds since 1970.
        retry_at: when it may be opened again, in monotonic seconds.
        failures: of it and of what opened it again, in a row.
        open_since: since when it is open again, in monotonic seconds; None while it is not.
        reopened: how often it was opened again.
    """

    handle: Channel
    why: str
    since: float
    since_ms: int
    retry_at: float = 0.0
    failures: int = 0
    open_since: float | None = None
    reopened: int = 0


class FailedChannels:
    """Knows which channels of an agent failed. Thread-safe.

    Args:
        may_reopen: whether the agent opens its channels by itself.
        now: the clock, in monotonic seconds; for tests.

    Attributes:
        may_reopen: as given.
    """

    def __init__(self, *, may_reopen: bool, now: Callable[[], float] = time.monotonic) -> None:
        self.may_reopen: bool = may_reopen
        self._now = now
        self._known: dict[str, _Known] = {}
        self._mutex = threading.Lock()

    def look(self, channels: AgentChannels) -> None:
        """Find the channels that failed since the last look, and those that are open again, and say so.

        Args:
            channels: the agent's channels, as they are now.
        """
        with self._mutex:
            for name in self._known.keys() - channels.keys():
                del self._known[name]
            for name, one in channels.items():
                known, why = self._known.get(name), failure_of(one.channel)
                if known is not None and known.open_since is None and not is_open(one.channel):
                    known.handle = one.channel  # a changed file made it optional, or opened it anew: it opens by itself
                elif why and (known is None or known.handle is not one.channel):
                    self._fails(name, one.channel, why, known)
                elif not why and known is not None and known.open_since is None:
                    self._works(name, known)

    def _fails(self, name: str, handle: Channel, why: str, before: _Known | None) -> None:
        now = self._now()
        known = _Known(handle, why, now, REAL.now_ms())
        if before is not None and before.open_since is None:  # it was open for so short that no look found it so
            known.failures, known.reopened = before.failures, before.reopened + 1
            known.since, known.since_ms = before.since, before.since_ms
        elif before is not None and before.open_since is not None:
            known.reopened = before.reopened
            known.failures = before.failures if now - before.open_since < _LONGEST_RETRY_SECONDS else 0
        self._known[name] = known
        wait_seconds = self._wait(known)
        what = f"channel {name}, and what uses it is at a standstill"
        if is_optional(handle):
            what = f"optional channel {name}, whose sources pass it over and count what it misses"
        is_tried = f"both are tried again in {wait_seconds:g} s"
        then = is_tried if self._is_tried(handle) else "check its disk, and start the agent again"
        _log.error(
            "a storage failure has closed the %s; %s: %s",
            what,
            then,
            why,
            extra=fields(component=name, seconds=wait_seconds),
        )

    def _wait(self, known: _Known) -> float:
        wait_seconds = doubled_seconds(_FIRST_RETRY_SECONDS, known.failures, _LONGEST_RETRY_SECONDS)
        known.failures += 1
        known.retry_at = self._now() + wait_seconds
        return wait_seconds

    def _is_tried(self, handle: Channel) -> bool:
        """Tell whether it is opened again: not an optional one, for which no source is stopped."""
        return self.may_reopen and not is_optional(handle)

    def _works(self, name: str, known: _Known) -> None:
        known.open_since = self._now()
        known.reopened += 1
        _log.warning(
            "the channel %s is open again, %.0f s after a storage failure, and what uses it is started anew",
            name,
            known.open_since - known.since,
            extra=fields(component=name, seconds=known.open_since - known.since),
        )

    def due(self, tried: Collection[str] = ()) -> str:
        """Return the name of a channel that may be opened again now; "" if there is none.

        Args:
            tried: the names of those that are being opened.
        """
        with self._mutex:
            now = self._now()
            due = (n for n, k in self._known.items() if n not in tried and k.open_since is None and k.retry_at <= now)
            return next((name for name in due if self._is_tried(self._known[name].handle)), "")

    def refused(self, name: str, error: Exception) -> None:
        """Note that a channel can't be opened again yet, and say so.

        Args:
            name: its name.
            error: why.
        """
        with self._mutex:
            if (known := self._known.get(name)) is None:
                return
            wait_seconds = self._wait(known)
        _log.error(
            "the channel %s can't be opened again, and is tried again in %g s: %s",
            name,
            wait_seconds,
            text_of(error),
            extra=fields(component=name, seconds=wait_seconds),
        )

    def troubles(self) -> dict[str, str]:
        """Return the channels that are closed now: by name, since when and why."""
        with self._mutex:
            return {name: _said(known) for name, known in self._known.items() if known.open_since is None}

    @property
    def has_required(self) -> bool:
        """Whether one of those that are closed now is not optional."""
        with self._mutex:
            return any(k.open_since is None and not is_optional(k.handle) for k in self._known.values())

    def flume_counters(self, name: str) -> dict[str, float]:
        """Return what monitoring says of a channel: whether it is closed, for how long, and how often it came back."""
        with self._mutex:
            known = self._known.get(name)
            is_closed = known is not None and known.open_since is None
            return {
                "Unhealthy": int(is_closed),
                "UnhealthySeconds": round(self._now() - known.since, 3) if known is not None and is_closed else 0,
                "ReopenedCount": 0 if known is None else known.reopened,
            }


def _said(known: _Known) -> str:
    since = datetime.fromtimestamp(known.since_ms / 1000).astimezone().isoformat(timespec="seconds")
    return f"a storage failure has closed it at {since}: {known.why}"


def failure_of(channel: Channel) -> str:
    """Return why a storage failure closed a channel of an agent; "" if none did, also while it was never open."""
    return channel.failure() if is_open(channel) else ""


def displacement_of(channel: Channel) -> str:
    """Return that a directory of an open channel is not in its place, and what to do; "" if all are.

    It asks the disk: a source whose clients hear that their events are refused is in no trouble itself.
    """
    try:
        log = channel.engine().log
    except SpillableError:  # it is being closed, or was never open
        return ""
    try:
        log.require_in_place()
    except SpillableError as e:
        return f"{text_of(e)}: put it back, or start the agent again"
    return ""
