"""The channel beside other products, each in its safest and its default mode: puts, and takes with their commits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.events import Shape, bodies
from benchmarks.floors import WRITTEN, Blocks
from benchmarks.ours import BATCHES, EVENTS
from benchmarks.peers.rows import SPEED, Row, lacks
from benchmarks.peers.store import Store
from benchmarks.rounds import BURST, Contestant, Figures, Group, Plan, rates_in_turn
from benchmarks.sustained import disk_in_turn, once, steady

__all__ = ["DURABLE", "TRANSACTIONS", "group_name", "groups", "label", "title_of"]

TRANSACTIONS = (1, 100, 1_000)
_BODY_BYTES = 100
_SINGLE_CALLS = 100  # of a product that puts, or takes, one event a call: after so many the clock is looked at
_ROUNDS = 3
_FULL_ROUNDS = 5
_SECONDS_PART = 2.0
_WARM_UP_PART = 0.25


def label(row: Row) -> str:
    """Return a row's name as a contestant."""
    return f"{row.product}, {row.mode}"


DURABLE = tuple(label(row) for row in SPEED if row.safest)  # the safest that the product has: not all survive a host


def group_name(events: int) -> str:
    """Return the name of the group for transactions of so many events."""
    return f"peers {events:,}"


def title_of(contestant: str) -> str:
    """Return a contestant's short name, for pictures."""
    return contestant.split(",")[0].replace("`", "")


def groups(plan: Plan, _: Path) -> Iterator[Group]:
    """Yield a group for every size of transactions."""
    seconds = plan.seconds * _SECONDS_PART
    for events in TRANSACTIONS:
        shape = Shape(events, _BODY_BYTES)
        contestants: dict[str, Contestant] = {
            WRITTEN: once(disk_in_turn(shape, seconds, Blocks.WRITTEN)),
            BATCHES: once(steady(shape, BATCHES, seconds)),
            EVENTS: once(steady(shape, EVENTS, seconds)),
        }
        contestants.update({label(row): _peer(row, events, seconds) for row in SPEED})
        title = f"Put, and take and commit, beside other products: transactions of {shape}"
        rounds = _FULL_ROUNDS if plan.full else _ROUNDS
        yield Group(group_name(events), title, "events/s", WRITTEN, contestants, rounds)


def _peer(row: Row, events: int, seconds: float) -> Contestant:
    """Return who puts and takes in turn for a while, but for one event.

    That one is there so that nobody waits for the end of the queue.
    """

    def run(directory: Path) -> Figures:
        if why := lacks(row):
            raise LookupError(why)
        with tempfile.TemporaryDirectory() as elsewhere:
            store = row.open(directory, Path(elsewhere))
            try:
                for _ in range(2):  # the first ones make tables and files
                    store.put(bodies(events, _BODY_BYTES)[:1])
                store.take(1)
                return _rates(store, events, seconds)
            finally:
                store.close()

    return run


def _rates(store: Store, events: int, seconds: float) -> Figures:
    """Return a product's rates; between single calls it may be stopped, within a transaction not."""
    put_events = min(events, _SINGLE_CALLS) if store.puts_singly else events
    take_events = min(events, _SINGLE_CALLS) if store.takes_singly else events
    some = bodies(events, _BODY_BYTES)[:put_events]

    def put() -> int:
        store.put(some)
        return put_events

    def take() -> int:
        return len(store.take(take_events))

    return rates_in_turn(put, take, seconds, seconds * _WARM_UP_PART, BURST * events // put_events)
