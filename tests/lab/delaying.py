"""A program whose events wait or expire: puts with a delay or a ttl, a clock that goes on, deliveries by commits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from spillable_stream import Channel, CommitOutcomeUnknownError, Event, SpillableError
from spillable_stream.channel.event_columns import batch_from_events
from spillable_stream.engine.deliveries import Deliveries
from tests.lab.contents import contents
from tests.lab.ledger import LATE, Found, Ledger, body
from tests.lab.workload import Program, put

__all__ = ["Delaying", "all_delivered", "put_late"]

_BEGIN_MS = 1_800_000_000_000
_END_MS = 1 << 50
_STEP_MS = 30_000
_LONG_SECONDS = 1_000_000  # a ttl that does not pass


class Delaying(Program):
    """Puts delayed events and brief ones with others, lets time pass, and takes. The arguments are `Program`'s."""

    _now_ms = _BEGIN_MS

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps, in order; each is done when it is called."""
        yield self.open
        for _ in range(self._rounds):
            steps = [self.put_late] * 4 + [self.pass_time] * 3 + [self.deliver] * 2
            steps += [self.put_small, self.put_brief, self.take_some, self.prepare_a_take]
            steps += [self.checkpoint, self.roll, self.reopen]
            if self._options["memory_capacity"]:
                steps.append(self.flush)
            self._rng.shuffle(steps)
            yield from steps
        yield from (self.put_late, self.put_late, self.pass_time, self.put_late, self.put_small, self.deliver)
        yield from (self.checkpoint, self.roll, self.drain, self.put_late, self.close)

    def open(self) -> None:
        """Open the channel, with the program's clock."""
        super().open()
        deliveries_of(self._open_channel()).clock_ms = lambda: self._now_ms

    def put_late(self) -> None:
        """Put some events now, and with them some that wait."""
        self._number += 1
        delay_seconds = self._rng.choice([1, 20, 100, 1000])
        put_late(self._open_channel(), self._ledger, self._producer, self._rng, self._number, delay_seconds)

    def put_brief(self) -> None:
        """Put some events, the last of which expire at once: takes pass over them."""
        self._number += 1
        lasting, brief = self._rng.randint(1, 2), self._rng.randint(1, 3)
        put(self._open_channel(), self._ledger, self._producer, self._number, lasting + brief, 20, brief)

    def pass_time(self) -> None:
        """Let time pass: the next commit delivers what is due."""
        self._now_ms += _STEP_MS

    def deliver(self) -> None:
        """Let time pass, and deliver what is due."""
        self._now_ms += _STEP_MS
        while deliveries_of(self._open_channel()).deliver():
            pass


def put_late(
    channel: Channel, ledger: Ledger, producer: str, rng: random.Random, number: int, delay_seconds: float
) -> None:
    """Put some events now, and with them some that wait: all of them, or none."""
    late = f"{producer}{LATE}{number}"
    now, waiting, padding = rng.randint(1, 2), rng.randint(1, 5), rng.choice([5, 900])
    try:
        with channel.put_transaction() as tx:
            at_once = [Event(body(producer, number, i, now, padding)) for i in range(now)]
            tx.put_many(at_once, ttl=_LONG_SECONDS)
            staged = 4 * padding if padding > 5 else padding  # a large batch of them is written before the commit
            later = [Event(body(late, 1, i, waiting, staged)) for i in range(waiting)]
            tx.put_batch(batch_from_events(later), deliver_after=delay_seconds)
            ledger.write("put", producer, number, now)
            ledger.write("put", late, 1, waiting)
    except CommitOutcomeUnknownError:
        raise
    except SpillableError:
        ledger.write("not", late, 1)
        ledger.write("not", producer, number)
        raise
    ledger.write("ack", producer, number, tx.committed.first_id)
    ledger.write("wait", late, 1)


def deliveries_of(channel: Channel) -> Deliveries:
    """Return what delivers the events of a channel on this host."""
    return channel.engine().deliveries


def all_delivered(channel: Channel) -> Found:
    """Return what an open channel holds when everything is delivered that waits; nothing is taken."""
    deliveries: Any = deliveries_of(channel)
    deliveries.clock_ms = lambda: _END_MS
    while deliveries.deliver():
        pass
    return contents(channel)
