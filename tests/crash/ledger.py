"""What crashing programs say of themselves, kept outside the channel, and what must then be true.

Every program has a ledger of its own. Before a commit it writes down what it is about to do, and
after it that it was acknowledged::

    put NAME 7 3            transaction 7 of producer NAME is about to commit 3 events
    ack NAME 7 12           it was acknowledged; the first event's write-order ID is 12
    take 12:NAME:7:0:3 …    a consumer is about to commit the takes of these events: ID and what the body says
    ack take

`check` compares what the ledgers say with what a channel holds. Every recipe of the laboratory uses
this ledger and this checker. What it looks for are the terms of Jepsen's total queue (lost,
unexpected, duplicated), and of this package's promises: reordered, altered, half done, IDs used
again, losses that are reported and not true.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ["Found", "Ledger", "LedgerFile", "Outcome", "Said", "body", "check", "parse_body"]

Range = tuple[int, int]


class Said(NamedTuple):
    """What the body of an event says of it."""

    producer: str
    transaction: int
    index: int
    count: int


def body(producer: str, transaction: int, index: int, count: int, padding: int) -> bytes:
    """Return a body that says whose it is, and proves that it is whole."""
    text = b"%s %d %d %d " % (producer.encode(), transaction, index, count) + b"x" * padding
    return text + b" %d" % zlib.crc32(text)


def parse_body(body: bytes) -> Said:
    """Return what a body says, or raise ValueError if it is damaged."""
    text, _, crc = body.rpartition(b" ")
    if not crc.isdigit() or zlib.crc32(text) != int(crc):
        raise ValueError(f"a damaged body: {body[:60]!r}")
    producer, transaction, index, count, *_ = text.split(b" ")
    return Said(producer.decode(), int(transaction), int(index), int(count))


class Ledger(Protocol):
    """Where a program writes what it does."""

    def write(self, *words: object) -> None:
        """Append a line."""


class LedgerFile:
    """A ledger in a file; a line is one ``write``, so that SIGKILL leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: object) -> None:
        """Append a line."""
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


@dataclass
class Outcome:
    """What the ledgers of all programs say together.

    Args:
        started: transactions that producers were about to commit: (producer, number) to event count.
        acknowledged: those whose commit returned, with the first event's ID.
        taken: IDs in takes whose commit returned, with how often.
        in_doubt: the takes of which nobody knows, each a list of IDs.
        seen: what the bodies of the events in all of these takes said, by ID.
    """

    started: dict[tuple[str, int], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    taken: Counter[int] = field(default_factory=Counter)
    in_doubt: list[list[int]] = field(default_factory=list)
    seen: dict[int, Said] = field(default_factory=dict)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Outcome:
        """Return what the ledgers in some files say."""
        return cls.of(path.read_text().splitlines() for path in paths)

    @classmethod
    def of(cls, ledgers: Iterable[Iterable[str]]) -> Outcome:
        """Return what the lines of some ledgers say."""
        outcome = cls()
        for lines in ledgers:
            taking: list[int] = []
            for line in lines:
                match line.split():
                    case ["put", name, number, count]:
                        outcome.started[name, int(number)] = int(count)
                    case ["ack", "take"]:
                        outcome.taken.update(taking)
                        taking = []
                    case ["ack", name, number, first_id]:
                        outcome.acknowledged[name, int(number)] = int(first_id)
                    case ["take", *events]:
                        outcome._doubt(taking)
                        taking = [outcome._see(event) for event in events]
                    case _:
                        raise ValueError(f"not a line of a ledger: {line!r}")
            outcome._doubt(taking)
        return outcome

    def _doubt(self, taking: list[int]) -> None:
        if taking:
            self.in_doubt.append(taking)

    def _see(self, event: str) -> int:
        """Note what was written down of an event and return its ID."""
        event_id, producer, transaction, index, count = event.split(":")
        self.seen[int(event_id)] = Said(producer, int(transaction), int(index), int(count))
        return int(event_id)


@dataclass
class Found:
    """What a channel holds.

    Args:
        bodies: the events that can be read, at least those that the consumers' group has yet to take: ID to body.
        remaining: the IDs that the consumers' group has yet to take, in order.
        lost: the IDs of events that the channel says are lost.
        doubtful: IDs that the channel says no event needs to have.
    """

    bodies: dict[int, bytes]
    remaining: list[int]
    lost: Iterable[Range] = ()
    doubtful: Iterable[Range] = ()


def check(outcome: Outcome, found: Found) -> list[str]:
    """Return what is wrong, in words; nothing if every promise was kept.

    Args:
        outcome: what the programs know.
        found: what the channel holds after them.
    """
    wrong: list[str] = []
    events = dict(outcome.seen)
    for event_id, data in found.bodies.items():
        try:
            events[event_id] = said = parse_body(data)
        except ValueError as e:
            wrong.append(f"event {event_id} has {e}")
            continue
        if outcome.seen.get(event_id, said) != said:
            wrong.append(f"event {event_id} is another one than was taken")
    lost, doubtful = _ids(found.lost), _ids(found.doubtful)
    last_id = max(events, default=0)
    if list(found.bodies) != sorted(found.bodies) or not events.keys() | lost | doubtful >= set(range(1, last_id + 1)):
        wrong.append("the write-order IDs have gaps or are out of order")
    wrong += _wrong_puts(outcome, events, lost)
    wrong += _wrong_takes(outcome, events, found.remaining, lost)
    return wrong


def _ids(ranges: Iterable[Range]) -> set[int]:
    return {i for first, last in ranges for i in range(first, last + 1)}


def _wrong_puts(outcome: Outcome, events: dict[int, Said], lost: set[int]) -> list[str]:
    """Return what is wrong with what was put."""
    wrong: list[str] = []
    found: dict[tuple[str, int], list[int]] = {}
    last: dict[str, int] = {}
    for event_id, (producer, transaction, index, count) in sorted(events.items()):
        ids = found.setdefault((producer, transaction), [])
        if index != len(ids):
            wrong.append(f"event {event_id} of {producer} {transaction} is out of order or there twice")
        ids.append(event_id)
        if transaction < last.get(producer, 0):
            wrong.append(f"transaction {transaction} of {producer} comes after a later one")
        last[producer] = transaction
        if outcome.started.get((producer, transaction)) != count:
            wrong.append(f"transaction {transaction} of {producer} was never committed")
    for key, ids in found.items():
        if len(ids) != outcome.started.get(key):
            wrong.append(f"transaction {key} is not whole: {len(ids)} of {outcome.started.get(key)} events")
        if outcome.acknowledged.get(key, ids[0]) != ids[0]:
            wrong.append(f"transaction {key} begins at {ids[0]}; it was acknowledged at {outcome.acknowledged[key]}")
    given: dict[int, tuple[str, int]] = {}
    for key, first_id in outcome.acknowledged.items():
        ids = range(first_id, first_id + outcome.started[key])
        if key not in found and not lost.issuperset(ids):
            wrong.append(f"transaction {key} was acknowledged and is lost")
        for event_id in ids:
            if event_id in given:
                wrong.append(f"the ID {event_id} was given to {given[event_id]} and to {key}")
            given[event_id] = key
    return wrong


def _wrong_takes(outcome: Outcome, events: dict[int, Said], remaining: list[int], lost: set[int]) -> list[str]:
    """Return what is wrong with what was taken."""
    wrong: list[str] = []
    left, taken = set(remaining), outcome.taken
    if remaining != sorted(left):
        wrong.append("what remains is out of order or there twice")
    for event_id, times in taken.items():
        if times > 1:
            wrong.append(f"event {event_id} was taken {times} times")
        if event_id in left:
            wrong.append(f"event {event_id} was taken and came back")
    for event_id in left & lost:
        wrong.append(f"event {event_id} is reported lost and is there")
    doubted = Counter(i for take in outcome.in_doubt for i in take)
    for take in outcome.in_doubt:  # all of it happened, or nothing
        gone = [i for i in take if i not in left and i not in taken and i not in lost and doubted[i] == 1]
        if gone and not left.isdisjoint(take):
            wrong.append(f"a take of {take[0]} to {take[-1]} was committed in part")
    for event_id in set(events) - set(taken) - left - set(doubted) - lost:
        wrong.append(f"event {event_id} is neither taken nor in the channel")
    return wrong
