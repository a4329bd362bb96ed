"""Which channels are looked at: those that were given, and those that fit a pattern by now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from os import PathLike

from spillable_stream.arguments import path_text
from spillable_stream.call_threads import CallThreads
from spillable_stream.channel.channel import Channel
from spillable_stream.channel.channel_set import channels_matching, is_pattern, require_pattern
from spillable_stream.engine.open_engine import uuid_at
from spillable_stream.errors import OptionError
from spillable_stream.objects.location import channel_path, is_location
from spillable_stream.observe.observation import Observation
from spillable_stream.observe.observed_channel import FAILURES, ObservedChannel
from spillable_stream.shown_value import shown

__all__ = ["ChannelDiscovery"]

_SEARCH_SECONDS = 5.0  # between two searches for what fits a pattern


_NONE_FITS = "no channel fits it, so far"


@dataclass(slots=True)
class _Pattern:
    """A pattern, and what fitted it at the last search.

    Args:
        text: the pattern.
        channels: the channels by their paths, in order.
        problem: why there are none; "" if there are.
        search: the search that is under way.
    """

    text: str
    channels: dict[str, ObservedChannel] = field(default_factory=dict)
    problem: str = "what fits it has not been found out yet"
    search: Future[list[str]] | None = None


class ChannelDiscovery:
    """Finds the channels to look at. For one thread at a time.

    Args:
        channels: handles, paths, and patterns of paths, such as ``/data/orders-*``.
        clock: returns the time in seconds since 1970.
        threads: where patterns are searched for: a store may not answer.
        monotonic: tells the time in seconds, for tests.

    Raises:
        OptionError: there are none, one is given twice, or a wildcard is where none can be.
    """

    def __init__(
        self,
        channels: Iterable[Channel | str | PathLike[str]],
        clock: Callable[[], float],
        threads: CallThreads,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._monotonic = monotonic
        self._given: dict[str, ObservedChannel | _Pattern] = {}
        self._due = float("-inf")
        if isinstance(channels, (str, bytes, PathLike)) or not isinstance(channels, Iterable):
            raise OptionError(
                f"channels must be a list or another iterable of handles and paths, not {shown(channels)}"
            )
        for channel in channels:
            text = str(channel.path) if isinstance(channel, Channel) else path_text("a channel", channel)
            is_search = not isinstance(channel, Channel) and _is_search(text)
            path = text if is_search else _normal_path(text)
            if path in self._given:
                raise OptionError(f"{text} is given twice; give each channel once")
            self._given[path] = _Pattern(text) if is_search else ObservedChannel(channel, clock)
        if not self._given:
            raise OptionError("there is nothing to look at: give at least one channel")

    def channels(self) -> list[ObservedChannel]:
        """Return the channels, in the order in which they and their patterns were given; each once."""
        found: dict[str, ObservedChannel] = {}
        for path, given in self._given.items():
            if isinstance(given, ObservedChannel):
                found[path] = given
            else:
                found |= {at: channel for at, channel in given.channels.items() if at not in self._given}
        return list(found.values())

    def problems(self) -> list[Observation]:
        """Return what is wrong with patterns that no channel fits, as a look at each."""
        patterns = [pattern for pattern in self._patterns() if not pattern.channels]
        return [
            Observation(p.text, self._clock(), problem=p.problem, missing=p.problem == _NONE_FITS) for p in patterns
        ]

    @property
    def is_searching(self) -> bool:
        """Whether a search for what fits a pattern is under way."""
        return any(pattern.search is not None and not pattern.search.done() for pattern in self._patterns())

    def _patterns(self) -> list[_Pattern]:
        return [given for given in self._given.values() if isinstance(given, _Pattern)]

    def search(self, timeout_seconds: float) -> list[ObservedChannel]:
        """Find out what fits the patterns, unless that was done a moment ago, and return the channels that are gone.

        Args:
            timeout_seconds: how long to wait; what takes longer counts when it is there.
        """
        patterns = self._patterns()
        if patterns and self._monotonic() >= self._due:
            self._due = self._monotonic() + _SEARCH_SECONDS
            for pattern in patterns:
                if pattern.search is None:
                    pattern.search = self._threads.begin(partial(channels_matching, pattern.text))
        searches = [pattern.search for pattern in patterns if pattern.search is not None]
        wait(searches, timeout_seconds)
        before = self.channels()
        for pattern in patterns:
            if pattern.search is not None and pattern.search.done():
                self._take_over(pattern, pattern.search)
                pattern.search = None
        kept = self.channels()
        return [channel for channel in before if channel not in kept]

    def _take_over(self, pattern: _Pattern, search: Future[list[str]]) -> None:
        try:
            paths = search.result()
        except FAILURES as e:
            pattern.problem = f"{type(e).__name__}: {e}"  # what was found before is looked at as before
            return
        known = pattern.channels
        pattern.channels = {path: known.get(path) or ObservedChannel(path, self._clock) for path in paths}
        pattern.problem = "" if paths else _NONE_FITS


def _is_search(text: str) -> bool:
    """Tell whether a path is a pattern: one that is a channel as it is written is that channel."""
    if not is_pattern(text):
        return False
    require_pattern(text)
    if is_location(text):
        return True
    try:
        uuid_at(channel_path(text))
    except FAILURES:
        return True
    return False


def _normal_path(text: str) -> str:
    """Return what all ways to write a path have in common."""
    try:
        return str(channel_path(text))
    except OptionError:  # no channel can be there, which the look will say
        return text
