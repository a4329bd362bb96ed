"""Sink processors: which sink of a group takes the next batch, and what happens when one fails.

Rules and numbers are Flume's. The time is one that never goes back, so a clock that is set neither shortens nor
prolongs a penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol

from spillable_stream.error_text import text_of, type_and_text
from spillable_stream.errors import DeliveryError, OptionError, SpillableError
from spillable_stream.flow.checked_arguments import Size, checked
from spillable_stream.flow.late_channel import ChannelAwayError
from spillable_stream.flow.order_selector import OrderSelector, RandomOrder, RoundRobinOrder
from spillable_stream.flow.surroundings import REAL, Surroundings
from spillable_stream.log_records import Seldom, fields, log_of
from spillable_stream.shown_value import shown

__all__ = ["Default", "Failover", "GroupedSink", "LoadBalance", "SinkProcessor", "SinkStatus"]

_log = log_of("spillable_stream.flow")

_UNIT_MS = 1000
_MOST_DOUBLINGS = 32  # more than any penalty has


class SinkStatus(Protocol):
    """What a sink says after a round: its ``value`` is "ready" or "backoff"."""

    @property
    def value(self) -> str:
        """The status."""


class GroupedSink(Protocol):
    """A sink, as a sink processor sees it.

    Attributes:
        channel_name: the name of the channel that it takes from.
    """

    channel_name: str

    @property
    def found_nothing(self) -> bool:
        """Whether the last round found the channel empty."""

    def process(self) -> SinkStatus:
        """Take a batch and write it; raises if that fails."""


class SinkProcessor:
    """Chooses among the sinks of a group. One of your own has a `process`.

    Attributes:
        sinks: the sinks, by name, in order.
        standing_by: those that are not asked while the others work. Events that only they take stay in the channel, and
            a drain does not wait for them.
    """

    sinks: Mapping[str, GroupedSink] = {}
    standing_by: Sequence[GroupedSink] = ()
    _surroundings: Surroundings = REAL

    def configure(self, sinks: Mapping[str, GroupedSink], surroundings: Surroundings = REAL) -> None:
        """Set the sinks, before the first round.

        Args:
            sinks: the sinks, by name, in order.
            surroundings: the clock, and chance.

        Raises:
            OptionError: there are too few or too many for this kind of processor.
        """
        self.sinks = dict(sinks)
        self._surroundings = surroundings

    @property
    def trouble(self) -> str:
        """What keeps some of the events from being taken though a round may work, in words; empty if nothing does."""
        return ""

    def process(self) -> SinkStatus:
        """Let one of the sinks take a batch, and return what it says.

        Raises:
            ChannelAwayError: the channels of all sinks are optional, and away.
            DeliveryError: all sinks failed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no process()")

    def _now_ms(self) -> float:
        return self._surroundings.monotonic() * 1000


class Default(SinkProcessor):
    """Asks its only sink."""

    def configure(self, sinks: Mapping[str, GroupedSink], surroundings: Surroundings = REAL) -> None:
        """Set the sink.

        Raises:
            OptionError: there is not exactly one.
        """
        if len(sinks) != 1:
            raise OptionError(f"a default sink processor has exactly one sink, not {len(sinks)}: {', '.join(sinks)}")
        super().configure(sinks, surroundings)

    def process(self) -> SinkStatus:
        """Ask the sink; raises what it raises."""
        (sink,) = self.sinks.values()
        return sink.process()


class _Penalty(NamedTuple):
    """Until when a sink is left out, its priority, how often it failed in a row, and whether its channel was away."""

    until_ms: float
    priority: int
    in_a_row: int
    is_away: bool


class Failover(SinkProcessor):
    """Asks the sink with the highest priority, and the next one when that fails.

    A sink that fails for the k-th time in a row is left out for 2^k seconds, at most ``maxpenalty``. Then it is tried,
    and if it says READY it is among the live ones again, at once. The lower ones stand by meanwhile, also where they
    take from other channels.

    Args:
        priority: the sinks' priorities; higher first. Sinks without one come after all others, as −1, −2, …
        maxpenalty: the longest penalty, in milliseconds.
    """

    @checked
    def __init__(self, *, priority: Mapping[str, int] | None = None, maxpenalty: Size = 30_000) -> None:
        self.priority: dict[str, int] = dict(priority or {})
        self.maxpenalty = maxpenalty
        self._live: dict[int, str] = {}
        self._failed: dict[str, _Penalty] = {}

    def configure(self, sinks: Mapping[str, GroupedSink], surroundings: Surroundings = REAL) -> None:
        """Set the sinks. Of two with one priority the second is not used; a warning says so."""
        super().configure(sinks, surroundings)
        self._live, self._failed, lowest = {}, {}, 0
        for name in sinks:
            if name in self.priority:
                priority = self.priority[name]
            else:
                lowest -= 1
                priority = lowest
            if priority in self._live:
                _log.warning(
                    "the sink %s has the priority %d of %s, and is not used; give it another one",
                    name,
                    priority,
                    self._live[priority],
                    extra=fields(component=name),
                )
                continue
            self._live[priority] = name
        self._stand_by()

    @property
    def active(self) -> str | None:
        """The sink that is asked first now; None while none is live."""
        return self._live[max(self._live)] if self._live else None

    def _stand_by(self) -> None:
        asked = {self.active, *self._failed}
        self.standing_by: Sequence[GroupedSink] = [sink for name, sink in self.sinks.items() if name not in asked]

    def process(self) -> SinkStatus:
        """Try those whose penalty is over, then the active one, then the next.

        Raises:
            ChannelAwayError: none is left, as the channel of each was away when it was asked last.
            DeliveryError: none is left.
        """
        try:
            return self._round()
        finally:
            self._stand_by()

    def _round(self) -> SinkStatus:
        failures: dict[str, Exception] = {}
        empty: dict[str, SinkStatus] = {}  # channels, and what a sink said that found nothing there
        for name in self._due():
            priority, in_a_row = self._failed[name].priority, self._failed[name].in_a_row
            sink = self.sinks[name]
            try:
                status = _ask(sink)
            except Exception as e:
                failures[name] = e
                self._penalize(priority, name, in_a_row + 1, e)
                continue
            if status.value == "ready":
                self._live[priority] = name
                del self._failed[name]
                _say_it_works(name)
            if status.value == "ready" or not sink.found_nothing:
                return status
            empty[sink.channel_name] = status  # it is not penalized for it; nor are those of other channels
        while self._live:
            priority = max(self._live)
            name = self._live[priority]
            sink = self.sinks[name]
            try:
                return empty[sink.channel_name] if sink.channel_name in empty else _ask(sink)
            except Exception as e:
                failures[name] = e
                del self._live[priority]
                self._penalize(priority, name, 1, e)
        if empty:
            return next(iter(empty.values()))
        is_away = all(penalty.is_away for penalty in self._failed.values())
        raise _none_takes("All sinks failed to process, nothing left to failover to", failures, is_away=is_away)

    def _due(self) -> list[str]:
        """Return the sinks whose penalty is over, the one that has been over longest first."""
        now_ms = self._now_ms()
        return sorted((name for name, p in self._failed.items() if p.until_ms < now_ms), key=self._failed.__getitem__)

    def _penalize(self, priority: int, name: str, in_a_row: int, error: Exception) -> None:
        penalty_ms = min(self.maxpenalty, _UNIT_MS << min(in_a_row, _MOST_DOUBLINGS))
        _log.warning(
            "the sink %s failed, and is left out for %g s: %s",
            name,
            penalty_ms / 1000,
            text_of(error),
            extra=fields(component=name, seconds=penalty_ms / 1000),
        )
        is_away = isinstance(error, ChannelAwayError)
        self._failed[name] = _Penalty(self._now_ms() + penalty_ms, priority, in_a_row, is_away)


class LoadBalance(SinkProcessor):
    """Asks the sinks in turn, or by chance; the next one when one fails.

    A round that finds the channel empty is nobody's turn: otherwise one of two sinks gets all events that come one at
    a time, and the other one each look at the empty channel.

    Args:
        selector: "round_robin", "random", the import path of a class derived from `OrderSelector`, or such an object.
        backoff: whether a sink that failed is left out: for 2 s, and twice as long with each failure in a row. If not,
            the load of a sink that fails goes to the one after it.
        selector_max_time_out: the longest such time, in milliseconds.

    Raises:
        OptionError: there is no such selector.
    """

    @checked
    def __init__(
        self,
        *,
        selector: str | OrderSelector = "round_robin",
        backoff: bool = False,
        selector_max_time_out: Size = 30_000,
    ) -> None:
        self.selector: OrderSelector = _order_selector(selector)
        self.backoff = backoff
        self.selector_max_time_out = selector_max_time_out
        # Sinks that failed and have not worked since: why, or "" where that does not count, or after a round without.
        self._down: dict[str, str] = {}
        self._warnings: dict[str, Seldom] = {}  # of those sinks: without backoff each second round asks one in vain
        self._unused: Sequence[int] = ()  # the order of a round that found nothing

    def configure(self, sinks: Mapping[str, GroupedSink], surroundings: Surroundings = REAL) -> None:
        """Set the sinks.

        Raises:
            OptionError: there are fewer than two.
        """
        if len(sinks) < 2:
            raise OptionError(f"a load_balance sink processor needs two sinks, not {len(sinks)}: {', '.join(sinks)}")
        super().configure(sinks, surroundings)
        self.selector.configure(
            len(sinks),
            backoff=self.backoff,
            max_timeout_ms=self.selector_max_time_out,
            seed=int.from_bytes(surroundings.random_bytes(8)),
        )

    @property
    def trouble(self) -> str:
        """What keeps the events of one of the channels from being taken: each of its sinks failed when it was asked."""
        errors: dict[str, list[str]] = {}
        for name, sink in self.sinks.items():
            errors.setdefault(sink.channel_name, []).append(self._down.get(name, ""))
        failing = {channel: of_sinks[0] for channel, of_sinks in errors.items() if all(of_sinks)}
        return "; ".join(f"each sink of the channel {channel} fails: {error}" for channel, error in failing.items())

    def process(self) -> SinkStatus:
        """Ask one sink after the other until one neither fails nor finds its channel empty.

        Raises:
            ChannelAwayError: all failed when they were asked last, as their channels were away.
            DeliveryError: all that are not left out failed.
        """
        names, failures = list(self.sinks), dict[str, Exception]()
        empty: dict[str, SinkStatus] = {}  # channels, and what a sink said that found nothing there
        order, self._unused = self._unused or self.selector.next_round(self._now_ms()), ()
        for i in order:
            sink = self.sinks[names[i]]
            if sink.channel_name in empty:
                continue
            try:
                status = _ask(sink)
            except Exception as e:
                failures[names[i]] = e
                self._down[names[i]] = "" if isinstance(e, ChannelAwayError) else type_and_text(e)
                self.selector.failed(i, self._now_ms())
                if self._warnings.setdefault(names[i], Seldom()).is_due(why := text_of(e)):
                    _log.warning(
                        "the sink %s failed, and the next one is asked: %s",
                        names[i],
                        why,
                        extra=fields(component=names[i]),
                    )
                continue
            if names[i] in self._down:
                self._down[names[i]] = ""
                if status.value == "ready":
                    del self._down[names[i]]
                    self._warnings.pop(names[i], None)  # not there where a selector of the user's raised before
                    _say_it_works(names[i])
            if not sink.found_nothing:
                return status
            empty[sink.channel_name] = status
        if empty:
            self._unused = () if failures else order
            return next(iter(empty.values()))
        raise _none_takes(
            "All configured sinks have failed", failures, is_away=all(self._down.get(n) == "" for n in names)
        )


def _ask(sink: GroupedSink) -> SinkStatus:
    """Let a sink take a batch; one of the user's that calls ``sys.exit()`` has failed like any other."""
    try:
        return sink.process()
    except SystemExit as e:
        raise SpillableError(f"the sink called sys.exit(): {text_of(e)}") from e


def _none_takes(what: str, failures: Mapping[str, Exception], *, is_away: bool) -> SpillableError:
    """Return the error of a group that no sink can take for; a round may not have asked all of them."""
    if is_away:
        return ChannelAwayError(f"{what}: the channels of all sinks are away")
    return DeliveryError(what, failures)


def _say_it_works(name: str) -> None:
    _log.info("the sink %s works again", name, extra=fields(component=name))


def _order_selector(given: str | OrderSelector) -> OrderSelector:
    if isinstance(given, OrderSelector):
        return given
    kinds: dict[str, Callable[[], OrderSelector]] = {"round_robin": RoundRobinOrder, "random": RandomOrder}
    if (kind := kinds.get(given.lower())) is not None:
        return kind()
    module, _, name = given.replace(":", ".").rpartition(".")
    try:
        found = getattr(import_module(module), name)()
    except (ImportError, AttributeError, ValueError, TypeError) as e:
        raise OptionError(
            f"a load_balance sink processor's selector is round_robin, random or a class, not {shown(given)} ({e})"
        ) from e
    if not isinstance(found, OrderSelector):
        raise OptionError(f"{given} is not an OrderSelector; derive it from that")
    return found
