"""The channel beside other products, each in its safest and its default mode: puts, and takes with their commits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.events import Shape, bodies
from benchmarks.floors import WRITTEN, Blocks
from benchmarks.ours import BATCHES, EVENTS
from benchmarks.peers.rows import SPEED, Row, lacks
from benchmarks.rounds import Contestant, Figures, Group, Plan, rates_in_turn
from benchmarks.sustained import disk_in_turn, steady

__all__ = ["DURABLE", "TRANSACTIONS", "group_name", "groups", "label", "title_of"]

TRANSACTIONS = (1, 100, 1_000)
_BODY_BYTES = 100
_ROUNDS = 3  # some of them take seconds for a single transaction
_FULL_ROUNDS = 5
_SECONDS_PART = 4.0
_WARM_UP_PART = 4.0  # as long as the channel takes to use its first files again


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
    seconds, warm_up = plan.seconds * _SECONDS_PART, plan.seconds * _WARM_UP_PART
    for events in TRANSACTIONS:
        shape = Shape(events, _BODY_BYTES)
        contestants: dict[str, Contestant] = {
            WRITTEN: disk_in_turn(shape, seconds, Blocks.WRITTEN),
            BATCHES: steady(shape, BATCHES, seconds, warm_up),
            EVENTS: steady(shape, EVENTS, seconds, warm_up),
        }
        contestants.update({label(row): _peer(row, events, seconds, warm_up) for row in SPEED})
        title = f"Put, and take and commit, beside other products: transactions of {shape}"
        rounds = _FULL_ROUNDS if plan.full else _ROUNDS
        yield Group(group_name(events), title, "events/s", WRITTEN, contestants, rounds)


def _peer(row: Row, events: int, seconds: float, warm_up_seconds: float) -> Contestant:
    """Return who puts and takes in turn for a while, but for one event.

    That one is there so that nobody waits for the end of the queue.
    """

    def run(directory: Path) -> Figures:
        if why := lacks(row):
            raise LookupError(why)
        some = bodies(events, _BODY_BYTES)
        with tempfile.TemporaryDirectory() as elsewhere:
            store = row.open(directory, Path(elsewhere))
            try:
                for _ in range(2):  # the first ones make tables and files
                    store.put(some[:1])
                store.take(1)
                transactions = 0

                def put() -> int:
                    nonlocal transactions
                    store.put(some)
                    transactions += 1
                    return events

                def take() -> int:
                    nonlocal transactions
                    transactions -= 1
                    return len(store.take(events)) if transactions >= 0 else 0

                return rates_in_turn(put, take, seconds, warm_up_seconds)
            finally:
                store.close()

    return run
