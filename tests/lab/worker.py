"""A process that puts, takes or only opens a channel, until it is killed or for a number of transactions."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from spillable_stream import Channel, Event
from tests.lab.contents import CONSUMERS, contents
from tests.lab.ledger import Ledger, LedgerFile, body
from tests.lab.workload import commit_take, put, said

__all__ = ["open_again", "put_something", "take_something", "work"]


def work(
    what: str, path: Path, ledger_path: Path, name: str, seed: int, transactions: int, broken: str, **options: Any
) -> None:
    """Work until killed, or for a number of transactions.

    Args:
        what: "put" or "take".
        path: the channel.
        ledger_path: where to write down what is done.
        name: the producer's.
        seed: chooses what is done; no other worker of the channel has it.
        transactions: how many; 0 is without end.
        broken: what the program does wrong, so that somebody notices.
        options: the channel's.
    """
    rng, ledger = random.Random(seed), LedgerFile(ledger_path)
    channel = Channel(path, **options)
    first = number = seed * 1_000_000
    while not transactions or number < first + transactions:
        number += 1
        if what == "put":
            put_something(channel, ledger, name, rng, number, broken)
        else:
            take_something(channel, ledger, rng, broken)
        if rng.random() < 0.05:
            channel.checkpoint()
        if options["memory_capacity"] and rng.random() < 0.02:
            channel.flush()
        if options["memory_capacity"] and rng.random() < 0.02:
            channel.close()
            channel = Channel(path, **options)
    channel.close()


def open_again(path: Path, **options: Any) -> None:
    """Open a channel, which recovers it where that is needed, look at it and close it."""
    with Channel(path, **options) as channel:
        contents(channel)


def put_something(channel: Channel, ledger: Ledger, name: str, rng: random.Random, number: int, broken: str) -> None:
    """Put one transaction, roll it back now and then."""
    count, padding = rng.randint(1, 20), rng.choice([0, 50, 400, 2000])
    if rng.random() < 0.1:
        tx = channel.put_transaction()
        tx.begin()
        tx.put_many(Event(body(name, number, i, count, padding)) for i in range(count))
        tx.rollback()
    elif broken == "acknowledges too early":
        ledger.write("put", name, number, count)
        ledger.write("ack", name, number, channel.stats().last_id + 1)
        time.sleep(0.01)
        put(channel, Unwritten(), name, number, count, padding)
    elif broken == "commits in two halves" and count > 1:
        ledger.write("put", name, number, count)
        for half in (range(count // 2), range(count // 2, count)):
            with channel.put_transaction() as tx:
                tx.put_many(Event(body(name, number, i, count, padding)) for i in half)
            time.sleep(0.01)
    else:
        put(channel, ledger, name, number, count, padding)


def take_something(channel: Channel, ledger: Ledger, rng: random.Random, broken: str) -> None:
    """Take one transaction, roll it back now and then."""
    tx = channel.take_transaction(CONSUMERS)
    tx.begin()
    events = tx.take_many(rng.randint(1, 30), timeout_seconds=0.05)
    if rng.random() < 0.2 or not events:
        tx.rollback()
        return
    ledger.write("take", *map(said, events))
    commit_take(ledger, tx.rollback if broken == "forgets its takes" else tx.commit)


class Unwritten:
    """A ledger of what was written down before."""

    def write(self, *words: object) -> None:
        """Write nothing."""
