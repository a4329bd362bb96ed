"""What crashing processes say of themselves, kept outside the channel, and what must then be true.

Every worker appends lines to a file of its own. A line is one ``write`` to a file opened for
appending, so that SIGKILL leaves whole lines. Before a commit a worker writes down what it is about
to do, and after it that it was acknowledged::

    put NAME 7 3            transaction 7 of producer NAME is about to commit 3 events
    ack NAME 7
    take 12:NAME:7:0:3 …    a consumer is about to commit the takes of these events: ID and what the body says
    ack take
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Ledger", "Outcome", "body", "check", "parse_body"]


Said = tuple[str, int, int, int]


def body(producer: str, transaction: int, index: int, count: int, padding: int) -> bytes:
    """Return a body that says whose it is, and proves that it is whole."""
    text = b"%s %d %d %d " % (producer.encode(), transaction, index, count) + b"x" * padding
    return text + b" %d" % zlib.crc32(text)


def parse_body(body: bytes) -> Said:
    """Return (producer, transaction, index, count) of a body, or raise ValueError if it is damaged."""
    text, crc = body.rsplit(b" ", 1)
    if zlib.crc32(text) != int(crc):
        raise ValueError(f"a damaged body: {body[:60]!r}")
    producer, transaction, index, count, *_ = text.split(b" ")
    return producer.decode(), int(transaction), int(index), int(count)


class Ledger:
    """A worker's own file of lines."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: object) -> None:
        """Append a line."""
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())


@dataclass
class Outcome:
    """What the ledgers of all workers say together.

    Args:
        started: transactions that producers were about to commit: (producer, number) to event count.
        acknowledged: those whose commit returned.
        taken: IDs in takes whose commit returned, with how often.
        in_doubt: IDs in takes of which nobody knows.
        seen: what the bodies of the events in all of these takes said: `parse_body`, by ID.
    """

    started: dict[tuple[str, int], int] = field(default_factory=dict)
    acknowledged: set[tuple[str, int]] = field(default_factory=set)
    taken: Counter[int] = field(default_factory=Counter)
    in_doubt: set[int] = field(default_factory=set)
    seen: dict[int, Said] = field(default_factory=dict)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Outcome:
        """Return what the ledgers say."""
        outcome = cls()
        for path in paths:
            taking: list[int] = []
            for line in path.read_text().splitlines():
                match line.split():
                    case ["put", name, number, count]:
                        outcome.started[name, int(number)] = int(count)
                    case ["ack", "take"]:
                        outcome.taken.update(taking)
                        taking = []
                    case ["ack", name, number]:
                        outcome.acknowledged.add((name, int(number)))
                    case ["take", *events]:
                        outcome.in_doubt.update(taking)
                        taking = [outcome._see(event) for event in events]
            outcome.in_doubt.update(taking)
        return outcome

    def _see(self, event: str) -> int:
        """Note what was written down of an event and return its ID."""
        event_id, producer, transaction, index, count = event.split(":")
        self.seen[int(event_id)] = producer, int(transaction), int(index), int(count)
        return int(event_id)


def check(outcome: Outcome, history: dict[int, bytes], remaining: list[int], doubtful: Iterable[int] = ()) -> list[str]:
    """Return what is wrong, in words; nothing if every promise was kept.

    Args:
        outcome: what the workers know.
        history: the events of the channel, at least those that nobody took: ID to body.
        remaining: the IDs that the consumers' group has yet to take, in order.
        doubtful: IDs that no event needs to have.
    """
    wrong = []
    events = dict(outcome.seen)
    for event_id, data in history.items():
        events[event_id] = said = parse_body(data)
        if outcome.seen.get(event_id, said) != said:
            wrong.append(f"event {event_id} is another one than was taken")
    last_id, doubtful = max(events, default=0), set(doubtful)
    if list(history) != sorted(history) or not events.keys() | doubtful >= set(range(1, last_id + 1)):
        wrong.append("the write-order IDs have gaps or are out of order")
    found: dict[tuple[str, int], list[int]] = {}
    last: dict[str, int] = {}
    for event_id, (producer, transaction, index, count) in sorted(events.items()):
        indexes = found.setdefault((producer, transaction), [])
        if index != len(indexes):
            wrong.append(f"event {event_id} of {producer} {transaction} is out of order or there twice")
        indexes.append(index)
        if transaction < last.get(producer, 0):
            wrong.append(f"transaction {transaction} of {producer} comes after a later one")
        last[producer] = transaction
        if outcome.started.get((producer, transaction)) != count:
            wrong.append(f"transaction {transaction} of {producer} was never committed")
    for key, indexes in found.items():
        if len(indexes) != outcome.started.get(key):
            wrong.append(f"transaction {key} is not whole: {len(indexes)} of {outcome.started.get(key)} events")
    for key in outcome.acknowledged - set(found):
        wrong.append(f"transaction {key} was acknowledged and is lost")

    left = set(remaining)
    if remaining != sorted(left):
        wrong.append("what remains is out of order or there twice")
    for event_id, times in outcome.taken.items():
        if times > 1:
            wrong.append(f"event {event_id} was taken {times} times")
        if event_id in left:
            wrong.append(f"event {event_id} was taken and came back")
    for event_id in set(events) - set(outcome.taken) - left - outcome.in_doubt:
        wrong.append(f"event {event_id} is neither taken nor in the channel")
    return wrong
