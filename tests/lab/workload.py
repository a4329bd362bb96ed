"""One program that does everything that a channel does, step by step: what the recipes crash.

python -m tests.lab.workload CHANNEL LEDGER CONFIGURATION [ROUNDS [SEED]]

The same seed does the same steps. The first step creates the channel if it is missing, so that a
program that was crashed can be started again on what it left; give it another seed then, for its
transactions to have other numbers.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from spillable_stream import Channel, Event
from spillable_stream.channel.consumer import Consumer
from spillable_stream.channel.taken_events import events_from_batch
from spillable_stream.engine.local import drained_files
from spillable_stream.errors import ChannelClosedError, CommitOutcomeUnknownError, SpillableError
from spillable_stream.storage.filesystem import FileSystem
from tests.lab.contents import CONSUMERS
from tests.lab.ledger import Ledger, LedgerFile, body, parse_body
from tests.support.damage import kill

__all__ = ["CONFIGURATIONS", "OPTIONS", "Program", "put", "said", "take"]

OPTIONS: dict[str, Any] = {
    "minimum_required_space": 0,
    "max_file_size": 60_000,
    "max_inline_bytes": 8_000,
    "checkpoint_interval": 100,
    "checkpoint_on_close": False,
    "spare_bytes": 40_000,
}
_BRIEF = timedelta(microseconds=1)  # a ttl that has passed before anyone can take
_MEMORY: dict[str, Any] = {"byte_capacity": 1 << 20, "overflow_capacity": 100_000_000}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "disk": {"memory_capacity": 0},
    "tiny memory": {**_MEMORY, "memory_capacity": 50, "overflow_timeout": 0.0},
    "small memory": {**_MEMORY, "memory_capacity": 150, "overflow_timeout": 0.01},
    "memory": {**_MEMORY, "memory_capacity": 500, "overflow_timeout": 0.002},
}


def put(channel: Channel, ledger: Ledger, producer: str, number: int, count: int, padding: int, brief: int = 0) -> None:
    """Put one transaction, whose last ``brief`` events expire at once."""
    events = [Event(body(producer, number, i, count, padding)) for i in range(count)]
    try:
        with channel.put_transaction() as tx:
            tx.put_many(events[: count - brief])
            if brief:
                tx.put_many(events[count - brief :], ttl=_BRIEF)
            ledger.write("put", producer, number, count)
            if brief:
                ledger.write("brief", producer, number, brief)
    except CommitOutcomeUnknownError:
        raise
    except SpillableError:
        ledger.write("not", producer, number)
        raise
    ledger.write("ack", producer, number, tx.committed.first_id)


def take(channel: Channel, ledger: Ledger, limit: int) -> int:
    """Take one transaction and return how many events it had."""
    with channel.take_transaction(CONSUMERS) as tx:
        events = tx.take_many(limit)
        if not events:
            return 0
        ledger.write("take", *map(said, events))
        commit_take(ledger, tx.commit)
    return len(events)


def commit_take(ledger: Ledger, commit: Callable[[], object]) -> None:
    """Commit a take that is written down."""
    try:
        commit()
    except CommitOutcomeUnknownError:
        raise
    except SpillableError:
        ledger.write("not", "take")
        raise
    ledger.write("ack", "take")


def said(event: Event) -> str:
    """Return what a ledger says of an event that is about to be taken."""
    return ":".join(map(str, (event.write_order_id, *parse_body(event.body))))


class Program:
    """Does steps on one channel, one after the other.

    Args:
        path: the channel.
        ledger: where it writes what it does.
        configuration: one of `CONFIGURATIONS`.
        rounds: how many times it does every step.
        seed: chooses sizes and the order of the steps, and names the producer.
        fs: the file system, for recipes that have their own.
        options: more options of the channel.
    """

    def __init__(
        self,
        path: Path,
        ledger: Ledger,
        configuration: str = "disk",
        rounds: int = 2,
        seed: int = 1,
        fs: FileSystem | None = None,
        **options: Any,
    ) -> None:
        self._path = path
        self._ledger = ledger
        self._options = {**OPTIONS, "checkpoint_interval": 1 << 50, **CONFIGURATIONS[configuration], **options}
        self._rounds = rounds
        self._rng = random.Random(seed)
        self._producer = f"producer-{seed}"
        self._number = 0
        self._fs = fs
        self.channel: Channel | None = None

    def run(self) -> None:
        """Do every step and close the channel."""
        for step in self.steps():
            step()

    def run_whatever_fails(self) -> list[SpillableError]:
        """Do every step, also after steps that failed; open the channel again where it must be."""
        errors: list[SpillableError] = []
        for step in self.steps():
            try:
                if self.channel is None and step != self.open:
                    self.open()
                step()
            except SpillableError as e:
                errors.append(e)
                if isinstance(e, CommitOutcomeUnknownError | ChannelClosedError):
                    self.give_up()
        self.give_up()
        return errors

    def give_up(self) -> None:
        """Let go of the channel as the kernel does for a killed process."""
        channel, self.channel = self.channel, None
        if channel is not None:
            kill(channel)

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps, in order; each is done when it is called."""
        yield self.open
        for _ in range(self._rounds):
            steps = [self.put_small] * 3 + [self.take_some] * 2
            steps += [self.put_many, self.put_staged, self.roll_back_a_put, self.roll_back_a_take]
            steps += [self.prepare_a_take, self.abandon_a_take, self.checkpoint, self.roll, self.reopen]
            if self._options["memory_capacity"]:
                steps.append(self.flush)
            self._rng.shuffle(steps)
            yield from steps
        yield from (self.put_many, self.put_many, self.put_many, self.use_again, self.put_small)
        yield from (self.checkpoint, self.roll, self.drain)  # the files of what was taken go
        yield from (self.put_small, self.checkpoint, self.stage_again)
        yield self.close

    def open(self) -> None:
        """Open the channel, which creates it if it is missing."""
        self.channel = Channel(self._path, fs=self._fs, **self._options)
        self._consumers()

    def _open_channel(self) -> Channel:
        assert self.channel is not None, "the first step opens the channel"
        return self.channel

    def _consumers(self) -> Consumer:
        return self._open_channel().consumer(CONSUMERS)

    def _put(self, count: int, padding: int) -> None:
        self._number += 1
        put(self._open_channel(), self._ledger, self._producer, self._number, count, padding)

    def put_small(self) -> None:
        """Put a few small events."""
        self._put(self._rng.randint(1, 3), self._rng.randint(0, 60))

    def put_many(self) -> None:
        """Put a transaction of several sectors."""
        self._put(self._rng.randint(8, 20), 200)

    def put_staged(self) -> None:
        """Put a transaction so large that it goes to a segment of its own."""
        self._put(5, 2000)

    def roll_back_a_put(self) -> None:
        """Put a transaction and think better of it."""
        tx = self._open_channel().put_transaction()
        tx.begin()
        tx.put(Event(b"rolled back"))
        tx.rollback()

    def take_some(self) -> None:
        """Take a few events."""
        take(self._open_channel(), self._ledger, self._rng.randint(1, 10))

    def drain(self) -> None:
        """Take all that there is, and give its space back, little as it is."""
        while take(self._open_channel(), self._ledger, 1000):
            pass
        with mock.patch.object(drained_files, "_WORTH_A_FILE_BYTES", 1):
            self.checkpoint()

    def use_again(self) -> None:
        """Take all that there is, which frees its files, and go on in one of them."""
        self.roll()
        while take(self._open_channel(), self._ledger, 1000):
            pass
        self._put(3, 20)
        self.roll()
        self._put(2, 50)

    def stage_again(self) -> None:
        """Take what was staged, which frees its segment, and stage less in that."""
        self.put_staged()
        while take(self._open_channel(), self._ledger, 1000):
            pass
        self._put(4, 2100)

    def roll_back_a_take(self) -> None:
        """Take events and give them back."""
        tx = self._open_channel().take_transaction(CONSUMERS)
        tx.begin()
        tx.take_many(3)
        tx.rollback()

    def prepare_a_take(self) -> None:
        """Write down a take before it is committed, as Spark's source does with a micro-batch."""
        consumer = self._consumers()
        if ranges := consumer.claim(4):
            events = [event for read in consumer.read(ranges) for event in events_from_batch(read)]
            prepared = consumer.prepare(ranges)
            self.checkpoint()  # which must not forget it
            self._ledger.write("take", *map(said, events))
            commit_take(self._ledger, lambda: consumer.commit(ranges, prepared))

    def abandon_a_take(self) -> None:
        """Write down a take and think better of it."""
        consumer = self._consumers()
        if ranges := consumer.claim(4):
            consumer.release(ranges, consumer.prepare(ranges))

    def checkpoint(self) -> None:
        """Create a checkpoint and remove the files that nothing needs."""
        self._open_channel().checkpoint()

    def roll(self) -> None:
        """Begin a new data file."""
        engine = self._open_channel().engine()
        with engine.committing():
            engine.log.tiers.disk.roll(engine.state.small)
            engine.follower.catch_up()

    def flush(self) -> None:
        """Move what is in memory to disk."""
        self._open_channel().flush()

    def reopen(self) -> None:
        """Close the channel and open it again."""
        self.close()
        self.open()

    def close(self) -> None:
        """Close the channel."""
        channel, self.channel = self._open_channel(), None
        channel.close()


def main(path: str, ledger: str, configuration: str, rounds: str = "2", seed: str = "1") -> None:
    """Do every step."""
    warnings.simplefilter("ignore")  # of what a crash before this left
    Program(Path(path), LedgerFile(Path(ledger)), configuration, int(rounds), int(seed)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
