"""What crashing programs say of themselves, kept outside the channel, and what must then be true.

Every program has a ledger of its own. Before a commit it writes down what it is about to do, and
after it that it was acknowledged::

    put NAME 7 3            transaction 7 of producer NAME is about to commit 3 events
    brief NAME 7 2          the last 2 of them expire at once
    ack NAME 7 12           it was acknowledged; the first event's write-order ID is 12
    not NAME 7              its commit raised an error that says that nothing was committed
    take 12:NAME:7:0:3 …    a consumer is about to commit the takes of these events: ID and what the body says
    ack take                it was acknowledged
    not take                its commit raised an error

`check` compares what the ledgers say with what a channel holds. Every recipe of the laboratory uses
this ledger and this checker. What it looks for are the terms of Jepsen's total queue (lost,
unexpected, duplicated), and of this package's promises: reordered, altered, half done, IDs used
again, losses that are reported and not true.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = [
    "LATE",
    "Found",
    "Ledger",
    "LedgerFile",
    "LedgerLines",
    "Outcome",
    "Range",
    "Said",
    "all_events",
    "body",
    "check",
    "check_puts",
    "in_doubt_since",
    "known_ids",
    "parse_body",
    "whole_lines",
]

Range = tuple[int, int]


LATE = ".late."
"""What comes between the producer and the number of a transaction in the name under which its events wait."""


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


def parse_body(body: bytes | None) -> Said:
    """Return what a body says, or raise ValueError if it is damaged."""
    body = body or b""  # damage can make it null
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
    """A ledger in a file; a line is one ``write``, so that SIGKILL cuts the last one at most."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: object) -> None:
        """Append a line."""
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a ledger; none is what a kill cut off, as the kernel does between two pages."""
    return path.read_text().split("\n")[:-1]


class LedgerLines:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, *words: object) -> None:
        """Append a line."""
        self.lines.append(" ".join(map(str, words)))


@dataclass
class Outcome:
    """What the ledgers of all programs say together.

    Args:
        started: transactions that producers were about to commit: (producer, number) to event count.
        acknowledged: those whose commit returned, with the first event's ID.
        waiting: those whose commit returned, and whose events wait until they are due: they have no IDs.
        refused: those whose commit raised.
        taken: IDs in takes whose commit returned, with how often.
        in_doubt: the takes of which nobody knows, each a list of IDs.
        seen: what the bodies of the events in all of these takes said, by ID.
        brief: how many events of a transaction that was started expire at once, the last ones.
    """

    started: dict[tuple[str, int], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting: set[tuple[str, int]] = field(default_factory=set)
    refused: set[tuple[str, int]] = field(default_factory=set)
    taken: Counter[int] = field(default_factory=Counter)
    in_doubt: list[list[int]] = field(default_factory=list)
    seen: dict[int, Said] = field(default_factory=dict)
    brief: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Outcome:
        """Return what the ledgers in some files say."""
        return cls.of(map(whole_lines, paths))

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
                    case ["brief", name, number, count]:
                        outcome.brief[name, int(number)] = int(count)
                    case ["ack", "take"]:
                        outcome.taken.update(taking)
                        taking = []
                    case ["wait", name, number]:
                        outcome.waiting.add((name, int(number)))
                    case ["not", "take"]:
                        taking = []
                    case ["not", name, number]:
                        outcome.refused.add((name, int(number)))
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


def in_doubt_since(before: list[str], after: list[str], last_id: int) -> list[str]:
    """Return what a ledger says of a moment while its program ran on: what was answered later is in doubt then.

    Args:
        before: the ledger's lines, read before the moment.
        after: the same ledger's lines, read after it.
        last_id: the last ID there was at the moment: who took a later one took it later.
    """
    later = [line for line in after[len(before) :] if line.startswith(("put ", "take "))]
    return before + [
        line
        for line in later
        if line.startswith("put ") or all(int(event.split(":")[0]) <= last_id for event in line.split()[1:])
    ]


@dataclass
class Found:
    """What a channel holds.

    Args:
        bodies: the events that can be read, at least those that the consumers' group has yet to take: ID to body.
        remaining: the IDs that the consumers' group has yet to take, in order.
        lost: the IDs of events that the channel says are lost.
        doubtful: IDs that the channel says no event needs to have; those that have one are lost.
        expired: how many events have expired that the consumers' group has yet to take.
        passed: how many expired events its takes have passed over, as they say.
        is_counted: whether every take's own record is there; one of a take from memory may be lost with that, and the
            hint that it leaves does not say what was passed over.
    """

    bodies: dict[int, bytes]
    remaining: list[int]
    lost: Iterable[Range] = ()
    doubtful: Iterable[Range] = ()
    expired: int = 0
    passed: int = 0
    is_counted: bool = True


def check(outcome: Outcome, found: Found) -> list[str]:
    """Return what is wrong, in words; nothing if every promise was kept.

    Args:
        outcome: what the programs know.
        found: what the channel holds after them.
    """
    events, wrong = all_events(outcome, found.bodies)
    known = known_ids(outcome, events) | set(found.remaining)
    lost, doubtful = _within(known, found.lost), _within(known, found.doubtful)
    expired = _brief_ids(outcome, events) - events.keys()
    if list(found.bodies) != sorted(found.bodies) or _has_gaps({*events, *expired}, [*found.lost, *found.doubtful]):
        wrong.append("the write-order IDs have gaps or are out of order")
    wrong += check_puts(outcome, events, lost | doubtful, expired)
    lacking = len(expired) - found.expired - found.passed
    if not lost | doubtful and (lacking < 0 or (lacking and found.is_counted)):
        wrong.append(f"{len(expired)} events expired; {found.passed} were passed over, and {found.expired} are there")
    wrong += _wrong_takes(outcome, events, found.remaining, lost, doubtful)
    return wrong


def all_events(outcome: Outcome, bodies: Mapping[int, bytes]) -> tuple[dict[int, Said], list[str]]:
    """Return all events that were seen or are there, by ID, and what is wrong with those that are there.

    Args:
        outcome: what the programs know.
        bodies: the events that are there.
    """
    wrong: list[str] = []
    events = dict(outcome.seen)
    for event_id, data in bodies.items():
        try:
            events[event_id] = said = parse_body(data)
        except ValueError as e:
            wrong.append(f"event {event_id} has {e}")
            continue
        if outcome.seen.get(event_id, said) != said:
            wrong.append(f"event {event_id} is another one than was taken")
    return events, wrong


def known_ids(outcome: Outcome, events: dict[int, Said]) -> set[int]:
    """Return every ID that an event has, or one that was put with it: millions more may be in doubt."""
    first_ids = [(first_id, outcome.started[key]) for key, first_id in outcome.acknowledged.items()]
    first_ids += {(event_id - said.index, said.count) for event_id, said in events.items()}
    return {i for first_id, count in first_ids for i in range(first_id, first_id + count)}


def _brief_ids(outcome: Outcome, events: dict[int, Said]) -> set[int]:
    """Return the IDs of the events that expired at once: another one of their transaction says which these are."""
    first_ids = {said[:2]: event_id - said.index for event_id, said in events.items()} | outcome.acknowledged
    ends = {key: first_ids[key] + outcome.started[key] for key in outcome.brief if key in first_ids}
    return {i for key, end in ends.items() for i in range(end - outcome.brief[key], end)}


def _within(ids: set[int], ranges: Iterable[Range]) -> set[int]:
    """Return the IDs that are in some ranges."""
    return {i for first, last in ranges for i in ids if first <= i <= last}


def _has_gaps(events: Iterable[int], reported: list[Range]) -> bool:
    """Tell whether an ID before the last event's is neither an event's nor reported."""
    next_id = 1
    for first, last in sorted([*((i, i) for i in events), *reported]):
        if first > next_id and any(i > next_id for i in events):
            return True
        next_id = max(next_id, last + 1)
    return False


def check_puts(
    outcome: Outcome, events: dict[int, Said], reported: set[int], expired: Set[int] = frozenset()
) -> list[str]:
    """Return what is wrong with what was put.

    Args:
        outcome: what the programs know.
        events: what is known of the events that can be read, and of those that were taken.
        reported: the IDs that need not be there: they are reported lost or in doubt.
        expired: IDs that need not be there either: nobody is given their events.
    """
    wrong: list[str] = []
    found: dict[tuple[str, int], int] = {}
    last: dict[str, int] = {}
    for event_id, (producer, transaction, index, count) in sorted(events.items()):
        key = producer, transaction
        if found.setdefault(key, event_id - index) != event_id - index:
            wrong.append(f"event {event_id} of {producer} {transaction} is out of order or there twice")
        if transaction < last.get(producer, 0):
            wrong.append(f"transaction {transaction} of {producer} comes after a later one")
        last[producer] = transaction
        if outcome.started.get(key) != count or key in outcome.refused:
            wrong.append(f"transaction {transaction} of {producer} was never committed")
    for key, first_id in found.items():
        whole = range(first_id, first_id + outcome.started.get(key, 0))
        missing = {i for i in whole if i not in events or events[i][:2] != key} - reported - expired
        if missing:
            wrong.append(f"transaction {key} is not whole: {sorted(missing)} are missing")
        if outcome.acknowledged.get(key, first_id) != first_id:
            wrong.append(f"transaction {key} begins at {first_id}; it was acknowledged at {outcome.acknowledged[key]}")
    wrong += [f"transaction {key} was acknowledged and is lost" for key in outcome.waiting - found.keys()]
    for producer, number in [key for key in outcome.started if LATE in key[0]]:
        name, _, of = producer.partition(LATE)
        if ((name, int(of)) in found) != ((producer, number) in found) and not reported:
            wrong.append(f"of the transaction {of} of {name} only a part is there")
    given: dict[int, tuple[str, int]] = {}
    for key, first_id in outcome.acknowledged.items():
        ids = range(first_id, first_id + outcome.started[key])
        if key not in found and not reported.issuperset(ids):
            wrong.append(f"transaction {key} was acknowledged and is lost")
        for event_id in ids:
            if event_id in given:
                wrong.append(f"the ID {event_id} was given to {given[event_id]} and to {key}")
            given[event_id] = key
    return wrong


def _wrong_takes(
    outcome: Outcome, events: dict[int, Said], remaining: list[int], lost: set[int], doubtful: set[int]
) -> list[str]:
    """Return what is wrong with what was taken."""
    wrong: list[str] = []
    left, taken, reported = set(remaining), outcome.taken, lost | doubtful
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
        gone = [i for i in take if i not in left and i not in taken and i not in reported and doubted[i] == 1]
        if gone and not left.isdisjoint(take):
            wrong.append(f"a take of {take[0]} to {take[-1]} was committed in part")
    for event_id in set(events) - set(taken) - left - set(doubted) - reported:
        wrong.append(f"event {event_id} is neither taken nor in the channel")
    return wrong
