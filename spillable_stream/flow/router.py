"""What becomes of a batch before any channel has it: interceptors, selector, times, room, dead letters.

::

    batch ── chain ── selector ──┬── part for c1 ── its times ── is there ever room for it?
                │                └── part for c2 ── …
                └── rejected ───────── as dead letters, in the part of their channel
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import pyarrow as pa

from spillable_stream.channel.channel import Channel
from spillable_stream.channel.row_times import RowTimes
from spillable_stream.errors import EventTooLargeError, OptionError, PutTooLargeError
from spillable_stream.flow.dead_letters import Stuck, as_dead_letters
from spillable_stream.flow.event_batch import concat, select_each
from spillable_stream.flow.event_times import EventTimes
from spillable_stream.flow.interceptors.base import InterceptorChain, Rejected
from spillable_stream.flow.part_room import PartRoom
from spillable_stream.flow.selectors import Selector
from spillable_stream.flow.surroundings import Surroundings

__all__ = ["Parts", "Router"]


class Parts(NamedTuple):
    """What a batch becomes.

    Args:
        required: the parts that channels must get, by the channel's name; none is empty.
        optional: those that channels get if they can.
        times: for how long the events of a part count, and when they are due, by the channel's name.
        passed: how many events passed the interceptors.
        rejected: how many became dead letters.
    """

    required: dict[str, pa.RecordBatch]
    optional: dict[str, pa.RecordBatch]
    times: dict[str, RowTimes]
    passed: int
    rejected: int


class Router:
    """Divides batches among channels.

    Args:
        name: what names the batches' source.
        channels: the channels, by name.
        chain: the interceptors.
        selector: the selector.
        times: for how long events count in a channel, and when they are due there, by the channel's name.
        dead_letter: the name of the channel for events that can't pass; None if their batch fails.
        surroundings: the clock, and chance.

    Attributes:
        stuck: the event that can't pass, where there is no dead-letter channel.
    """

    def __init__(
        self,
        name: str,
        channels: Mapping[str, Channel],
        chain: InterceptorChain,
        selector: Selector,
        times: Mapping[str, EventTimes],
        dead_letter: str | None,
        surroundings: Surroundings,
    ) -> None:
        self.stuck: Stuck = Stuck(name, surroundings.now_ms)
        self._name = name
        self._chain = chain
        self._selector = selector
        self._times = times
        self._dead_letter = dead_letter
        self._surroundings = surroundings
        self._room = PartRoom(channels)
        # A batch without a number is counted from 0 at each start: the run's own word keeps its events apart.
        self._run = surroundings.random_bytes(8).hex()

    def divide(self, batch: pa.RecordBatch, turn: int, *, comes_again: bool, must_fit: bool = True) -> Parts:
        """Return the parts of a batch, each of which its channel could hold if it were empty.

        Args:
            batch: the batch, of events.
            turn: its number.
            comes_again: whether its source sends it again if this raises.
            must_fit: whether to refuse it where a channel can't hold its part; not where another one has its own.

        Raises:
            TransactionCapacityError: a part has more events than a transaction of its channel.
            PutTooLargeError: a channel could not hold its part.
            EventTooLargeError: an event is larger than a frame of the log can be.
            OptionError: an event has wrong times, and there is no dead-letter channel.
            Exception: what an interceptor raises, where there is no dead-letter channel.
        """
        batch_id = f"{self._name}:{turn}" if comes_again else f"{self._name}:{self._run}-{turn}"
        passed, rejected = self._screen(batch, batch_id)
        required: dict[str, pa.RecordBatch] = {}
        optional: dict[str, pa.RecordBatch] = {}
        if passed.num_rows:
            routes = self._selector.select(passed, turn).one_part_each()
            required = select_each(passed, routes.required)
            optional = select_each(passed, routes.optional)
        if self._dead_letter is not None:
            rejected += self._room.reject_too_large(required, except_for=self._dead_letter)
        times = self._take_times(required, optional, rejected, batch_id)
        if rejected and (name := self._dead_letter) is not None:
            dead = self._as_dead_letters(rejected, batch_id)
            part = required.get(name, optional.pop(name, None))
            if part is not None and name in times:
                times[name] = times[name].and_untimed(part.num_rows, dead.num_rows)
            required[name] = dead if part is None else concat([part, dead])
        if must_fit:
            self._require_room(required, batch_id, comes_again)
            if comes_again:  # in smaller batches; without a number, an optional part is put in pieces
                self._room.require_of_several(optional)
        return Parts(required, optional, times, passed.num_rows, len(rejected))

    def _screen(self, batch: pa.RecordBatch, batch_id: str) -> tuple[pa.RecordBatch, list[Rejected]]:
        """Return the events that pass the interceptors, and those that can't."""
        if self._dead_letter is not None:
            return self._chain.screen(batch)
        try:
            passed = self._chain.intercept(batch)
        except Exception:
            rejected = self._chain.screen(batch).rejected
            if rejected:
                self.stuck.at(_event_id(batch_id, 0), rejected[0].error)
            raise
        self.stuck.passed()
        return passed, []

    def _take_times(
        self,
        required: dict[str, pa.RecordBatch],
        optional: dict[str, pa.RecordBatch],
        rejected: list[Rejected],
        batch_id: str,
    ) -> dict[str, RowTimes]:
        """Return the times of the parts, and move events with wrong ones to ``rejected``.

        Raises:
            OptionError: an event has a wrong one, and there is no dead-letter channel.
        """
        found: dict[str, RowTimes] = {}
        for parts, (name, times) in product((optional, required), self._times.items()):
            if name not in parts:
                continue
            parts[name], found[name], wrong = times.divide(parts[name], self._surroundings.now_ms())
            if wrong and self._dead_letter is None:
                self.stuck.at(_event_id(batch_id, 0), wrong[0].error)
                raise OptionError(wrong[0].error.removeprefix("OptionError: "))
            rejected += wrong
            if not parts[name].num_rows:
                del parts[name], found[name]
        return found

    def _require_room(self, parts: Mapping[str, pa.RecordBatch], batch_id: str, comes_again: bool) -> None:
        """Refuse a batch that a channel can never hold, before another channel has its part."""
        try:
            self._room.require(parts)
        except (EventTooLargeError, PutTooLargeError) as e:
            if comes_again and max(part.num_rows for part in parts.values()) == 1:
                self.stuck.at(_event_id(batch_id, 0), str(e))
            raise

    def _as_dead_letters(self, rejected: list[Rejected], batch_id: str) -> pa.RecordBatch:
        now_ms = self._surroundings.now_ms()
        return concat(
            [
                as_dead_letters(r.event, f"{self._name}/{r.interceptor}", [r.error], [_event_id(batch_id, i)], now_ms)
                for i, r in enumerate(rejected)
            ]
        )


def _event_id(batch_id: str, index: int) -> str:
    """Return what names an event that can't pass: it has no write-order ID yet."""
    return f"{batch_id}:{index}"
