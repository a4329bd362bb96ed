"""A process that puts or takes until it is killed, or for a number of transactions.

python -m tests.crash.worker put|take CHANNEL LEDGER NAME SEED TRANSACTIONS CONFIGURATION BROKEN

0 transactions are without end; CONFIGURATION is one of the workload's `CONFIGURATIONS`; an empty BROKEN is not broken.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

from spillable_stream import Channel, Event
from spillable_stream.log.head import TierEnd
from spillable_stream.log.wal import WriteAheadLog
from tests.crash.contents import CONSUMERS
from tests.crash.ledger import Ledger, LedgerFile, body
from tests.crash.workload import CONFIGURATIONS, OPTIONS, put, said


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
    if broken == "forgets its takes":
        tx.rollback()
    else:
        tx.commit()
    ledger.write("ack", "take")


class Unwritten:
    """A ledger of what was written down before."""

    def write(self, *words: object) -> None:
        """Write nothing."""


def publish_before_writing() -> None:
    """Break the log: readers see what is not there yet."""
    real = WriteAheadLog.append

    def append(self: WriteAheadLog, at: Any, entries: Any, last_id: int, snapshot: Any) -> Any:
        from spillable_stream.format.frame import total_size

        published = self.lock.current()
        size = total_size(e.frame for e in entries)
        self.publish(TierEnd(at.file_id, at.offset + size), last_id)
        time.sleep(0.01)
        self.lock._held = published
        return real(self, at, entries, last_id, snapshot)

    WriteAheadLog.append = append  # type: ignore[method-assign]


def main(
    what: str, path: str, ledger_path: str, name: str, seed: str, transactions: str, configuration: str, broken: str
) -> None:
    """Work until killed, or for so many transactions."""
    rng, ledger = random.Random(seed), LedgerFile(Path(ledger_path))
    if broken == "publishes before it writes":
        publish_before_writing()
    options = {**OPTIONS, **CONFIGURATIONS[configuration]}
    channel = Channel(path, **options)
    number = int(seed) * 1_000_000
    print("ready", flush=True)
    while not int(transactions) or number < int(seed) * 1_000_000 + int(transactions):
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


if __name__ == "__main__":
    main(*sys.argv[1:])
